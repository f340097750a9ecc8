"""GRAPHC_PERF_MAP: what `perf` reads to name native code in memory."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from graphc.codegen import perf_map
from graphc.codegen.machine import jit, linker, llvm
from graphc.codegen.machine.platforms import native
from graphc.codegen.machine.target import host
from graphc.codegen.pool.runtime import runtime_text

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="perf is Linux's")

PROGRAM = """
import ctypes, os, sys
import numpy as np
import graphc as gx
x, w = gx.input("x", ("n", 64)), gx.variable(np.ones((64, 32), "float32"), "w")
f = gx.function([x], {"s": gx.sum(gx.nn.relu(x @ w)), "t": gx.tanh(x)}, name="score")
f(np.ones((300, 64), "float32"))
print(os.getpid())
print(open("/proc/self/maps").read())
"""


def run(tmp_path, **env):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {"GRAPHC_CACHE_DIR": str(tmp_path)} | env,
        capture_output=True, text=True, check=True,
    )
    pid, _, maps = done.stdout.partition("\n")
    return f"/tmp/perf-{pid}.map", maps


def test_the_map_names_what_is_executable(tmp_path):
    for _ in range(2):  # the second time with all objects in the cache
        path, maps = run(tmp_path, GRAPHC_PERF_MAP="1")
        try:
            with open(path) as f:
                lines = f.read().splitlines()
            assert os.stat(path).st_uid == os.geteuid()  # perf believes no other's
        finally:
            os.unlink(path)
        code = [
            (int(m[1], 16), int(m[2], 16))
            for m in re.finditer(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*$", maps, re.M)
        ]
        names = {}
        for line in lines:
            at, size, name = re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) (.+)", line).groups()
            begin, end = int(at, 16), int(at, 16) + int(size, 16)
            assert end > begin and any(a <= begin and end <= b for a, b in code), line
            names[name] = (begin, end)
        spans = sorted(names.values())
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        pool = {"graphc_parallel", "graphc_worker"}
        assert {"score", "score (called from Python)", *pool} <= {*names}
        kernels = [n for n in names if n.startswith("score.k")]
        assert any(re.fullmatch(r"score\.k\d\[dot.*\]", n) for n in kernels)
        assert any(re.fullmatch(r"score\.k\d\[.*tanh.*\]\.task", n) for n in kernels)
        assert any(n.startswith("graphc_matmul_f32_") for n in names)


def test_none_unless_asked(tmp_path):
    for env in ({}, {"GRAPHC_PERF_MAP": "0"}, {"GRAPHC_PERF_MAP": ""}):
        assert not os.path.exists(run(tmp_path, **env)[0])


def test_addresses_are_those_that_are_called():
    """Every exported function stands where the others of its section say."""
    obj = llvm.compile_object(runtime_text(native()), host())
    found = {name: (section, at, size) for name, section, at, size in perf_map.functions(obj)}
    exports = ["graphc_parallel", "graphc_threads", "graphc_stop"]
    imports = {n: a for n in jit._LIBC if (a := linker.process_symbol(n))}
    code = jit.load([obj], exports=exports, imports=imports)
    base = {code[name] - found[name][1] for name in exports}
    assert len(base) == 1 and {found[name][0] for name in exports} == {found["graphc_worker"][0]}
    assert not list(perf_map.functions(b"\xcf\xfa\xed\xfe not ELF"))
