"""Parallel regions of the thread pool as LLVM text: announcing, and claiming chunks.

`runtime` describes the protocol and fills in the <tokens>: byte offsets in the pool's memory and
what differs between architectures; <size> is the type of size_t.

Why the memory orders suffice (C11). A part's word is written with release when everything else of
the part stands there, and chunks are claimed from it with acquire, so who has claimed some sees
the part and all that the caller did before. Claims and departures are read-modify-writes, so they
continue each other's release sequences: the caller, which reads 0 at work with acquire, sees what
every worker did before it left. Nothing of a part changes as long as chunks are left or workers at
work in it, so a claim that succeeds is one of the region that the part now describes, and a worker
that comes too late, whatever it has read before, finds nothing left. `step`, `count` and `patience`
are read before a claim; they are atomic, and an old value does no harm. Departures are even
sequentially consistent, as is the flag of a caller that goes to sleep: one of the two sees the
other, be it in the system's own check of the futex, which is the upper half of the word.
"""

from __future__ import annotations

# %add is what a claim adds to those at work: 1 << 32, or 0 where the thread counts already, as the
# caller always does. No chunks are left where the lower half of the word is 0, or -1 at the end.
CLAIM = """
define internal ptr @P_part(ptr %pool, i64 %k) alwaysinline nounwind {
  %at = mul i64 %k, <part>
  %parts = getelementptr i8, ptr %pool, i64 <parts>
  %part = getelementptr i8, ptr %parts, i64 %at
  ret ptr %part
}
define internal i1 @P_claim(ptr %part, ptr %scratch, i64 %most, i64 %add) nounwind {
entry:
  %fp = alloca i32, align 4
  %first = load atomic i64, ptr %part monotonic, align 8
  br label %look
look:
  %seen = phi i64 [ %first, %entry ], [ %other, %take ]
  %left32 = trunc i64 %seen to i32
  %any = icmp sgt i32 %left32, 0
  br i1 %any, label %take, label %none
take:
  %left = zext i32 %left32 to i64
  %less = icmp slt i64 %most, %left
  %chunks = select i1 %less, i64 %most, i64 %left
  %change = sub i64 %add, %chunks
  %next = add i64 %seen, %change
  %swap = cmpxchg ptr %part, i64 %seen, i64 %next acquire monotonic
  %other = extractvalue { i64, i1 } %swap, 0
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %run, label %look
run:
  %fpcw = getelementptr i8, ptr %part, i64 <fpcw>
  %fp.word = load i32, ptr %fpcw
<load_fp>
  %task.at = getelementptr i8, ptr %part, i64 <task>
  %task = load ptr, ptr %task.at
  %ctx.at = getelementptr i8, ptr %part, i64 <ctx>
  %ctx = load ptr, ptr %ctx.at
  %end.at = getelementptr i8, ptr %part, i64 <end>
  %end = load i64, ptr %end.at
  %from = sub i64 %end, %left
  %to = add i64 %from, %chunks
  call void %task(ptr %ctx, i64 %from, i64 %to, ptr %scratch)
  ret i1 true
none:
  ret i1 false
}
define internal void @P_work(ptr %pool, ptr %scratch, i64 %first, i64 %count, i64 %add) nounwind {
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %following ]
  %plain = add i64 %first, %k
  %round = sub i64 %plain, %count
  %wraps = icmp sge i64 %round, 0
  %number = select i1 %wraps, i64 %round, i64 %plain
  %part = call ptr @P_part(ptr %pool, i64 %number)
  %step.at = getelementptr i8, ptr %part, i64 <step>
  %step = load atomic i64, ptr %step.at monotonic, align 8
  br label %claim
claim:
  %here = phi i64 [ 0, %each ], [ %add, %claim ]
  %more.here = sub i64 %add, %here
  %ran = call i1 @P_claim(ptr %part, ptr %scratch, i64 %step, i64 %more.here)
  br i1 %ran, label %claim, label %leave
leave:
  %counted = icmp ne i64 %here, 0
  br i1 %counted, label %depart, label %following
depart:
  %before = atomicrmw sub ptr %part, i64 %here seq_cst
  %waits.at = getelementptr i8, ptr %part, i64 <waits>
  %waits = load atomic i32, ptr %waits.at seq_cst, align 4
  %nobody = icmp eq i32 %waits, 0
  br i1 %nobody, label %following, label %tell
tell:
  %at.work = getelementptr i8, ptr %part, i64 4
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %at.work, <size> 129, \
i32 1, ptr null, ptr null, i32 0)
  br label %following
following:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %each, label %done
done:
  ret void
}
"""

# A region is cut into a part for each thread, so that in the next region on the same data each
# finds its own in its cache; of a part an eighth is claimed at a time: enough to even out, few
# enough to stay cheap. Who has finished its part helps with those of others, the caller with those
# that a worker has not begun, so it waits for nobody where there is next to nothing to do.
# Workers' parts are written first: their lines are with other cores, the caller's own is not.
#
# Where workers sleep. To wake one takes the caller some 13 to 20 us on a virtual machine, and its
# help comes 20 to 40 us later, which short regions are not worth. So it is kept, for each task, how
# long the caller was at work in the last region that began like this. Where that was more than
# <wake> ticks, or is not known (a 0, than which nothing is more when 1 is taken away), workers are
# woken first. Elsewhere the first chunk is timed: what the others will take is owed, and when the
# sum of regions that follow each other within <soon> ticks reaches <wake>, they are woken. (To time
# the first chunk of all regions loses much where that is an eighth of a product, or one of two
# kernels side by side: 2048x2048x2048 f32, again and again, took two threads 69 ms, now 56, and
# 384x384x384, 1.5 ms apart, 550 us, now 405. To owe for what came long ago wakes them for nothing:
# what takes 36 us, 1.5 ms apart, took 65.)
REGION = """
define internal void @P_announce(ptr %part, ptr %task, ptr %ctx, i64 %end, i64 %left, i64 %step, \
i32 %count, i32 %patience, i32 %fp.word) alwaysinline nounwind {
  %task.at = getelementptr i8, ptr %part, i64 <task>
  store ptr %task, ptr %task.at
  %ctx.at = getelementptr i8, ptr %part, i64 <ctx>
  store ptr %ctx, ptr %ctx.at
  %end.at = getelementptr i8, ptr %part, i64 <end>
  store i64 %end, ptr %end.at
  %step.at = getelementptr i8, ptr %part, i64 <step>
  store atomic i64 %step, ptr %step.at monotonic, align 8
  %count.at = getelementptr i8, ptr %part, i64 <count>
  store atomic i32 %count, ptr %count.at monotonic, align 4
  %patience.at = getelementptr i8, ptr %part, i64 <patience>
  store atomic i32 %patience, ptr %patience.at monotonic, align 4
  %fpcw = getelementptr i8, ptr %part, i64 <fpcw>
  store i32 %fp.word, ptr %fpcw
  store atomic i64 %left, ptr %part release, align 8
  ret void
}
define internal ptr @P_took(ptr %pool, ptr %task) alwaysinline nounwind {
  %bits = ptrtoint ptr %task to i64
  %mixed = mul i64 %bits, -7046029254386353131
  %slot = lshr i64 %mixed, 58
  %took = getelementptr i8, ptr %pool, i64 <took>
  %at = getelementptr i64, ptr %took, i64 %slot
  ret ptr %at
}
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
  br i1 %none, label %alone, label %ask
ask:
  %rest.at = getelementptr i8, ptr %pool, i64 <rest>
  %until = load atomic i64, ptr %rest.at monotonic, align 8
  %none.rests = icmp eq i64 %until, 0
  br i1 %none.rests, label %lock, label %resting
resting:
  %now = call i64 @P_ticks()
  %remaining = sub i64 %until, %now
  %still = icmp ult i64 %remaining, <longest>
  br i1 %still, label %alone, label %lock
lock:
  %busy = getelementptr i8, ptr %pool, i64 <busy>
  %taken = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %taken, 1
  br i1 %got, label %staff, label %alone
staff:
  %entered = call i64 @P_ticks()
  store atomic i64 0, ptr %rest.at monotonic, align 8
  %losses.at = getelementptr i8, ptr %pool, i64 <losses>
  %losses = load i32, ptr %losses.at
  %helpers = sub i32 %threads, 1
  %workers = getelementptr i8, ptr %pool, i64 <workers>
  %have = load i32, ptr %workers
  %failed.at = getelementptr i8, ptr %pool, i64 <failed>
  %failed = load atomic i32, ptr %failed.at monotonic, align 4
  %short = icmp slt i32 %have, %helpers
  %hopeful = icmp eq i32 %failed, 0
  %hire = and i1 %short, %hopeful
  br i1 %hire, label %start, label %cut
start:
  call void @P_start(ptr %pool, i32 %helpers)
  br label %cut
cut:
  %threads.wide = zext i32 %threads to i64
  %fewer = icmp slt i64 %n, %threads.wide
  %count = select i1 %fewer, i64 %n, i64 %threads.wide
  %count32 = trunc i64 %count to i32
  %share = udiv i64 %n, %count
  %rest = urem i64 %n, %count
  %eighth = lshr i64 %share, 3
  %all = add i64 %share, 1
  %piece = select i1 %whole, i64 %all, i64 %eighth
  %none.yet = icmp eq i64 %piece, 0
  %step = select i1 %none.yet, i64 1, i64 %piece
  %cpus.at = getelementptr i8, ptr %pool, i64 <cpus>
  %cpus = load i32, ptr %cpus.at
  %crowded = icmp sgt i32 %threads, %cpus
  %patience = select i1 %crowded, i32 <few>, i32 <spin>
<save_fp>
  br label %announce
announce:
  %k.above = phi i64 [ %count, %cut ], [ %k, %announce ]
  %end = phi i64 [ %n, %cut ], [ %low, %announce ]
  %asleep.above = phi i32 [ 0, %cut ], [ %asleep, %announce ]
  %k = sub i64 %k.above, 1
  %larger = icmp slt i64 %k, %rest
  %one = zext i1 %larger to i64
  %length = add i64 %share, %one
  %low = sub i64 %end, %length
  %part = call ptr @P_part(ptr %pool, i64 %k)
  call void @P_announce(ptr %part, ptr %task, ptr %ctx, i64 %end, i64 %length, i64 %step, \
i32 %count32, i32 %patience, i32 %fp.word)
  %asleep.at = getelementptr i8, ptr %part, i64 <asleep>
  %sleeps = load atomic i32, ptr %asleep.at monotonic, align 4
  %asleep = or i32 %asleep.above, %sleeps
  %others = icmp sgt i64 %k, 1
  br i1 %others, label %announce, label %own
own:
  %awake = icmp eq i32 %asleep, 0
  br i1 %awake, label %deal, label %recall
recall:
  %known.at = call ptr @P_took(ptr %pool, ptr %task)
  %known = load i64, ptr %known.at
  %less.one = sub i64 %known, 1
  %long = icmp uge i64 %less.one, <wake>
  br label %deal
deal:
  %ready = phi i1 [ true, %own ], [ %long, %recall ]
  %begun = select i1 %ready, i64 %step, i64 1
  %fits = icmp slt i64 %begun, %low
  %first = select i1 %fits, i64 %begun, i64 %low
  %later = sub i64 %low, %first
  %mine = call ptr @P_part(ptr %pool, i64 0)
  call void @P_announce(ptr %mine, ptr %task, ptr %ctx, i64 %low, i64 %later, i64 %step, \
i32 %count32, i32 %patience, i32 %fp.word)
  br i1 %awake, label %begin, label %cold
cold:
  br i1 %ready, label %rouse, label %weigh
rouse:
  call void @P_wake(ptr %pool, i64 %count)
  %woken = call i64 @P_ticks()
  br label %begin
begin:
  %begins = phi i64 [ %entered, %deal ], [ %woken, %rouse ]
  call void %task(ptr %ctx, i64 0, i64 %first, ptr %scratch)
  br label %work
weigh:
  %debt.at = getelementptr i8, ptr %pool, i64 <debt>
  %t0 = call i64 @P_ticks()
  call void %task(ptr %ctx, i64 0, i64 1, ptr %scratch)
  %t1 = call i64 @P_ticks()
  %took = sub i64 %t1, %t0
  %remain = sub i64 %n, 1
  %saved = mul i64 %took, %remain
  %owed.at = getelementptr i8, ptr %pool, i64 <owed>
  %last = load i64, ptr %owed.at
  store i64 %t1, ptr %owed.at
  %since = sub i64 %entered, %last
  %soon = icmp ult i64 %since, <soon>
  %earlier = load i64, ptr %debt.at
  %owed = select i1 %soon, i64 %earlier, i64 0
  %debt = add i64 %owed, %saved
  %pays = icmp sge i64 %debt, <wake>
  %kept = select i1 %pays, i64 0, i64 %debt
  store i64 %kept, ptr %debt.at
  br i1 %pays, label %wake, label %work
wake:
  call void @P_wake(ptr %pool, i64 %count)
  br label %work
work:
  %worked.from = phi i64 [ %begins, %begin ], [ %entered, %weigh ], [ %entered, %wake ]
  call void @P_work(ptr %pool, ptr %scratch, i64 0, i64 %count, i64 0)
  br i1 %awake, label %each, label %note
note:
  %done.at = call i64 @P_ticks()
  %took.now = sub i64 %done.at, %worked.from
  %took.at = call ptr @P_took(ptr %pool, ptr %task)
  store i64 %took.now, ptr %took.at
  br label %each
each:
  %e = phi i64 [ 0, %work ], [ 0, %note ], [ %e.next, %left ]
  %e.part = call ptr @P_part(ptr %pool, i64 %e)
  br label %wait
wait:
  %spins = phi i32 [ 0, %each ], [ %spins.next, %pause ]
  %w.now = load atomic i64, ptr %e.part acquire, align 8
  %over = icmp eq i64 %w.now, 0
  br i1 %over, label %left, label %spin
spin:
  %spins.next = add i32 %spins, 1
  %patient = icmp ult i32 %spins, <pauses_alone>
  br i1 %patient, label %pause, label %await
pause:
  <pause>
  br label %wait
await:
  call void @P_await(ptr %pool, ptr %e.part, i64 %entered, i64 %count)
  br label %left
left:
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %count
  br i1 %e.more, label %each, label %release
release:
  %losses.now = load i32, ptr %losses.at
  %more.losses = icmp ugt i32 %losses.now, %losses
  %no.loss = icmp eq i32 %losses.now, 0
  %stays = or i1 %more.losses, %no.loss
  %fewer.losses = sub i32 %losses.now, 1
  %losses.kept = select i1 %stays, i32 %losses.now, i32 %fewer.losses
  store i32 %losses.kept, ptr %losses.at
  store atomic i32 0, ptr %busy release, align 4
  br label %done
done:
  ret void
}
define internal void @P_wake(ptr %pool, i64 %count) nounwind {
entry:
  %cpu = call i32 @P_cpu()
  %cpu.at = getelementptr i8, ptr %pool, i64 <cpu>
  store atomic i32 %cpu, ptr %cpu.at monotonic, align 4
  br label %each
each:
  %k = phi i64 [ 1, %entry ], [ %k.next, %next ]
  %part = call ptr @P_part(ptr %pool, i64 %k)
  %asleep = getelementptr i8, ptr %part, i64 <asleep>
  %sleeps = load atomic i32, ptr %asleep monotonic, align 4
  %awake = icmp eq i32 %sleeps, 0
  br i1 %awake, label %next, label %futex
futex:
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %part, <size> 129, \
i32 1, ptr null, ptr null, i32 0)
  br label %next
next:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %each, label %done
done:
  ret void
}
"""
