"""Registers of several elements: types, constants, memory access and plain instructions.

`Lanes` is what scalar ops, vector math and the kernel emitter write their instructions with. With
`width` 1 every register is a plain scalar and no vector type appears; otherwise a register of
scalar type T is `<width x T>`, whatever T is, and LLVM splits or pads it to machine registers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from graphc.codegen.elementwise.halves import bf16_bits, bf16_from_bits, f16_bits, f16_from_bits
from graphc.codegen.emission import parts
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.literals import SUFFIX, literal, memory_type, register_type, rounded
from graphc.codegen.emission.parts import Span
from graphc.codegen.machine.target import X86, Target
from graphc.types import DType, f16


def most_apart(d: DType) -> int:
    """Up to what distance elements are picked from whole vectors rather than gathered.

    There are gathers of 32 and 64 bits only. Every second of 2^16 f32 takes 9.4 us by AVX-512 for
    the 15.8 of gathers, every fourth 18 for 31; bytes of every third 6 for 160.
    """
    return 4 if d.itemsize >= 4 else 8


class Lanes:
    """`width` lanes of registers over an emitter.

    fail(cond) is called with a register of i1 lanes that are true where an element failed (integer
    division by zero, negative integer exponent); lanes outside `mask` never fail. `mask`, a
    `<width x i1>` register, marks the active lanes of a tail: loads give 0 elsewhere, stores leave
    memory alone. It needs a width above 1. `memo` belongs to the place that is written: what ops
    of one operand share (the quadrant for sin and cos) is found there by the second of them.
    `span`: the lanes of the mask, where these stand side by side and are not to be masked one by
    one.
    `in_order`: several vectors, side by side in a loop, are read in the order of memory.
    """

    def __init__(
        self, e: Emitter, width: int, target: Target, *, fastmath: bool = False,
        fail: Callable[[str], None] | None = None, mask: str | None = None,
        memo: dict[tuple[str, ...], tuple[str, ...]] | None = None, stepped: bool = False,
        in_order: bool = False, span: Span | None = None,
    ):
        if mask is not None and width == 1:
            raise ValueError("a mask needs more than one lane")
        self.e, self.width, self.target, self.fastmath = e, width, target, fastmath
        self._fail, self.mask, self.stepped, self.in_order = fail, mask, stepped, in_order
        self.span = span if mask is not None else None
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

    # --- memory ----------------------------------------------------------------------------

    def moved(self, d: DType) -> str:
        """The scalar type that memory instructions move: without hardware f16, its bits."""
        return "i16" if d is f16 and not self.target.has_f16c else memory_type(d)

    def from_memory(self, d: DType, v: str) -> str:
        """Memory format to register format."""
        if d.kind == "b":
            return self.cmp("ne", "i8", v, self.k("i8", 0))
        if not d.is_float or d.bits != 16:
            return v
        if d is f16:
            if self.target.has_f16c:
                return self.convert("fpext", v, "half", "float")
            return f16_from_bits(self, v)
        return bf16_from_bits(self, v)

    def to_memory(self, d: DType, v: str) -> str:
        """Register format to memory format."""
        if d.kind == "b":
            return self.convert("zext", v, "i1", "i8")
        if not d.is_float or d.bits != 16:
            return v
        if d is f16:
            if self.target.has_f16c:
                return self.convert("fptrunc", v, "float", "half")
            return f16_bits(self, v)
        return bf16_bits(self, v)

    def load(self, d: DType, ptr: str) -> str:
        """`width` contiguous elements at `ptr`, aligned as one element."""
        read = self._read(self.moved(d), ptr, d.itemsize, self.mask, self.span)
        return self.from_memory(d, read)

    def _read(self, t: str, ptr: str, align: int, mask: str | None, span: Span | None) -> str:
        """Contiguous elements in memory format, zeros where a mask, or span, does not hold."""
        v = self.vec(t)
        if mask is None:
            wide = self._read_in_order(t, ptr, align) if self.in_order else ""
            return wide or self.e(f"load {v}, ptr {ptr}, align {align}")
        if span is not None:
            return parts.load(self.e, self.width, t, align, ptr, span)
        name, m = f"llvm.masked.load.{self.suffix(t)}.p0", self.vec("i1")
        self.e.module.declare(name, f"declare {v} @{name}(ptr, i32, {m}, {v})")
        return self.e(
            f"call {v} @{name}(ptr {ptr}, i32 {align}, {m} {mask}, {v} zeroinitializer)"
        )

    def _read_in_order(self, t: str, ptr: str, itemsize: int) -> str:
        """A load of each vector of a wide register, the first one first; "" if it is one vector.

        LLVM splits a wide load into ones that it puts in any order, the last one first where there
        are many. Prefetchers of Zen 4 do not follow that: a polynomial of two arrays of 4M f32
        takes 5.0 ms, in order 1.5. `volatile` keeps the order and nothing else in its place, as
        steps would (exp(x) y takes a tenth longer by these). NEON's loads in pairs are no longer
        pairs if they are volatile.
        """
        n = self.target.vector_bits // (8 * itemsize)
        if n < 2 or self.width <= n or self.width % n or self.target.arch not in X86:
            return ""
        parts = []
        for k in range(0, self.width, n):
            at = self.e(f"getelementptr i8, ptr {ptr}, i64 {k * itemsize}") if k else ptr
            parts.append(self.e(f"load volatile <{n} x {t}>, ptr {at}, align {itemsize}"))
        return self.joined(t, parts)

    def _until(self, start: int, step: int) -> tuple[str | None, Span | None]:
        """The mask, and span, of contiguous elements from `start` on of those that stand `step`
        apart: all up to the last that is wanted."""
        if self.mask is None:
            return None, None
        order = [-(-(start + k) // step) for k in range(self.width)]
        mask = self.shuffle("i1", self.mask, "poison", order)
        if self.span is None:
            return mask, None
        last = self.e(f"mul nsw i64 {self.span.end}, {step}")
        one = Lanes(self.e, 1, self.target)
        end = one.intrinsic(
            "smin", "i64", self.e(f"sub nsw i64 {last}, {start + step - 1}"), str(self.width))
        return mask, Span("0", end)

    def store(self, d: DType, register: str, ptr: str) -> None:
        """Write `width` contiguous elements at `ptr`, aligned as one element."""
        self.store_moved(d, self.to_memory(d, register), ptr)

    def store_moved(self, d: DType, value: str, ptr: str) -> None:
        """`store` of a value in memory format."""
        t = self.moved(d)
        v = self.vec(t)
        if self.mask is None:
            self._store_in_order(t, value, ptr, d.itemsize)
            return
        if self.mask == self.constants("i1", [i == 0 for i in range(self.width)]):
            # LLVM's own scalar store for AVX-512 is as wide as what `trunc` made the value from.
            value = self.e(f"extractelement {v} {value}, i64 0")
            self.e.do(f"store {t} {value}, ptr {ptr}, align {d.itemsize}")
            return
        if self.span is not None:
            parts.store(self.e, self.width, t, d.itemsize, value, ptr, self.span)
            return
        name, m = f"llvm.masked.store.{self.suffix(t)}.p0", self.vec("i1")
        self.e.module.declare(name, f"declare void @{name}({v}, ptr, i32, {m})")
        self.e.do(f"call void @{name}({v} {value}, ptr {ptr}, i32 {d.itemsize}, {m} {self.mask})")

    def store_past(
        self, d: DType, register: str, ptr: str, past: str, besides: Callable[[], None]
    ) -> None:
        """`store`, and where the register `past` is true, which says that `ptr` is aligned and
        that no lane is masked, past the caches, and with what `besides` writes."""
        e, t, value = self.e, self.moved(d), self.to_memory(d, register)
        aligned = min(64, self.width * d.itemsize)
        # LLVM hands registers of other numbers of lanes from block to block lane by lane
        handed = self.width & (self.width - 1) == 0
        parts = [value] if handed else self._vectors(t, value, d.itemsize)
        stream, keep, after = e.fresh("past"), e.fresh("keep"), e.fresh("after")
        e.do(f"br i1 {past}, label %{stream}, label %{keep}")
        e.label(stream)
        self._store_parts(t, parts, ptr, d.itemsize, f"align {aligned}, !nontemporal !3")
        besides()
        e.do(f"br label %{after}")
        e.label(keep)
        if handed:
            self.store_moved(d, value, ptr)
        else:
            self._store_parts(t, parts, ptr, d.itemsize, f"align {d.itemsize}")
        e.do(f"br label %{after}")
        e.label(after)

    def _store_in_order(self, t: str, value: str, ptr: str, itemsize: int) -> None:
        """A store of each vector of a wide register, the first one first.

        LLVM splits a wide store into ones that it puts in any order. Where they cross cache lines,
        as in most of NumPy's arrays, a CPU joins the halves of a line if they follow each other:
        x + r of 100 x 1000 f32 takes 13 us in the place of 23.
        """
        self._store_parts(t, self._vectors(t, value, itemsize), ptr, itemsize, f"align {itemsize}")

    def _vectors(self, t: str, value: str, itemsize: int) -> list[str]:
        """The vectors of a wide register."""
        n = self.target.vector_bits // (8 * itemsize)
        whole = n < 2 or self.width <= n or self.width % n
        return self.parts(t, value, self.width if whole else n)

    def _store_parts(
        self, t: str, parts: Sequence[str], ptr: str, itemsize: int, how: str
    ) -> None:
        """Stores of registers beside each other."""
        n = self.width // len(parts)
        for k, part in enumerate(parts):
            at = self.e(f"getelementptr i8, ptr {ptr}, i64 {k * n * itemsize}") if k else ptr
            v = f"<{n} x {t}>" if n > 1 else t
            self.e.do(f"store {v} {part}, ptr {at}, {how}")

    def load_splat(self, d: DType, ptr: str) -> str:
        """The element at `ptr` in every lane."""
        one = self.e(f"load {self.moved(d)}, ptr {ptr}, align {d.itemsize}")
        return self.from_memory(d, self.spread(self.moved(d), one))

    def _elements(self, t: str, base: str, idx: str) -> str:
        """The addresses of elements by their offsets."""
        return self.e(f"getelementptr {t}, ptr {base}, {self.vec('i64')} {idx}")

    def gather(self, d: DType, base: str, idx: str) -> str:
        """The elements at `base` + the element offsets in `idx`, an i64 register."""
        t = self.moved(d)
        at = self._elements(t, base, idx)
        if self.width == 1:
            return self.from_memory(d, self.e(f"load {t}, ptr {at}, align {d.itemsize}"))
        v, p, m = self.vec(t), self.vec("ptr"), self.vec("i1")
        name = f"llvm.masked.gather.{self.suffix(t)}.v{self.width}p0"
        self.e.module.declare(name, f"declare {v} @{name}({p}, i32, {m}, {v})")
        mask = self.mask or self.k("i1", True)
        return self.from_memory(d, self.e(
            f"call {v} @{name}({p} {at}, i32 {d.itemsize}, {m} {mask}, {v} zeroinitializer)"
        ))

    def load_apart(self, d: DType, ptr: str, step: int) -> str:
        """The elements at `ptr`, `step` apart: contiguous vectors, of which the last one ends with
        the last of these elements, so that nothing beyond it is read. The mask's lanes must be the
        first ones: nothing beyond the last of them is read either."""
        t, n = self.moved(d), self.width
        v = self.vec(t)
        starts = sorted({min(at, (step - 1) * (n - 1)) for at in range(0, step * (n - 1) + 1, n)})
        found, order = "", [0] * n
        for j, start in enumerate(starts):
            at = self.e(f"getelementptr inbounds {t}, ptr {ptr}, i64 {start}") if j else ptr
            vector = self._read(t, at, d.itemsize, *self._until(start, step))
            here = {k: k * step - start for k in range(n) if 0 <= k * step - start < n}
            if j == 0:
                found, order = vector, [here.get(k, 0) for k in range(n)]
                continue
            picked = [n + here[k] if k in here else (order[k] if j == 1 else k) for k in range(n)]
            lanes = ", ".join(f"i32 {k}" for k in picked)
            found = self.e(f"shufflevector {v} {found}, {v} {vector}, <{n} x i32> <{lanes}>")
        return self.from_memory(d, found)

    def scatter(self, d: DType, register: str, base: str, idx: str) -> None:
        """Write to `base` + offsets `idx`; where offsets are equal the highest lane wins."""
        t, value = self.moved(d), self.to_memory(d, register)
        at = self._elements(t, base, idx)
        if self.width == 1:
            self.e.do(f"store {t} {value}, ptr {at}, align {d.itemsize}")
            return
        v, p, m = self.vec(t), self.vec("ptr"), self.vec("i1")
        name = f"llvm.masked.scatter.{self.suffix(t)}.v{self.width}p0"
        self.e.module.declare(name, f"declare void @{name}({v}, {p}, i32, {m})")
        mask = self.mask or self.k("i1", True)
        self.e.do(f"call void @{name}({v} {value}, {p} {at}, i32 {d.itemsize}, {m} {mask})")
