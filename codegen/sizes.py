"""Sizes as LLVM instructions: checked once for each call, and taken for right from there on."""

from __future__ import annotations

from collections.abc import Mapping

from graphc import dims
from graphc.codegen.emission.emitter import Emitter
from graphc.dims import Apply, Atom, Dim, Size

_OVERFLOW = {"add": "sadd", "mul": "smul"}


class SizeCode:
    """Emits sizes into one straight line of code, of names that are not negative.

    What overflows wraps around, and a divisor that is not positive counts as 1: for code behind
    `CheckedSizes`, and for estimates.
    """

    def __init__(self, emit: Emitter, names: Mapping[str, str]):
        self.emit = emit
        self.names = names
        self._known: dict[Size | Atom, str] = {}

    def value(self, x: Size) -> str:
        """The operand that holds x. (Depth is that of the expression a user wrote.)"""
        if isinstance(x, int):
            return str(x)
        if (known := self._known.get(x)) is not None:
            return known
        total: str | None = None
        for atoms, factor in x.terms:
            term: str | None = str(factor) if factor != 1 or not atoms else None
            for a in atoms:
                v = self._atom(a)
                term = v if term is None else self.combined("mul", term, v)
            assert term is not None
            total = term if total is None else self.combined("add", total, term)
        assert total is not None
        self._known[x] = total
        return total

    def combined(self, op: str, a: str, b: str) -> str:
        """a op b, of add or mul; constants are folded."""
        if a.lstrip("-").isdigit() and b.lstrip("-").isdigit():
            r = int(a) + int(b) if op == "add" else int(a) * int(b)
            if -(2**63) <= r < 2**63:
                return str(r)
        if op == "mul" and "1" in (a, b):
            return b if a == "1" else a
        if op == "add" and "0" in (a, b):
            return b if a == "0" else a
        return self._instruction(op, a, b)

    def _instruction(self, op: str, a: str, b: str) -> str:
        return self.emit(f"{op} i64 {a}, {b}")

    def _mistake(self, condition: str) -> None:
        """What is done where a size has no value."""

    def _atom(self, a: Atom) -> str:
        """The operand that holds a name, or a floordiv, mod, min or max."""
        if isinstance(a, str):
            return self.names[a]
        if (known := self._known.get(a)) is not None:
            return known
        x, y = self.value(a.a), self.value(a.b)
        e = self.emit
        if a.fn in ("max", "min"):
            c = e(f"icmp {'sgt' if a.fn == 'max' else 'slt'} i64 {x}, {y}")
            out = e(f"select i1 {c}, i64 {x}, i64 {y}")
        else:
            out = self._quotient(a, x, y)
        self._known[a] = out
        return out

    def _quotient(self, a: Apply, x: str, y: str) -> str:
        """x / y rounded down, or what that leaves."""
        e = self.emit
        if not y.isdigit() or y == "0":
            low = e(f"icmp slt i64 {y}, 1")
            self._mistake(low)
            y = e(f"select i1 {low}, i64 1, i64 {y}")
        if dims.is_nonnegative(a.a):
            return e(f"{'udiv' if a.fn == 'floordiv' else 'urem'} i64 {x}, {y}")
        r = e(f"srem i64 {x}, {y}")
        below = e(f"icmp slt i64 {r}, 0")
        if a.fn == "mod":
            up = e(f"add i64 {r}, {y}")
            return e(f"select i1 {below}, i64 {up}, i64 {r}")
        q = e(f"sdiv i64 {x}, {y}")
        down = e(f"sext i1 {below} to i64")
        return e(f"add i64 {q}, {down}")


class CheckedSizes(SizeCode):
    """Sizes as a call begins.

    `bad()` is an i1 that is set when something so far overflowed, divided by a divisor that is not
    positive, or gave a size below zero where `size` asked for one; the caller then takes the
    path that explains the mistake.
    """

    def __init__(self, emit: Emitter, names: Mapping[str, str]):
        super().__init__(emit, names)
        self._bad: list[str] = []

    def size(self, x: Size) -> str:
        """`value` of something that must be >= 0."""
        v = self.value(x)
        if isinstance(x, Dim) and not v.isdigit():
            self._mistake(self.emit(f"icmp slt i64 {v}, 0"))
        return v

    def bytes(self, shape: tuple[Size, ...], itemsize: int) -> str:
        """The bytes of an array."""
        total = str(itemsize)
        for s in shape:
            total = self.combined("mul", total, self.size(s))
        return total

    def bad(self) -> str:
        """Whether anything went wrong so far."""
        out = self.emit.any_of(self._bad)
        self._bad = [out] if out != "false" else []
        return out

    def checked(self) -> SizeCode:
        """The same sizes, for what comes behind a check of `bad()`."""
        behind = SizeCode(self.emit, self.names)
        behind._known = self._known
        return behind

    def _instruction(self, op: str, a: str, b: str) -> str:
        name = f"llvm.{_OVERFLOW[op]}.with.overflow.i64"
        self.emit.module.declare(name, f"declare {{ i64, i1 }} @{name}(i64, i64)")
        pair = self.emit(f"call {{ i64, i1 }} @{name}(i64 {a}, i64 {b})")
        self._mistake(self.emit(f"extractvalue {{ i64, i1 }} {pair}, 1"))
        return self.emit(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def _mistake(self, condition: str) -> None:
        self._bad.append(condition)
