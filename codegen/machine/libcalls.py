"""Functions that LLVM calls where a machine has no instruction, as LLVM text.

Compilers keep these in a library of their own (compiler-rt, libgcc) or in libm; a graphc library
depends on neither, so it brings those that its object turned out to ask for. They are written in
operations that the machine has: 32-bit integers and float arithmetic.

    text = completed(text, object_bytes)     what was missing is defined
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import filled, joined
from graphc.codegen.machine import elf

_CALLED = "arm_aapcscc"  # the calling convention of these functions on ARM

# Shift and subtract, from the first bit that the quotient can have.
_UDIVMOD = """
define internal { i64, i64 } @graphc.udivmod(i64 %n, i64 %d) nounwind {
entry:
  %small = icmp ult i64 %n, %d
  br i1 %small, label %none, label %some
none:
  %n0 = insertvalue { i64, i64 } { i64 0, i64 poison }, i64 %n, 1
  ret { i64, i64 } %n0
some:
  %zd = call i64 @llvm.ctlz.i64(i64 %d, i1 false)
  %zn = call i64 @llvm.ctlz.i64(i64 %n, i1 false)
  %shift = sub i64 %zd, %zn
  %first = shl i64 %d, %shift
  br label %bit
bit:
  %k = phi i64 [ %shift, %some ], [ %k.next, %bit ]
  %q = phi i64 [ 0, %some ], [ %q.next, %bit ]
  %r = phi i64 [ %n, %some ], [ %r.next, %bit ]
  %s = phi i64 [ %first, %some ], [ %s.next, %bit ]
  %fits = icmp uge i64 %r, %s
  %less = sub i64 %r, %s
  %r.next = select i1 %fits, i64 %less, i64 %r
  %one = zext i1 %fits to i64
  %q.up = shl i64 %q, 1
  %q.next = or i64 %q.up, %one
  %s.next = lshr i64 %s, 1
  %k.next = sub i64 %k, 1
  %more = icmp ne i64 %k, 0
  br i1 %more, label %bit, label %done
done:
  %pair = insertvalue { i64, i64 } poison, i64 %q.next, 0
  %both = insertvalue { i64, i64 } %pair, i64 %r.next, 1
  ret { i64, i64 } %both
}
declare i64 @llvm.ctlz.i64(i64, i1)
"""
_DIVMOD = """
define internal { i64, i64 } @graphc.divmod(i64 %n, i64 %d) nounwind {
  %sn = ashr i64 %n, 63
  %sd = ashr i64 %d, 63
  %nx = xor i64 %n, %sn
  %na = sub i64 %nx, %sn
  %dx = xor i64 %d, %sd
  %da = sub i64 %dx, %sd
  %u = call { i64, i64 } @graphc.udivmod(i64 %na, i64 %da)
  %uq = extractvalue { i64, i64 } %u, 0
  %ur = extractvalue { i64, i64 } %u, 1
  %sq = xor i64 %sn, %sd
  %qx = xor i64 %uq, %sq
  %q = sub i64 %qx, %sq
  %rx = xor i64 %ur, %sn
  %r = sub i64 %rx, %sn
  %pair = insertvalue { i64, i64 } poison, i64 %q, 0
  %both = insertvalue { i64, i64 } %pair, i64 %r, 1
  ret { i64, i64 } %both
}
"""
# The quotient of two 32-bit integers, truncated, is exact in a double.
_DIV32 = """
define internal <cc> i32 @__aeabi_<u>idiv(i32 %a, i32 %b) nounwind {
  %fa = <to>itofp i32 %a to double
  %fb = <to>itofp i32 %b to double
  %fq = fdiv double %fa, %fb
  %q = fpto<to>i double %fq to i32
  ret i32 %q
}
define internal <cc> { i32, i32 } @__aeabi_<u>idivmod(i32 %a, i32 %b) nounwind {
  %q = call <cc> i32 @__aeabi_<u>idiv(i32 %a, i32 %b)
  %back = mul i32 %q, %b
  %r = sub i32 %a, %back
  %pair = insertvalue { i32, i32 } poison, i32 %q, 0
  %both = insertvalue { i32, i32 } %pair, i32 %r, 1
  ret { i32, i32 } %both
}
"""
# Both halves are exact, and so is their scaling: one rounding, in the sum.
_TO_DOUBLE = """
define internal <cc> double @__aeabi_<u>l2d(i64 %x) nounwind {
  %up = lshr i64 %x, 32
  %high = trunc i64 %up to i32
  %low = trunc i64 %x to i32
  %fh = <to>itofp i32 %high to double
  %fl = uitofp i32 %low to double
  %scaled = fmul double %fh, 0x41F0000000000000
  %r = fadd double %scaled, %fl
  ret double %r
}
"""
# Numbers of more than 53 bits lose the lowest 11 to one sticky bit, so that rounding to double
# does nothing, and rounding that to float is rounding once.
_TO_FLOAT = """
define internal <cc> float @__aeabi_<u>l2f(i64 %x) nounwind {
  %low = and i64 %x, 2047
  %carry = add i64 %low, 2047
  %bit = and i64 %carry, 2048
  %kept = and i64 %x, -2048
  %sticky = or i64 %kept, %bit
  %from = add i64 %x, <bias>
  %long = icmp ugt i64 %from, <top>
  %y = select i1 %long, i64 %sticky, i64 %x
  %d = call <cc> double @__aeabi_<u>l2d(i64 %y)
  %r = fptrunc double %d to float
  ret float %r
}
"""
_FROM_DOUBLE = """
define internal <cc> i64 @__aeabi_d2ulz(double %x) nounwind {
  %up = fmul double %x, 0x3DF0000000000000
  %high = fptoui double %up to i32
  %fh = uitofp i32 %high to double
  %scaled = fmul double %fh, 0x41F0000000000000
  %rest = fsub double %x, %scaled
  %low = fptoui double %rest to i32
  %wide = zext i32 %high to i64
  %shifted = shl i64 %wide, 32
  %low.wide = zext i32 %low to i64
  %r = or i64 %shifted, %low.wide
  ret i64 %r
}
"""
_FROM_DOUBLE_SIGNED = """
define internal <cc> i64 @__aeabi_d2lz(double %x) nounwind {
  %size = call double @llvm.fabs.f64(double %x)
  %u = call <cc> i64 @__aeabi_d2ulz(double %size)
  %negative = fcmp olt double %x, 0.0
  %minus = sub i64 0, %u
  %r = select i1 %negative, i64 %minus, i64 %u
  ret i64 %r
}
declare double @llvm.fabs.f64(double)
"""
_FROM_FLOAT = """
define internal <cc> i64 @__aeabi_f2<u>lz(float %x) nounwind {
  %d = fpext float %x to double
  %r = call <cc> i64 @__aeabi_d2<u>lz(double %d)
  ret i64 %r
}
"""
_PAIR = """
define internal <cc> { i64, i64 } @__aeabi_<u>ldivmod(i64 %n, i64 %d) nounwind {
  %r = call { i64, i64 } @graphc.<u>divmod(i64 %n, i64 %d)
  ret { i64, i64 } %r
}
"""
# Adding 2^52 (2^23) rounds to an integer; what is larger is one. The sign stays, also of zero.
_ROUND = """
define internal <t> @roundeven<s>(<t> %x) nounwind {
  %size = call <t> @llvm.fabs.<f>(<t> %x)
  %up = fadd <t> %size, <big>
  %whole = fsub <t> %up, <big>
  %signed = call <t> @llvm.copysign.<f>(<t> %whole, <t> %x)
  %inside = fcmp olt <t> %size, <big>
  %r = select i1 %inside, <t> %signed, <t> %x
  ret <t> %r
}
declare <t> @llvm.fabs.<f>(<t>)
declare <t> @llvm.copysign.<f>(<t>, <t>)
"""
_STEP = """
define internal <t> @<name><s>(<t> %x) nounwind {
  %near = call <t> @roundeven<s>(<t> %x)
  %beyond = fcmp <test> <t> %near, %x
  %step = select i1 %beyond, <t> <one>, <t> 0.0
  %moved = fadd <t> %near, %step
  %r = call <t> @llvm.copysign.<f>(<t> %moved, <t> %x)
  ret <t> %r
}
declare <t> @llvm.copysign.<f>(<t>, <t>)
"""
_TRUNC = """
define internal <t> @trunc<s>(<t> %x) nounwind {
  %size = call <t> @llvm.fabs.<f>(<t> %x)
  %down = call <t> @floor<s>(<t> %size)
  %r = call <t> @llvm.copysign.<f>(<t> %down, <t> %x)
  ret <t> %r
}
declare <t> @llvm.fabs.<f>(<t>)
declare <t> @llvm.copysign.<f>(<t>, <t>)
"""


def _table() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Symbol -> its text, and the symbols that this calls."""
    out: dict[str, tuple[str, tuple[str, ...]]] = {
        "graphc.udivmod": (_UDIVMOD, ()), "graphc.divmod": (_DIVMOD, ("graphc.udivmod",)),
        "__aeabi_d2ulz": (filled(_FROM_DOUBLE, cc=_CALLED), ()),
        "__aeabi_d2lz": (filled(_FROM_DOUBLE_SIGNED, cc=_CALLED), ("__aeabi_d2ulz",)),
    }
    for u, to, bias, top in (("u", "u", 0, 1 << 53), ("", "s", 1 << 53, 1 << 54)):
        both = filled(_DIV32, cc=_CALLED, u=u, to=to)
        out[f"__aeabi_{u}idiv"] = out[f"__aeabi_{u}idivmod"] = (both, ())
        out[f"__aeabi_{u}ldivmod"] = (filled(_PAIR, cc=_CALLED, u=u), (f"graphc.{u}divmod",))
        out[f"__aeabi_{u}l2d"] = (filled(_TO_DOUBLE, cc=_CALLED, u=u, to=to), ())
        out[f"__aeabi_{u}l2f"] = (
            filled(_TO_FLOAT, cc=_CALLED, u=u, bias=bias, top=top), (f"__aeabi_{u}l2d",)
        )
        out[f"__aeabi_f2{u}lz"] = (filled(_FROM_FLOAT, cc=_CALLED, u=u), (f"__aeabi_d2{u}lz",))
    for s, t, f, big in (("f", "float", "f32", "8388608.0"), ("", "double", "f64",
                                                              "4503599627370496.0")):
        own = {"s": s, "t": t, "f": f, "big": big}
        out[f"roundeven{s}"] = (filled(_ROUND, **own), ())
        for name, test, one in (("floor", "ogt", "-1.0"), ("ceil", "olt", "1.0")):
            out[f"{name}{s}"] = (
                filled(_STEP, name=name, test=test, one=one, **own), (f"roundeven{s}",)
            )
        out[f"trunc{s}"] = (filled(_TRUNC, **own), (f"floor{s}",))
    return out


_TEXTS = _table()


def completed(code: str, obj: bytes) -> str:
    """The module that this ELF object was made of, with those functions that it lacks."""
    wanted = [n for n in elf.read(obj).undefined if n in _TEXTS]
    texts: dict[str, None] = {}
    for name in wanted:  # grows
        text, more = _TEXTS[name]
        if text not in texts:
            texts[text] = None
            wanted += more
    return joined([code, *texts])
