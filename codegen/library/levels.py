"""Which CPU level a library uses, decided at the first call and kept in one word.

    i32 @graphc.level()     the number of the level; GRAPHC_CPU, set to a level's name, lowers it

On x86-64 it is 1 (older than v2), 2, 3 or 4. The levels are those of the psABI, and need the
operating system to save the registers. On AArch64 it is 1, or 2 (v8.2) where Linux says that there
are dot products. Elsewhere there is one level, called "base".
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import filled
from graphc.codegen.machine.platforms import Platform
from graphc.codegen.machine.target import ARM

NUMBERS = {"base": 1, "v2": 2, "v3": 3, "v4": 4, "v8": 1, "v8.2": 2}

# CPUID leaf 1, ECX
_SSE3, _SSSE3, _CX16, _SSE41, _SSE42, _POPCNT = 1 << 0, 1 << 9, 1 << 13, 1 << 19, 1 << 20, 1 << 23
_FMA, _MOVBE, _OSXSAVE, _AVX, _F16C = 1 << 12, 1 << 22, 1 << 27, 1 << 28, 1 << 29
_V2_ECX1 = _SSE3 | _SSSE3 | _CX16 | _SSE41 | _SSE42 | _POPCNT
_V3_ECX1 = _FMA | _MOVBE | _OSXSAVE | _AVX | _F16C
_V3_EBX7 = 1 << 3 | 1 << 5 | 1 << 8                          # BMI1 AVX2 BMI2
_V3_LZCNT = 1 << 5                                           # leaf 0x80000001, ECX
_V4_EBX7 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31   # AVX-512 F DQ CD BW VL
_YMM, _ZMM = 0x6, 0xE6                                       # saved by the operating system

# The instructions that have no name in LLVM, as machine code, so that every machine can write
# them: LLVM reads assembly only where it was set up for the target. Only `optnone` keeps an
# optimiser that is given the text from taking a body without instructions at its word.
_CPUID = bytes.fromhex(
    "53"            # push rbx
    "4989f0"        # mov r8, rsi
    "89f8 31c9"     # mov eax, edi; xor ecx, ecx
    "0fa2"          # cpuid
    "418900"        # mov [r8], eax
    "41895804"      # mov [r8 + 4], ebx
    "41894808"      # mov [r8 + 8], ecx
    "4189500c"      # mov [r8 + 12], edx
    "5b c3"         # pop rbx; ret
)
_XGETBV = bytes.fromhex("31c9 0f01d0 c3")  # xor ecx, ecx; xgetbv; ret

_LEVEL = """
@graphc.level.known = internal global i32 0
@graphc.level.variable = private unnamed_addr constant [11 x i8] c"GRAPHC_CPU\\00"
declare ptr @getenv(ptr)
define internal x86_64_sysvcc void @graphc.cpuid(i32 %leaf, ptr %out) naked optnone noinline \
nounwind prologue [<CPUID_BYTES> x i8] c"<CPUID>" {
  unreachable
}
define internal x86_64_sysvcc i32 @graphc.xgetbv() naked optnone noinline nounwind \
prologue [<XGETBV_BYTES> x i8] c"<XGETBV>" {
  unreachable
}
define internal i32 @graphc.level.detect() noinline nounwind {
entry:
  %eax = alloca [4 x i32], align 16
  %ebx = getelementptr i32, ptr %eax, i64 1
  %ecx = getelementptr i32, ptr %eax, i64 2
  call x86_64_sysvcc void @graphc.cpuid(i32 0, ptr %eax)
  %max = load i32, ptr %eax, align 4
  call x86_64_sysvcc void @graphc.cpuid(i32 1, ptr %eax)
  %c1 = load i32, ptr %ecx, align 4
  %v2.have = and i32 %c1, <V2_ECX1>
  %v2 = icmp eq i32 %v2.have, <V2_ECX1>
  br i1 %v2, label %more, label %one
more:
  %v3.have = and i32 %c1, <V3_ECX1>
  %v3 = icmp eq i32 %v3.have, <V3_ECX1>
  %leaf7 = icmp uge i32 %max, 7
  %try3 = and i1 %v3, %leaf7
  br i1 %try3, label %three, label %two
three:
  %saved = call x86_64_sysvcc i32 @graphc.xgetbv()
  call x86_64_sysvcc void @graphc.cpuid(i32 7, ptr %eax)
  %b7 = load i32, ptr %ebx, align 4
  call x86_64_sysvcc void @graphc.cpuid(i32 -2147483647, ptr %eax)
  %ce = load i32, ptr %ecx, align 4
  %ymm.have = and i32 %saved, <YMM>
  %ymm = icmp eq i32 %ymm.have, <YMM>
  %b3.have = and i32 %b7, <V3_EBX7>
  %b3 = icmp eq i32 %b3.have, <V3_EBX7>
  %lz.have = and i32 %ce, <V3_LZCNT>
  %lz = icmp ne i32 %lz.have, 0
  %a = and i1 %ymm, %b3
  %is3 = and i1 %a, %lz
  br i1 %is3, label %four, label %two
four:
  %zmm.have = and i32 %saved, <ZMM>
  %zmm = icmp eq i32 %zmm.have, <ZMM>
  %b4.have = and i32 %b7, <V4_EBX7>
  %b4 = icmp eq i32 %b4.have, <V4_EBX7>
  %is4 = and i1 %zmm, %b4
  %best = select i1 %is4, i32 4, i32 3
  ret i32 %best
two:
  ret i32 2
one:
  ret i32 1
}
define internal i32 @graphc.level() nounwind {
entry:
  %known = load atomic i32, ptr @graphc.level.known monotonic, align 4
  %is = icmp ne i32 %known, 0
  br i1 %is, label %done, label %ask
ask:
  %own = call i32 @graphc.level.detect()
  %text = call ptr @getenv(ptr @graphc.level.variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %keep, label %first
first:
  %c0 = load i8, ptr %text
  %v = icmp eq i8 %c0, 118
  br i1 %v, label %second, label %keep
second:
  %p1 = getelementptr i8, ptr %text, i64 1
  %c1 = load i8, ptr %p1
  %d = sub i8 %c1, 48
  %wanted = zext i8 %d to i32
  %from2 = icmp uge i32 %wanted, 2
  %lower = icmp ult i32 %wanted, %own
  %use = and i1 %from2, %lower
  br i1 %use, label %third, label %keep
third:
  %p2 = getelementptr i8, ptr %text, i64 2
  %c2 = load i8, ptr %p2
  %end = icmp eq i8 %c2, 0
  %low = select i1 %end, i32 %wanted, i32 %own
  br label %keep
keep:
  %level = phi i32 [ %own, %ask ], [ %own, %first ], [ %own, %second ], [ %low, %third ]
  store atomic i32 %level, ptr @graphc.level.known monotonic, align 4
  br label %done
done:
  %r = phi i32 [ %known, %entry ], [ %level, %keep ]
  ret i32 %r
}
"""

_HWCAP, _ASIMDDP = 16, 1 << 20  # of Linux: what getauxval is asked for, and the dot products' bit

_ARM_LEVEL = f"""
@graphc.level.known = internal global i32 0
@graphc.level.variable = private unnamed_addr constant [11 x i8] c"GRAPHC_CPU\\00"
@graphc.level.lowest = private unnamed_addr constant [3 x i8] c"v8\\00"
declare ptr @getenv(ptr)
declare i64 @getauxval(i64)
define internal i32 @graphc.level() nounwind {{
entry:
  %known = load atomic i32, ptr @graphc.level.known monotonic, align 4
  %is = icmp ne i32 %known, 0
  br i1 %is, label %done, label %ask
ask:
  %have = call i64 @getauxval(i64 {_HWCAP})
  %dot = and i64 %have, {_ASIMDDP}
  %some = icmp ne i64 %dot, 0
  %own = select i1 %some, i32 2, i32 1
  %text = call ptr @getenv(ptr @graphc.level.variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %keep, label %compare
compare:
  %i = phi i64 [ 0, %ask ], [ %i.next, %same ]
  %p = getelementptr i8, ptr %text, i64 %i
  %q = getelementptr i8, ptr @graphc.level.lowest, i64 %i
  %c = load i8, ptr %p
  %w = load i8, ptr %q
  %equal = icmp eq i8 %c, %w
  br i1 %equal, label %same, label %keep
same:
  %i.next = add i64 %i, 1
  %end = icmp eq i8 %c, 0
  br i1 %end, label %keep, label %compare
keep:
  %level = phi i32 [ %own, %ask ], [ %own, %compare ], [ 1, %same ]
  store atomic i32 %level, ptr @graphc.level.known monotonic, align 4
  br label %done
done:
  %r = phi i32 [ %known, %entry ], [ %level, %keep ]
  ret i32 %r
}}
"""

_BASE = """
define internal i32 @graphc.level() nounwind {
  ret i32 1
}
"""


def level_text(platform: Platform) -> str:
    """The functions above for a platform."""
    if platform.levels == ("base",):
        return _BASE
    if platform.base.arch in ARM:
        return _ARM_LEVEL
    words = {
        "V2_ECX1": _V2_ECX1, "V3_ECX1": _V3_ECX1, "V3_EBX7": _V3_EBX7, "V3_LZCNT": _V3_LZCNT,
        "V4_EBX7": _V4_EBX7, "YMM": _YMM, "ZMM": _ZMM,
    }
    return filled(
        _LEVEL, CPUID_BYTES=len(_CPUID), CPUID="".join(f"\\{b:02X}" for b in _CPUID),
        XGETBV_BYTES=len(_XGETBV), XGETBV="".join(f"\\{b:02X}" for b in _XGETBV),
        **{name: v - (v >> 31 << 32) for name, v in words.items()},  # i32 as LLVM prints it
    )
