"""examples/array_api.md lists every name of the array API standard (2024.12), and tells the truth.

Names and argument names stand here independently of the table and of the modules.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import graphc as gx
from graphc.refused import FFT, LINALG, REFUSED

TABLE = Path(__file__).parents[2] / "examples" / "array_api.md"

STANDARD = {
    "Constants": "e inf nan newaxis pi",
    "Data types": "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 "
                  "complex64 complex128",
    "Data type functions": "astype can_cast finfo iinfo isdtype result_type",
    "Creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid "
                "ones ones_like tril triu zeros zeros_like",
    "Elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift "
                   "bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj "
                   "copysign cos cosh divide equal exp expm1 floor floor_divide greater "
                   "greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 "
                   "log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum "
                   "multiply negative nextafter not_equal positive pow real reciprocal remainder "
                   "round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "Indexing": "take take_along_axis",
    "Inspection": "__array_namespace_info__ __array_api_version__",
    "Linear algebra": "matmul matrix_transpose tensordot vecdot",
    "Manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims "
                    "repeat reshape roll squeeze stack tile unstack",
    "Searching and sorting": "argmax argmin count_nonzero nonzero searchsorted where argsort sort",
    "Sets": "unique_all unique_counts unique_inverse unique_values",
    "Statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "Utility": "all any diff",
    "linalg": "linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh "
              "linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank "
              "linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr linalg.slogdet "
              "linalg.solve linalg.svd linalg.svdvals linalg.tensordot linalg.trace "
              "linalg.vecdot linalg.vector_norm",
    "fft": "fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft "
           "fft.ihfft fft.fftfreq fft.rfftfreq fft.fftshift fft.ifftshift",
    "Array object": "Tensor.T Tensor.device Tensor.dtype Tensor.mT Tensor.ndim Tensor.shape "
                    "Tensor.size Tensor.to_device Tensor.__array_namespace__ Tensor.__abs__ "
                    "Tensor.__add__ Tensor.__and__ Tensor.__bool__ Tensor.__complex__ "
                    "Tensor.__dlpack__ Tensor.__dlpack_device__ Tensor.__eq__ Tensor.__float__ "
                    "Tensor.__floordiv__ Tensor.__ge__ Tensor.__getitem__ Tensor.__gt__ "
                    "Tensor.__index__ Tensor.__int__ Tensor.__invert__ Tensor.__le__ "
                    "Tensor.__lshift__ Tensor.__lt__ Tensor.__matmul__ Tensor.__mod__ "
                    "Tensor.__mul__ Tensor.__ne__ Tensor.__neg__ Tensor.__or__ Tensor.__pos__ "
                    "Tensor.__pow__ Tensor.__rshift__ Tensor.__setitem__ Tensor.__sub__ "
                    "Tensor.__truediv__ Tensor.__xor__",
}
NAMES = [n for group in STANDARD.values() for n in group.split()]

# Refusals that are not in graphc.refused: what a Tensor raises when the method is called.
METHODS = ("__bool__", "__complex__", "__dlpack__", "__dlpack_device__", "__float__", "__index__",
           "__int__", "__setitem__")

ARGUMENTS = {
    "arange": "start stop step dtype device", "asarray": "obj dtype device copy",
    "astype": "x dtype copy device",
    "argmax": "x axis keepdims", "argmin": "x axis keepdims", "all": "x axis keepdims",
    "any": "x axis keepdims", "broadcast_to": "x shape", "can_cast": "from_ to",
    "clip": "x min max", "concat": "arrays axis", "count_nonzero": "x axis keepdims",
    "cumulative_sum": "x axis dtype include_initial", "cumulative_prod":
    "x axis dtype include_initial", "diff": "x axis n prepend append", "expand_dims": "x axis",
    "eye": "n_rows n_cols k dtype device", "flip": "x axis",
    "full": "shape fill_value dtype device",
    "full_like": "x fill_value dtype device", "isdtype": "dtype kind",
    "linspace": "start stop num dtype device endpoint", "matmul": "x1 x2", "max": "x axis keepdims",
    "mean": "x axis keepdims", "min": "x axis keepdims", "moveaxis": "x source destination",
    "ones": "shape dtype device", "permute_dims": "x axes", "prod": "x axis dtype keepdims",
    "repeat": "x repeats axis", "reshape": "x shape copy", "roll": "x shift axis",
    "squeeze": "x axis", "stack": "arrays axis", "std": "x axis correction keepdims",
    "sum": "x axis dtype keepdims", "take": "x indices axis", "take_along_axis": "x indices axis",
    "tensordot": "x1 x2 axes", "tile": "x repetitions", "tril": "x k", "triu": "x k",
    "unstack": "x axis", "var": "x axis correction keepdims", "vecdot": "x1 x2 axis",
    "where": "condition x1 x2", "zeros": "shape dtype device", "zeros_like": "x dtype device",
    "empty": "shape dtype device", "empty_like": "x dtype device", "ones_like": "x dtype device",
}


def rows():
    text = TABLE.read_text()
    return dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|$", text, re.M))


def lookup(name):
    place = gx
    for part in name.split("."):
        place = getattr(place, part)
    return place


def test_every_name_of_the_standard_is_listed():
    assert sorted(rows()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_tells_the_truth(name, refuses):
    status = rows()[name]
    home, _, last = name.rpartition(".")
    reason = {"": REFUSED, "linalg": LINALG, "fft": FFT}.get(home, {}).get(last)
    if home == "Tensor" and last in METHODS:
        assert status.startswith("refused: ")
        x = gx.input("x", ("n",))
        args = (0, 1) if last == "__setitem__" else ()
        with refuses(status.removeprefix("refused: ").split(";")[0]):
            getattr(x, last)(*args)
    elif reason is not None:
        assert status == f"refused: {reason}"
        with refuses(f"{name}: not available, because {reason}"):
            lookup(name)()
    else:
        assert status.startswith("present")
        lookup(name)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_argument_names(name):
    have = list(inspect.signature(getattr(gx, name)).parameters)
    assert [a for a in ARGUMENTS[name].split() if a not in have] == []


def test_devices(refuses):
    x = gx.input("x", (2, 2))
    makers = {
        "asarray": [1.0], "arange": [3], "empty": [3], "empty_like": [x], "eye": [3],
        "full": [3, 1], "full_like": [x, 1], "linspace": [0, 1, 3], "ones": [3], "ones_like": [x],
        "zeros": [3], "zeros_like": [x], "astype": [x, "float32"],
    }
    for name, args in makers.items():
        make = getattr(gx, name)
        want = gx.function([x], make(*args))(np.ones((2, 2), "f4"))
        got = gx.function([x], make(*args, device=x.device))(np.ones((2, 2), "f4"))
        assert got.dtype == want.dtype and got.tobytes() == want.tobytes()
        with refuses(f"{name}: the only device is 'cpu', got 'gpu'"):
            make(*args, device="gpu")


def test_namespace_info():
    x = gx.input("x", ("n",))
    assert x.__array_namespace__() is gx
    info = gx.__array_namespace_info__()
    assert info.dtypes(kind="unsigned integer").keys() == {"uint8", "uint16", "uint32", "uint64"}
    assert info.default_dtypes()["real floating"] is gx.float32


def test_dtypes_are_compared():
    d = gx.input("x", (3,), "float64").dtype
    for same in (gx.float64, "float64", np.float64, np.dtype("f8")):
        assert d == same and same == d
    for other in (gx.float32, "float32", np.float32, float, "nonsense", complex, list, 64, None):
        assert d != other and other != d
    assert {d: 1}[gx.float64] == 1
    assert gx.bfloat16 == "bfloat16" and gx.bool == np.bool_
