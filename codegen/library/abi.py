"""A library as C sees it: names, types, the layout of the state, status codes.

Everything that the header, the machine code and the descriptor say about a library comes from the
one `Api` made here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphc import dims
from graphc.codegen.library.link import LIBC
from graphc.codegen.program import FIRST_SITE, Program, Status
from graphc.dims import Size
from graphc.errors import CompileError
from graphc.ir import Graph, State
from graphc.types import TensorType

C_TYPES = {
    "bool": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double",
    **{f"{k}{b}": f"{'u' if k == 'u' else ''}int{b}_t" for k in "iu" for b in (8, 16, 32, 64)},
}
# What C99, C11, C++ and the headers that ours includes keep for themselves.
_WORDS = """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor
    bool break case catch char char8_t char16_t char32_t class co_await co_return co_yield compl
    concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    linux long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
    public reflexpr register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch synchronized template this thread_local throw true try
    typedef typeid typename typeof typeof_unqual union unix unsigned using virtual void volatile
    wchar_t while xor xor_eq size_t ptrdiff_t NULL EOF errno assert int8_t int16_t int32_t int64_t
    uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t intmax_t uintmax_t
"""
# Macros of complex.h, math.h, stdio.h, stdnoreturn.h and windows.h that are names one gives to
# arrays.
_MACRO_WORDS = """
    I complex imaginary INFINITY NAN stdin stdout stderr noreturn
    far near interface small hyper pascal cdecl
    CONST DELETE ERROR FALSE FAR IN NEAR OPTIONAL OUT TRUE VOID
"""
# Macros of unistd.h that could be a prefix and a status name; those of stdint.h.
_UNISTD = ("F_OK", "R_OK", "W_OK", "X_OK")
_RESERVED = frozenset((*_WORDS.split(), *_MACRO_WORDS.split(), *_UNISTD))
_STDINT = re.compile(
    r"U?INT(_LEAST|_FAST)?(8|16|32|64|MAX|PTR)_(MIN|MAX|C)|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_M.."
)


# Outputs that the caller passes NULL for stand behind the code's own part of the arena, widest
# elements first, which so much room aligns: the arena itself may stand at any address.
SLACK = 8

# What every library has beside its entries, after the prefix.
_OWN = ("init", "warmup", "set_threads", "strerror", "abi", "descriptor", "state", "status",
        "state_size_check", "save_state", "load_state", "pack_state", "unpack_state", "state_bytes")
_MACROS = ("GRAPHC_H", "GRAPHC_HPP", "GRAPHC_VERSION", "ABI", "STATE_LAYOUT", "STATE_FILE_BYTES")


@dataclass(frozen=True)
class Unit:
    """One function to put into a library: its declared graph, compiled at several CPU levels.

    owners: which variable each one in the graph stands for (functions may have private copies).
    """

    name: str
    graph: Graph
    programs: tuple[tuple[str, Program], ...]   # (level, code), lowest level first
    owners: dict[State, State]
    threads: int | None = None
    returns: str = "list"   # how Python packs the outputs: none, one, list, tuple or dict


@dataclass(frozen=True)
class Arg:
    """An array argument: the user's name for it, the C name, and its type."""

    name: str
    c: str
    type: TensorType


@dataclass(frozen=True)
class Field:
    """A variable in the state struct."""

    state: State
    c: str
    offset: int

    @property
    def bytes(self) -> int:
        return nbytes(self.state)


@dataclass(frozen=True)
class Entry:
    """One exported function. `state`: "" (no such parameter), "const" (reads it) or "update"."""

    unit: Unit
    c: str
    arena_c: str
    in_c: str                                   # the form that takes the arena's size
    state: str
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    dims: tuple[tuple[str, str], ...]           # (name, C name)
    arena: Size                                 # what the arena function promises
    work: Size                                  # of it, what the code needs; rest: NULL outputs
    first_code: int                             # status code of the first place that can fail


@dataclass(frozen=True)
class Api:
    """Everything in the header."""

    prefix: str
    fields: tuple[Field, ...]
    state_bytes: int
    entries: tuple[Entry, ...]
    messages: tuple[tuple[int, str], ...]       # status codes
    levels: tuple[str, ...]
    files: bool = True                          # whether states can be saved to files

    @property
    def macro(self) -> str:
        return self.prefix.upper()

    def status(self, code: Status) -> str:
        """The name of a status code in C."""
        name = f"{self.macro}_{code.name}"
        return f"{name}_" if name in _UNISTD else name

    @property
    def state_hash(self) -> int:
        """Equal when states can be exchanged: same variables, types and offsets."""
        return _hash(f"{f.state.name} {f.state.type} {f.offset}" for f in self.fields)

    @property
    def abi_hash(self) -> int:
        """Equal when a header fits a library: same state and same signatures."""
        lines = [f"1 {self.prefix} {self.state_hash}"]
        for e in self.entries:
            lines.append(f"{e.c} {e.state} {' '.join(n for n, _ in e.dims)}")
            lines += [f"in {a.name} {a.type}" for a in e.inputs]
            lines += [f"out {a.name} {a.type}" for a in e.outputs]
        return _hash(lines)


def _hash(lines: Iterable[str]) -> int:
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def nbytes(s: State) -> int:
    """Bytes of a variable."""
    return dims.evaluate(s.type.bytes, {})


def identifier(name: str) -> str:
    """A C and C++ identifier that reminds of `name`."""
    out = "".join(
        ch if ch.isascii() and (ch.isalnum() or ch == "_") else
        "_" if ch.isascii() else f"u{ord(ch):04x}"
        for ch in name
    )
    # two underscores, or one before a capital, belong to the implementation
    out = re.sub(r"__+", "_", out) or "_"
    if out[0].isdigit() or re.match(r"_[A-Z]", out):
        out = f"x{out}" if out[0] == "_" else f"_{out}"
    return f"{out}_" if out in _RESERVED or _STDINT.fullmatch(out) else out


class Names:
    """Gives out names, each once."""

    def __init__(self, taken: Iterable[str]):
        self._taken = set(taken)

    def __call__(self, wanted: str) -> str:
        name, k = wanted, 2
        while name in self._taken:
            name, k = f"{wanted.rstrip('_')}_{k}", k + 1
        self._taken.add(name)
        return name


def make_api(
    prefix: str, units: Sequence[Unit], kept: Iterable[State] = (), files: bool = True
) -> Api:
    """Decide names, layout and codes; `kept` are variables to hold in the state in any case."""
    names: set[str] = set()
    for u in units:
        if u.name in names:
            raise CompileError(
                f"export: two functions are both called {u.name!r}; name them apart with "
                "gx.function(..., name=...)"
            )
        names.add(u.name)
    if prefix == "graphc":
        raise CompileError("export: a library cannot be called graphc: its runtime has that name")
    fields, size = _layout(prefix, units, kept)
    held = {f.state for f in fields}
    symbols = Names((
        *(f"{prefix}_{n}" for n in _OWN), *_macros(prefix), *LIBC,
        *(f"{prefix.upper()}_{n}" for n in ("FIRST_SITE", *Status.__members__)),
    ))
    c_names = [symbols(f"{prefix}_{u.name}") for u in units]
    messages = [(s.value, s.text) for s in Status]
    entries = []
    code = FIRST_SITE
    for u, c in zip(units, c_names, strict=True):
        entries.append(
            _entry(prefix, u, c, symbols(f"{c}_arena"), symbols(f"{c}_in"), held, code)
        )
        for s in u.programs[0][1].sites:
            place = f" ({s.loc})" if s.loc else ""
            messages.append((code, f"{u.name}: {s.message()}{place}"))
            code += 1
    return Api(
        prefix, fields, size, tuple(entries), tuple(messages),
        tuple(level for level, _ in units[0].programs), files,
    )


def _macros(prefix: str) -> list[str]:
    """What the preprocessor would replace wherever it stands."""
    return [f"{prefix.upper()}_{n}" for n in _MACROS]


def _layout(
    prefix: str, units: Sequence[Unit], kept: Iterable[State]
) -> tuple[tuple[Field, ...], int]:
    """The struct as every C compiler lays it out."""
    used: dict[State, None] = {}
    wanted = set(kept)
    for u in units:
        updated = {s for s, _ in u.graph.updates}
        for s in u.graph.variables():
            own = u.owners.get(s, s)
            used.setdefault(own)
            if s in updated:
                wanted.add(own)
    names = Names([*_macros(prefix), f"{prefix}_state"])
    offset, widest = 0, 1
    fields = []
    for s in used:
        if s in wanted:
            item = s.type.dtype.itemsize if nbytes(s) else 1  # C has no empty arrays
            offset = dims.round_up(offset, item)
            fields.append(Field(s, names(identifier(s.name)), offset))
            offset += nbytes(s)
            widest = max(widest, item)
    return tuple(fields), dims.round_up(offset, widest)


def _entry(
    prefix: str, u: Unit, c: str, arena_c: str, in_c: str, held: set[State], code: int
) -> Entry:
    here = {u.owners.get(s, s) for s in u.graph.variables()} & held
    state = "" if not here else "update" if u.graph.updates else "const"
    own = ["s", "arena", "arena_bytes"] if state else ["arena", "arena_bytes"]
    names = Names([*_macros(prefix), f"{prefix}_state", *own, c])
    p = u.programs[0][1]
    inputs = tuple(Arg(q.name, names(identifier(q.name)), q.type) for q in p.inputs)
    outputs = []
    for k, q in enumerate(p.outputs):
        shown = q.name or ("out" if len(p.outputs) == 1 else f"out{k}")
        outputs.append(Arg(shown, names(identifier(shown)), q.type))
    work: Size = 0
    for _, program in u.programs:
        work = dims.maximum(work, program.arena)
    arena = work
    if outputs:
        arena = arena + SLACK
        for a in outputs:
            arena = arena + a.type.bytes
    order = u.graph.dims()
    return Entry(
        u, c, arena_c, in_c, state, inputs, tuple(outputs),
        tuple((n, names(identifier(n))) for n in order), arena, work, code,
    )
