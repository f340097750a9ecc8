"""Algebra of one float format on lanes: what the vector math functions are written in.

Operands are registers or Python numbers. Names ending in `_dd` work on unevaluated sums of two
floats (hi, lo). Sources: Dekker 1971 and Knuth for the exact sum and product.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from graphc.codegen.emission.lanes import Lanes

Operand = str | float
Pair = tuple[str, str]


class Floats:
    """f32 ("float") or f64 ("double") arithmetic on the lanes of `L`."""

    def __init__(self, L: Lanes, t: str):
        self.L, self.t = L, t
        self.double = t == "double"
        self.bits, self.mantissa = (64, 52) if self.double else (32, 23)
        self.i = f"i{self.bits}"
        self.bias = (1 << (self.bits - self.mantissa - 2)) - 1
        self.magic = 1.5 * 2.0**self.mantissa  # x + magic rounds x to an integer, low bits first

    def pick(self, single: Sequence[float], double: Sequence[float]) -> Sequence[float]:
        """The table for this format."""
        return double if self.double else single

    # --- plain operations ------------------------------------------------------------------

    def k(self, x: Operand) -> str:
        """An operand: a register, or a number in every lane."""
        return x if isinstance(x, str) else self.L.k(self.t, x)

    def ki(self, x: str | int) -> str:
        """The same for integers of the width of the format."""
        return x if isinstance(x, str) else self.L.k(self.i, x)

    def add(self, a: Operand, b: Operand) -> str:
        return self.L.op("fadd", self.t, self.k(a), self.k(b))

    def sub(self, a: Operand, b: Operand) -> str:
        return self.L.op("fsub", self.t, self.k(a), self.k(b))

    def mul(self, a: Operand, b: Operand) -> str:
        return self.L.op("fmul", self.t, self.k(a), self.k(b))

    def div(self, a: Operand, b: Operand) -> str:
        return self.L.op("fdiv", self.t, self.k(a), self.k(b))

    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        return self.L.fma(self.t, self.k(a), self.k(b), self.k(c))

    def neg(self, a: str) -> str:
        return self.L.op("fneg", self.t, a)

    def abs(self, a: str) -> str:
        return self.L.intrinsic("fabs", self.t, a)

    def sqrt(self, a: str) -> str:
        return self.L.intrinsic("sqrt", self.t, a)

    def floor(self, a: str) -> str:
        return self.L.intrinsic("floor", self.t, a)

    def copysign(self, size: Operand, sign: str) -> str:
        return self.L.intrinsic("copysign", self.t, self.k(size), sign)

    def cmp(self, predicate: str, a: Operand, b: Operand) -> str:
        return self.L.cmp(predicate, self.t, self.k(a), self.k(b))

    def select(self, cond: str, a: Operand, b: Operand) -> str:
        return self.L.select(cond, self.t, self.k(a), self.k(b))

    def both(self, a: str, b: str) -> str:
        return self.L.op("and", "i1", a, b)

    def either(self, a: str, b: str) -> str:
        return self.L.op("or", "i1", a, b)

    def negate(self, cond: str) -> str:
        return self.L.negate(cond)

    def at_most(self, a: str, top: float) -> str:
        """min(a, top); NaN stays NaN."""
        return self.select(self.cmp("ogt", a, top), top, a)

    def at_least(self, a: str, low: float) -> str:
        """max(a, low); NaN stays NaN."""
        return self.select(self.cmp("olt", a, low), low, a)

    # --- bits ------------------------------------------------------------------------------

    def to_bits(self, a: Operand) -> str:
        return self.L.convert("bitcast", self.k(a), self.t, self.i)

    def from_bits(self, a: str) -> str:
        return self.L.convert("bitcast", a, self.i, self.t)

    def ints(self, name: str, a: str | int, b: str | int) -> str:
        """An integer instruction on registers or numbers."""
        return self.L.op(name, self.i, self.ki(a), self.ki(b))

    def icmp(self, predicate: str, a: str, b: int) -> str:
        return self.L.cmp(predicate, self.i, a, self.ki(b))

    def from_int(self, a: str) -> str:
        return self.L.convert("sitofp", a, self.i, self.t)

    def from_exponent(self, a: str) -> str:
        """a - bias as a float for integers a of 0 to 2^12; AVX2 converts none of 64 bits."""
        if not self.double:
            return self.from_int(self.ints("sub", a, self.bias))
        magic = struct.unpack("<q", struct.pack("<d", self.magic))[0]
        return self.sub(self.from_bits(self.ints("or", a, magic)), self.magic + self.bias)

    def negative(self, a: str) -> str:
        """Whether the sign bit is set: true for -0 too."""
        return self.icmp("slt", self.to_bits(a), 0)

    def nearest(self, a: str) -> Pair:
        """(n, integer register of n) for the integer nearest to a, |a| < 2^(mantissa - 1).

        The integer counts from the bits of `magic`, whose low bits are 0: enough for shifts left
        and for looking at low bits.
        """
        t = self.add(a, self.magic)
        return self.sub(t, self.magic), self.to_bits(t)

    def nearest_fma(self, a: str, b: Operand) -> Pair:
        """`nearest` of a * b."""
        t = self.fma(a, b, self.magic)
        return self.sub(t, self.magic), self.to_bits(t)

    def nearest_16th(self, a: str, b: Operand = 1.0) -> Pair:
        """(n, register with 16 n in its low bits) for the sixteenth n nearest to a * b."""
        magic = self.magic / 16
        t = self.add(a, magic) if b == 1.0 else self.fma(a, b, magic)
        return self.sub(t, magic), self.to_bits(t)

    def nearest_power(self, a: str, b: float, down: int = 0) -> Pair:
        """(n, 2^(n - down)) for the integer n nearest to a * b, in the normal range."""
        magic = self.magic + self.bias - down
        t = self.fma(a, b, magic)
        return self.sub(t, magic), self.from_bits(self.ints("shl", self.to_bits(t), self.mantissa))

    def power_of_two(self, n: str) -> str:
        """2^n for an integer register in the normal range (a counted one serves too)."""
        return self.from_bits(
            self.ints("add", self.ints("shl", n, self.mantissa), self.bias << self.mantissa)
        )

    def scale(self, p: str, whole: str, counted: str) -> str:
        """p * 2^n for p near 1, with overflow and gradual underflow, rounded once.

        `whole, counted` as `nearest` gives them; by halves, so that no factor overflows.
        """
        return self._scale(p, whole, lambda: counted)

    def scale_16th(self, p: str, whole: str, counted: str) -> str:
        """`scale` by the largest integer up to n, `whole, counted` as `nearest_16th` gives them."""
        return self._scale(p, whole, lambda: self.ints("lshr", counted, 4))

    def _scale(self, p: str, whole: str, counted: Callable[[], str]) -> str:
        """`scale`; `counted` gives the integer where no instruction does it all."""
        if self.avx512:
            return self._avx512("scalef", p, whole)
        n = self.ints("add", counted(), 2 * self.bias)  # each half takes its bias from here
        both = self.ints("shl", n, self.mantissa)       # whose bits and the sign's just hold it
        half = self.ints("and", self.ints("lshr", both, 1), -1 << self.mantissa)
        for part in (half, self.ints("sub", both, half)):
            p = self.mul(p, self.from_bits(part))
        return p

    def scale_once(self, p: str, counted: str, n: str | None) -> str:
        """`scale` for n of -151 to 128, or -1076 to 1024 (to 103 or 970 without `n`, which has its
        sign): by 2^n times what makes it normal, and back. The least n makes a power that is 0."""
        digits = self.mantissa + 1
        bias, back = self.ki(self.bias + digits), self.k(2.0**-digits)
        if n is not None:
            below = self.negative(n)
            bias = self.L.select(below, self.i, bias, self.ki(self.bias - 1))
            back = self.select(below, back, 2.0)
        power = self.from_bits(self.ints("shl", self.ints("add", counted, bias), self.mantissa))
        return self.mul(self.mul(p, power), back)

    def scale_normal(self, p: str, counted: str) -> str:
        """p * 2^n where p and the result are normal."""
        return self.from_bits(
            self.ints("add", self.to_bits(p), self.ints("shl", counted, self.mantissa))
        )

    def split_exponent(self, x: str, normal: bool = False) -> Pair:
        """(e, m) as floats: x = 2^e m, m in [3/4, 3/2), for finite x > 0 (`normal`: x is).

        With `avx512` 0 gives -infinity and 1, infinity itself and 1, below 0 m is NaN.
        """
        if self.avx512:
            m = self._avx512("getmant", x, immediate=0b1111)
            return self.sub(self._avx512("getexp", x), self._avx512("getexp", m)), m
        digits, b = self.mantissa + 1, self.to_bits(x)
        if not normal:
            subnormal = self.cmp("olt", x, 2.0 ** (2 - (1 << (self.bits - self.mantissa - 2))))
            b = self.to_bits(self.select(subnormal, self.mul(x, 2.0**digits), x))
        one = self.bias << self.mantissa
        up = self.ints("add", b, 1 << (self.mantissa - 1))  # from 3/4 on in the next binade
        n = self.from_exponent(self.ints("lshr", up, self.mantissa))
        whole = self.ints("and", up, -1 << self.mantissa)
        m = self.from_bits(self.ints("sub", self.ints("add", b, one), whole))
        return n if normal else self.add(n, self.select(subnormal, float(-digits), 0.0)), m

    def binade(self, x: str) -> Pair:
        """(e, m) as floats: x = 2^e m, m in [1, 2), for normal x > 0."""
        if self.avx512:
            return self._avx512("getexp", x), self._avx512("getmant", x, immediate=0b1000)
        b = self.to_bits(x)
        one = self.bias << self.mantissa
        m = self.ints("or", self.ints("and", b, (1 << self.mantissa) - 1), one)
        return self.from_exponent(self.ints("lshr", b, self.mantissa)), self.from_bits(m)

    @property
    def avx512(self) -> bool:
        """Whether registers are whole ones of AVX-512."""
        L = self.L
        whole = L.width * self.bits % 512 == 0 and not L.e.module.attributes
        return L.target.masked and L.target.arch == "x86_64" and whole

    def _avx512(self, name: str, *args: str, immediate: int | None = None) -> str:
        """An instruction of AVX-512 that LLVM has no other name for."""
        L, one = self.L, 512 // self.bits
        v, m = f"<{one} x {self.t}>", f"i{one}"
        full = f"llvm.x86.avx512.mask.{name}.p{'d' if self.double else 's'}.512"
        constant, what = ("", "") if immediate is None else (f", i32 {immediate}", ", i32")
        L.e.module.declare(
            full, f"declare {v} @{full}({', '.join([v] * len(args))}{what}, {v}, {m}, i32)"
        )
        return L.joined(self.t, [
            L.e(f"call {v} @{full}({', '.join(f'{v} {a}' for a in parts)}{constant}, "
                f"{v} poison, {m} -1, i32 4)")
            for parts in zip(*(L.parts(self.t, x, one) for x in args), strict=True)
        ])

    # --- polynomials -----------------------------------------------------------------------

    def poly(self, x: str, c: Sequence[float]) -> str:
        """c[0] + c[1] x + ...: Horner's rule."""
        return self.poly_of(x, [self.k(v) for v in c])

    def poly_of(self, x: str, c: Sequence[str]) -> str:
        """`poly` with a register for each coefficient."""
        r = c[-1]
        for v in c[-2::-1]:
            r = self.fma(r, x, v)
        return r

    def poly_wide(self, x: str, c: Sequence[float]) -> str:
        """The same in a tree (Estrin): shorter chains of dependent instructions."""
        terms, p = [self.k(v) for v in c], x
        while len(terms) > 1:
            terms = [
                self.fma(terms[i + 1], p, terms[i]) if i + 1 < len(terms) else terms[i]
                for i in range(0, len(terms), 2)
            ]
            if len(terms) > 1:
                p = self.mul(p, p)
        return terms[0]

    def series(self, x: str, single: Sequence[float], double: Sequence[float]) -> str:
        """The polynomial of this format: Horner for the short one, a tree for the long one."""
        return self.poly_wide(x, double) if self.double else self.poly(x, single)

    # --- sums of two floats ----------------------------------------------------------------

    def two_sum(self, a: Operand, b: Operand) -> Pair:
        """a + b exactly."""
        s = self.add(a, b)
        bb = self.sub(s, a)
        return s, self.add(self.sub(a, self.sub(s, bb)), self.sub(b, bb))

    def fast_two_sum(self, a: Operand, b: Operand) -> Pair:
        """a + b exactly, for |a| >= |b| or a = 0."""
        s = self.add(a, b)
        return s, self.sub(b, self.sub(s, a))

    def _halves(self, a: str) -> Pair:
        """a as a sum of two floats of half the digits, cut by masking bits: never overflows."""
        keep = -1 << ((self.mantissa + 2) // 2)
        hi = self.from_bits(self.ints("and", self.to_bits(a), keep))
        return hi, self.sub(a, hi)

    def two_prod(self, a: Operand, b: Operand) -> Pair:
        """a * b exactly (but for underflow)."""
        a, b = self.k(a), self.k(b)
        p = self.mul(a, b)
        if self.L.target.has_fma:
            return p, self.fma(a, b, self.neg(p))
        (ah, al), (bh, bl) = self._halves(a), self._halves(b)
        e = self.sub(self.mul(ah, bh), p)
        e = self.add(self.add(e, self.mul(ah, bl)), self.mul(al, bh))
        return p, self.add(e, self.mul(al, bl))

    def residue(self, a: str, b: str, c: Operand) -> str:
        """a * b - c, rounded once, for a product close to c."""
        if self.L.target.has_fma:
            return self.fma(a, b, self.neg(c) if isinstance(c, str) else -c)
        p, low = self.two_prod(a, b)
        return self.add(self.sub(p, c), low)

    def add_dd(self, a: tuple[Operand, Operand], b: tuple[Operand, Operand]) -> Pair:
        s, e = self.two_sum(a[0], b[0])
        return self.fast_two_sum(s, self.add(e, self.add(a[1], b[1])))

    def mul_dd(self, a: tuple[Operand, Operand], b: tuple[Operand, Operand]) -> Pair:
        p, e = self.two_prod(a[0], b[0])
        cross = self.add(self.mul(a[0], b[1]), self.mul(a[1], b[0]))
        return self.fast_two_sum(p, self.add(e, cross))

    def div_dd(self, a: tuple[Operand, Operand], b: tuple[Operand, Operand]) -> Pair:
        q = self.div(a[0], b[0])
        p, e = self.two_prod(q, b[0])
        rest = self.add(self.sub(self.sub(a[0], p), e), self.sub(a[1], self.mul(q, b[1])))
        return self.fast_two_sum(q, self.div(rest, b[0]))

    # --- special values --------------------------------------------------------------------

    def keep_nan(self, x: str, y: str) -> str:
        """y, but x where x is NaN."""
        return self.select(self.cmp("uno", x, x), x, y)


NAN, INF = math.nan, math.inf
