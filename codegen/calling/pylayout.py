"""What the call path assumes about CPython's and NumPy's structs, and the test that it holds.

Nothing here needs a C compiler or headers: offsets are those of every 64-bit CPython 3.11 to 3.13
with NumPy 2, and `usable` compares them with live objects before anything relies on them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from typing import Any

import numpy as np

from graphc.types import DTYPES, bf16

HEAD = 16  # sizeof(PyObject)
TYPE = 8
DATA, NDIM, SHAPE, STRIDES, DESCR, FLAGS = 16, 24, 32, 40, 56, 64  # in PyArrayObject
BYTEORDER, TYPE_NUM = 26, 28                                      # in PyArray_Descr
FLOAT_VALUE = 16                                                  # in PyFloatObject
SCALAR_VALUE = 16                                                 # in NumPy's scalars
TUPLE_SIZE, TUPLE_ITEMS = 16, 24                                  # in PyTupleObject
LIST_ITEMS = 24                                                   # in PyListObject, sized as tuples
RLOCK_COUNT = 32                                                  # in _thread.RLock

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
# Places in NumPy's C API table.
_ARRAY_TYPE, _DESCR_FROM_TYPE, _ARRAY_NEW, _SET_HANDLER, _DEFAULT_HANDLER = 2, 45, 93, 304, 306

# Types of NumPy's scalars, by dtype.
SCALARS = {d.name: f"NumPy_{d.name}" for d in DTYPES if d is not bf16}

C_API = (
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyObject_Vectorcall", "Py_IncRef", "Py_DecRef",
    "PyList_New", "PyList_SetItem", "PyTuple_New", "PyTuple_SetItem", "PyDict_New",
    "PyDict_GetItem", "PyDict_SetItem", "PyDict_Size",
    "PyErr_Clear", "PyErr_Fetch", "PyErr_Restore", "PyLong_AsLongLongAndOverflow",
)


def free_threaded() -> bool:
    """Whether this interpreter can run without the GIL, which the native path relies on."""
    return "t" in getattr(sys, "abiflags", "")


def _api_table() -> Any:
    """NumPy's C API."""
    umath = importlib.import_module("numpy._core._multiarray_umath")
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return (ctypes.c_void_p * 307).from_address(get(umath._ARRAY_API, None))


@functools.cache
def symbols() -> dict[str, int]:
    """Name -> address of the C functions and objects that wrappers use."""
    table = _api_table()
    out = {
        "PyArray_Type": int(table[_ARRAY_TYPE]),
        "PyArray_New": int(table[_ARRAY_NEW]),
        "PyDataMem_SetHandler": int(table[_SET_HANDLER]),
    }
    for name in C_API:
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        assert address
        out[name] = address
    out["_Py_NoneStruct"] = id(None)
    kinds = {"Float": float, "Long": int, "List": list, "Tuple": tuple, "Dict": dict}
    for name, kind in kinds.items():
        out[f"Py{name}_Type"] = id(kind)
    for d in DTYPES:
        if d.name in SCALARS:
            out[SCALARS[d.name]] = id(d.numpy.type)
    return out


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


@functools.cache
def usable() -> bool:
    """Whether all of it holds here; the call path goes through ctypes otherwise."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.implementation.name != "cpython":
        return False
    if free_threaded() or sys.platform == "win32":  # there malloc is not among the symbols
        return False
    try:
        return _arrays_match() and bool(symbols())
    except (AttributeError, ImportError, ValueError, TypeError):
        return False


def _arrays_match() -> bool:
    """Whether arrays, floats and tuples look as the offsets say."""
    table = _api_table()
    descr = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(table[_DESCR_FROM_TYPE])
    ok = object.__basicsize__ == HEAD and int(table[_ARRAY_TYPE]) == id(np.ndarray)
    for a in (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(24, dtype=np.int64).reshape(2, 3, 4)[:, ::2],
        np.zeros((3, 5), dtype=">f8"),
    ):
        p = id(a)
        shape, strides, d = _word(p + SHAPE), _word(p + STRIDES), id(a.dtype)
        ok = ok and (
            _word(p + TYPE) == id(np.ndarray)
            and _word(p + DATA) == a.ctypes.data
            and _int(p + NDIM) == a.ndim
            and tuple(_word(shape + 8 * i) for i in range(a.ndim)) == a.shape
            and tuple(_word(strides + 8 * i) for i in range(a.ndim)) == a.strides
            and _word(p + DESCR) == d
            and _int(p + FLAGS) & 0x7FF == a.flags.num & 0x7FF
            and _int(d + TYPE_NUM) == a.dtype.num
            and (ctypes.c_char.from_address(d + BYTEORDER).value == b">")
            == (a.dtype.byteorder == ">")
        )
    number = ctypes.c_double.from_address(id(x := 1.5e300) + FLOAT_VALUE).value
    for t in DTYPES:
        if t.name in SCALARS:
            one = t.numpy.type(1)
            there = (ctypes.c_char * t.itemsize).from_address(id(one) + SCALAR_VALUE).raw
            ok = ok and type(one) is t.numpy.type and there == one.tobytes()
    pair = ("a", "b")
    ok = ok and _word(id(pair) + TUPLE_SIZE) == 2 and _word(id(pair) + TUPLE_ITEMS) == id("a")
    return ok and number == x and descr(11) == id(np.dtype(np.float32))


@functools.cache
def hooks() -> bool:
    """Whether NumPy's allocation hook is where its table has it."""
    valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_IsValid", ctypes.pythonapi)
    )
    place = _api_table()[_DEFAULT_HANDLER]
    return bool(place) and valid(_word(place), b"mem_handler") == 1


@functools.cache
def rlock_readable() -> bool:
    """Whether the word at RLOCK_COUNT of a threading.RLock is how often it is held."""
    lock = threading.RLock()
    if type(lock).__module__ != "_thread" or type(lock).__basicsize__ < RLOCK_COUNT + 8:
        return False
    at = id(lock) + RLOCK_COUNT
    seen = [_word(at)]
    with lock:
        seen.append(_word(at))
        with lock:
            seen.append(_word(at))
    seen.append(_word(at))
    return seen == [0, 1, 2, 0]
