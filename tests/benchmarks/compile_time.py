"""From declaration to the first result: python tests/benchmarks/compile_time.py [RUNS]

The training step of a 784-512-256-10 network with Adam, medians over processes of their own. Cold:
without an object cache; cached: with what an earlier process left there. "declared" includes the
gradient and the modules it needs; "compile" is `step.compile()` and all that it imports, which is
everything between a declared graph and native code; "again" declares and compiles the same step a
second time in the process. Then what `import graphc` takes beside what it imports.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

STEP = """
import time
import numpy as np
import llvmlite.binding
import graphc as gx

def declare():
    rng = np.random.default_rng(0)
    x, y = gx.input("x", ("batch", 784)), gx.input("y", ("batch",), "int64")
    h, params = x, []
    for k, (n, m) in enumerate([(784, 512), (512, 256), (256, 10)]):
        w = gx.variable(rng.normal(size=(n, m)) / n**0.5, f"w{k}", "float32")
        b = gx.variable(np.zeros(m), f"b{k}", "float32")
        params += [w, b]
        h = (gx.nn.relu(h) if k else h) @ w + b
    loss = gx.nn.cross_entropy(h, y)
    updates = gx.optim.adam(params, gx.grad(loss, params))
    return gx.function([x, y], loss, updates=updates, name="step")

clock = time.perf_counter
times = [clock()]
step = declare()
times.append(clock())
step.compile()
times.append(clock())
step(np.zeros((32, 784), "float32"), np.zeros(32, "int64"))
times.append(clock())
for batch in (0, 1, 7, 1000):
    step(np.zeros((batch, 784), "float32"), np.zeros(batch, "int64"))
assert step.compilations == 1
second = declare()
start = clock()
second.compile()
print(*[b - a for a, b in zip(times, times[1:])], clock() - start)
"""
# Where a cold compilation goes, once the modules are there.
PARTS = STEP[: STEP.index("clock = ")] + """
from graphc.codegen import compile_graph
from graphc.codegen.calling import fastcall
from graphc.codegen.machine import jit, llvm, units
from graphc.codegen.machine.target import host
from graphc.passes import run_pipeline

clock = time.perf_counter
declare()
jit.parallel_address()
step = declare()
times = [clock()]
optimized = run_pipeline(step.graph)
times.append(clock())
program = compile_graph(optimized, host(), declared=step.graph)
times.append(clock())
own, *templates = units.split(program.llvm)
for texts in ([own], templates):
    for text in texts:
        llvm.compile_object(text, host(), use_cache=False)
    times.append(clock())
print(*[b - a for a, b in zip(times, times[1:])])
"""
IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
SWITCHES = ("GRAPHC_VERIFY", "GRAPHC_DUMP", "GRAPHC_STOP_AFTER", "PYTHONDONTWRITEBYTECODE")


def seconds(code: str, cache: str) -> list[float]:
    """What a fresh process prints."""
    kept = {k: v for k, v in os.environ.items() if k not in SWITCHES}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**kept, "GRAPHC_CACHE_DIR": cache},
    )
    return [float(v) for v in done.stdout.split()]


def medians(code: str, cache: str, runs: int) -> list[float]:
    seconds(code, cache)
    rows = [seconds(code, cache) for _ in range(runs)]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def show(name: str, words: tuple[str, ...], times: list[float]) -> None:
    parts = zip(words, times, strict=True)
    print(f"{name:8}" + "".join(f"{what} {t * 1e3:6.1f} ms   " for what, t in parts), flush=True)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    words = ("declare", "compile", "first call", "again")
    show("cold", words, medians(STEP, "", runs))
    with tempfile.TemporaryDirectory() as cache:
        show("cached", words, medians(STEP, cache, runs))
    show("of cold", ("passes", "emission", "LLVM", "LLVM of templates"), medians(PARTS, "", runs))
    (ours,), (theirs,) = (
        medians(IMPORT.format(m), "", runs) for m in ("graphc", "numpy, llvmlite.binding")
    )
    print(
        f"import graphc {ours * 1e3:.0f} ms, numpy and llvmlite {theirs * 1e3:.0f} ms: "
        f"{ours / theirs:.2f}"
    )


if __name__ == "__main__":
    main()
