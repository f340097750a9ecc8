"""Calls: structures, names, conversions, and what is refused; native code and interpreter alike."""

import numpy as np
import pytest

import graphc as gx
from graphc.errors import DTypeError, OutOfMemoryError, ShapeError, UsageError


@pytest.fixture(params=["jit", "interpret"])
def mode(request):
    return request.param


@pytest.fixture
def inc(mode):
    x = gx.input("x", ("n",))
    return gx.function([x], x + 1, name="inc", mode=mode)


def test_structures(mode):
    x = gx.input("x", ("n",))
    a = np.arange(3, dtype=np.float32)
    y = x + 1
    assert isinstance(gx.function([x], y, mode=mode)(a), np.ndarray)
    for outputs in ([y], [y, x], []):
        got = gx.function([x], outputs, mode=mode)(a)
        assert type(got) is list and len(got) == len(outputs)
    assert type(gx.function([x], (y, x), mode=mode)(a)) is tuple
    got = gx.function([x], {"b": y, "a": x}, mode=mode)(a)
    assert list(got) == ["b", "a"] and got["b"].tolist() == [1, 2, 3]
    assert gx.function([x], None, mode=mode)(a) is None


def test_by_position_and_by_name(mode):
    x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
    f = gx.function([x, y], x - y, mode=mode)
    a, b = np.array([5], np.float32), np.array([3], np.float32)
    assert f(a, b) == f(a, y=b) == f(x=a, y=b) == f(y=b, x=a) == 2


def test_results_are_fresh(mode):
    x = gx.input("x", ("n",))
    v = gx.variable(np.zeros(3, np.float32), "v")
    a = np.arange(3, dtype=np.float32)
    one, two, three = gx.function([x], [x, x, v], mode=mode)(a)
    assert not np.shares_memory(one, a) and not np.shares_memory(one, two)
    three += 1
    assert v.value.tolist() == [0, 0, 0]


def test_scalars_come_back_as_arrays(mode):
    x = gx.input("x", ())
    y = gx.function([x], x * 2, mode=mode)(3)
    assert isinstance(y, np.ndarray) and y.shape == () and y.dtype == np.float32 and y == 6


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3], (1.0, 2.0, 3.0), [True, True, False], range(1, 4),
        np.array([1, 2, 3], ">f4"), np.array([1, 2, 3], np.float16), np.array([1, 2, 3], np.int8),
        np.array([1, 0, 2, 0, 3], np.float32)[::2], np.array([3, 2, 1], np.float32)[::-1],
        np.array([[1, 2, 3]], np.float32).T[:, 0], np.array([True, False, True]),
        np.array([1, 2, 3], np.float32).view(np.recarray),
    ],
)
def test_what_converts(inc, value):
    want = np.asarray(value).astype(np.float32) + 1
    got = inc(value)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)


def test_int_dtypes_of_one_width(mode):
    x = gx.input("x", ("n",), "int64")
    f = gx.function([x], x + 1, mode=mode)
    for d in (np.longlong, np.int64, np.int32, np.uint16):
        assert f(np.array([4], d)).tolist() == [5]


def test_no_memory_for_a_copy(inc):
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (1 << 50,), (0,))
    with pytest.raises(OutOfMemoryError, match=r"inc: input 'x': out of memory for a copy as "
                       r"f32\[n\] in C order, of shape \[1125899906842624\] \(test_calls"):
        inc(endless)


class HasGrad:
    """As torch's Tensors that require a gradient."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("detach it first")

    def __repr__(self):
        return "<HasGrad>"


REFUSED = [
    (((),), {"x": [1]}, UsageError, "inc: input 'x' is given twice, by position and by name"),
    ((), {}, UsageError, "inc: takes 1 input (x: f32[n]), got 0: 'x' (f32[n]) is missing"),
    (([1], [2]), {}, UsageError, "inc: takes 1 input (x: f32[n]), got 2"),
    ((), {"z": [1]}, UsageError, "inc: has no input 'z'; it takes (x: f32[n])"),
    (
        (np.zeros(3),), {}, DTypeError,
        "inc: input 'x' must be f32[n], got an array of float64 with shape [3]; "
        "cast it with .astype('float32')",
    ),
    ((np.zeros(3, np.int64),), {}, DTypeError, "got an array of int64"),
    (
        (np.zeros(3, complex),), {}, DTypeError,
        "got an array of complex128 with shape [3]; pass value.real, or both parts",
    ),
    ((np.zeros(3, "M8[s]"),), {}, DTypeError, "got an array of datetime64[s] with shape [3] ("),
    ((HasGrad(),), {}, UsageError, "must be an array of f32[n], got the HasGrad <HasGrad>: detach"),
    ((np.float32(1),), {}, ShapeError, "expected f32[n], which has 1 axis, got shape [] with 0"),
    ((np.zeros((2, 3), np.float32),), {}, ShapeError, "got shape [2,3] with 2"),
    (("abc",), {}, DTypeError, "inc: input 'x' must be f32[n], got the str 'abc'"),
    ((None,), {}, DTypeError, "got the NoneType None"),
    (([1, [2, 3]],), {}, UsageError, "got the list [1, [2, 3]]"),
    ((np.ma.array([1.0, 2.0]),), {}, UsageError, "whose mask would be lost"),
    ((gx.input("t", ("n",)),), {}, UsageError, "got the Tensor <Tensor t: f32[n]"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusal(inc, case):
    args, kwargs, kind, text = REFUSED[case]
    with pytest.raises(kind) as caught:
        inc(*args, **kwargs)
    assert text in str(caught.value) and "(test_calls.py:" in str(caught.value)


def test_integers_out_of_range(mode):
    x = gx.input("x", ("n",), "int8")
    f = gx.function([x], x, mode=mode)
    assert f([1, -128]).tolist() == [1, -128]
    with pytest.raises(DTypeError, match="got 128, which is outside -128 to 127"):
        f([1, 128])
    with pytest.raises(DTypeError, match=r"must be i8\[n\], got the list \[1.5\]"):
        f([1.5])


def test_equal_names_are_equal_sizes(mode):
    x, y = gx.input("x", ("n", 3)), gx.input("y", ("n",))
    f = gx.function([x, y], gx.sum(x, axis=1) + y, name="f", mode=mode)
    assert f(np.zeros((4, 3), "f4"), np.ones(4, "f4")).tolist() == [1] * 4
    with pytest.raises(ShapeError, match=r"f: input 'y': expected f32\[n\], got .*axis 0 is 5"):
        f(np.zeros((4, 3), "f4"), np.ones(5, "f4"))
    with pytest.raises(ShapeError, match="axis 1 must be 3"):
        f(np.zeros((4, 2), "f4"), np.ones(4, "f4"))


def test_dimensions_by_keyword(mode, monkeypatch):
    # The verifier wants every name in some input; a call may give the others.
    monkeypatch.delenv("GRAPHC_VERIFY", raising=False)
    k = gx.dim("k")
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.broadcast_to(x, (k, x.shape[0])) * 2, name="rows", mode=mode)
    got = f(np.ones(2, "f4"), k=3)
    assert got.shape == (3, 2) and (got == 2).all()
    with pytest.raises(UsageError, match="dimension 'k' stands alone in no input, so give it: k="):
        f(np.ones(2, "f4"))
    with pytest.raises(ShapeError, match="dimension 'k' must be >= 0, got -1"):
        f(np.ones(2, "f4"), k=-1)
    with pytest.raises(UsageError, match=r"dimension 'k' must be an integer, got 1\.5"):
        f(np.ones(2, "f4"), k=1.5)
    with pytest.raises(ShapeError, match=f"'k' must be at most {2**63 - 1}, got {2**64 + 3}"):
        f(np.ones(2, "f4"), k=2**64 + 3)  # its low 64 bits are 3


def test_a_dimension_within_a_kernel_or_a_composite_alone(mode, monkeypatch):
    """The types of a graph's values need not name it: what is summed over may be a counter."""
    monkeypatch.delenv("GRAPHC_VERIFY", raising=False)
    x, k = gx.input("x", ("n",)), gx.dim("k")
    triangle = gx.sum(gx.arange(k, dtype="float32"))
    for y in (x * triangle, gx.composite(lambda v: v * gx.sum(gx.arange(k, dtype="float32")))(x)):
        f = gx.function([x], y, mode=mode)
        assert f.graph.dims() == ("n", "k") == f.optimized.dims()
        assert f(np.ones(2, "f4"), k=5).tolist() == [10, 10]


def test_a_dimension_that_is_only_checked(mode, monkeypatch):
    """What a pass has removed is still checked, though nothing else names the dimension."""
    monkeypatch.delenv("GRAPHC_VERIFY", raising=False)
    x, k = gx.input("x", ("n",)), gx.dim("k")
    even = gx.assert_dim(x, 0, 2 * k)
    f = gx.function([x], gx.where(gx.constant(True), x, gx.sum(even)), mode=mode)
    assert f.optimized.dims() == ("n",)
    assert f(np.ones(6, "f4"), k=3).tolist() == [1] * 6
    with pytest.raises(ShapeError, match=r"must be 2\*k, got n where n = 6, k = 4"):
        f(np.ones(6, "f4"), k=4)


def test_out(inc):
    a = np.arange(4, dtype=np.float32)
    for out in (np.empty(4, "f4"), np.empty(8, "f4")[::2], np.empty(4, ">f4")[:].view("f4")):
        assert inc(a, out=out) is out
        np.testing.assert_array_equal(out, a + 1)
    same = a.copy()
    assert inc(same, out=same) is same and same.tolist() == [1, 2, 3, 4]
    shifted = np.arange(5, dtype=np.float32)
    inc(shifted[:4], out=shifted[1:])
    assert shifted.tolist() == [0, 1, 2, 3, 4]


def test_out_takes_the_native_path_when_it_can(monkeypatch):
    x, y = gx.input("x", ("n", 2)), gx.input("y", ("n",))
    f = gx.function([x, y], [x * 2, gx.concat([y, y])], name="f")
    a, b = np.ones((3, 2), "f4"), np.ones(3, "f4")
    f(a, b)
    monkeypatch.setattr(f, "_run", lambda *a: pytest.fail("the explaining path was taken"))
    out = [np.zeros((3, 2), "f4"), np.zeros(6, "f4")]
    assert f(a, b, out=out) is out
    assert (out[0] == 2).all() and (out[1] == 1).all()


def test_out_of_structures(mode):
    x = gx.input("x", ("n",))
    a = np.arange(2, dtype=np.float32)
    f = gx.function([x], [x + 1, x + 2], mode=mode)
    out = [np.empty(2, "f4"), np.empty(2, "f4")]
    assert f(a, out=out) is out and out[1].tolist() == [2, 3]
    g = gx.function([x], {"p": x + 1}, mode=mode)
    named = {"p": np.empty(2, "f4")}
    assert g(a, out=named) is named and named["p"].tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"out\['p'\] must be f32\[2\], got shape \[3\]"):
        g(a, out={"p": np.empty(3, "f4")})
    with pytest.raises(DTypeError, match=r"out\[1\] must be f32\[2\], got float64"):
        f(a, out=[np.empty(2, "f4"), np.empty(2)])


READ_ONLY = np.empty(2, np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "kind", "text"),
    [
        (np.empty(3, "f4"), ShapeError, r"out= must be f32\[2\], got shape \[3\]"),
        (np.empty(2, "f8"), DTypeError, r"out= must be f32\[2\], got float64"),
        ([1, 2], UsageError, "out= takes arrays, got the list"),
        (READ_ONLY, UsageError, "read-only"),
    ],
)
def test_out_refused(inc, out, kind, text):
    with pytest.raises(kind, match=text):
        inc(np.zeros(2, "f4"), out=out)


def test_out_of_a_function_without_outputs(mode):
    x, v = gx.input("x", ("n",)), gx.variable(0.0, "v")
    f = gx.function([x], None, updates={v: v + 1}, name="count", mode=mode)
    with pytest.raises(UsageError, match="count: has no outputs, so it takes no out="):
        f(np.zeros(2, "f4"), out=[])
    assert v.value == 0


def test_an_input_may_be_called_out(mode):
    x = gx.input("out", ("n",))
    assert gx.function([x], x + 1, mode=mode)(out=[1]).tolist() == [2]


def test_watch():
    x = gx.input("x", ("n",))
    hidden = x * 3
    f = gx.function([x], hidden + 1)
    assert f.watch(hidden, [1, 2]).tolist() == [3, 6]
    assert f.watch({"h": hidden}, x=[1])["h"].tolist() == [3]


def test_debug_names_the_op_and_the_line():
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.log(x) + 1, mode="debug")
    assert f([1.0]).tolist() == [1]
    with pytest.raises(gx.errors.NonFiniteError, match=r"log: made 1 inf.*\(test_calls.py:\d+\)"):
        f([1.0, 0.0])


def test_python_numbers_for_scalars(mode):
    for dtype in ("float32", "float64", "float16"):
        x, lr = gx.input("x", ("n",), dtype), gx.input("lr", (), dtype)
        f = gx.function([x, lr], x * lr, mode=mode)
        a = np.ones(3, dtype)
        for number in (0.1, 2, np.float64(0.1), np.array(0.1, dtype)):
            want = a * np.asarray(number).astype(dtype)
            for got in (f(a, number), f(a, lr=number), f(a, number, out=np.empty(3, dtype))):
                np.testing.assert_array_equal(got, want)
