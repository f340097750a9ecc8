"""Sizes of native libraries, and the time to make them: python tests/benchmarks/library_size.py

One training step of the digits network (64-128-128-10, cross-entropy, Adam), forward, gradient and
update, as a library by itself:

- graphc: `graphc compile digits.py:step`, any batch size, at one CPU level and at three; the time
  is that of the command, without a cache.
- CasADi: the same step as one function with its gradient (batch 32), its generated C compiled by
  `gcc -O3 -march=native -shared`.
- AOTInductor: the same step traced with torch.func.grad (batch 32), as the .so of its package.

Weights are apart everywhere: CasADi's and AOTInductor's are arguments, graphc's init values are
subtracted. Beside each stands what it loads beside libc and libm. Peers that are not installed are
left out (`pip install -e '.[bench]' casadi torch`). Last comes a library with 400 MB of weights.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SIZES = ((64, 128), (128, 128), (128, 10))
BATCH = 32
LARGE = """
import time
import numpy as np
import graphc as gx

rng = np.random.default_rng(0)
w = gx.variable(rng.random((10_000, 10_000), "float32"), "w")
x = gx.input("x", ("n", 10_000))
f = gx.function([x], x @ w, name="f")
start = time.perf_counter()
gx.export(f, "liblarge.so")
print(time.perf_counter() - start)
"""
LOAD = """
import ctypes, time
start = time.perf_counter()
ctypes.CDLL("./liblarge.so")
print(time.perf_counter() - start)
"""


def graphc_sizes(folder):
    """(name, code bytes, libraries needed, seconds) for one CPU level and for three."""
    sys.path.insert(0, str(EXAMPLES))
    from digits import params

    initial = sum(p.value.nbytes for p in params if p.value.any())  # zeros take no room
    for name, options in (("one CPU level", ["--cpu", "v3"]), ("three levels", [])):
        path = folder / "libdigits.so"
        env = os.environ | {"GRAPHC_CACHE_DIR": ""}
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "graphc", "compile", f"{EXAMPLES}/digits.py:step",
                        "-o", path, *options], check=True, env=env, cwd=folder,
                       stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        yield f"graphc, {name}", path.stat().st_size - initial, needed(path), seconds


def casadi_size(folder):
    import casadi as ca

    x, y = ca.MX.sym("x", BATCH, 64), ca.MX.sym("y", BATCH, 10)
    params, h = [], x / 16
    for k, (n, m) in enumerate(SIZES):
        w, b = ca.MX.sym(f"w{k}", n, m), ca.MX.sym(f"b{k}", 1, m)
        params += [w, b]
        h = (ca.fmax(h, 0) if k else h) @ w + ca.repmat(b, BATCH, 1)
    top = ca.mmax(h)  # one shift for all rows keeps the exponentials in range, too
    log_sums = ca.log(ca.sum2(ca.exp(h - top))) + top
    loss = ca.sum1(log_sums - ca.sum2(h * y)) / BATCH
    t = ca.MX.sym("t")
    moments, outputs = [], [loss]
    for p in params:
        g = ca.gradient(loss, p)
        m, v = ca.MX.sym("m", *p.shape), ca.MX.sym("v", *p.shape)
        moments += [m, v]
        m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        rate = 1e-3 * ca.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        outputs += [p - rate * m1 / (ca.sqrt(v1) + 1e-8), m1, v1]
    f = ca.Function("step", [x, y, t, *params, *moments], outputs)
    here = os.getcwd()
    os.chdir(folder)
    try:
        start = time.perf_counter()
        f.generate("step.c", {"casadi_real": "float"})
        subprocess.run(["gcc", "-O3", "-march=native", "-fPIC", "-shared", "step.c", "-o",
                        "step.so", "-lm"], check=True)
        seconds = time.perf_counter() - start
    finally:
        os.chdir(here)
    path = folder / "step.so"
    return "CasADi, gcc -O3", path.stat().st_size, needed(path), seconds


def inductor_size(folder):
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    params = [torch.randn(s) for n, m in SIZES for s in ((n, m), (m,))]

    def loss_of(params, x, y):
        h = x / 16
        for k in range(3):
            h = (torch.relu(h) if k else h) @ params[2 * k] + params[2 * k + 1]
        return torch.nn.functional.cross_entropy(h, y)

    def step(params, moments, t, x, y):
        grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
        out = []
        for p, g, (m, v) in zip(params, grads, moments, strict=True):
            m1, v1 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            rate = 1e-3 * torch.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            out.append((p - rate * m1 / (torch.sqrt(v1) + 1e-8), m1, v1))
        return loss, out

    class Step(torch.nn.Module):
        def __init__(self, traced):
            super().__init__()
            self.traced = traced

        def forward(self, *args):
            return self.traced(*args)

    args = (params, [(torch.zeros_like(p), torch.zeros_like(p)) for p in params],
            torch.tensor(1.0), torch.randn(BATCH, 64), torch.randint(10, (BATCH,)))
    start = time.perf_counter()
    exported = torch.export.export(Step(make_fx(step)(*args)), args)
    package = torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "step.pt2"))
    seconds = time.perf_counter() - start
    with zipfile.ZipFile(package) as z:
        (name,) = (n for n in z.namelist() if n.endswith(".so"))
        z.extract(name, folder)
    path = folder / name
    return "AOTInductor", path.stat().st_size, needed(path), seconds


def needed(path):
    """The libraries that a library names, but libc and libm; with sizes where torch has them."""
    said = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True)
    names = [line.split()[1] for line in said.stdout.splitlines() if "NEEDED" in line]
    out = []
    for name in names:
        if name.startswith(("libc.so", "libm.so", "ld-linux")):
            continue
        size = ""
        if importlib.util.find_spec("torch") is not None:
            import torch

            own = pathlib.Path(torch.__file__).parent / "lib" / name
            size = f" ({own.stat().st_size >> 20} MiB)" if own.exists() else ""
        out.append(name + size)
    return ", ".join(out) or "nothing"


def large(folder):
    """Export, file size and load of a library with 400 MB of weights."""
    def timed(code):
        return subprocess.run([sys.executable, "-c", code], cwd=folder, check=True,
                              capture_output=True, text=True).stdout

    export = float(timed(LARGE))
    size = (folder / "liblarge.so").stat().st_size
    start = time.perf_counter()
    shutil.copyfile(folder / "liblarge.so", folder / "copy.so")
    copied = time.perf_counter() - start
    print(f"a library with 400 MB of weights: {size / 1e6:.0f} MB, exported in {export:.1f} s "
          f"(copying the file takes {copied:.1f} s), loaded in {1e3 * float(timed(LOAD)):.1f} ms")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = list(graphc_sizes(folder))
        for module, measure in (("casadi", casadi_size), ("torch", inductor_size)):
            if importlib.util.find_spec(module) is None:
                print(f"{module} is not installed")
            else:
                rows.append(measure(folder))
        print(f"{'training step as a library':28} {'code bytes':>10} {'made in s':>9}  needs")
        for label, size, libraries, seconds in rows:
            print(f"{label:28} {size:10,} {seconds:9.2f}  {libraries}")
        large(folder)


if __name__ == "__main__":
    main()
