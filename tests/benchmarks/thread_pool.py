"""What a parallel region costs: python tests/benchmarks/thread_pool.py

Empty tasks, so all that is measured is announcing, joining and waiting. "hot" regions follow each
other; "cold" ones come after 2 ms of idling, when the workers sleep: too short to wake them.
"""

from __future__ import annotations

import ctypes
import time

from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.target import host

TEXT = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
define internal void @nothing(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
  ret void
}
define void @regions(i64 %chunks, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @graphc_parallel(ptr @nothing, ptr null, i64 %chunks, ptr null)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def main() -> None:
    code = jit.load(
        [llvm.compile_object(TEXT, host())],
        exports=["regions"],
        imports={"graphc_parallel": jit.parallel_address()},
    )
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(code["regions"])
    print(f"{jit.threads()} threads")
    for chunks in (1, jit.threads(), 8 * jit.threads()):
        times = []
        for _ in range(50):
            start = time.perf_counter()
            run(chunks, 1000)
            times.append((time.perf_counter() - start) / 1000)
        times.sort()
        best, median = times[0] * 1e6, times[25] * 1e6
        print(f"hot, {chunks:3} chunks: {best:6.3f} us best, {median:6.3f} median")
    times = []
    for _ in range(100):
        time.sleep(0.002)
        start = time.perf_counter()
        run(jit.threads(), 1)
        times.append(time.perf_counter() - start)
    times.sort()
    print(f"cold: {times[0] * 1e6:.1f} us best, {times[50] * 1e6:.1f} median")


if __name__ == "__main__":
    main()
