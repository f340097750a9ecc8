"""Registers of several elements: types, constants, plain instructions, shuffles.

`Lanes` adds access to memory. With `width` 1 every register is a plain scalar and no vector type
appears; otherwise a register of scalar type T is `<width x T>`, whatever T is, and LLVM splits or
pads it to machine registers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.literals import SUFFIX, literal, register_type, rounded
from graphc.codegen.machine.target import Target
from graphc.types import DType


class Registers:
    """`width` lanes of registers over an emitter.

    fail(cond) is called with a register of i1 lanes that are true where an element failed (integer
    division by zero, negative integer exponent); lanes outside `mask` never fail. `mask`, a
    `<width x i1>` register, marks the active lanes of a tail; it needs a width above 1. `memo`
    belongs to the place that is written: what ops of one operand share (the quadrant for sin and
    cos) is found there by the second of them.
    """

    def __init__(
        self, e: Emitter, width: int, target: Target, *, fastmath: bool = False,
        fail: Callable[[str], None] | None = None, mask: str | None = None,
        memo: dict[tuple[str, ...], tuple[str, ...]] | None = None, stepped: bool = False,
    ):
        if mask is not None and width == 1:
            raise ValueError("a mask needs more than one lane")
        self.e, self.width, self.target, self.fastmath = e, width, target, fastmath
        self._fail, self.mask, self.stepped = fail, mask, stepped
        self.memo = {} if memo is None else memo

    # --- types and constants ---------------------------------------------------------------

    def vec(self, t: str) -> str:
        """The register type of lanes of scalar type `t`."""
        return t if self.width == 1 else f"<{self.width} x {t}>"

    def reg(self, d: DType) -> str:
        """The LLVM type of a register of dtype `d`."""
        return self.vec(register_type(d))

    def k(self, t: str, v: float | int | bool) -> str:
        """An operand: `v` in every lane, of scalar type `t`."""
        text = literal(t, v)
        return text if self.width == 1 else f"splat ({t} {text})"

    def constants(self, t: str, values: Sequence[float | int | bool]) -> str:
        """An operand: one value of scalar type `t` for each lane."""
        if self.width == 1 or all(v == values[0] for v in values):
            return self.k(t, values[0])
        return f"<{', '.join(f'{t} {literal(t, v)}' for v in values)}>"

    def constant(self, operand: str) -> float | None:
        """The float that an operand is in every lane, where it is written as one."""
        last = operand.rstrip(")").split()[-1]
        written = (last, f"splat (float {last})", f"splat (double {last})")
        if not last.startswith("0x") or operand not in written:
            return None
        return float(struct.unpack(">d", bytes.fromhex(last[2:]))[0])

    def integer(self, operand: str) -> int | None:
        """The integer that an operand is in every lane, where it is written as one."""
        last = operand.rstrip(")").split()[-1]
        if operand != last and not (operand.startswith("splat (i") and self.width > 1):
            return None
        return int(last) if last.lstrip("-").isdecimal() else None

    def const(self, d: DType, v: float | int | bool) -> str:
        """An operand: `v` in every lane, rounded or wrapped to dtype `d`."""
        if d.is_float and d.bits == 16:
            v = rounded(d, float(v))
        return self.k(register_type(d), v)

    def splat(self, d: DType, scalar: str) -> str:
        """A register with `scalar`, a register of one element, in every lane."""
        return self.spread(register_type(d), scalar)

    def spread(self, t: str, scalar: str) -> str:
        """`splat` for a scalar LLVM type."""
        if self.width == 1:
            return scalar
        if scalar[0] != "%":
            return f"splat ({t} {scalar})"
        v = self.vec(t)
        one = self.e(f"insertelement {v} poison, {t} {scalar}, i64 0")
        return self.e(
            f"shufflevector {v} {one}, {v} poison, <{self.width} x i32> zeroinitializer"
        )

    def lane_index(self, start: str) -> str:
        """An i64 register: `start`, `start + 1`, ..."""
        if self.width == 1:
            return start
        if start.isdecimal():
            return self.constants("i64", [int(start) + i for i in range(self.width)])
        steps = ", ".join(f"i64 {i}" for i in range(self.width))
        return self.e(f"add {self.vec('i64')} {self.spread('i64', start)}, <{steps}>")

    # --- instructions ----------------------------------------------------------------------

    def reverse(self, t: str, a: str) -> str:
        """The lanes of a register of scalar type `t`, last first."""
        order = ", ".join(f"i32 {k}" for k in reversed(range(self.width)))
        v = self.vec(t)
        return self.e(f"shufflevector {v} {a}, {v} poison, <{self.width} x i32> <{order}>")

    def shuffle(self, t: str, a: str, b: str, order: Sequence[int]) -> str:
        """Lanes picked from two registers of scalar type `t`: from the second where a number is
        `width` or more, any where it is negative."""
        v = self.vec(t)
        lanes = ", ".join(f"i32 {k}" if k >= 0 else "i32 poison" for k in order)
        return self.e(f"shufflevector {v} {a}, {v} {b}, <{self.width} x i32> <{lanes}>")

    def op(self, name: str, t: str, *args: str) -> str:
        """An instruction whose operands and result are of scalar type `t`."""
        register = self.e(f"{name} {self.vec(t)} {', '.join(args)}")
        if self.stepped:
            self.e.step()
        return register

    def cmp(self, predicate: str, t: str, a: str, b: str) -> str:
        """A comparison; `predicate` is fcmp's for floats and icmp's for integers."""
        kind = "icmp" if t[0] == "i" else "fcmp"
        return self.e(f"{kind} {predicate} {self.vec(t)} {a}, {b}")

    def select(self, cond: str, t: str, a: str, b: str) -> str:
        """a in lanes where `cond` holds, else b."""
        if cond[0] != "%" and cond in (self.k("i1", True), self.k("i1", False)):
            return a if cond == self.k("i1", True) else b
        v = self.vec(t)
        return self.e(f"select {self.vec('i1')} {cond}, {v} {a}, {v} {b}")

    def convert(self, name: str, a: str, source: str, to: str) -> str:
        """A conversion instruction (`sext`, `sitofp`, `bitcast`, ...) between scalar types."""
        return self.e(f"{name} {self.vec(source)} {a} to {self.vec(to)}")

    def suffix(self, t: str) -> str:
        """The name of a register type within an intrinsic's name."""
        return SUFFIX[t] if self.width == 1 else f"v{self.width}{SUFFIX[t]}"

    def intrinsic(self, name: str, t: str, *args: str) -> str:
        """`llvm.NAME` on operands and result of scalar type `t`."""
        v, full = self.vec(t), f"llvm.{name}.{self.suffix(t)}"
        self.e.module.declare(full, f"declare {v} @{full}({', '.join([v] * len(args))})")
        register = self.e(f"call {v} @{full}({', '.join(f'{v} {a}' for a in args)})")
        if self.stepped:
            self.e.step()
        return register

    def fma(self, t: str, a: str, b: str, c: str) -> str:
        """a * b + c: rounded once where the target has the instruction, else after each step."""
        if self.target.has_fma:
            return self.intrinsic("fma", t, a, b, c)
        return self.op("fadd", t, self.op("fmul", t, a, b), c)

    def any(self, cond: str) -> str:
        """A scalar i1: whether `cond` holds in some lane."""
        if self.width == 1:
            return cond
        bits = self.e(f"bitcast {self.vec('i1')} {cond} to i{self.width}")
        return self.e(f"icmp ne i{self.width} {bits}, 0")

    def negate(self, cond: str) -> str:
        """The opposite of i1 lanes."""
        return self.op("xor", "i1", cond, self.k("i1", True))

    def fail_where(self, cond: str) -> None:
        """Report the active lanes where `cond` holds as failed."""
        if self._fail is not None:
            self._fail(self.active(cond))

    def active(self, cond: str) -> str:
        """`cond`, but false in lanes that are not active."""
        return cond if self.mask is None else self.op("and", "i1", cond, self.mask)

    # --- parts of registers ----------------------------------------------------------------

    def parts(self, t: str, v: str, width: int) -> list[str]:
        """A register as registers of `width` lanes."""
        if width == self.width:
            return [v]
        return [
            self.e(f"shufflevector {self.vec(t)} {v}, {self.vec(t)} poison, "
                   f"<{width} x i32> <{', '.join(f'i32 {first + i}' for i in range(width))}>")
            for first in range(0, self.width, width)
        ]

    def joined(self, t: str, parts: Sequence[str]) -> str:
        """The inverse of `parts`."""
        n, left = self.width // len(parts), list(parts)
        while len(left) > 1:
            left += ["poison"] * (len(left) % 2)
            order = ", ".join(f"i32 {i}" for i in range(2 * n))
            left = [
                self.e(f"shufflevector <{n} x {t}> {a}, <{n} x {t}> {b}, <{2 * n} x i32> <{order}>")
                for a, b in zip(left[::2], left[1::2], strict=True)
            ]
            n *= 2
        if n == self.width:
            return left[0]
        v, order = f"<{n} x {t}>", ", ".join(f"i32 {i}" for i in range(self.width))
        return self.e(
            f"shufflevector {v} {left[0]}, {v} poison, <{self.width} x i32> <{order}>"
        )
