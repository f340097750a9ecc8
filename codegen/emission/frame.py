"""One LLVM function of a kernel being written: its context, dimensions and failure flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from graphc import dims
from graphc.codegen.emission import interleaving, shifted
from graphc.codegen.emission.called import Called
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.literals import memory_of, register_type
from graphc.codegen.emission.parts import LANES, Span
from graphc.codegen.emission.positions import Positions
from graphc.codegen.emission.scope import Scope
from graphc.codegen.job import Job
from graphc.codegen.machine.target import VIRTUAL_BITS, X86
from graphc.codegen.nests.axes import polynomials
from graphc.codegen.nests.loops import Expr, Nest, Pred
from graphc.codegen.nests.schedule import Schedule
from graphc.dims import Size
from graphc.ir import Node

if TYPE_CHECKING:
    from graphc.codegen.emission.bands import Bands
    from graphc.codegen.emission.places import Places
    from graphc.codegen.emission.streaming import Streaming
    from graphc.codegen.emission.turned import Block, Rows

ATTRS = 'nounwind "no-trapping-math"="true" "prefer-vector-width"="512"'

# Cost of the vectors side by side from which registers are likely to be spilled. Spilled to where
# the stack happens to be, they cross lines of the cache: exp and log chains take a third longer,
# or not, by who calls.
SPILLING = 64


@dataclass(frozen=True)
class Slots:
    """Where things stand in a kernel's ctx.

    numbers: parameters of code that several kernels share, see `merge_functions`.
    """

    params: int
    outputs: int
    dims: tuple[str, ...]
    numbers: tuple[int, ...] = ()

    @property
    def error(self) -> int:
        return self.params + self.outputs + len(self.dims)

    @property
    def items(self) -> int:
        return self.error + 1

    @property
    def chunk(self) -> int:
        return self.error + 2

    @property
    def partials(self) -> int:
        return self.error + 3

    @property
    def numbers_at(self) -> int:
        return self.error + 4

    @property
    def count(self) -> int:
        return self.numbers_at + len(self.numbers)


def slots_of(nest: Nest, extra: Sequence[Size] = ()) -> Slots:
    """The ctx layout of a nest: its operands, results, and the symbolic dimensions it needs."""
    seen: dict[str, None] = {}
    for p in [*nest.sizes.values(), *polynomials(nest), *extra]:
        for n in dims.names(p):
            if not n.startswith("%"):
                seen.setdefault(n)
    return Slots(len(nest.params), len(nest.outputs), tuple(seen))


def _load(e: Emitter, ty: str, k: int) -> str:
    return e(f"load {ty}, ptr {e(f'getelementptr inbounds i64, ptr %ctx, i64 {k}')}, align 8")


class Loaded(Sequence[str]):
    """Registers of `count` neighbouring slots, each loaded at the function's entry when it is
    first asked for."""

    def __init__(self, e: Emitter, ty: str, first: int, count: int):
        self.e, self.ty, self.numbers = e, ty, range(first, first + count)
        self.found: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, k: int) -> str: ...
    @overload
    def __getitem__(self, k: slice) -> list[str]: ...
    def __getitem__(self, k: int | slice) -> str | list[str]:
        if isinstance(k, slice):
            return [self[i] for i in range(len(self))[k]]
        at = self.numbers[k]
        if at not in self.found:
            self.found[at] = _load(self.e, self.ty, at)
        return self.found[at]


class Frame:
    """One LLVM function being written for a nest: pointers, dimensions, failure flags."""

    def __init__(self, job: Job, schedule: Schedule, slots: Slots):
        self.schedule, self.nest, self.slots = schedule, schedule.nest, slots
        self.module, self.target = job.module, job.target
        self.codes, self.fastmath = job.codes, job.fastmath
        self.sites = set(self.nest.sites)
        self.e = Emitter(job.module)
        self.e.label("entry")
        self.allocas: list[str] = []
        self.e.lines.append(self.allocas)
        self.addresses: dict[tuple[Scope, tuple[str, int, str]], str] = {}
        self.flags: dict[Node, str] = {}
        self.turned: Block | None = None  # of which elements are being written
        self.turned_rows: Rows | None = None  # that are swept, some of which are turned at a time
        self.places: Places | None = None  # of sums over all rows
        self.item = "0"  # the number of the grid item that is being written
        self.bands: Bands | None = None  # where sums stand between bands of rows
        self.streaming: Streaming | None = None  # where stores may go past the caches
        self.decided: dict[Pred, bool] = {}  # conditions, in what is being written
        self.in_longest = False  # whether that is the longest stretch of rows (`between`)
        self.copies_parts = not self.target.masked and schedule.width >= LANES
        self.spans: dict[str, Span] = {}  # of masks of lanes side by side, if these are copied
        self.rows = interleaving.rows(schedule)  # loads that read whole rows together
        self.shifted = shifted.loads(schedule, self.target)
        self.called = Called(schedule, self.target)
        self.held = 0  # the vectors of each row that is being written, if these are few
        self.early: list[Expr] = []  # operands that are read ahead of stores
        self.first = "0"  # where the vector axis begins in a chunk's first item
        self.sweeping = 0  # the sweep over a row that is being written
        self.kept_at: dict[Expr, str] = {}  # arrays of what is kept, from the row's first element
        self.entry = Emitter(job.module, self.e.numbers)  # what is asked of ctx, loaded once
        self.e.lines.append(self.entry.lines)
        self.params = Loaded(self.entry, "ptr", 0, slots.params)
        self.outputs = Loaded(self.entry, "ptr", slots.params, slots.outputs)
        self._dims = Loaded(self.entry, "i64", slots.params + slots.outputs, len(slots.dims))
        self.top = Scope(self, None, self.e.section(), {})

    @property
    def bits(self) -> int:
        """Bits of a lane, or of the widest type in it."""
        return VIRTUAL_BITS // self.schedule.lanes

    def hidden(self, n: str) -> str:
        """A number that LLVM does not know: of a register and zeros, by lanes that it knows, it
        makes a vexpandpd. Zen 5 takes some 30 cycles for each: mean of 10 f32 taken from a row 10
        ns in the place of 1.3, of 5 f64 9 and 1.2."""
        return self.entry(f'call i64 asm "", "=r,0"(i64 {n})')

    def slot(self, ty: str, k: int) -> str:
        """Load ctx[k], here."""
        return _load(self.e, ty, k)

    def dim(self, name: str) -> str:
        """The value of a symbolic dimension."""
        return self._dims[self.slots.dims.index(name)]

    def set_slot(self, k: int, pointer: str) -> None:
        """Store ctx[k]."""
        p = self.e(f"getelementptr inbounds i64, ptr %ctx, i64 {k}")
        self.e.do(f"store ptr {pointer}, ptr {p}, align 8")

    def alloca(self, ty: str, align: int = 64) -> str:
        """Memory of the function for one value of a type; its address."""
        name = f"%{self.e.fresh('slot')}"
        self.allocas.append(f"  {name} = alloca {ty}, align {align}")
        return name

    def kept(self, x: Expr) -> str:
        """The array that keeps an expression of the row between sweeps, a vector longer than it."""
        if x not in self.kept_at:
            s = self.schedule
            n = dims.most(s.nest.row)
            assert n is not None
            self.kept_at[x] = self.alloca(f"[{n + s.width} x {memory_of(register_type(x.dtype))}]")
        return self.kept_at[x]

    def report(self, scope: Positions, node: Node, cond: str) -> None:
        """Remember that `cond` (an i1) held at a fallible node."""
        flag = self.flags.get(node)
        if flag is None:
            flag = self.flags[node] = self.alloca("[2 x i8]", 2)
            self.allocas.append(f"  store i16 0, ptr {flag}, align 2")
        # beside the flag where nothing failed: to read it and write it back takes five cycles,
        # in which the next position waits
        beside = scope.e(f"zext i1 {scope.e(f'xor i1 {cond}, true')} to i64")
        at = scope.e(f"getelementptr inbounds i8, ptr {flag}, i64 {beside}")
        scope.e.do(f"store i8 1, ptr {at}, align 1")

    def flush_errors(self) -> None:
        """Put the lowest code of what failed into the call's error word."""
        if not self.flags:
            return
        word = self.slot("ptr", self.slots.error)
        for node, flag in self.flags.items():
            hit = self.e(f"icmp ne i8 {self.e(f'load i8, ptr {flag}, align 1')}, 0")
            code = self.e(f"select i1 {hit}, i32 {self.codes[node]}, i32 -1")
            self.e.do(f"%{self.e.fresh('old')} = atomicrmw umin ptr {word}, i32 {code} monotonic")

    def finish(self, header: str) -> str:
        """The whole function under its header."""
        self.flush_errors()
        self.e.do("ret void")
        s = self.schedule
        spills = self.target.arch in X86 and s.width > 1 and s.cost * s.interleave >= SPILLING
        align = f"alignstack({self.target.vector_bits // 8}) " if spills else ""
        return f"{header} {align}{ATTRS} {{\n{self.e.text()}\n}}"
