"""DLLs under Wine: the bits of the library for Linux, at every CPU level; states in files."""

import native_graphs as ng
import numpy as np
import pytest
import test_rows
from foreign_calls import WineCalls, agree, needs_wine
from library_samples import batch, digits_functions, export_loaded

import graphc as gx
from graphc import interpret
from graphc.codegen.machine.target import host
from graphc.errors import GraphcError
from graphc.types import bf16, f16, f64, i64

LEVELS = [v for v in ("v2", "v4") if host().triple.startswith("x86_64") and v <= host().cpu[-2:]]
pytestmark = needs_wine


@pytest.mark.parametrize("level", LEVELS)
def test_agrees_with_linux(level, tmp_path):
    """Rows over special values, random graphs, and training, with arenas and without."""
    functions, jobs = digits_functions(), []
    x, y = batch(9)
    jobs += [("step", batch(n, n), {}) for n in (32, 1, 0, 70)]
    jobs += [("step", (x, np.where(y == y[0], 10, y)), {}), ("predict", (x,), {})]
    for d in (f16, bf16, f64, i64):
        f, columns, _ = test_rows.elementwise(d)
        functions.append(f)
        jobs += [(f.name, arrays, {}) for arrays in test_rows.parts(columns)]
    for seed in range(5):
        made = ng.make(f"windows {seed}", 40)
        f = ng.function(made, f"f{seed}")
        for s in f.graph.variables():
            s.name = f"f{seed}_{s.name}"
        functions.append(f)
        for k, sizes in enumerate(ng.SIZES):
            arrays, known = made.feed(sizes, seed + k), {d: sizes[d] for d in f.graph.dims()}
            try:
                interpret.evaluate(f.graph, arrays, dims=known)
            except GraphcError:
                continue
            jobs.append((f.name, arrays, known))
    path = gx.export(functions, tmp_path / "many.dll", target="x86_64-windows-gnu", cpu=level)
    calls = WineCalls(path, export_loaded(functions, tmp_path / "libmany.so", cpu=level))
    results = agree(calls, jobs, tmp_path)
    assert sum(r is None for r in results) == 1  # the class that there is not


@pytest.mark.skipif(len(LEVELS) < 2, reason="needs a CPU of two levels")
def test_the_environment_lowers_the_level(tmp_path):
    functions = digits_functions()
    path = gx.export(functions, tmp_path / "digits.dll", target="x86_64-windows-gnu")
    got = {}
    for level in LEVELS:
        (tmp_path / level).mkdir()
        native = export_loaded(functions, tmp_path / level / "libdigits.so", cpu=level)
        calls = WineCalls(path, native)
        calls.level = level
        calls.add("step", batch(32))
        ((status, _, got[level]),) = calls.run(tmp_path)
        own = native.new_state()
        native.call("step", own, *batch(32))
        assert status == 0 and got[level] == own.tobytes()
    assert got["v2"] != got["v4"]
