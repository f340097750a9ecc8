"""From declaration to the first result: python tests/benchmarks/compile_time.py

A training step of a 784-512-256-10 network with Adam, each figure in a process of its own:
once with an empty object cache, then with what that left behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

CHILD = """
import time
start = time.perf_counter()
import numpy, llvmlite.binding
base = time.perf_counter()
import graphc as gx
import graphc.codegen.fastcall, graphc.nn, graphc.optim, graphc.transforms
ready = time.perf_counter()
rng = numpy.random.default_rng(0)
x, y = gx.input("x", ("batch", 784)), gx.input("y", ("batch",), "int64")
params, h = [], x
for i, (a, b) in enumerate([(784, 512), (512, 256), (256, 10)]):
    w = gx.variable((0.05 * rng.normal(size=(a, b))).astype("float32"), f"w{i}")
    c = gx.variable(numpy.zeros(b, "float32"), f"b{i}")
    params += [w, c]
    h = h @ w + c if i == 2 else gx.nn.relu(h @ w + c)
loss = gx.nn.cross_entropy(h, y)
updates = gx.optim.adam(params, gx.grad(loss, params), lr=1e-3)
step = gx.function([x, y], loss, updates=updates, name="step")
declared = time.perf_counter()
step.optimized
passed = time.perf_counter()
step.program
emitted = time.perf_counter()
step.compile()
loaded = time.perf_counter()
step(numpy.zeros((32, 784), "float32"), numpy.zeros(32, "int64"))
done = time.perf_counter()
marks = [base, ready, declared, passed, emitted, loaded, done]
print(*[1e3 * (b - a) for a, b in zip([start, *marks], marks)], 1e3 * (done - ready))
"""


def main() -> None:
    names = ["numpy+llvmlite", "graphc", "declare", "passes", "emit", "LLVM+load", "first call",
             "declare to result"]
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, GRAPHC_CACHE_DIR=os.path.join(home, "cache"))
        print(f"{'ms':12}" + "".join(f"{n:>18}" for n in names))
        for label in ("cold", "cached", "cached"):
            out = subprocess.run(
                [sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=True
            ).stdout
            print(f"{label:12}" + "".join(f"{float(v):18.1f}" for v in out.split()))


if __name__ == "__main__":
    main()
