"""Building LLVM text: the lines of one function, and the module they go into.

Text is built with plain strings because it is an order of magnitude faster than an object model
of LLVM, and because the result is readable as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from graphc.codegen.debug import mark
from graphc.ir import Node


class Module:
    """Declarations, global definitions and functions; each declared or defined once by name.

    debug: whether functions note what their lines compute (see `debug`).
    attributes: of functions that are called with vectors; where those stand in registers depends
        on what the widest ones are, so caller and called must say the same of it.
    sparing: whether functions such as sin, and sums of a vector's lanes, are written once and
        called, not where they are needed (see `costs.MOST_LONG`).
    """

    def __init__(self, debug: bool = False, attributes: str = "") -> None:
        self.debug, self.attributes, self.sparing = debug, attributes, False
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    def declare(self, name: str, line: str) -> None:
        """`declare ...` for an intrinsic or an external function."""
        self.declarations.setdefault(name, line)

    def define_global(self, name: str, line: str) -> None:
        self.globals.setdefault(name, line)

    def define(self, name: str, text: str) -> None:
        """A whole `define ... { ... }`."""
        self.functions.setdefault(name, text)

    def take(self, other: Module) -> None:
        """Everything of another module."""
        self.declarations = other.declarations | self.declarations
        self.globals = other.globals | self.globals
        self.functions = other.functions | self.functions

    def text(self) -> str:
        declared = [
            line for name, line in self.declarations.items() if name not in self.functions
        ]
        return "\n".join([*declared, *self.globals.values(), *self.functions.values(), TAIL])


def attributed(text: str, attributes: str) -> str:
    """LLVM text whose functions have more attributes; data before a function's code come last."""
    return re.sub(
        r"^(define .*?)( prologue .*)? \{$",
        lambda m: f"{m[1]} {attributes}{m[2] or ''} {{" if attributes else m[0], text, flags=re.M,
    )


DECLARED = re.compile(r"^declare [^@\n]*@([\w.]+)\(.*$", re.M)
DEFINED = re.compile(r"^define [^@\n]*@([\w.]+)\(", re.M)


def joined(texts: Sequence[str]) -> str:
    """One module; each function declared once, or not where it is defined."""
    whole = "\n".join(texts)
    seen = set(DEFINED.findall(whole))
    lines = []
    for line in whole.split("\n"):
        if (m := DECLARED.match(line)) is not None:
            if m[1] in seen:
                continue
            seen.add(m[1])
        lines.append(line)
    return "\n".join(lines)


def filled(text: str, **values: object) -> str:
    """A template with values in the place of its <NAMES>, in their order: one may hold others."""
    for name, v in values.items():
        text = text.replace(f"<{name}>", str(v))
    return text


# `!llvm.loop !0`: the loops are already vectorised and unrolled as wanted. `!nontemporal !3`: a
# store past the caches.
TAIL = """
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = !{i32 1}
!4 = !{!"step"}
"""


_STEPS = "declare void @llvm.codeview.annotation(metadata)"
_STEP = "  call void @llvm.codeview.annotation(metadata !4)"


class Emitter:
    """The lines of one function body, with fresh names."""

    def __init__(self, module: Module, numbers: Iterator[int] | None = None):
        self.module = module
        self.lines: list[Any] = []  # lines, and lists of lines (sections)
        self.block = "entry"
        self.numbers = count(1) if numbers is None else numbers

    def __call__(self, rhs: str) -> str:
        """Append `%tN = rhs` and return `%tN`."""
        name = f"%t{next(self.numbers)}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    def all_of(self, conditions: Iterable[str]) -> str:
        """Whether all of some i1 registers and constants hold; what makes one is emitted when it is
        its turn, if that is not clear before."""
        return self._folded("and", "true", "false", conditions)

    def any_of(self, conditions: Iterable[str]) -> str:
        """Whether one of them holds; likewise."""
        return self._folded("or", "false", "true", conditions)

    def _folded(self, op: str, none: str, certain: str, conditions: Iterable[str]) -> str:
        total = none
        for c in conditions:
            if c == certain:
                return c
            if c != none:
                total = c if total == none else self(f"{op} i1 {total}, {c}")
        return total

    def do(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + line)

    def note(self, node: Node | None) -> None:
        """What is written from here on computes `node`, as line tables are to say."""
        if self.module.debug:
            self.lines.append(mark(node.loc if node is not None else None))

    def fresh(self, hint: str = "L") -> str:
        """A new label or value name, without its % sign."""
        return f"{hint}{next(self.numbers)}"

    def label(self, name: str) -> None:
        """Start the basic block `name` (also remembered in `self.block`, for phis)."""
        self.lines.append(f"{name}:")
        self.block = name

    def field(self, base: str, offset: int, type: str = "ptr") -> str:
        """A field of a struct, loaded."""
        return self(f"load {type}, ptr {self(f'getelementptr i8, ptr {base}, i64 {offset}')}")

    def require(self, condition: str, otherwise: str) -> None:
        """Go on only where a condition holds; to the block `otherwise` elsewhere."""
        going_on = self.fresh()
        self.do(f"br i1 {condition}, label %{going_on}, label %{otherwise}")
        self.label(going_on)

    def leave(self, condition: str, to: str) -> None:
        """Go to the block `to` where a condition holds."""
        going_on = self.fresh()
        self.do(f"br i1 {condition}, label %{to}, label %{going_on}")
        self.label(going_on)

    def return_if(self, condition: str, code: int | str, type: str = "i32") -> None:
        """Return a code where a condition holds, which may be known not to."""
        if condition == "false":
            return
        bad, good = self.fresh("bad"), self.fresh("good")
        self.do(f"br i1 {condition}, label %{bad}, label %{good}")
        self.label(bad)
        self.do(f"ret {type} {code}")
        self.label(good)

    def enter(self, hint: str) -> str:
        """Fall through into a new block."""
        name = self.fresh(hint)
        self.do(f"br label %{name}")
        self.label(name)
        return name

    def section(self) -> Emitter:
        """A place in the code that can be written to later: what loops after it want hoisted."""
        inner = Emitter(self.module, self.numbers)
        inner.block = self.enter("S")
        self.lines.append(inner.lines)
        self.enter("E")
        return inner

    def loop(
        self, begin: str, end: str, step: int, carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], Sequence[str]], strided: bool = False, some: bool = False,
    ) -> list[str]:
        """for (i = begin; i < end; i += step) carried = body(i, carried); the final values.

        `carried` are (LLVM type, initial value). In a `strided` loop addresses are multiples of i,
        and LLVM makes pointers of them that run (see `count_up`). `some`: begin < end for certain;
        without a branch around the loop, what stands before it for its sake stays there, and keeps
        its line (LLVM moves it past the branch otherwise).
        """
        before = self.block
        head, exit_ = self.fresh("loop"), self.fresh("exit")
        some = some or (begin.isdigit() and end.isdigit() and int(begin) < int(end))
        if some:
            self.do(f"br label %{head}")
        else:
            guard = self(f"icmp slt i64 {begin}, {end}")
            self.do(f"br i1 {guard}, label %{head}, label %{exit_}")
        self.label(head)
        phis: list[str] = []
        self.lines.append(phis)
        i, following = f"%{head}.i", f"%{head}.n"
        names = [f"%{head}.c{k}" for k in range(len(carried))]
        new = list(body(i, names))
        if strided:
            self.do(f"{following} = add nsw i64 {i}, {step}")
        else:
            self.count_up(following, i, step)
        again = self(f"icmp slt i64 {following}, {end}")
        self.do(f"br i1 {again}, label %{head}, label %{exit_}, !llvm.loop !0")
        latch = self.block
        phis.append(f"  {i} = phi i64 [ {begin}, %{before} ], [ {following}, %{latch} ]")
        for name, (ty, init), value in zip(names, carried, new, strict=True):
            phis.append(f"  {name} = phi {ty} [ {init}, %{before} ], [ {value}, %{latch} ]")
        self.label(exit_)
        if some:
            return new
        return [
            self(f"phi {ty} [ {init}, %{before} ], [ {value}, %{latch} ]")
            for (ty, init), value in zip(carried, new, strict=True)
        ]

    def for_each(
        self, begin: str, end: str, body: Callable[[str], None], step: int = 1,
        strided: bool = False, some: bool = False,
    ) -> None:
        """for (i = begin; i < end; i += step) body(i): a `loop` that carries nothing."""
        def once(i: str, _: list[str]) -> list[str]:
            body(i)
            return []

        self.loop(begin, end, step, [], once, strided, some)

    def prefetch(self, at: str, locality: int = 3, write: bool = False) -> None:
        """Ask for a line that will be read, or written; `locality` 3 is the nearest cache, 2 the
        next one."""
        self.module.declare(
            "llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        )
        self.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 {write:d}, i32 {locality}, i32 1)")

    def step(self) -> None:
        """End a step: LLVM schedules what stands before it first.

        It is a label without code, as CodeView has for its debuggers; without its debug
        information nothing of it is in the object.
        """
        if self.lines[-1] is not _STEP:
            self.module.declare("llvm.codeview.annotation", _STEPS)
            self.lines.append(_STEP)

    def copy(self, to: str, source: str, size: str) -> None:
        """Copy bytes between places that do not overlap."""
        self.module.declare(
            "llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        )
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, at: str, size: str) -> None:
        """Set bytes to 0."""
        self.module.declare(
            "llvm.memset.p0.i64", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        )
        self.do(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {size}, i1 false)")

    def parallel(self, task: str, ctx: str, chunks: str, scratch: str = "%scratch") -> None:
        """Share the chunks of a task out among threads (see `pool`)."""
        self.module.declare("graphc_parallel", "declare void @graphc_parallel(ptr, ptr, i64, ptr)")
        self.do(
            f"call void @graphc_parallel(ptr {task}, ptr {ctx}, i64 {chunks}, ptr {scratch})"
        )

    def count_up(self, following: str, i: str, step: int) -> None:
        """following = i + step, as a counter that LLVM's loop strength reduction leaves alone.

        To that pass, what a freeze gives is no sum. It would take a quarter of the compile time to
        keep a pointer running for every buffer, where base + counter is one operand as well.
        """
        self.do(f"{following}.sum = add nsw i64 {i}, {step}")
        self.do(f"{following} = freeze i64 {following}.sum")

    def text(self) -> str:
        return "\n".join(_flat(self.lines))


def _flat(lines: list[Any]) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flat(line)
