"""The thread pool as a library carries it.

Before glibc 2.34 threads stand in a library of their own, which a process may not have loaded;
so the library refers to them weakly and runs alone where they are missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphc.codegen.library.abi import Unit
from graphc.codegen.machine.platforms import Platform
from graphc.codegen.pool.runtime import MAX_THREADS, runtime_text

PARALLEL = "graphc_parallel"
# name -> (parameters, what the stand-in returns where it is missing: EAGAIN, ESRCH, EINVAL)
_WEAK = {
    "pthread_create": (("ptr", "ptr", "ptr", "ptr"), 11),
    "pthread_join": (("size", "ptr"), 3),
    "pthread_sigmask": (("i32", "ptr", "ptr"), 22),
}

# The threads are joined when the library is unloaded. The pointer stands in .fini_array itself,
# because llvm.global_dtors becomes .dtors, which lld drops silently.
_FINISH = """
@graphc.fini = internal global ptr @graphc_stop, section ".fini_array", align 8
"""
_NOTHING = """
define internal void @graphc.nothing(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) nounwind {
  ret void
}
"""
USED = (
    "@llvm.compiler.used = appending global [1 x ptr] [ptr @graphc.fini], "
    'section "llvm.metadata"\n'
)


def uses_pool(units: Sequence[Unit]) -> bool:
    """Whether any function runs in parallel."""
    return any(f"call void @{PARALLEL}(" in p.llvm for u in units for _, p in u.programs)


def limited(u: Unit) -> str:
    """The symbol by which a function calls the pool: it may ask for at most so many threads."""
    limit = _limit(u)
    return PARALLEL if limit is None else f"graphc.parallel.{limit}"


def _limit(u: Unit) -> int | None:
    """The most threads of a function; None where it may have all that there can be."""
    return u.threads if u.threads is not None and u.threads < MAX_THREADS else None


def pool_text(units: Sequence[Unit], platform: Platform) -> str:
    """The pool, its end at unload, and the limits that functions ask for."""
    text = runtime_text(platform, linkage="internal", unloaded=True)
    for name, (types, missing) in _WEAK.items():
        if f"@{name}(" not in text:
            continue
        text = text.replace(f"call i32 @{name}(", f"call i32 @graphc.{name}(")
        text = text.replace(f"declare i32 @{name}(", f"declare extern_weak i32 @{name}(")
        size = f"i{platform.base.pointer_bits}"
        params = ", ".join(f"{t.replace('size', size)} %{k}" for k, t in enumerate(types))
        text += f"""
define internal i32 @graphc.{name}({params}) nounwind {{
entry:
  %have = icmp ne ptr @{name}, null
  br i1 %have, label %call, label %missing
call:
  %r = call i32 @{name}({params})
  ret i32 %r
missing:
  ret i32 {missing}
}}
"""
    for n in sorted({n for u in units if (n := _limit(u)) is not None}):
        text += f"""
define internal void @graphc.parallel.{n}(ptr %task, ptr %ctx, i64 %n, ptr %scratch) nounwind {{
  call void @graphc_parallel_limited(ptr %task, ptr %ctx, i64 %n, ptr %scratch, i32 {n})
  ret void
}}
"""
    return text + _NOTHING + _FINISH * platform.threads


def with_pool(text: str, u: Unit) -> str:
    """A program's text, calling the pool by the symbol of its unit."""
    return re.sub(rf"@{PARALLEL}\b", f"@{limited(u)}", text)
