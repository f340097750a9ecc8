"""The C library as a library's own code calls it, on platforms that lack it or where it differs.

Library code declares C functions with 64-bit sizes. `with_libc` completes a module: where size_t
has 32 bits, such calls go through functions that narrow; what a platform has no C library for is
defined in the module itself, without being visible outside.
"""

from __future__ import annotations

import re
from collections import Counter

from graphc.codegen.emission.emitter import DECLARED, DEFINED, attributed, joined
from graphc.codegen.library import wasm, windows
from graphc.codegen.machine.platforms import Platform

# Functions with sizes ("z" where size_t stands): result, parameters.
_SIZED = {
    "malloc": ("ptr", ("z",)),
    "strlen": ("z", ("ptr",)),
    "memcmp": ("i32", ("ptr", "ptr", "z")),
    "fread": ("z", ("ptr", "z", "z", "ptr")),
    "fwrite": ("z", ("ptr", "z", "z", "ptr")),
}

_COMPARE = """
define internal i32 @memcmp(ptr %a, ptr %b, i64 %n) nounwind {
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i.next, %same ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %byte, label %equal
byte:
  %pa = getelementptr i8, ptr %a, i64 %i
  %pb = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %pa
  %y = load i8, ptr %pb
  %i.next = add i64 %i, 1
  %is = icmp eq i8 %x, %y
  br i1 %is, label %same, label %differ
same:
  br label %look
differ:
  %x.wide = zext i8 %x to i32
  %y.wide = zext i8 %y to i32
  %d = sub i32 %x.wide, %y.wide
  ret i32 %d
equal:
  ret i32 0
}
"""
_LENGTH = """
define internal i64 @strlen(ptr %s) nounwind {
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %look ]
  %p = getelementptr i8, ptr %s, i64 %n
  %c = load i8, ptr %p
  %n.next = add i64 %n, 1
  %end = icmp eq i8 %c, 0
  br i1 %end, label %done, label %look
done:
  ret i64 %n
}
"""
# By object format: texts that are taken where one of their functions is wanted; those that others
# need come last.
_OWN = {
    "coff": (windows.FILES, windows.MEMORY, windows.ENVIRONMENT,
             _COMPARE, _LENGTH),
    "wasm": (_COMPARE,),
}
# What LLVM calls of its own accord: (what in the module makes it do so, the text).
_IMPLIED = {
    "coff": (("llvm.memcpy", windows.COPY), ("llvm.memset", windows.FILL),
             ("define ", windows.PROBE)),
    "wasm": (("llvm.smul.with.overflow.i64", wasm.MULTIPLY),),
}


def with_libc(code: str, platform: Platform, attributes: str) -> str:
    """The module with what its platform needs; new functions get `attributes`."""
    code = _needed(code)
    texts = [text for word, text in _IMPLIED.get(platform.format, ()) if word in code]
    for text in _OWN.get(platform.format, ()):
        wanted = set(DECLARED.findall("\n".join([code, *texts])))
        if wanted.intersection(DEFINED.findall(text)):
            texts.append(text)
    code = joined([code, *(attributed(t, attributes) for t in texts)])
    if platform.base.pointer_bits == 32:
        code = _narrowed(code, attributes)
    if platform.format == "coff":  # there, what walks a stack needs tables of every function
        function = re.compile(r"^(define (?!.* naked ).*) nounwind\b", re.M)
        code = function.sub(r"\1 nounwind uwtable", code)
    return code


def _needed(code: str) -> str:
    """The module without declarations of what it does not use."""
    uses = Counter(re.findall(r"@([\w.]+)", code))
    return DECLARED.sub(lambda m: m[0] if uses[m[1]] > 1 else "", code)


def _narrowed(code: str, attributes: str) -> str:
    """Functions of the C library called through ones that make 32-bit sizes of 64-bit ones.

    What cannot be so large is not looked at: only `malloc` can be asked for too much.
    """
    declared = set(DECLARED.findall(code))
    narrow, wide = {"z": "i32"}, {"z": "i64"}
    texts = []
    for name, (result, params) in _SIZED.items():
        if name not in declared:
            continue
        code = re.sub(rf"^declare [^@\n]*@{name}\(.*\n", "", code, flags=re.M)
        code = re.sub(rf"@{name}\b", f"@graphc.{name}", code)
        theirs = ", ".join(narrow.get(t, t) for t in params)
        ours = ", ".join(f"{wide.get(t, t)} %a{k}" for k, t in enumerate(params))
        lines = [f"declare {narrow.get(result, result)} @{name}({theirs})",
                 f"define internal {wide.get(result, result)} @graphc.{name}({ours}) nounwind {{",
                 "entry:"]
        if name == "malloc":
            lines += ["  %huge = icmp ugt i64 %a0, 4294967295",
                      "  br i1 %huge, label %none, label %call", "none:", "  ret ptr null",
                      "call:"]
        lines += [f"  %n{k} = trunc i64 %a{k} to i32" for k, t in enumerate(params) if t == "z"]
        given = ", ".join(f"i32 %n{k}" if t == "z" else f"{t} %a{k}" for k, t in enumerate(params))
        lines.append(f"  %r = call {narrow.get(result, result)} @{name}({given})")
        if result == "z":
            lines += ["  %wide = zext i32 %r to i64", "  ret i64 %wide", "}"]
        else:
            lines += [f"  ret {result} %r", "}"]
        texts.append(attributed("\n".join(lines), attributes))
    return "\n".join([code, *texts, ""])
