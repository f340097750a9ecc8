"""Graphs as pairs of files."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sample_graphs import B, constant, given, one

from graphc import ir
from graphc.errors import CompileError, ExecutionError, ParseError
from graphc.interpret import evaluate
from graphc.text import load, save, to_text
from graphc.types import TensorType, f32
from graphc.verify import verify

DATA = np.arange(64, dtype=np.float32).reshape(64, 1)


def graph() -> ir.Graph:
    x = given("x", f32, B, 64)
    table = constant(DATA)
    s = ir.State("scale/é", TensorType(f32, (64, 1)), np.full((64, 1), 0.5, np.float32))
    w = one("mul", table, one("variable", state=s))
    y = one("dot", x, w, contract=((1,), (0,)), batch=((), ()))
    return ir.collect("f", [x], [y], [(s, w)], ["y"])


def test_save_and_load(tmp_path):
    g = graph()
    save(g, tmp_path / "f.gir")
    assert sorted(os.listdir(tmp_path)) == ["f.gir", "f.npz"]
    loaded = load(tmp_path / "f.gir")
    assert to_text(loaded) == to_text(g)
    x = np.ones((2, 64), np.float32)
    (want,), updates = evaluate(g, [x])
    (found,), new = evaluate(loaded, [x])
    assert np.array_equal(want, found)
    assert [a.tolist() for a in updates.values()] == [a.tolist() for a in new.values()]
    save(loaded, tmp_path / "g.gir")
    for end in ("gir", "npz"):
        assert (tmp_path / f"f.{end}").read_bytes() == (tmp_path / f"g.{end}").read_bytes()


def test_methods_of_graph(tmp_path):
    g = graph()
    g.save(tmp_path / "f")
    assert str(ir.Graph.load(tmp_path / "f.gir")) == str(g)


def test_without_the_arrays_it_verifies_but_does_not_run(tmp_path):
    save(graph(), tmp_path / "f.gir")
    (tmp_path / "f.npz").unlink()
    g = load(tmp_path / "f.gir")
    verify(g)
    assert to_text(g) == to_text(graph())
    with pytest.raises(ExecutionError, match=r"constant @c0 .* has no value: .* without its \.npz"):
        evaluate(g, [np.ones((2, 64), np.float32)])
    save(g, tmp_path / "again.gir")
    assert not (tmp_path / "again.npz").exists()


def test_a_variable_without_value_says_so(tmp_path):
    s = ir.State("w", TensorType(f32, (2,)), None)
    v = one("variable", state=s)
    with pytest.raises(ExecutionError, match=r"variable @w has no value: .*\.npz"):
        evaluate(ir.collect("f", [], [v]), [])


def test_bfloat16_arrays(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(20).astype(ml_dtypes.bfloat16)
    save(ir.collect("f", [], [constant(array)]), tmp_path / "f.gir")
    (found,), _ = evaluate(load(tmp_path / "f.gir"), [])
    assert found.dtype == array.dtype and found.tobytes() == array.tobytes()


def test_a_graph_without_arrays_has_no_npz(tmp_path):
    x = given("x", f32, B)
    save(ir.collect("f", [x], [one("exp", x)]), tmp_path / "f.gir")
    assert os.listdir(tmp_path) == ["f.gir"]


@pytest.mark.skipif(os.name != "posix", reason="a folder that is no folder")
def test_unwritable_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"save: cannot write .*f\.gir"):
        save(graph(), tmp_path / "file" / "f.gir")
    with pytest.raises(CompileError, match="cannot write"):
        save(graph(), tmp_path / "absent" / "f.gir")
    (tmp_path / "dir.gir").mkdir()  # the array file can be written, the text cannot
    with pytest.raises(CompileError):
        save(graph(), tmp_path / "dir.gir")
    assert not [name for name in os.listdir(tmp_path) if "tmp" in name]


def test_damaged_files(tmp_path):
    save(graph(), tmp_path / "f.gir")
    good = (tmp_path / "f.gir").read_bytes()
    (tmp_path / "f.gir").write_bytes(b"graph \xff")
    with pytest.raises(ParseError, match=r"f\.gir: line 1: expected text in UTF-8"):
        load(tmp_path / "f.gir")
    (tmp_path / "f.gir").write_bytes(good)
    np.savez(tmp_path / "f.npz", c0=DATA[:3])
    with pytest.raises(ParseError, match=r"f.gir: line 2, .*@c0 has type f32\[64,1\], but"):
        load(tmp_path / "f.gir")
    (tmp_path / "f.npz").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(ParseError, match=r"f\.npz: expected an \.npz of NumPy arrays, as save wri"):
        load(tmp_path / "f.gir")
    with pytest.raises(CompileError, match=r"load: cannot read .*absent\.gir: No such file"):
        load(tmp_path / "absent.gir")
