"""Where the thread pool keeps what changes: a block that a fork wipes. LLVM text, <tokens> as in
`runtime`.

It is made at first use. MADV_WIPEONFORK (18) makes a child see zeros; where the kernel lacks it,
`kept` is set and the process id is compared at every region instead.

The JIT's pool, which is never unloaded, maps it. In a library it is pages of the library's own
data: they go with the library and not before, since at exit other threads may still be calling.
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import filled
from graphc.dims import round_up

_ROOM = """
@P_room = internal global [<BYTES> x i8] zeroinitializer, align <PAGE>
@P_taken = internal global i32 0
"""
_TAKE_ROOM = """  %taken = cmpxchg ptr @P_taken, i32 0, i32 1 monotonic monotonic
  %first = extractvalue { i32, i1 } %taken, 1
  br i1 %first, label %mapped, label %map"""

_BLOCK = """
define internal i1 @P_own(ptr %pool) nounwind {
entry:
  %kept.at = getelementptr i8, ptr %pool, i64 <kept>
  %kept = load i32, ptr %kept.at
  %wiped = icmp eq i32 %kept, 0
  br i1 %wiped, label %own, label %compare
compare:
  %pid = getelementptr i8, ptr %pool, i64 <pid>
  %owner = load i32, ptr %pid
  %me = call i32 @getpid()
  %mine = icmp eq i32 %owner, %me
  ret i1 %mine
own:
  ret i1 true
}
define internal ptr @P_block() nounwind {
entry:
  %have = load atomic ptr, ptr @P_pool acquire, align 8
  %none = icmp eq ptr %have, null
  br i1 %none, label %make, label %check
check:
  %own = call i1 @P_own(ptr %have)
  br i1 %own, label %same, label %forked
forked:
  %dropped = cmpxchg ptr @P_pool, ptr %have, ptr null acq_rel acquire
  br label %make
make:
<TAKE>
map:
  %pages = call ptr @mmap(ptr null, <size> <BYTES>, i32 3, i32 34, i32 -1, <size> 0)
  %bits = ptrtoint ptr %pages to <size>
  %bad = icmp eq <size> %bits, -1
  br i1 %bad, label %fail, label %mapped
mapped:
  %new = phi ptr <ROOM>[ %pages, %map ]
  %r = call i32 @madvise(ptr %new, <size> <BYTES>, i32 18)
  %wipes = icmp eq i32 %r, 0
  br i1 %wipes, label %publish, label %remember
remember:
  %kept.new = getelementptr i8, ptr %new, i64 <kept>
  store i32 1, ptr %kept.new
  %pid.new = getelementptr i8, ptr %new, i64 <pid>
  %self = call i32 @getpid()
  store i32 %self, ptr %pid.new
  br label %publish
publish:
  %swap = cmpxchg ptr @P_pool, ptr null, ptr %new acq_rel acquire
  %other = extractvalue { ptr, i1 } %swap, 0
  %won = extractvalue { ptr, i1 } %swap, 1
  br i1 %won, label %ours, label %theirs
ours:
  ret ptr %new
theirs:
  %own.pages = icmp eq ptr %new, <PAGES>
  br i1 %own.pages, label %done, label %unmap
unmap:
  %u = call i32 @munmap(ptr %new, <size> <BYTES>)
  br label %done
done:
  ret ptr %other
same:
  ret ptr %have
fail:
  ret ptr null
}
"""


def memory_text(arch: str, size: int, unloaded: bool) -> str:
    """`P_block`, which finds or makes it, and `P_own`; unloaded: the code may be."""
    if not unloaded:
        return filled(_BLOCK, BYTES=size, TAKE="  br label %map", ROOM="", PAGES="null")
    page = 1 << 16 if arch == "aarch64" else 1 << 12  # the largest that the system may have
    return filled(
        _ROOM + _BLOCK, BYTES=round_up(size, page), PAGE=page, TAKE=_TAKE_ROOM,
        ROOM="[ @P_room, %make ], ", PAGES="@P_room",
    )
