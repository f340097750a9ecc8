"""What calls the thread pool as compiled code does: modules of a few lines."""

import ctypes

import numpy as np

from graphc.codegen.machine import jit, linker, llvm
from graphc.codegen.machine.target import host

ADD = """
declare void @graphc_parallel(ptr, ptr, i64, ptr)
define internal void @task(ptr %ctx, i64 %begin, i64 %end, ptr %scratch) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %j, %loop ]
  %p = getelementptr i64, ptr %ctx, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @regions(ptr %ctx, i64 %n, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @graphc_parallel(ptr @task, ptr %ctx, i64 %n, ptr null)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def loaded(text, name, *kinds, threads=None):
    """A function of a module that calls the pool."""
    imports = {"graphc_parallel": jit.parallel_address(threads)}
    for symbol in ("sched_yield", "usleep"):
        if f"@{symbol}" in text:
            imports[symbol] = linker.process_symbol(symbol)
    code = jit.load([llvm.compile_object(text, host())], exports=[name], imports=imports)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *kinds)(code[name])
    call.code = code  # lives as long
    return call


def regions(threads=None):
    call = loaded(ADD, "regions", ctypes.c_int64, ctypes.c_int64, threads=threads)

    def run(n, count, whole=False):
        a = np.zeros(n, np.int64)
        call(a.ctypes.data, -n if whole else n, count)
        return a

    return run
