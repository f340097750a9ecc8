"""Programs that an earlier process compiled: found without passes or code generation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.machine import cache, llvm, program_cache
from graphc.codegen.machine.target import host
from graphc.codegen.program import Program


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    for name in program_cache.SWITCHES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nothing_new(monkeypatch):
    """From here on nothing may be compiled; `fail` must be called after the first compilation."""

    def fail():
        def refuse(*args, **kwargs):
            pytest.fail("compiled again")

        monkeypatch.setattr("graphc.passes.run_pipeline", refuse)
        monkeypatch.setattr("graphc.codegen.compile.compile_graph", refuse)
        monkeypatch.setattr(llvm, "_generate", refuse)

    return fail


def step(scale=2.0, **options):
    x, i = gx.input("x", ("n", 4)), gx.input("i", ("n",), "int64")
    w = gx.variable(np.ones((4, 4)), "w", "float32")
    unused = gx.variable(np.zeros(3), "unused", "float32")
    table = gx.constant(scale * np.arange(2000, dtype=np.float32))
    y = gx.sum(gx.exp(x @ w / 9), axis=1) + gx.take(table, i)
    return gx.function(
        [x, i], {"y": y}, updates={w: w * 2, unused: unused}, name="step", **options
    )


X, I = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), np.array([5, 0, 1999])


def test_a_program_comes_back_whole(nothing_new):
    first = step()
    wanted = first(X, I)["y"]
    nothing_new()
    again = step()
    np.testing.assert_array_equal(again(X, I)["y"], wanted)
    assert again.compilations == 1 and (again.state["w"] == 2).all()
    for field in Program._fields:
        a, b = getattr(first.program, field), getattr(again.program, field)
        if field == "states":
            assert [s.name for s in a] == [s.name for s in b]
        elif field == "constants":
            assert a == b and len(a) == 1
        elif field == "graph":
            assert b is again.graph
        else:
            assert a == b, field
    with pytest.raises(gx.errors.ExecutionError, match=r"index out of range.*program_cache.py:\d+"):
        again(X, I + 1)


def test_weights_are_not_kept_twice(nothing_new):
    """Those of the declared graph come from there; one that a pass has made is in the entry."""
    x = gx.input("x", ("n", 600))
    rng = np.random.default_rng(3)
    w, v = (rng.standard_normal((600, 600), np.float32) for _ in range(2))

    def network():
        hidden = gx.tanh(x @ gx.swapaxes(gx.constant(w), 0, 1))
        bias = gx.exp(gx.constant(v[:5]))
        return gx.function([x], gx.expand_dims(hidden @ gx.constant(v), 1) + bias)

    first = network()
    data = rng.standard_normal((3, 600), np.float32)
    wanted = first(data)
    assert sum(p.stat().st_size for p in Path(cache.directory()).iterdir()) < w.nbytes
    nothing_new()
    again = network()
    np.testing.assert_array_equal(again(data), wanted)
    exact = (np.tanh(data.astype("f8") @ w.T) @ v)[:, None] + np.exp(v[:5].astype("f8"))
    np.testing.assert_allclose(wanted, exact, rtol=1e-3, atol=1e-3)
    declared = {id(n.attrs["value"]): n.attrs["value"] for n in again.graph.nodes
                if n.op.name == "constant"}
    (turned,) = (c for c in again.program.constants if c.source)
    assert id(turned.source) in declared and (turned.array == w.T).all()
    (same,) = (c for c in again.program.constants if id(c) in declared)
    assert (same.array == v).all()
    (folded,) = {*again.program.constants} - {turned, same}
    np.testing.assert_allclose(folded.array, np.exp(v[:5]), rtol=1e-6)


def test_dimensions_that_do_not_fit_are_still_named(nothing_new):
    def halves():
        x = gx.input("x", ("n",))
        return gx.function([x], gx.reshape(x, (-1, 2)))

    halves()(np.ones(4, np.float32))
    nothing_new()
    with pytest.raises(gx.errors.GraphcError, match=r"reshape.*test_program_cache.py:\d+"):
        halves()(np.ones(3, np.float32))


def key(f):
    o = f.options
    return program_cache.key(f.graph, host(), o.pipeline, o.fastmath, o.stabilise)


def test_whatever_decides_the_program_is_in_the_key(monkeypatch):
    known = key(step())
    assert known is not None
    others = [
        key(step(scale=3.0)), key(step(fastmath=True)), key(step(stabilise=False)),
        key(step(pipeline=("inline", "fuse"))),
    ]  # fmt: skip
    monkeypatch.setenv("GRAPHC_CPU", "v2")
    host.cache_clear()
    others.append(key(step()))
    monkeypatch.delenv("GRAPHC_CPU")
    host.cache_clear()
    monkeypatch.setattr(cache, "installation", lambda: "a file of graphc has changed")
    others.append(key(step()))
    assert len({known, *others}) == 7


def test_the_file_counts_not_only_its_name(tmp_path):
    source = "import graphc as gx\nx = gx.input('x', (3,))\nf = gx.function([x], x * 2)\n"
    graphs = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "same.py"
        path.parent.mkdir()
        space: dict = {}
        exec(compile(source, str(path), "exec"), space)
        graphs.append(space["f"])
    assert str(graphs[0].graph) == str(graphs[1].graph)
    assert key(graphs[0]) != key(graphs[1])


def test_what_no_key_covers_is_not_remembered(monkeypatch):
    assert key(step(pipeline=(*gx.PIPELINE, lambda g: g))) is None
    for name in program_cache.SWITCHES:
        monkeypatch.setenv(name, "1")
        assert key(step()) is None
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    assert key(step()) is None
    step().compile()


def test_defined_ops_are_not_remembered(monkeypatch):
    from graphc.codegen.elementwise import scalars
    from graphc.ops import OPS

    monkeypatch.setattr("graphc.define.OPS", dict(OPS))
    monkeypatch.setattr(scalars, "EMIT", dict(scalars.EMIT))
    row = gx.Op("thrice", gx.Kind.ELEMENTWISE, 1, type=gx.same_float("thrice"), ref=lambda x: 3 * x)
    x = gx.input("x", (3,))._value
    (y,) = gx.ir.apply(row, [x])
    (a,) = gx.ir.apply("input", [], name="a", type=x.type)
    (inner,) = gx.ir.apply(row, [a])
    body = gx.ir.collect("piece", [a], [inner])
    (z,) = gx.ir.apply("call", [x], name="piece", body=body)
    for out in (y, z):
        g = gx.ir.collect("f", [x], [out])
        assert program_cache.key(g, host(), None) is None


def test_a_damaged_entry_is_compiled_again(tmp_path):
    step().compile()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert step()(X, I)["y"].shape == (3,)
