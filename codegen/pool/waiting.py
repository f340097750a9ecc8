"""How a caller waits for workers that are amid a chunk, as LLVM text.

`runtime` fills in the <tokens>; `regions` says why the memory orders suffice.
"""

from __future__ import annotations

# A worker that the system, or the machine below it, keeps from its CPU amid a chunk has to be
# waited for. The caller soon gives way, and then sleeps, which leaves its own CPU to the worker;
# `waits` tells a worker that leaves to wake it. One that left before it was told has left a 0, at
# which nobody may sleep: no one would end that. Where the wait took four times as long as help can
# have saved, callers go on alone for as long again, and for twice as long whenever the next attempt
# fails too: with a CPU that others have for 50 ms of each 51, each call of 3 ms took 51.
AWAIT = """
define internal void @P_await(ptr %pool, ptr %part, i64 %start, i64 %count) noinline nounwind {
entry:
  %since = call i64 @P_ticks()
  %waits.at = getelementptr i8, ptr %part, i64 <waits>
  %at.work = getelementptr i8, ptr %part, i64 4
  br label %look
look:
  %turn = phi i32 [ 0, %entry ], [ %turn.next, %pause ], [ %turn.next, %yield ], \
[ %turn.next, %sleep ], [ %turn.next, %doze ]
  %word = load atomic i64, ptr %part acquire, align 8
  %over = icmp eq i64 %word, 0
  br i1 %over, label %judge, label %wait
wait:
  %turn.next = add i32 %turn, 1
  %within = urem i32 %turn, <pauses_alone>
  %moves = icmp eq i32 %within, 0
  br i1 %moves, label %move, label %pause
pause:
  <pause>
  br label %look
move:
  %long = icmp uge i32 %turn, <patience_alone>
  br i1 %long, label %sleep, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %look
sleep:
  store atomic i32 1, ptr %waits.at seq_cst, align 4
  %number = load atomic i32, ptr %at.work seq_cst, align 4
  %left.meanwhile = icmp eq i32 %number, 0
  br i1 %left.meanwhile, label %look, label %doze
doze:
  %f = call <size> (<size>, ...) @syscall(<size> <futex>, ptr %at.work, <size> 128, \
i32 %number, ptr null, ptr null, i32 0)
  br label %look
judge:
  store atomic i32 0, ptr %waits.at monotonic, align 4
  %now = call i64 @P_ticks()
  %waited = sub i64 %now, %since
  %worked = sub i64 %since, %start
  %helpers = sub i64 %count, 1
  %saved = mul i64 %worked, %helpers
  %saved.4 = shl i64 %saved, 2
  %dear = icmp ugt i64 %waited, %saved.4
  %long.wait = icmp ugt i64 %waited, <loss>
  %lost = and i1 %dear, %long.wait
  br i1 %lost, label %note, label %done
note:
  %losses.at = getelementptr i8, ptr %pool, i64 <losses>
  %losses = load i32, ptr %losses.at
  %many = icmp ugt i32 %losses, 3
  %before = select i1 %many, i32 4, i32 %losses
  %next = add i32 %before, 1
  store i32 %next, ptr %losses.at
  %doublings = zext i32 %before to i64
  %pause.wanted = shl i64 %waited, %doublings
  %too.long = icmp uge i64 %pause.wanted, <longest>
  %rest = select i1 %too.long, i64 <longest>, i64 %pause.wanted
  %less = sub i64 %rest, 1
  %until = add i64 %now, %less
  %rest.at = getelementptr i8, ptr %pool, i64 <rest>
  store atomic i64 %until, ptr %rest.at monotonic, align 8
  br label %done
done:
  ret void
}
"""
