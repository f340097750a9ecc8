"""Random graphs as libraries: values of the compiled function, within guarded memory."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from library_samples import Loaded, arrays, plain
from random_graphs import graphs
from test_memory import Guarded, same_bits

import graphc as gx
from graphc.codegen.machine.target import host
from graphc.errors import GraphcError
from graphc.function import Function, Options


def check(lib, f, inputs, at_end):
    """Equal outputs, or the same complaint."""
    try:
        want = f(*inputs)
    except GraphcError as e:
        want = str(e)
    dims = lib.dims(f.name, inputs)
    outs = lib.outputs(f.name, inputs)
    held = [Guarded(a.nbytes, at_end).put(a) for a in inputs]
    made = [Guarded(o.nbytes, at_end) for o in outs]
    size = lib.arena(f.name, *dims)
    arena = Guarded(max(0, size), at_end)
    pointers = [g.address for g in (*held, *made)]
    status = lib.raw(f.name, None, pointers, dims, arena.address)
    if isinstance(want, str):
        assert status and lib.explain(status).split(":")[1] in want
        return
    assert status == 0, lib.explain(status)
    for g, o, w in zip(made, outs, want, strict=True):
        assert same_bits(plain(g.get(o)), plain(w)), f.graph


# v3 and v4 agree bit for bit; v2, which rounds after every operation, only nearly.
LEVELS = [level for level in ("v3", "v4") if level <= host().cpu[-2:]] or ["native"]


@given(g=graphs(), seed=st.integers(0, 100), at_end=st.booleans(), cpu=st.sampled_from(LEVELS))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_graphs(g, seed, at_end, cpu):
    assume(len({s.name for s in g.variables()}) == len(g.variables()))
    f = Function(g, "list", Options())
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = gx.export(f, Path(folder) / "librandom.so", cpu=cpu)
        lib = Loaded(path, [f])
        for n in (0, 1, 3, 18):
            check(lib, f, arrays(f, rng, n), at_end)
