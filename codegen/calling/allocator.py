"""The functions of a caching allocator, as LLVM text: NumPy's allocation hook (NEP 49).

A block that is given back is kept for the next request that it fits, which is one of at most its
size and at least four fifths of it; what was kept longest goes first. NumPy calls the functions
with the GIL held, which is all the locking there is; an interpreter without one does not use them
(`pylayout.usable`). A forked child finds its own copy of the blocks kept.

A block starts with a head: its capacity, and what was mapped for it (nothing if it is from the
heap). Blocks from 1 MiB on are mappings of their own, so that releasing them gives their pages back
whatever stands around them. `recycle` loads the functions and sets their limits.
"""

from __future__ import annotations

FROM_BYTES = 64 << 10  # smaller blocks are not kept
BLOCKS = 32            # that are kept at most
# Bytes of a block's head. NumPy's large arrays begin 16 bytes into a page. A load whose address has
# the low 12 bits of a store that has not reached the cache waits for it, so results that stood a
# little further into their pages than operands would hold up kernels that read ahead: softmax of
# 1024 x 1024 takes 332 us with 64 here, and 282 from 1024 on.
HEAD = 2048 + 64
_MAPPED = 1 << 20  # from here on blocks are mappings
_HUGE = 4 << 20    # from here on huge pages are asked for, as NumPy does

EXPORTS = ("state", "handler", "trim", "drop_arena")
LIBC = ("posix_memalign", "free", "mmap", "munmap", "madvise", "memset", "memcpy")

# @state: limit, bytes kept, blocks kept, the blocks from the one kept longest.
TEXT = f"""
@state = global {{ i64, i64, i64, [{BLOCKS + 1} x ptr] }} zeroinitializer
@handler = global {{ [6 x i8], [121 x i8], i8, ptr, ptr, ptr, ptr, ptr }} {{
  [6 x i8] c"graphc", [121 x i8] zeroinitializer, i8 1, ptr null,
  ptr @take, ptr @take_zeroed, ptr @resize, ptr @give }}
declare i32 @posix_memalign(ptr, i64, i64) nounwind
declare void @free(ptr) nounwind
declare ptr @mmap(ptr, i64, i32, i32, i32, i64) nounwind
declare i32 @munmap(ptr, i64) nounwind
declare i32 @madvise(ptr, i64, i32) nounwind
declare ptr @memset(ptr, i32, i64) nounwind
declare ptr @memcpy(ptr, ptr, i64) nounwind
define internal i64 @capacity(ptr %p) nounwind alwaysinline {{
  %at = getelementptr i8, ptr %p, i64 -{HEAD}
  %c = load i64, ptr %at
  ret i64 %c
}}
define internal void @discard(ptr %p) nounwind {{
entry:
  %block = getelementptr i8, ptr %p, i64 -{HEAD}
  %mapped.at = getelementptr i64, ptr %block, i64 1
  %mapped = load i64, ptr %mapped.at
  %own = icmp ne i64 %mapped, 0
  br i1 %own, label %unmap, label %heap
unmap:
  call i32 @munmap(ptr %block, i64 %mapped)
  ret void
heap:
  call void @free(ptr %block)
  ret void
}}
define internal ptr @pick(i64 %k) nounwind {{
entry:
  %at = getelementptr {{ i64, i64, i64, ptr }}, ptr @state, i64 0, i32 3
  %first = getelementptr ptr, ptr %at, i64 %k
  %p = load ptr, ptr %first
  %c = call i64 @capacity(ptr %p)
  %bytes.at = getelementptr i64, ptr @state, i64 1
  %count.at = getelementptr i64, ptr @state, i64 2
  %bytes = load i64, ptr %bytes.at
  %less = sub i64 %bytes, %c
  store i64 %less, ptr %bytes.at
  %count = load i64, ptr %count.at
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr %count.at
  br label %each
each:
  %i = phi i64 [ %k, %entry ], [ %j, %move ]
  %more = icmp ult i64 %i, %fewer
  br i1 %more, label %move, label %done
move:
  %j = add i64 %i, 1
  %to = getelementptr ptr, ptr %at, i64 %i
  %from = getelementptr ptr, ptr %at, i64 %j
  %q = load ptr, ptr %from
  store ptr %q, ptr %to
  br label %each
done:
  ret ptr %p
}}
define i64 @drop_arena(ptr %cell) nounwind {{
entry:
  %arena = atomicrmw xchg ptr %cell, ptr null acq_rel
  %none = icmp eq ptr %arena, null
  br i1 %none, label %done, label %drop
drop:
  %size = load i64, ptr %arena
  call void @free(ptr %arena)
  ret i64 %size
done:
  ret i64 0
}}
define void @trim(i64 %limit, i64 %most) nounwind {{
entry:
  %bytes.at = getelementptr i64, ptr @state, i64 1
  %count.at = getelementptr i64, ptr @state, i64 2
  br label %each
each:
  %bytes = load i64, ptr %bytes.at
  %count = load i64, ptr %count.at
  %heavy = icmp ugt i64 %bytes, %limit
  %many = icmp ugt i64 %count, %most
  %over = or i1 %heavy, %many
  br i1 %over, label %drop, label %done
drop:
  %p = call ptr @pick(i64 0)
  call void @discard(ptr %p)
  br label %each
done:
  ret void
}}
define internal ptr @take(ptr %ctx, i64 %size) nounwind {{
entry:
  %table = getelementptr i64, ptr @state, i64 3
  %count.at = getelementptr i64, ptr @state, i64 2
  %count = load i64, ptr %count.at
  %quarter = lshr i64 %size, 2
  %most = add i64 %size, %quarter
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %look ]
  %best = phi i64 [ -1, %entry ], [ %best.next, %look ]
  %least = phi i64 [ %most, %entry ], [ %least.next, %look ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %looked
look:
  %at = getelementptr ptr, ptr %table, i64 %i
  %p = load ptr, ptr %at
  %c = call i64 @capacity(ptr %p)
  %holds = icmp uge i64 %c, %size
  %tight = icmp ule i64 %c, %least
  %better = and i1 %holds, %tight
  %best.next = select i1 %better, i64 %i, i64 %best
  %least.next = select i1 %better, i64 %c, i64 %least
  %i.next = add i64 %i, 1
  br label %each
looked:
  %none = icmp slt i64 %best, 0
  br i1 %none, label %make, label %found
found:
  %kept = call ptr @pick(i64 %best)
  ret ptr %kept
make:
  %absurd = icmp ugt i64 %size, {1 << 62}
  br i1 %absurd, label %refuse, label %allocate
allocate:
  %padded = add i64 %size, {HEAD + 4095}
  %total = and i64 %padded, -4096
  %first = call ptr @obtain(i64 %total)
  %ok = icmp ne ptr %first, null
  br i1 %ok, label %made, label %again
again:
  call void @trim(i64 0, i64 0)
  %second = call ptr @obtain(i64 %total)
  %ok2 = icmp ne ptr %second, null
  br i1 %ok2, label %made, label %refuse
refuse:
  ret ptr null
made:
  %block = phi ptr [ %first, %allocate ], [ %second, %again ]
  %room = sub i64 %total, {HEAD}
  store i64 %room, ptr %block
  %new = getelementptr i8, ptr %block, i64 {HEAD}
  ret ptr %new
}}
define internal ptr @obtain(i64 %total) nounwind {{
entry:
  %out = alloca ptr, align 8
  %large = icmp uge i64 %total, {_MAPPED}
  br i1 %large, label %map, label %heap
map:
  %p = call ptr @mmap(ptr null, i64 %total, i32 3, i32 34, i32 -1, i64 0)
  %bad = icmp eq ptr %p, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %heap, label %mapped
mapped:
  %huge = icmp uge i64 %total, {_HUGE}
  br i1 %huge, label %advise, label %done
advise:
  call i32 @madvise(ptr %p, i64 %total, i32 14)
  br label %done
heap:
  %s = call i32 @posix_memalign(ptr %out, i64 64, i64 %total)
  %failed = icmp ne i32 %s, 0
  br i1 %failed, label %none, label %got
none:
  ret ptr null
got:
  %q = load ptr, ptr %out
  br label %done
done:
  %block = phi ptr [ %p, %mapped ], [ %p, %advise ], [ %q, %got ]
  %length = phi i64 [ %total, %mapped ], [ %total, %advise ], [ 0, %got ]
  %mapped.at = getelementptr i64, ptr %block, i64 1
  store i64 %length, ptr %mapped.at
  ret ptr %block
}}
define internal void @give(ptr %ctx, ptr %p, i64 %size) nounwind {{
entry:
  %null = icmp eq ptr %p, null
  br i1 %null, label %done, label %weigh
weigh:
  %c = call i64 @capacity(ptr %p)
  %limit = load i64, ptr @state
  %large = icmp ugt i64 %c, %limit
  %small = icmp ult i64 %c, {FROM_BYTES}
  %odd = or i1 %large, %small
  br i1 %odd, label %drop, label %keep
drop:
  call void @discard(ptr %p)
  br label %done
keep:
  %left = sub i64 %limit, %c
  call void @trim(i64 %left, i64 {BLOCKS - 1})
  %bytes.at = getelementptr i64, ptr @state, i64 1
  %count.at = getelementptr i64, ptr @state, i64 2
  %table = getelementptr i64, ptr @state, i64 3
  %bytes = load i64, ptr %bytes.at
  %heavier = add i64 %bytes, %c
  store i64 %heavier, ptr %bytes.at
  %count = load i64, ptr %count.at
  %at = getelementptr ptr, ptr %table, i64 %count
  store ptr %p, ptr %at
  %further = add i64 %count, 1
  store i64 %further, ptr %count.at
  br label %done
done:
  ret void
}}
define internal ptr @take_zeroed(ptr %ctx, i64 %n, i64 %item) nounwind {{
entry:
  %pair = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %n, i64 %item)
  %size = extractvalue {{ i64, i1 }} %pair, 0
  %over = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %over, label %none, label %make
make:
  %p = call ptr @take(ptr %ctx, i64 %size)
  %null = icmp eq ptr %p, null
  br i1 %null, label %none, label %clear
clear:
  call ptr @memset(ptr %p, i32 0, i64 %size)
  ret ptr %p
none:
  ret ptr null
}}
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
define internal ptr @resize(ptr %ctx, ptr %p, i64 %size) nounwind {{
entry:
  %null = icmp eq ptr %p, null
  br i1 %null, label %fresh, label %look
fresh:
  %first = call ptr @take(ptr %ctx, i64 %size)
  ret ptr %first
look:
  %c = call i64 @capacity(ptr %p)
  %holds = icmp ule i64 %size, %c
  %half = lshr i64 %c, 1
  %much = icmp uge i64 %size, %half
  %same = and i1 %holds, %much
  br i1 %same, label %stay, label %move
stay:
  ret ptr %p
move:
  %new = call ptr @take(ptr %ctx, i64 %size)
  %none = icmp eq ptr %new, null
  br i1 %none, label %refuse, label %copy
refuse:
  ret ptr null
copy:
  %less = call i64 @llvm.umin.i64(i64 %size, i64 %c)
  call ptr @memcpy(ptr %new, ptr %p, i64 %less)
  call void @give(ptr %ctx, ptr %p, i64 %size)
  ret ptr %new
}}
declare i64 @llvm.umin.i64(i64, i64)
"""
