"""Lanes: registers of several elements, and how they are read from and written to memory.

Scalar ops, vector math and the kernel emitter write their instructions with `Lanes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.codegen.elementwise.halves import bf16_bits, bf16_from_bits, f16_bits, f16_from_bits
from graphc.codegen.emission import parts
from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.literals import memory_type
from graphc.codegen.emission.parts import Span
from graphc.codegen.emission.registers import Registers
from graphc.codegen.machine.target import X86, Target
from graphc.types import DType, f16


def most_apart(d: DType) -> int:
    """Up to what distance elements are picked from whole vectors rather than gathered.

    There are gathers of 32 and 64 bits only. Every second of 2^16 f32 takes 9.4 us by AVX-512 for
    the 15.8 of gathers, every fourth 18 for 31; bytes of every third 6 for 160.
    """
    return 4 if d.itemsize >= 4 else 8


class Lanes(Registers):
    """Registers that meet memory.

    Loads give 0 in lanes outside `mask`, stores leave memory alone there. `span`: the lanes of the
    mask, where these stand side by side and are not to be masked one by one. `in_order`: several
    vectors, side by side in a loop, are read in the order of memory.
    """

    def __init__(
        self, e: Emitter, width: int, target: Target, *, fastmath: bool = False,
        fail: Callable[[str], None] | None = None, mask: str | None = None,
        memo: dict[tuple[str, ...], tuple[str, ...]] | None = None, stepped: bool = False,
        in_order: bool = False, span: Span | None = None,
    ):
        super().__init__(
            e, width, target, fastmath=fastmath, fail=fail, mask=mask, memo=memo, stepped=stepped
        )
        self.in_order, self.span = in_order, span if mask is not None else None

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
