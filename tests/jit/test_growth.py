"""A process that compiles one program after the other keeps nothing of those that are dropped."""

import functools
import gc
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import graphc as gx
from graphc.errors import GraphcError


def use(k: int) -> None:
    """Programs of several kinds that no other k has; they are called, looked at and dropped."""
    x = gx.input("x", ("n", 40 + k))
    w = gx.variable(np.full((40 + k, 3), 0.1, "f4"), f"w{k}")
    loss = gx.sum(gx.nn.softmax(x @ w, axis=1) ** 2) + gx.mean(gx.exp(x))
    step = gx.function([x], loss, updates={w: w - 0.1 * gx.grad(loss, w)}, name=f"step{k}")
    step(np.ones((5, 40 + k), "f4"))
    assert "define" in step.llvm_ir() and step.profile(np.ones((5, 40 + k), "f4"), runs=1)
    copied = step.with_state()
    copied(np.ones((2, 40 + k), "f4"), out=np.empty((), "f4"))

    y = gx.input("y", (6 + k,))
    small = gx.function([y], {"a": gx.sin(y) + float(k), "b": gx.cumsum(y)}, name=f"small{k}")
    small(np.ones(6 + k, "f4"))

    i = gx.input("i", ("m",), "int64")
    taken = gx.function([y, i], gx.take(y, i), name=f"taken{k}")
    with pytest.raises(GraphcError, match="out of range"):
        taken(np.ones(6 + k, "f4"), np.array([6 + k]))


def census() -> Counter[str]:
    """Objects of graphc by type, entries of the caches and containers of its modules, mappings of
    code."""
    gc.collect()
    found = Counter(
        f"{t.__module__}.{t.__qualname__}" for t in map(type, gc.get_objects())
        if str(t.__module__).startswith("graphc")  # of some types it is no string
    )
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] == "graphc":
            for key, value in vars(module).items():
                if isinstance(value, functools._lru_cache_wrapper):
                    found[f"{name}.{key}"] = value.cache_info().currsize
                elif isinstance(value, dict | list | set):
                    found[f"{name}.{key}"] = len(value)
    maps = Path("/proc/self/maps")
    if maps.exists():
        lines = [line.split() for line in maps.read_text().splitlines()]
        found["code"] = sum("x" in line[1] and len(line) == 5 for line in lines)
    return found


@pytest.mark.parametrize("directory", ["", "kept"])
def test_dropped_programs_leave_nothing(directory, tmp_path, monkeypatch):
    """Whether objects are kept on disk or not; what came before one program is gone with it."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", directory and str(tmp_path / directory))
    counts = []
    for k in range(4):
        use(k)
        counts.append(census())
    for before, after in pairwise(counts[1:]):
        assert after - before == Counter()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_llvm_that_compiling_needs_no_more():
    """Loading LLVM leaves none but those that it wrote to; `release_memory` drops what compiling
    took, and what comes after compiles as before."""
    done = subprocess.run([sys.executable, "-c", """
import re
import numpy as np
import graphc as gx
from graphc.codegen.machine import llvm

def mapped():
    kept = 0
    for part in open("/proc/self/smaps").read().split("VmFlags"):
        if "libllvmlite" in part:
            kept += int(re.search(r"Rss: *([0-9]+)", part)[1])
            kept -= int(re.search(r"Anonymous: *([0-9]+)", part)[1])
    return kept

x = gx.input("x", ("n",))
llvm.binding()
seen = [mapped()]
for k in range(2):
    print(gx.function([x], gx.exp(x) + k)(np.zeros(3, "f4")).sum())
    seen.append(mapped())
    gx.release_memory()
    seen.append(mapped())
print(*seen)
"""], capture_output=True, text=True, check=True, env={**os.environ, "GRAPHC_CACHE_DIR": ""})
    first, second, seen = done.stdout.splitlines()
    assert (first, second) == ("3.0", "6.0")
    loaded, compiled, released, again, last = map(int, seen.split())
    assert max(loaded, released, last) < 4096 and min(compiled, again) > 8192, seen
