"""The heart of the thread pool as LLVM text: workers, parallel regions, and stopping.

`runtime` describes the protocol and fills in the <tokens>: byte offsets in the pool's mapping and
what differs between architectures; <size> is the type of size_t.
"""

from __future__ import annotations

# `%w` is joinable when it is open, newer than what this worker did last, and within the limit.
# The futex (wait 128, wake 129: private) is the generation; a sleeper counts itself before it
# looks at the word again, and the caller writes the word before it looks for sleepers.
WORKER = """
define internal i1 @P_claim(ptr %pool, ptr %scratch, i64 %part, i64 %step, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen) nounwind {
entry:
  %larger = icmp slt i64 %part, %rest
  %more = zext i1 %larger to i64
  %length = add i64 %share, %more
  %before = select i1 %larger, i64 %part, i64 %rest
  %shares = mul i64 %part, %share
  %low = add i64 %shares, %before
  %fresh = shl i64 %gen, 32
  %part.at = shl i64 %part, 6
  %parts = getelementptr i8, ptr %pool, i64 <parts>
  %taken.at = getelementptr i8, ptr %parts, i64 %part.at
  %first = load atomic i64, ptr %taken.at monotonic, align 8
  br label %look
look:
  %seen = phi i64 [ %first, %entry ], [ %other, %take ]
  %of = lshr i64 %seen, 32
  %ours = icmp eq i64 %of, %gen
  %taken = select i1 %ours, i64 %seen, i64 %fresh
  %begin = sub i64 %taken, %fresh
  %left = icmp slt i64 %begin, %length
  br i1 %left, label %take, label %none
take:
  %upto = add i64 %taken, %step
  %swap = cmpxchg ptr %taken.at, i64 %seen, i64 %upto monotonic monotonic
  %other = extractvalue { i64, i1 } %swap, 0
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %run, label %look
run:
  %most = add i64 %begin, %step
  %over = icmp sgt i64 %most, %length
  %stop = select i1 %over, i64 %length, i64 %most
  %from = add i64 %low, %begin
  %to = add i64 %low, %stop
  call void %task(ptr %ctx, i64 %from, i64 %to, ptr %scratch)
  ret i1 true
none:
  ret i1 false
}
define internal void @P_work(ptr %pool, ptr %scratch, i64 %first, i64 %count, i64 %step, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen) nounwind {
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k, %claim ], [ %k.next, %following ]
  %plain = add i64 %first, %k
  %round = sub i64 %plain, %count
  %wraps = icmp sge i64 %round, 0
  %part = select i1 %wraps, i64 %round, i64 %plain
  br label %claim
claim:
  %ran = call i1 @P_claim(ptr %pool, ptr %scratch, i64 %part, i64 %step, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen)
  br i1 %ran, label %each, label %following
following:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %each, label %done
done:
  ret void
}
define internal ptr @P_worker(ptr %arg) nounwind {
entry:
  %fp = alloca i32, align 4
  %pool = load atomic ptr, ptr @P_pool acquire, align 8
  %index = ptrtoint ptr %arg to i64
  %index32 = trunc i64 %index to i32
  %part = add i64 %index, 1
  %at = shl i64 %index, 4
  %slots = getelementptr i8, ptr %pool, i64 <slots>
  %slot = getelementptr i8, ptr %slots, i64 %at
  %slot.scratch = getelementptr i8, ptr %slot, i64 8
  %scratch = load ptr, ptr %slot.scratch
  %word = getelementptr i8, ptr %pool, i64 <word>
  %generation = getelementptr i8, ptr %pool, i64 <generation>
  %sleepers = getelementptr i8, ptr %pool, i64 <sleepers>
  %limit.at = getelementptr i8, ptr %pool, i64 <limit>
  %fpcw = getelementptr i8, ptr %pool, i64 <fpcw>
  br label %wait
wait:
  %last = phi i64 [ -1, %entry ], [ %last, %pause ], [ %last, %woken ], [ %gen, %worked ], \
[ %last, %join ]
  %spins = phi i32 [ 0, %entry ], [ %spins.next, %pause ], [ 0, %woken ], [ 0, %worked ], \
[ 0, %join ]
  %w = load atomic i64, ptr %word acquire, align 8
  %gen = lshr i64 %w, 32
  %joinable = call i1 @P_joinable(i64 %w, i64 %last, i32 %index32, ptr %limit.at)
  br i1 %joinable, label %join, label %idle
join:
  %w.joined = add i64 %w, 1
  %swap = cmpxchg ptr %word, i64 %w, i64 %w.joined acq_rel acquire
  %in = extractvalue { i64, i1 } %swap, 1
  br i1 %in, label %work, label %wait
work:
  %fp.word = load i32, ptr %fpcw
<load_fp>
  %task.at = getelementptr i8, ptr %pool, i64 <task>
  %task = load ptr, ptr %task.at
  %ctx.at = getelementptr i8, ptr %pool, i64 <ctx>
  %ctx = load ptr, ptr %ctx.at
  %share.at = getelementptr i8, ptr %pool, i64 <share>
  %share = load i64, ptr %share.at
  %rest.at = getelementptr i8, ptr %pool, i64 <rest>
  %rest32 = load i32, ptr %rest.at
  %rest = zext i32 %rest32 to i64
  %count.at = getelementptr i8, ptr %pool, i64 <count>
  %count32 = load i32, ptr %count.at
  %count = zext i32 %count32 to i64
  %step.at = getelementptr i8, ptr %pool, i64 <step>
  %step = load i64, ptr %step.at
  call void @P_work(ptr %pool, ptr %scratch, i64 %part, i64 %count, i64 %step, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen)
  br label %worked
worked:
  %left = atomicrmw sub ptr %word, i64 1 acq_rel
  br label %wait
idle:
  %stop.bit = and i64 %w, <stop>
  %stopped = icmp ne i64 %stop.bit, 0
  br i1 %stopped, label %exit, label %spin
spin:
  %spins.next = add i32 %spins, 1
  %patient = icmp ult i32 %spins, <spin>
  br i1 %patient, label %pause, label %sleep
pause:
  <pause>
  br label %wait
sleep:
  %s0 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %w2 = load atomic i64, ptr %word seq_cst, align 8
  %gen2 = lshr i64 %w2, 32
  %gen32 = trunc i64 %gen2 to i32
  %now = call i1 @P_joinable(i64 %w2, i64 %last, i32 %index32, ptr %limit.at)
  %stop2 = and i64 %w2, <stop>
  %stopping = icmp ne i64 %stop2, 0
  %stay = or i1 %now, %stopping
  br i1 %stay, label %woken, label %futex
futex:
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %generation, <size> 128, \
i32 %gen32, ptr null, ptr null, i32 0)
  br label %woken
woken:
  %s1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %wait
exit:
  ret ptr null
}
define internal i1 @P_joinable(i64 %w, i64 %last, i32 %index, ptr %limit.at) alwaysinline \
nounwind {
  %open.bit = and i64 %w, <open>
  %open = icmp ne i64 %open.bit, 0
  %gen = lshr i64 %w, 32
  %new = icmp ne i64 %gen, %last
  %limit = load atomic i32, ptr %limit.at monotonic, align 4
  %within = icmp slt i32 %index, %limit
  %a = and i1 %open, %new
  %b = and i1 %a, %within
  ret i1 %b
}
"""

# A region is cut into a part for each thread, so that in the next region on the same data each
# finds its own in its cache; of a part an eighth is claimed at a time: enough to even out, few
# enough to stay cheap. Who has finished its part helps with those of others. What is claimed of a
# part stands beside the generation it belongs to, so nobody need clear it: below 2^31 chunks.
REGION = """
define <link> void @P_parallel(ptr %task, ptr %ctx, i64 %n, ptr %scratch) nounwind {
  call void @P_parallel_limited(ptr %task, ptr %ctx, i64 %n, ptr %scratch, i32 <max>)
  ret void
}
define <link> void @P_parallel_limited(ptr %task, ptr %ctx, i64 %chunks, ptr %scratch, \
i32 %limit) nounwind {
entry:
  %fp = alloca i32, align 4
  %whole = icmp slt i64 %chunks, 0
  %opposite = sub i64 0, %chunks
  %n = select i1 %whole, i64 %opposite, i64 %chunks
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %size, label %done
size:
  %wanted = call i32 @P_threads()
  %less = icmp slt i32 %limit, %wanted
  %threads = select i1 %less, i32 %limit, i32 %wanted
  %single = icmp slt i32 %threads, 2
  %several = add i64 %n, -2
  %many = icmp ugt i64 %several, 2147483645
  %trivial = or i1 %single, %many
  br i1 %trivial, label %alone, label %find
alone:
  call void %task(ptr %ctx, i64 0, i64 %n, ptr %scratch)
  ret void
find:
  %pool = call ptr @P_block()
  %none = icmp eq ptr %pool, null
  br i1 %none, label %alone, label %lock
lock:
  %busy = getelementptr i8, ptr %pool, i64 <busy>
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %taken, 1
  br i1 %got, label %staff, label %alone
staff:
  %helpers = sub i32 %threads, 1
  %workers = getelementptr i8, ptr %pool, i64 <workers>
  %have = load i32, ptr %workers
  %failed.at = getelementptr i8, ptr %pool, i64 <failed>
  %failed = load atomic i32, ptr %failed.at monotonic, align 4
  %short = icmp slt i32 %have, %helpers
  %hopeful = icmp eq i32 %failed, 0
  %hire = and i1 %short, %hopeful
  br i1 %hire, label %start, label %announce
start:
  call void @P_start(ptr %pool, i32 %helpers)
  br label %announce
announce:
  %task.at = getelementptr i8, ptr %pool, i64 <task>
  store ptr %task, ptr %task.at
  %ctx.at = getelementptr i8, ptr %pool, i64 <ctx>
  store ptr %ctx, ptr %ctx.at
  %count.at = getelementptr i8, ptr %pool, i64 <count>
  store i32 %threads, ptr %count.at
  %threads.wide = zext i32 %threads to i64
  %share = udiv i64 %n, %threads.wide
  %share.at = getelementptr i8, ptr %pool, i64 <share>
  store i64 %share, ptr %share.at
  %rest = urem i64 %n, %threads.wide
  %rest32 = trunc i64 %rest to i32
  %rest.at = getelementptr i8, ptr %pool, i64 <rest>
  store i32 %rest32, ptr %rest.at
  %eighth = lshr i64 %share, 3
  %all = add i64 %share, 1
  %part = select i1 %whole, i64 %all, i64 %eighth
  %few = icmp eq i64 %part, 0
  %step = select i1 %few, i64 1, i64 %part
  %step.at = getelementptr i8, ptr %pool, i64 <step>
  store i64 %step, ptr %step.at
  %limit.at = getelementptr i8, ptr %pool, i64 <limit>
  store atomic i32 %helpers, ptr %limit.at monotonic, align 4
<save_fp>
  %fpcw = getelementptr i8, ptr %pool, i64 <fpcw>
  store i32 %fp.word, ptr %fpcw
  %word = getelementptr i8, ptr %pool, i64 <word>
  %w = load atomic i64, ptr %word monotonic, align 8
  %gen = lshr i64 %w, 32
  %gen.next = add i64 %gen, 1
  %gen.up = shl i64 %gen.next, 32
  %gen.now = lshr i64 %gen.up, 32
  %w.open = or i64 %gen.up, <open>
  %w.old = atomicrmw xchg ptr %word, i64 %w.open seq_cst
  %sleepers = getelementptr i8, ptr %pool, i64 <sleepers>
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %awake = icmp eq i32 %asleep, 0
  br i1 %awake, label %work, label %cold
cold:
<weigh>
wake:
  %generation = getelementptr i8, ptr %pool, i64 <generation>
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %generation, <size> 129, \
i32 2147483647, ptr null, ptr null, i32 0)
  br label %work
work:
  call void @P_work(ptr %pool, ptr %scratch, i64 0, i64 %threads.wide, i64 %step, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen.now)
  %w.last = atomicrmw and ptr %word, i64 <closed> acq_rel
  br label %wait
wait:
  %spins = phi i32 [ 0, %work ], [ %spins.next, %pause ], [ 0, %yield ]
  %w.now = load atomic i64, ptr %word acquire, align 8
  %joined = and i64 %w.now, 65535
  %over = icmp eq i64 %joined, 0
  br i1 %over, label %release, label %spin
spin:
  %spins.next = add i32 %spins, 1
  %patient = icmp ult i32 %spins, 1000
  br i1 %patient, label %pause, label %yield
pause:
  <pause>
  br label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
release:
  store atomic i32 0, ptr %busy release, align 4
  br label %done
done:
  ret void
}
"""

# Where workers sleep. To wake one takes the caller some 13 us on a virtual machine, and its help
# comes 20 us later, so the first chunk is timed: what the others will take is owed. When that sum
# reaches <wake> ticks, they are woken; a few short regions are not worth it, many are.
WEIGH = """  %debt.at = getelementptr i8, ptr %pool, i64 <debt>
  %t0 = call i64 @llvm.readcyclecounter()
  %first = call i1 @P_claim(ptr %pool, ptr %scratch, i64 0, i64 1, \
ptr %task, ptr %ctx, i64 %share, i64 %rest, i64 %gen.now)
  %t1 = call i64 @llvm.readcyclecounter()
  %took = sub i64 %t1, %t0
  %others = sub i64 %n, 1
  %left = mul i64 %took, %others
  %owed = load i64, ptr %debt.at
  %debt = add i64 %owed, %left
  %pays = icmp sge i64 %debt, <wake>
  %kept = select i1 %pays, i64 0, i64 %debt
  store i64 %kept, ptr %debt.at
  br i1 %pays, label %wake, label %work"""
WAKE = "  br label %wake"

STOPPING = """
define <link> void @P_stop() nounwind {
entry:
  %pool = load atomic ptr, ptr @P_pool acquire, align 8
  %none = icmp eq ptr %pool, null
  br i1 %none, label %done, label %lock
lock:
  %busy = getelementptr i8, ptr %pool, i64 <busy>
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %taken, 1
  br i1 %got, label %tell, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %lock
tell:
  %word = getelementptr i8, ptr %pool, i64 <word>
  %w = load atomic i64, ptr %word monotonic, align 8
  %gen = lshr i64 %w, 32
  %gen.next = add i64 %gen, 1
  %gen.up = shl i64 %gen.next, 32
  %w.stop = or i64 %gen.up, <stop>
  %w.old = atomicrmw xchg ptr %word, i64 %w.stop seq_cst
  %generation = getelementptr i8, ptr %pool, i64 <generation>
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %generation, <size> 129, \
i32 2147483647, ptr null, ptr null, i32 0)
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
  %at = shl i64 %i.wide, 4
  %slot = getelementptr i8, ptr %slots, i64 %at
  %thread = load <size>, ptr %slot
  %j = call i32 @pthread_join(<size> %thread, ptr null)
  %slot.scratch = getelementptr i8, ptr %slot, i64 8
  %scratch = load ptr, ptr %slot.scratch
  %us = call i32 @munmap(ptr %scratch, <size> <scratch>)
  %i.next = add i32 %i, 1
  br label %each
free:
  store atomic ptr null, ptr @P_pool release, align 8
  %u = call i32 @munmap(ptr %pool, <size> <bytes>)
  br label %done
done:
  ret void
}
"""
