"""The run-time functions that native code carries: the thread pool, as LLVM text.

    void @P_parallel(ptr %task, ptr %ctx, i64 %n, ptr %scratch)
        Calls task(ctx, begin, end, scratch) so that the chunks [0, n) are covered exactly once.
        A negative n stands for -n chunks that cost less as one: each thread takes its share in one
        piece.
    void @P_parallel_limited(..., i32 %limit)    the same with at most `limit` threads
    void @P_set_threads(i32 %n)                  1 never creates a thread
    i32  @P_threads()                            the number in force
    void @P_stop()                               joins the workers and frees their scratch

P is a prefix. The text serves the JIT (one module per process, never freed) and emitted libraries
(internal linkage, `P_stop` called at unload).

One region at a time uses the pool: a caller that finds it busy, which a nested call always does,
runs alone. Everything mutable lives in one block that a fork wipes, so a child starts afresh: a
mapping, or in libraries, which may be unloaded, pages of their own data.
A region is cut into a part for each thread, in cache lines of its own, where it watches one 64-bit
word: workers at work in this part << 32 | chunks of it that are left. Chunks are claimed by
compare-and-swap, by whoever comes first, so a worker that sleeps or is scheduled out delays nobody;
the caller takes what is left of all parts and then waits until nobody is at work in them. Where
that took far longer than help can have saved, callers do without workers for a while
(`waiting`).
"""

from __future__ import annotations

import re

from graphc.codegen.fpmode import CONTROLS
from graphc.codegen.machine.platforms import Platform
from graphc.codegen.pool.affinity import SETTLE
from graphc.codegen.pool.memory import memory_text
from graphc.codegen.pool.regions import CLAIM, REGION
from graphc.codegen.pool.waiting import AWAIT
from graphc.codegen.pool.workers import START, STOPPING, WORKER

SCRATCH_BYTES = 4 << 20
MAX_THREADS = 256
PAUSES = 8  # of a worker between two looks at its part: each look takes the line from the caller
SPIN = 1250  # looks before a worker sleeps, 0.1 to 0.5 ms: longer than a program between regions
CROWDED_SPIN = 12  # likewise where there are more threads than CPUs
WAKE_TICKS = 200_000  # of work for which sleeping workers are woken: some 75 us
SOON_TICKS = 1 << 20  # between regions for which they would have stayed awake, some 0.4 ms
CALLER_PAUSES = 1000  # of a caller that waits, before it gives way ..
CALLER_TURNS = 4  # .. so many times, and then sleeps
LOSS_TICKS = 1 << 21  # of waiting, some 1 ms: less than that is no reason to go on alone
REST_TICKS = 1 << 31  # for which callers go on alone, at most: some 1 s, also if a process was held

# Byte offsets in the wiped mapping.
_LAYOUT = {
    "busy": 0, "workers": 4, "failed": 8, "kept": 12, "pid": 16, "cpus": 20, "debt": 24, "cpu": 32,
    "losses": 36, "rest": 40, "owed": 48,
    "took": 1024,                        # 64 x ticks of a region, by a hash of its task
    "slots": 4096,                       # MAX_THREADS x { pthread_t, scratch }
    "parts": 8192,
    "part": 128,                         # bytes of a part: caches fetch lines of 64 in pairs
    "bytes": 8192 + 128 * MAX_THREADS,
}
# Within a part, which begins with its word.
_PART = {
    "task": 8, "ctx": 16, "end": 24, "step": 32, "count": 40, "patience": 44, "fpcw": 48,
    "waits": 52, "asleep": 64,
}

# Per architecture: the numbers of system calls, the pause instruction, declarations.
_ARCH = {
    "x86_64": {
        "futex": "202", "getcpu": "309", "setaffinity": "203", "statx": "332", "fchmod": "91",
        "pause": "call void @llvm.x86.sse2.pause()",
        "declare": "declare void @llvm.x86.sse2.pause()\ndeclare i64 @llvm.readcyclecounter()",
    },
    "aarch64": {
        "futex": "98", "getcpu": "168", "setaffinity": "122", "statx": "291", "fchmod": "52",
        "pause": "call void @llvm.aarch64.hint(i32 1)",
        "declare": "declare void @llvm.aarch64.hint(i32)",
    },
    "armv7": {
        "futex": "240", "getcpu": "345", "setaffinity": "241", "statx": "397", "fchmod": "94",
        "pause": "call void @llvm.arm.hint(i32 1)",
        "declare": "declare void @llvm.arm.hint(i32)",
    },
    "riscv64": {  # the pause instruction is an extension
        "futex": "98", "getcpu": "168", "setaffinity": "122", "statx": "291", "fchmod": "52",
        "pause": "fence syncscope(\"singlethread\") acq_rel", "declare": "",
    },
}


def system_call(platform: Platform, name: str) -> str:
    """Its number under Linux."""
    return _ARCH[platform.base.arch][name]


def runtime_text(
    platform: Platform, prefix: str = "graphc", linkage: str = "", *, unloaded: bool = False
) -> str:
    """The module text for a platform; one thread where it has no pool. unloaded: it may be."""
    tokens = {k: str(v) for k, v in (_LAYOUT | _PART).items()} | {
        "link": linkage, "spin": str(SPIN), "few": str(CROWDED_SPIN), "max": str(MAX_THREADS),
        "scratch": str(SCRATCH_BYTES), "joined": str(1 << 32),
        "size": f"i{platform.base.pointer_bits}", "wake": str(WAKE_TICKS), "soon": str(SOON_TICKS),
        "pauses_alone": str(CALLER_PAUSES), "patience_alone": str(CALLER_PAUSES * CALLER_TURNS),
        "loss": str(LOSS_TICKS), "longest": str(REST_TICKS),
    }
    text = _SINGLE
    if platform.threads:
        arch = platform.base.arch
        control = CONTROLS[arch]
        tokens |= _ARCH[arch] | {
            "pauses": "\n".join([f"  {_ARCH[arch]['pause']}"] * PAUSES),
            "declare_fp": control.declarations, "save_fp": control.save,
            "load_fp": control.write("%fp.word"),
        }
        tokens |= {"attributes": "null", "ask_stack": "", "declare_stack": ""}
        if platform.stack:
            size = tokens["size"]
            tokens |= {
                "attributes": "%attributes",
                "ask_stack": "  %attributes = alloca [16 x i64], align 16\n"
                "  %ai = call i32 @pthread_attr_init(ptr %attributes)\n"
                f"  %as = call i32 @pthread_attr_setstacksize(ptr %attributes, {size} "
                f"{platform.stack})",
                "declare_stack": "declare i32 @pthread_attr_init(ptr) nounwind\n"
                f"declare i32 @pthread_attr_setstacksize(ptr, {size}) nounwind",
            }
        counts = "readcyclecounter" in tokens["declare"]
        read = "call i64 @llvm.readcyclecounter()" if counts else "add i64 0, 0"
        ticks = _TICKS.replace("<read>", read)
        memory = memory_text(arch, _LAYOUT["bytes"], unloaded)
        text = _DECLARATIONS + _THREADS + memory
        text += ticks + START + SETTLE + CLAIM + WORKER + AWAIT + REGION + STOPPING
    text = re.sub(r"<(\w+)>", lambda m: tokens[m[1]], text)
    return text.replace("@P_", f"@{prefix}_")


_SINGLE = """
define <link> void @P_parallel(ptr %task, ptr %ctx, i64 %chunks, ptr %scratch) nounwind {
entry:
  %whole = icmp slt i64 %chunks, 0
  %opposite = sub i64 0, %chunks
  %n = select i1 %whole, i64 %opposite, i64 %chunks
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %run, label %done
run:
  call void %task(ptr %ctx, i64 0, i64 %n, ptr %scratch)
  br label %done
done:
  ret void
}
define <link> void @P_parallel_limited(ptr %task, ptr %ctx, i64 %n, ptr %scratch, i32 %limit) \
nounwind {
  call void @P_parallel(ptr %task, ptr %ctx, i64 %n, ptr %scratch)
  ret void
}
define <link> void @P_set_threads(i32 %n) nounwind {
  ret void
}
define <link> i32 @P_threads() nounwind {
  ret i32 1
}
define <link> void @P_stop() nounwind {
  ret void
}
"""

_DECLARATIONS = """
@P_pool = internal global ptr null, align 8
@P_wanted = internal global i32 0
@P_variable = internal constant [19 x i8] c"GRAPHC_NUM_THREADS\\00"
declare ptr @mmap(ptr, <size>, i32, i32, i32, <size>) nounwind
declare i32 @munmap(ptr, <size>) nounwind
declare i32 @madvise(ptr, <size>, i32) nounwind
declare i32 @getpid() nounwind
declare i32 @sched_yield() nounwind
declare i32 @sched_getaffinity(i32, <size>, ptr) nounwind
declare ptr @getenv(ptr) nounwind
declare <size> @syscall(<size>, ...) nounwind
declare i32 @pthread_create(ptr, ptr, ptr, ptr) nounwind
declare i32 @pthread_join(<size>, ptr) nounwind
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind
declare i64 @llvm.ctpop.i64(i64)
<declare>
<declare_fp>
<declare_stack>
"""

# Where there is no counter, nothing ever takes time.
_TICKS = """
define internal i64 @P_ticks() alwaysinline nounwind {
  %t = <read>
  ret i64 %t
}
"""

# The number of threads: set_threads, else GRAPHC_NUM_THREADS, else the CPUs we may run on.
_THREADS = """
define internal i32 @P_clamp(i32 %n) nounwind {
  %low = icmp slt i32 %n, 1
  %a = select i1 %low, i32 1, i32 %n
  %high = icmp sgt i32 %a, <max>
  %b = select i1 %high, i32 <max>, i32 %a
  ret i32 %b
}
define internal i32 @P_from_environment() nounwind {
entry:
  %text = call ptr @getenv(ptr @P_variable)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %none, label %digit
digit:
  %p = phi ptr [ %text, %entry ], [ %p.next, %more ]
  %n = phi i32 [ 0, %entry ], [ %n.next, %more ]
  %c = load i8, ptr %p
  %v = sub i8 %c, 48
  %is = icmp ult i8 %v, 10
  br i1 %is, label %more, label %end
more:
  %v.wide = zext i8 %v to i32
  %ten = mul i32 %n, 10
  %sum = add i32 %ten, %v.wide
  %big = icmp ugt i32 %sum, 99999
  %n.next = select i1 %big, i32 99999, i32 %sum
  %p.next = getelementptr i8, ptr %p, i64 1
  br label %digit
end:
  %clean = icmp eq i8 %c, 0
  %r = select i1 %clean, i32 %n, i32 0
  ret i32 %r
none:
  ret i32 0
}
define internal i32 @P_cpus() nounwind {
entry:
  %mask = alloca [16 x i64], align 8
  store [16 x i64] zeroinitializer, ptr %mask
  %r = call i32 @sched_getaffinity(i32 0, <size> 128, ptr %mask)
  br label %count
count:
  %i = phi i64 [ 0, %entry ], [ %i.next, %count ]
  %n = phi i64 [ 0, %entry ], [ %n.next, %count ]
  %p = getelementptr i64, ptr %mask, i64 %i
  %w = load i64, ptr %p
  %bits = call i64 @llvm.ctpop.i64(i64 %w)
  %n.next = add i64 %n, %bits
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 16
  br i1 %more, label %count, label %done
done:
  %n32 = trunc i64 %n.next to i32
  ret i32 %n32
}
define <link> i32 @P_threads() nounwind {
entry:
  %known = load atomic i32, ptr @P_wanted monotonic, align 4
  %is = icmp ne i32 %known, 0
  br i1 %is, label %done, label %ask
ask:
  %env = call i32 @P_from_environment()
  %given = icmp sgt i32 %env, 0
  br i1 %given, label %keep, label %cpus
cpus:
  %c = call i32 @P_cpus()
  br label %keep
keep:
  %raw = phi i32 [ %env, %ask ], [ %c, %cpus ]
  %n = call i32 @P_clamp(i32 %raw)
  store atomic i32 %n, ptr @P_wanted monotonic, align 4
  br label %done
done:
  %r = phi i32 [ %known, %entry ], [ %n, %keep ]
  ret i32 %r
}
define <link> void @P_set_threads(i32 %n) nounwind {
entry:
  %c = call i32 @P_clamp(i32 %n)
  store atomic i32 %c, ptr @P_wanted monotonic, align 4
  %pool = load atomic ptr, ptr @P_pool acquire, align 8
  %none = icmp eq ptr %pool, null
  br i1 %none, label %done, label %retry
retry:
  %failed = getelementptr i8, ptr %pool, i64 <failed>
  store atomic i32 0, ptr %failed monotonic, align 4
  br label %done
done:
  ret void
}
"""
