"""Callee: what functions compiled here and functions of loaded libraries have in common.

A call takes the first of these ways that serves it:

    builtin    reads NumPy's structs itself (see codegen.calling.wrapper); the object's `__call__`
    converted  arguments are converted first, then handed to the builtin
    run        every check in Python, results made here, then `_execute` of the subclass

The builtin hands on to `_call` what it does not serve; mistakes end in `_run`, which explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.arguments import Results, Signature, direct
from graphc.errors import OutOfMemoryError, user_loc
from graphc.types import Array, shape_text
from graphc.vectorcall import Direct, point

if TYPE_CHECKING:
    from graphc.codegen.calling.fastcall import Native


class Callee(Direct):  # type: ignore[misc]
    """The base of `Function` and `LoadedFunction`; these have `__call__` and `_execute`."""

    def __init__(self, name: str, signature: Signature, results: Results):
        self.name = name
        self._signature, self._results = signature, results
        self._native: Native | None = None

    def _execute(
        self, arrays: Sequence[Array], dims: Mapping[str, int],
        shapes: Sequence[tuple[int, ...]], out: Sequence[Array] | None,
    ) -> Sequence[Array]:
        """The outputs, in arrays of `out` where they may be written there; all is checked."""
        raise NotImplementedError

    def _connect(self, native: Native) -> None:
        """Calls go to the builtin of `native` from now on, where it has one.

        The object gets a class of its own for that, of the same name, whose `__call__` it is.
        """
        self._native = native
        if native.call is not None:
            kind = type(self)
            body = {
                "__call__": native.call, "__module__": kind.__module__, "__doc__": kind.__doc__,
                "__qualname__": kind.__qualname__,
            }
            self.__class__ = type(kind.__name__, (kind,), body)
            point(self, native.vector, native.call.__self__)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """Any call, with conversion and explanation."""
        native = self._native
        if native is not None and native.call is None:
            native = None
        out = kwargs.pop("out", None) if "out" not in self._signature.place else None
        if out is None:
            arrays, given = self._signature.convert(args, kwargs)
            if native is not None and not given:
                return native.converted(*arrays)
            return self._results.pack(self._run(arrays, given, None))
        targets = self._results.flatten(out)
        if native is not None and not kwargs and len(args) == len(self._signature.inputs):
            native.into()(*args, *targets)
        else:
            arrays, given = self._signature.convert(args, kwargs)
            self._run(arrays, given, targets)
        return out

    def _run_converted(self, *arrays: Array) -> Any:
        """What the builtin does not serve even after conversion: mistakes, and calls that fail."""
        return self._results.pack(self._run(arrays, {}, None))

    def _run_into(self, *args: Any) -> None:
        """The same for inputs, not yet converted, followed by the arrays of `out=`."""
        n = len(self._signature.inputs)
        arrays, _ = self._signature.convert(args[:n], {})
        self._run(arrays, {}, args[n:])

    def _run(
        self, arrays: Sequence[Array], given: Mapping[str, int], out: Sequence[Array] | None
    ) -> Sequence[Array]:
        """The outputs for converted inputs and given dimensions, with every check.

        Raises ShapeError for inputs, DTypeError, ShapeError and UsageError for arrays of `out`.
        """
        dims = self._signature.bind(arrays, given)
        shapes = self._results.shapes(dims)
        if out is None:
            return self._execute(arrays, dims, shapes, None)
        self._results.check(out, shapes)
        made = self._execute(arrays, dims, shapes, out)
        for target, a in zip(out, made, strict=True):
            if target is not a:
                target[...] = a
        return out

    def _targets(
        self, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]],
        out: Sequence[Array] | None, empty: Any = np.empty,
    ) -> list[Array]:
        """What native code writes into: arrays of `out` where it may, new ones (`empty`) else."""
        made: list[Array] = []
        for k, (t, shape) in enumerate(zip(self._results.types, shapes, strict=True)):
            if out is not None and direct(out[k], arrays):
                made.append(out[k])
                continue
            try:
                made.append(empty(shape, t.dtype.numpy))
            except (MemoryError, ValueError):  # the latter for sizes that no machine has
                raise OutOfMemoryError(
                    f"{self.name}: out of memory for an output of {t} with shape "
                    f"{shape_text(shape)}", user_loc()
                ) from None
        return made
