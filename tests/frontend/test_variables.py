"""Values that variables, constants and state files take and give."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphc as gx
from graphc import ir
from graphc.errors import DTypeError, ShapeError, UsageError


class Foreign:
    """An array of another library: it has a dtype of its own, or tells why NumPy cannot read it."""

    def __init__(self, array, refusal=None):
        self.array, self.refusal = array, refusal

    def __array__(self, dtype=None, copy=None):
        if self.refusal is not None:
            raise self.refusal
        return np.array(self.array, dtype)


def test_initial_values():
    assert gx.variable([1, 2], "a").dtype is gx.int64
    assert gx.variable([1.0, 2], "a").dtype is gx.float32
    assert gx.variable(3.5, "a").dtype is gx.float32
    assert gx.variable(np.zeros(2), "a").dtype is gx.float64
    assert gx.variable(np.zeros(2), "a", dtype="float32").dtype is gx.float32
    assert gx.variable(np.zeros(2, "f2"), "a").dtype is gx.float16


def test_arrays_of_other_libraries_keep_their_dtype(refuses):
    tenth = Foreign(np.array([0.1, 0.2]))
    assert gx.variable(tenth, "a").value.tolist() == [0.1, 0.2]
    assert gx.constant(Foreign(np.ones(2, "f2"))).dtype is gx.float16
    assert (gx.input("x", (2,)) + tenth).dtype is gx.float64
    assert gx.constant(memoryview(np.array([0.1]))).dtype is gx.float64
    wide = gx.variable(np.zeros(2), "w")
    wide.value = tenth
    assert wide.value.tolist() == [0.1, 0.2]
    for refusal in (RuntimeError("it requires grad, use detach()"), TypeError("call detach()")):
        bad = Foreign(None, refusal)
        for use in (gx.constant, lambda a: gx.variable(a, "v"), lambda a: gx.input("x") + a,
                    lambda a: setattr(wide, "value", a), gx.function([x := gx.input("x")], x + 1)):
            with refuses("Foreign", "detach()", kind=UsageError):
                use(bad)


@pytest.mark.parametrize("dtype, value, what", [
    ("int8", [300, 1], "got 300, which is outside -128 to 127"),
    ("uint8", [-1, 0], "got -1, which is outside 0 to 255"),
    ("int64", [2.7, 1], "must be i64[2], got the list [2.7, 1]"),
    ("int64", [float("nan"), 1], "must be i64[2], got the list [nan, 1]"),
    ("bool", [2, 0], "must be bool[2], got the list [2, 0]"),
])
def test_a_variable_takes_numbers_whole_or_not_at_all(refuses, dtype, value, what):
    w = gx.variable(np.ones(2, dtype), "w")
    with refuses("variable 'w': the value", what, kind=DTypeError):
        w.value = value
    assert w.value.tolist() == [1, 1]
    wide = gx.variable(np.zeros(2), "wide")
    wide.value = [0.1, 2**53 - 1]
    assert wide.value.tolist() == [0.1, 2**53 - 1]


def test_variable_value():
    w = gx.variable(np.array([1.0, 2.0], "f4"), "w")
    buffer = w.state.array
    copy = w.value
    copy[0] = 9
    np.testing.assert_array_equal(w.value, [1, 2])
    w.value = [3.0, 4]
    np.testing.assert_array_equal(w.value, [3, 4])
    assert w.state.array is buffer
    assert w.name == "w" and isinstance(w, gx.Tensor)


def test_variable_refuses_other_values(refuses):
    w = gx.variable(np.zeros(2, "f4"), "w")
    with refuses("variable 'w': the value must be f32[2], got f32[3]", kind=ShapeError):
        w.value = np.zeros(3, "f4")
    cast = "variable 'w': the value must be f32[2], got f64[2]; cast it with .astype('float32')"
    with refuses(cast, kind=DTypeError):
        w.value = np.zeros(2)
    np.testing.assert_array_equal(w.value, [0, 0])


def test_state_files(tmp_path, refuses):
    w, b = gx.variable(np.array([1.5, 2], "f4"), "w"), gx.variable([7], "b")
    path = tmp_path / "model.npz"
    gx.save_state(path, [w, b])
    w.value, b.value = np.zeros(2, "f4"), [0]
    gx.load_state(path, [w, b])
    np.testing.assert_array_equal(w.value, [1.5, 2])
    np.testing.assert_array_equal(b.value, [7])
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]
    with refuses("has 'b' besides; to read some only: v.value = numpy.load(path)[v.name]"):
        gx.load_state(path, [w])
    with refuses("state: takes a list, got a dict; pass list(d.values())"):
        gx.save_state(path, {"w": w})
    with refuses("load_state", "lacks 'c'"):
        gx.load_state(path, [w, b, gx.variable(0, "c")])
    with refuses("load_state: variable 'w' must be f32[3], got f32[2]"):
        gx.load_state(path, [b, gx.variable(np.zeros(3, "f4"), "w")])
    with refuses("load_state: cannot read"):
        gx.load_state(tmp_path / "none.npz", [w])
    (tmp_path / "text.npz").write_text("no")
    with refuses("load_state"):
        gx.load_state(tmp_path / "text.npz", [w])
    with refuses("save_state: cannot write"):
        gx.save_state(tmp_path / "no" / "model.npz", [w])
    with refuses("two variables are called 'w'"):
        gx.save_state(path, [w, gx.variable(0, "w")])
    with refuses("state: takes variables and functions"):
        gx.save_state(path, [3])


@pytest.mark.parametrize("names", [("a", "a.npy"), ("a.npy", "a")])
def test_names_that_end_as_files_do(tmp_path, names):
    variables = [gx.variable(float(k), name) for k, name in enumerate(names)]
    f = gx.function([], gx.stack([v + 0 for v in variables]), mode="interpret")
    f.graph.save(tmp_path / "graph")
    gx.save_state(tmp_path / "state.npz", variables)
    for v in variables:
        v.value = 7
    gx.load_state(tmp_path / "state.npz", variables)
    assert [v.value for v in variables] == [0, 1]
    read = ir.Graph.load(tmp_path / "graph").variables()
    assert {s.name: s.array for s in read} == dict(zip(names, (0, 1), strict=True))


def test_state_of_bfloat16(tmp_path):
    w = gx.variable([1.5, -2.0], "w", dtype="bfloat16")
    gx.save_state(tmp_path / "w.npz", w)
    kept = w.value
    w.value = np.zeros_like(kept)
    gx.load_state(tmp_path / "w.npz", w)
    np.testing.assert_array_equal(w.value, kept)


@pytest.mark.parametrize("how", ["save_state", "state", "with_state"])
def test_what_is_taken_from_several_variables_is_of_one_step(tmp_path, how):
    a, b = gx.variable(0.0, name="a"), gx.variable(0.0, name="b")
    f = gx.function([], None, updates={a: a + 1, b: b + 1}, mode="interpret")
    taken = {}

    def take():
        if how == "save_state":
            gx.save_state(tmp_path / "s.npz", f)
            taken.update(np.load(tmp_path / "s.npz"))
        else:
            taken.update(f.state if how == "state" else f.with_state().state)

    with b.state.lock:  # a step that has one lock already and gets the other if it is free
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(0.2)
        if a.state.lock.acquire(timeout=0.2):
            f()
            a.state.lock.release()
    thread.join()
    assert taken["a"] == taken["b"]
