"""Workers of the thread pool as LLVM text: how they begin, wait for regions, sleep and end.

`runtime` describes the protocol and fills in the <tokens>.

Sleeping: the futex (wait 128, wake 129: private) is the number of chunks left, 0 while there is
cause to sleep. A worker that falls asleep while a region is announced may sleep through it, which
costs no more than its help, so nothing orders its flag and the caller's look at it. At the end the
system's own check of the futex does: -1 is written first, then every worker is woken.
"""

from __future__ import annotations

# Workers are created with all signals blocked, so handlers run on the host's own threads.
# Whatever fails here only means fewer workers, remembered until the next set_threads.
START = """
define internal void @P_start(ptr %pool, i32 %want) nounwind {
entry:
  %all = alloca [16 x i64], align 8
  %old = alloca [16 x i64], align 8
<ask_stack>
  br label %fill
fill:
  %k = phi i64 [ 0, %entry ], [ %k.next, %fill ]
  %kp = getelementptr i64, ptr %all, i64 %k
  store i64 -1, ptr %kp
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, 16
  br i1 %k.more, label %fill, label %block
block:
  %masked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  %workers = getelementptr i8, ptr %pool, i64 <workers>
  %failed = getelementptr i8, ptr %pool, i64 <failed>
  %slots = getelementptr i8, ptr %pool, i64 <slots>
  %have = load i32, ptr %workers
  %cpus = call i32 @P_cpus()
  %cpus.at = getelementptr i8, ptr %pool, i64 <cpus>
  store i32 %cpus, ptr %cpus.at
  br label %each
each:
  %i = phi i32 [ %have, %block ], [ %i.next, %made ]
  %more = icmp slt i32 %i, %want
  br i1 %more, label %map, label %done
map:
  %scratch = call ptr @mmap(ptr null, <size> <scratch>, i32 3, i32 16418, i32 -1, <size> 0)
  %bits = ptrtoint ptr %scratch to <size>
  %bad = icmp eq <size> %bits, -1
  br i1 %bad, label %fail, label %create
create:
  %i.wide = zext i32 %i to i64
  %at = shl i64 %i.wide, 4
  %slot = getelementptr i8, ptr %slots, i64 %at
  %slot.scratch = getelementptr i8, ptr %slot, i64 8
  store ptr %scratch, ptr %slot.scratch
  %arg = inttoptr i64 %i.wide to ptr
  %r = call i32 @pthread_create(ptr %slot, ptr <attributes>, ptr @P_worker, ptr %arg)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %made, label %unmap
made:
  %i.next = add i32 %i, 1
  store i32 %i.next, ptr %workers
  br label %each
unmap:
  %u = call i32 @munmap(ptr %scratch, <size> <scratch>)
  br label %fail
fail:
  store atomic i32 1, ptr %failed monotonic, align 4
  br label %done
done:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}
"""

WORKER = """
define internal ptr @P_worker(ptr %arg) nounwind {
entry:
  %pool = load atomic ptr, ptr @P_pool acquire, align 8
  %index = ptrtoint ptr %arg to i64
  %number = add i64 %index, 1
  %at = shl i64 %index, 4
  %slots = getelementptr i8, ptr %pool, i64 <slots>
  %slot = getelementptr i8, ptr %slots, i64 %at
  %slot.scratch = getelementptr i8, ptr %slot, i64 8
  %scratch = load ptr, ptr %slot.scratch
  %part = call ptr @P_part(ptr %pool, i64 %number)
  %count.at = getelementptr i8, ptr %part, i64 <count>
  %patience.at = getelementptr i8, ptr %part, i64 <patience>
  %asleep = getelementptr i8, ptr %part, i64 <asleep>
  br label %wait
wait:
  %spins = phi i32 [ 0, %entry ], [ %spins.next, %pause ], [ 0, %sleep ], [ 0, %work ]
  %w = load atomic i64, ptr %part monotonic, align 8
  %left = trunc i64 %w to i32
  %news = icmp ne i32 %left, 0
  br i1 %news, label %look, label %idle
look:
  %stopped = icmp slt i32 %left, 0
  br i1 %stopped, label %exit, label %work
work:
  %count32 = load atomic i32, ptr %count.at monotonic, align 4
  %count = zext i32 %count32 to i64
  call void @P_work(ptr %pool, ptr %scratch, i64 %number, i64 %count, i64 <joined>)
  br label %wait
idle:
  %spins.next = add i32 %spins, 1
  %patience = load atomic i32, ptr %patience.at monotonic, align 4
  %patient = icmp ult i32 %spins, %patience
  br i1 %patient, label %pause, label %sleep
pause:
<pauses>
  br label %wait
sleep:
  store atomic i32 1, ptr %asleep monotonic, align 4
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %part, <size> 128, \
i32 0, ptr null, ptr null, i32 0)
  store atomic i32 0, ptr %asleep monotonic, align 4
  call void @P_settle(ptr %pool)
  br label %wait
exit:
  ret ptr null
}
"""

# A pool at work means that the process exits beside a call, or inside one by a signal's handler:
# who waited might wait for ever. Other threads may call until the very end, so the block stays, as
# if no worker had been there yet.
STOPPING = """
define <link> void @P_stop() nounwind {
entry:
  %pool = load atomic ptr, ptr @P_pool acquire, align 8
  %none = icmp eq ptr %pool, null
  br i1 %none, label %done, label %check
check:
  %own = call i1 @P_own(ptr %pool)
  br i1 %own, label %lock, label %done
lock:
  %busy = getelementptr i8, ptr %pool, i64 <busy>
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %taken, 1
  br i1 %got, label %tell, label %done
tell:
  %workers = getelementptr i8, ptr %pool, i64 <workers>
  %count = load i32, ptr %workers
  %slots = getelementptr i8, ptr %pool, i64 <slots>
  br label %each
each:
  %i = phi i32 [ 0, %tell ], [ %i.next, %join ]
  %more = icmp slt i32 %i, %count
  br i1 %more, label %join, label %free
join:
  %i.wide = zext i32 %i to i64
  %number = add i64 %i.wide, 1
  %part = call ptr @P_part(ptr %pool, i64 %number)
  store atomic i64 -1, ptr %part release, align 8
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %part, <size> 129, \
i32 1, ptr null, ptr null, i32 0)
  %at = shl i64 %i.wide, 4
  %slot = getelementptr i8, ptr %slots, i64 %at
  %thread = load <size>, ptr %slot
  %j = call i32 @pthread_join(<size> %thread, ptr null)
  store atomic i64 0, ptr %part monotonic, align 8
  %slot.scratch = getelementptr i8, ptr %slot, i64 8
  %scratch = load ptr, ptr %slot.scratch
  %us = call i32 @munmap(ptr %scratch, <size> <scratch>)
  %i.next = add i32 %i, 1
  br label %each
free:
  store i32 0, ptr %workers
  store atomic i32 0, ptr %busy release, align 4
  br label %done
done:
  ret void
}
"""
