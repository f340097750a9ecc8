"""Objects that Python calls without making a tuple of the arguments: the base of functions.

`f(x)` on an object of a class with `__call__` builds a tuple, looks the method up and takes the
tuple apart again, which is more than a small compiled function computes. CPython's vectorcall
protocol calls an address that stands in the object instead; a class written in Python can have
no such place, so its base is made through the C API:

    PyObject head | address | what is handed to it

`point` fills it in. Where that cannot be (another interpreter, another layout of types), classes
derived from `Direct` are called through their `__call__` as any other.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_HEAD = 16                          # sizeof(PyObject)
_VECTORCALL_OFFSET, _FLAGS = 56, 168  # in PyTypeObject
_BASETYPE, _HAVE_VECTORCALL, _HAVE_VERSION_TAG = 1 << 10, 1 << 11, 1 << 18
_TP_CALL, _TP_MEMBERS = 50, 72      # slot numbers of typeslots.h
_T_PYSSIZET, _READONLY = 19, 1
TARGET, GIVEN = _HEAD, _HEAD + 8    # offsets in an object


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


class _Plain:
    """The base where there is no place for an address."""


def _make() -> Any:
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return _Plain
    if object.__basicsize__ != _HEAD or not (3, 11) <= sys.version_info < (3, 14):
        return _Plain
    if "t" in getattr(sys, "abiflags", ""):  # an interpreter without the GIL has other heads
        return _Plain
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec))(
        ("PyType_FromSpec", ctypes.pythonapi)
    )
    by_tuple = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    members = (_Member * 2)(
        _Member(b"__vectorcalloffset__", _T_PYSSIZET, TARGET, _READONLY, None)
    )
    slots = (_Slot * 3)(
        _Slot(_TP_MEMBERS, ctypes.addressof(members)), _Slot(_TP_CALL, by_tuple)
    )
    flags = _BASETYPE | _HAVE_VECTORCALL | _HAVE_VERSION_TAG
    return new(ctypes.byref(_Spec(b"graphc.Direct", GIVEN + 8, 0, flags, slots)))


Direct: Any = _make()


def _word(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


def point(obj: Any, address: int, given: object) -> None:
    """Calls of `obj` go to ptr f(ptr obj, ptr args, i64 nargsf, ptr kwnames) at `address`, which
    finds `given` in the object. Both must live as long as `obj` is called.

    The class of `obj` must be its own: a flag of it is set, that its objects are called so.
    """
    cls = type(obj)
    if Direct is _Plain or not issubclass(cls, Direct):
        return
    flags = _word(id(cls) + _FLAGS)
    if flags.value != cls.__flags__ or _word(id(cls) + _VECTORCALL_OFFSET).value != TARGET:
        return
    _word(id(obj) + GIVEN).value = id(given)
    _word(id(obj) + TARGET).value = address
    flags.value |= _HAVE_VECTORCALL
