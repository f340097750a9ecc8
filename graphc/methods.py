"""The methods of Tensor that are operations: `x.sum(axis=0)` is `gx.sum(x, axis=0)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc import elementwise, manipulation, reductions
    from graphc.convert import ArrayLike, Axes
    from graphc.tensor import Tensor


def link() -> None:
    """Import the operations, which need Tensor; called once, when Tensor exists."""
    import graphc.elementwise
    import graphc.manipulation
    import graphc.reductions

    globals().update(
        elementwise=graphc.elementwise,
        manipulation=graphc.manipulation,
        reductions=graphc.reductions,
    )
    for name, method in vars(Methods).items():
        if callable(method):
            method.__qualname__ = f"Tensor.{name}"  # as Python's own errors call it
        for home in (elementwise, manipulation, reductions):
            if callable(method) and not method.__doc__ and hasattr(home, name):
                method.__doc__ = getattr(home, name).__doc__


class Methods:
    """Operations as methods, which take their docstrings from the functions of the same name."""

    __slots__ = ()

    def sum(self, axis: Axes = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
        return reductions.sum(self, axis, keepdims=keepdims, dtype=dtype)

    def prod(self, axis: Axes = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
        return reductions.prod(self, axis, keepdims=keepdims, dtype=dtype)

    def mean(self, axis: Axes = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
        return reductions.mean(self, axis, keepdims=keepdims, dtype=dtype)

    def var(
        self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False,
        ddof: float | None = None,
    ) -> Tensor:
        return reductions.var(
            self, axis, correction=correction, keepdims=keepdims, ddof=ddof
        )

    def std(
        self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False,
        ddof: float | None = None,
    ) -> Tensor:
        return reductions.std(
            self, axis, correction=correction, keepdims=keepdims, ddof=ddof
        )

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        return reductions.max(self, axis, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        return reductions.min(self, axis, keepdims=keepdims)

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        return reductions.any(self, axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        return reductions.all(self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        return reductions.argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        return reductions.argmin(self, axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, *, dtype: Any = None) -> Tensor:
        return reductions.cumsum(self, axis, dtype=dtype)

    def cumprod(self, axis: int | None = None, *, dtype: Any = None) -> Tensor:
        return reductions.cumprod(self, axis, dtype=dtype)

    def reshape(self, *shape: Any) -> Tensor:
        return manipulation.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        one = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        return manipulation.transpose(self, axes[0] if one else axes or None)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        return manipulation.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Axes = None) -> Tensor:
        return manipulation.squeeze(self, axis)

    def flatten(self) -> Tensor:
        return manipulation.ravel(self)

    def ravel(self) -> Tensor:
        return manipulation.ravel(self)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        return manipulation.repeat(self, repeats, axis)

    def take(self, indices: ArrayLike, axis: int | None = None) -> Tensor:
        """x at integer indices along an axis, as `gx.take`."""
        from graphc import selection

        return selection.take(self, indices, axis)

    def astype(self, dtype: Any, *, copy: bool = True) -> Tensor:
        return elementwise.astype(self, dtype)

    def clip(self, min: ArrayLike = None, max: ArrayLike = None) -> Tensor:
        return elementwise.clip(self, min, max)

    def round(self, decimals: int = 0) -> Tensor:
        return elementwise.round(self, decimals)

    def dot(self, other: ArrayLike) -> Tensor:
        """The product of two matrices or vectors, as `gx.dot`."""
        from graphc import products

        return products.dot(self, other)

    def copy(self) -> Methods:
        """The Tensor itself: values of the graph never change."""
        return self
