"""NumPy's protocols: np.exp(t), np.concatenate([t, u]), array + t reach graphc's own functions.

A ufunc or function of NumPy goes to the graphc function of the same name. Where graphc has none,
or NumPy's arguments cannot be honoured (out=, where=), the error says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import graphc
from graphc.convert import dtype_of
from graphc.errors import UsageError, user_loc
from graphc.types import DType, bool_

# Ufunc methods that are functions of their own.
_METHODS: dict[tuple[str, str], str] = {
    ("add", "reduce"): "sum",
    ("multiply", "reduce"): "prod",
    ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min",
    ("logical_and", "reduce"): "all",
    ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumulative_sum",
    ("multiply", "accumulate"): "cumulative_prod",
    ("maximum", "accumulate"): "cumulative_max",
}
# Arguments that mean nothing to a graph, with the only values that are let through.
_IGNORED: dict[str, tuple[Any, ...]] = {
    "out": (None,),
    "where": (True,),
    "casting": ("same_kind",),
    "order": ("K", "C"),
    "subok": (True, False),
    "copy": (True, False, None),
    "optimize": (True, False),
}
# Functions of NumPy that are attributes here.
_ATTRIBUTES = ("shape", "ndim", "size")
# NumPy's names of functions that graphc calls otherwise, or has in parts.
_UFUNCS: dict[str, Callable[..., Any]] = {
    "rint": lambda x: graphc.round(x),
    "divmod": lambda x, y: (graphc.floor_divide(x, y), graphc.remainder(x, y)),
}
_RENAMED = {"a_min": "min", "a_max": "max", "newshape": "shape"}


def ufunc(fn: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`fn` of NumPy called (or reduced, ...) on inputs of which one is a Tensor."""
    name = fn.__name__
    if method == "outer":  # of each element of the first with all of the second
        a, b = inputs
        inputs = (graphc.asarray(a)[(..., *(None,) * np.ndim(b))] if np.ndim(a) else a), b
    elif method != "__call__":
        full = f"{name}.{method}"
        target = _METHODS.get((name, method))
        if target is None:
            advice = "; use x.at[indices].add(values)" if full == "add.at" else ""
            raise UsageError(f"np.{full}: not available on Tensors{advice}", user_loc())
        return _call(full, getattr(graphc, target), inputs, {"axis": 0, **kwargs})
    target_fn = _UFUNCS.get(name) or _find(name)
    if target_fn is None:
        raise _unavailable(name, name)
    return _call(name, target_fn, inputs, kwargs)


def function(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`fn` of NumPy's Python functions, called on arguments that hold a Tensor."""
    name = fn.__name__
    module = getattr(fn, "__module__", "") or ""
    full = name
    if name in _ATTRIBUTES and len(args) == 1 and not kwargs:
        return getattr(args[0], name)
    if module.startswith("numpy.linalg") and hasattr(graphc.linalg, name):
        target: Callable[..., Any] | None = getattr(graphc.linalg, name)
        full = f"linalg.{name}"
    elif module.startswith("numpy.fft"):
        target, full = getattr(graphc.fft, name, None), f"fft.{name}"
    else:
        target = _find(name) or getattr(graphc.linalg, name, None)
    if target is None:
        raise _unavailable(full, name)
    return _call(full, target, *_by_name(fn, target, args, kwargs))


def _unavailable(full: str, name: str) -> UsageError:
    from graphc.elsewhere import TOP

    advice = TOP.get(name) or "graphc's operations; constants may be computed with NumPy before"
    return UsageError(f"np.{full}: not available on Tensors; use {advice}", user_loc())


def _by_name(
    fn: Any, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments with those by name that stand elsewhere in NumPy: np.diff(x, n, axis), and
    NumPy's numbers for those that are left out: np.trace(x) is over the first two axes.
    """
    theirs = _parameters(fn)[: len(args)]
    defaults = _defaults(fn, target)
    kwargs = {k: v for k, v in defaults.items() if k not in theirs} | dict(kwargs)
    ours = _parameters(target)
    for k, name in enumerate(_RENAMED.get(n, n) for n in theirs):
        elsewhere = k >= len(ours) or ours[k] != name
        if elsewhere and (name in _IGNORED or name == "dtype" or _takes(target, name)):
            return args[:k], dict(zip(theirs[k:], args[k:], strict=False)) | dict(kwargs)
    return args, kwargs


@functools.cache
def _parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The names of arguments by position; none where a function written in C does not say."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return ()
    return tuple(p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD)


@functools.cache
def _defaults(fn: Callable[..., Any], target: Callable[..., Any]) -> dict[str, int]:
    """NumPy's numbers where those of the target differ."""
    try:
        theirs = inspect.signature(fn).parameters
    except ValueError:
        return {}
    ours = inspect.signature(target).parameters
    return {
        name: p.default for name, p in theirs.items()
        if type(p.default) is int and name in ours and ours[name].default not in (None, p.default)
    }


def _find(name: str) -> Callable[..., Any] | None:
    """The public function of that name (never a dtype, module or private name)."""
    target: Any = getattr(graphc, name, None) if not name.startswith("_") else None
    if not callable(target) or isinstance(target, type):
        return None
    found: Callable[..., Any] = target
    return found


def _call(
    name: str, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    passed: dict[str, Any] = {}
    for k, v in kwargs.items():
        if k == "dtype" and v is None:
            continue
        if k in _IGNORED:
            if isinstance(v, tuple) and len(v) == 1:  # a ufunc's out= comes as a tuple
                (v,) = v
            if not (isinstance(v, (bool, str, type(None))) and v in _IGNORED[k]):
                raise UsageError(f"np.{name}: {k}= is not available on Tensors", user_loc())
            continue
        passed[_RENAMED.get(k, k)] = v
    dtype = passed.pop("dtype", None) if not _takes(target, "dtype") else None
    if dtype is not None:
        dtype = dtype_of(dtype)
        args = [_computed_in(name, dtype, a) for a in args]
        passed = {k: _computed_in(name, dtype, a) for k, a in passed.items()}
    try:
        out = target(*args, **passed)
    except TypeError as e:
        if isinstance(e, UsageError) or "argument" not in str(e):
            raise
        raise UsageError(f"np.{name}: {e}; graphc's function is "
                         f"gx.{target.__name__}", user_loc()) from None
    return out if dtype is None else out.astype(dtype)


def _computed_in(name: str, dtype: DType, arg: Any) -> Any:
    """An argument as NumPy takes it where the dtype is given: sums of int8 as int32 do not wrap.

    Bools are what comparisons and the like give, of arguments of any dtype.
    """
    if not isinstance(arg, graphc.Tensor) or dtype is bool_ or arg.dtype is dtype:
        return arg
    if arg.dtype.is_float and not dtype.is_float:
        raise UsageError(
            f"np.{name}: dtype={dtype.long} cannot take {arg.type}; round it and cast it with "
            f".astype({dtype.long!r})", user_loc(),
        )
    return arg.astype(dtype)


def _takes(target: Callable[..., Any], parameter: str) -> bool:
    code = getattr(target, "__code__", None)
    named = code.co_argcount + code.co_kwonlyargcount if code is not None else 0
    return code is not None and parameter in code.co_varnames[:named]
