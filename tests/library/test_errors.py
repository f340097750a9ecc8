"""What calls from C are told when they are wrong, and that a failed call changes nothing."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from library_samples import agree, batch, export_loaded, same_bits

import graphc as gx
from graphc.errors import IndexOutOfRangeError, IntegerDivisionError

NULL, NEGATIVE, OVERFLOW, OVERLAP, ARENA, MEMORY, CPU = 1, 2, 3, 4, 5, 6, 7


@pytest.fixture
def call(digits):
    """step on good arguments, some of them replaced; checks that a failure changes no state."""
    x, y = batch(8)
    loss = np.zeros((), np.float32)

    def run(n=8, arena=None, **replaced):
        state = digits.new_state()
        before = state.copy()
        at = {"x": x.ctypes.data, "y": y.ctypes.data, "loss": loss.ctypes.data} | {
            k: state.ctypes.data + v[1] if isinstance(v, tuple) else v
            for k, v in replaced.items()
        }
        status = digits.raw("step", state, list(at.values()), [n], arena)
        assert status == 0 or same_bits(state, before)
        return status

    return run


def test_null(digits, call):
    assert call() == 0
    for name in ("x", "y"):
        assert call(**{name: None}) == NULL
    assert call(loss=None) == 0  # an output that is not wanted
    x, y = batch(8)
    loss = np.zeros((), np.float32)
    fn = digits.symbol("step")
    p = [ctypes.c_void_p(a.ctypes.data) for a in (x, y, loss)]
    assert fn(ctypes.c_void_p(None), *p, ctypes.c_int64(8), ctypes.c_void_p(None)) == NULL
    assert call(n=0, x=None, y=None) == 0  # arrays without elements may be anywhere
    assert digits.explain(NULL) == "a pointer argument is null"
    digits.symbol("init")(None)  # functions without a result do nothing
    digits.symbol("pack_state")(None, None)


def test_impossible_sizes(digits, call):
    assert call(n=-1) == NEGATIVE
    assert call(n=-(2**63)) == NEGATIVE
    assert call(n=2**62) == OVERFLOW
    assert digits.arena("step", -1) == -1
    assert digits.arena("step", 2**62) == -1
    assert digits.arena("step", 8) > 0
    assert "negative" in digits.explain(NEGATIVE)
    assert "overflows" in digits.explain(OVERFLOW)


def test_out_of_memory(digits, call):
    n = 2**50
    assert digits.arena("step", n) > 2**57
    assert call(n=n) in (MEMORY, OVERLAP)  # the arrays cannot fit the address space
    assert digits.explain(MEMORY) == "out of memory"


@pytest.mark.parametrize("n", (0, 1, 8, 100))
def test_an_arena_that_is_too_small(digits, n):
    """The form of a call that knows the arena's size; nothing is touched but what it may use."""
    x, y = batch(n)
    need = digits.arena("step", n)
    want_state = digits.new_state()
    want = digits.call("step", want_state, x, y)[0]
    step = digits.symbol("step_in")

    def run(room, size, n=n):
        state, loss = digits.new_state(), np.full((), 77, np.float32)
        at = [ctypes.c_void_p(a.ctypes.data) for a in (state, x, y, loss)]
        arena = ctypes.c_void_p(None if room is None else room.ctypes.data)
        status = step(*at, ctypes.c_int64(n), arena, ctypes.c_int64(size))
        return status, state, loss

    for size in (-1, 0, 1, need // 2, need - 1):
        room = np.full(need, 0xEE, np.uint8)
        status, state, loss = run(room, size)
        assert status == ARENA and (room == 0xEE).all() and loss == 77
        assert same_bits(state, digits.new_state())
    for room, size in ((np.zeros(need, np.uint8), need), (np.zeros(need, np.uint8), 2**62),
                       (None, 0), (None, -1)):
        status, state, loss = run(room, size)
        assert status == 0 and same_bits(state, want_state) and (same_bits(loss, want) or n == 0)
    assert run(np.zeros(need, np.uint8), need, n=-1)[0] == NEGATIVE
    assert run(np.zeros(need, np.uint8), need, n=2**62)[0] == OVERFLOW
    assert digits.explain(ARENA) == "the arena is too small"


def test_overlap(digits, call):
    x, y = batch(8)
    loss = np.zeros((), np.float32)
    assert call(x=x.ctypes.data, loss=x.ctypes.data + 4 * 511) == OVERLAP
    assert call(x=x.ctypes.data, loss=x.ctypes.data + 4 * 512) == 0
    assert call(x=y.ctypes.data - 4 * 512, y=y.ctypes.data, loss=y.ctypes.data - 4) == OVERLAP
    assert call(loss=("state", 0)) == OVERLAP
    assert call(loss=("state", digits.state_bytes - 4)) == OVERLAP
    assert call(x=("state", 0)) == OVERLAP
    room = np.zeros(digits.arena("step", 8), np.uint8)
    assert call(arena=room.ctypes.data) == 0
    assert call(arena=room.ctypes.data, loss=room.ctypes.data + 64) == OVERLAP
    assert call(arena=room.ctypes.data, loss=room.ctypes.data + room.size - 1) == OVERLAP
    assert call(arena=room.ctypes.data, x=room.ctypes.data) == OVERLAP
    assert call(arena=loss.ctypes.data, loss=loss.ctypes.data) == OVERLAP
    assert "overlaps" in digits.explain(OVERLAP)


def test_inputs_may_overlap(tmp_path):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    lib = export_loaded([gx.function([x, y], x * y, name="f")], tmp_path / "libmul.so")
    a, out = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    assert lib.raw("f", None, [a.ctypes.data, a.ctypes.data, out.ctypes.data], [5]) == 0
    assert out.tolist() == [0, 1, 4, 9, 16]


def test_bad_label_names_op_and_line(digits):
    x, y = batch(8)
    state = digits.new_state()
    before = state.copy()
    y[5] = 10
    loss = np.zeros((), np.float32)
    status = digits.raw("step", state, [a.ctypes.data for a in (x, y, loss)], [8])
    assert same_bits(state, before)
    step = digits.functions["step"]
    with pytest.raises(IndexOutOfRangeError) as told:
        step.with_state()(x, y)
    assert agree(told, digits.explain(status))
    assert "out of range" in digits.explain(status)
    assert "library_samples.py:" in digits.explain(status)


def test_codes_of_different_functions_differ(tmp_path):
    x, i = gx.input("x", ("n",), "int32"), gx.input("i", ("m",), "int64")
    table = gx.variable(np.arange(4, dtype="int32"), "table")
    divide = gx.function([x], 100 // x, name="divide")
    look = gx.function([i], gx.take(table, i), name="look")
    both = gx.function([x, i], [7 % x, gx.take(x, i)], name="both")
    lib = export_loaded([divide, look, both], tmp_path / "libcodes.so")
    zero, far = np.array([1, 0], "int32"), np.array([0, 9])
    out, out2, good = np.zeros(2, "int32"), np.zeros(2, "int32"), np.zeros(2, "int64")
    codes = [
        lib.raw("divide", None, [zero.ctypes.data, out.ctypes.data], [2]),
        lib.raw("look", None, [far.ctypes.data, out.ctypes.data], [2]),
        lib.raw("both", None, [a.ctypes.data for a in (zero, good, out, out2)], [2, 2]),
    ]
    assert len(set(codes)) == 3 and min(codes) >= 16
    said = [lib.explain(c) for c in codes]
    assert said[0].startswith("divide: div: integer division by zero")
    assert said[1].startswith("look: gather: index out of range")
    assert said[2].startswith("both: rem: integer division by zero")
    assert all("test_errors.py:" in s for s in said)
    with pytest.raises(IntegerDivisionError) as told:
        divide(zero)
    assert agree(told, said[0])


def test_conditions_on_sizes(tmp_path):
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.sum(gx.reshape(x, (-1, 3)), axis=1), name="rows")
    lib = export_loaded([f], tmp_path / "librows.so")
    assert lib.call("rows", None, np.ones(9, "float32"))[0].tolist() == [3, 3, 3]
    a, out = np.ones(10, "float32"), np.zeros(4, "float32")
    status = lib.raw("rows", None, [a.ctypes.data, out.ctypes.data], [10])
    assert status >= 16 and "reshape" in lib.explain(status)


def test_unknown_codes(digits):
    for code in (-1, 12, 15, 1000, -(2**31), 2**31 - 1):
        assert digits.explain(code) == "unknown status code"


def test_a_cpu_that_is_too_old(tmp_path):
    x = gx.input("x", ("n",))
    f = gx.function([x], x + 1, name="f")
    path = tmp_path / "libnew.so"
    gx.export(f, path, cpu=["v3", "v4"])
    code = f"""
import ctypes, numpy as np
lib = ctypes.CDLL({str(path)!r})
a, b = np.ones(3, "float32"), np.zeros(3, "float32")
p = [ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(b.ctypes.data)]
print(lib.new_f(*p, ctypes.c_int64(3), None))
"""
    for level, want in (("v2", CPU), ("v3", 0), ("v9", 0), ("", 0), ("v22", 0)):
        done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"GRAPHC_CPU": level},
                              capture_output=True, text=True, check=True)
        assert int(done.stdout) == want, level
