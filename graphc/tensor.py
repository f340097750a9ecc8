"""Tensor: what the user computes with. A thin wrapper of an IR Value.

Comparison is elementwise, as the array API has it, so `x in [a, b]` and `list.index` are refused
like any truth value. Tensors hash by identity: a dict finds a Tensor by `is` before it would
compare, so `{x: ...}` works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from graphc import methods
from graphc.dims import Size
from graphc.errors import UsageError, user_loc
from graphc.ir import Node, Value
from graphc.types import DType, Shape, TensorType

if TYPE_CHECKING:
    from graphc.at import At


NOT_MADE_SO = (  # as other libraries' gx.tensor(value) and gx.Tensor(value)
    "declares no Tensor of values; use gx.constant(value), gx.variable(value, name) or "
    "gx.input(name, shape)"
)
Operator: TypeAlias = "Callable[[Tensor, Any], Tensor]"


def _operator(name: str) -> tuple[Operator, Operator]:
    """The operator that is this function of `elementwise`, and the one for a Tensor on its right.

    The function is looked up when it is called, since its module needs Tensor.
    """

    def forward(x: Tensor, other: Any) -> Tensor:
        y: Tensor = getattr(elementwise, name)(x, other)
        return y

    def reflected(x: Tensor, other: Any) -> Tensor:
        y: Tensor = getattr(elementwise, name)(other, x)
        return y

    return forward, reflected


class Tensor(methods.Methods):
    """A value of the graph under declaration; operators and methods declare further nodes."""

    __slots__ = ("__weakref__", "_value")
    __array_priority__ = 1000

    def __init__(self, value: Value):
        if not isinstance(value, Value):
            raise UsageError(f"Tensor: {NOT_MADE_SO}", user_loc())
        self._value = value

    @property
    def node(self) -> Node:
        """The node that makes this value; walk on with `.op` and `.args`."""
        return self._value.node

    @property
    def type(self) -> TensorType:
        """Dtype and sizes, printed as in f32[batch,64]."""
        return self._value.type

    @property
    def dtype(self) -> DType:
        """What the elements are, as gx.float32."""
        return self._value.type.dtype

    @property
    def shape(self) -> Shape:
        """Sizes: ints, or Dims where they are known at run time only."""
        return self._value.type.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._value.type.shape)

    @property
    def size(self) -> Size:
        """Number of elements, an int or a Dim."""
        return self._value.type.size

    @property
    def device(self) -> str:
        """Where native code runs: "cpu"."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: None = None) -> Tensor:
        """The Tensor itself; the only device is "cpu"."""
        if device != "cpu" or stream is not None:
            raise UsageError(f"to_device: the only device is 'cpu', got {device!r}", user_loc())
        return self

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return manipulation.transpose(self)

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        return manipulation.matrix_transpose(self)

    @property
    def at(self) -> At:
        """`x.at[i].set(v)` and `x.at[i].add(v)`: x with some elements changed."""
        return at.At(self)

    if not TYPE_CHECKING:  # types are checked by what is there

        def __getattr__(self, name: str) -> NoReturn:
            from graphc.elsewhere import missing

            raise missing("Tensor", name, self)

    def __repr__(self) -> str:
        n = self.node
        label = n.attrs.get("name") or n.op.name
        return f"<Tensor {label}: {self.type}{f' at {n.loc}' if n.loc else ''}>"

    # Operators

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide")
    __mod__, __rmod__ = _operator("remainder")
    __pow__, __rpow__ = _operator("pow")
    __lshift__, __rlshift__ = _operator("bitwise_left_shift")
    __rshift__, __rrshift__ = _operator("bitwise_right_shift")
    __and__ = __rand__ = _operator("bitwise_and")[0]
    __or__ = __ror__ = _operator("bitwise_or")[0]
    __xor__ = __rxor__ = _operator("bitwise_xor")[0]
    __lt__, __le__ = _operator("less")[0], _operator("less_equal")[0]
    __gt__, __ge__ = _operator("greater")[0], _operator("greater_equal")[0]

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise.equal(self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return elementwise.not_equal(self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return products.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return products.matmul(other, self)

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __neg__(self) -> Tensor:
        return elementwise.negative(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return elementwise.abs(self)

    def __invert__(self) -> Tensor:
        return elementwise.bitwise_invert(self)

    __hash__ = object.__hash__

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.getitem(self, key)

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from graphc import dispatch

        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from graphc import dispatch

        return dispatch.function(func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import graphc

        return graphc

    # What a Tensor has not, and what to use instead

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("a Tensor has no value to put into an ndarray", "t.eval({...}) or gx.function")

    def __dlpack__(self, **kwargs: Any) -> NoReturn:
        _refuse("a Tensor has no memory to share", "t.eval({...}) or gx.function")

    def __dlpack_device__(self) -> NoReturn:
        _refuse("a Tensor has no memory to share", "t.eval({...}) or gx.function")

    def __bool__(self) -> NoReturn:
        _refuse(
            f"a Tensor ({self.type}) has no truth value while the graph is declared",
            "gx.where(cond, a, b) to choose values, gx.logical_and/or/not or & | ~ to combine "
            "conditions, and `is` to compare Tensors themselves",
        )

    def __int__(self) -> NoReturn:
        _refuse("a Tensor has no value, so int() does not work on it", "t.astype('int64')")

    def __float__(self) -> NoReturn:
        _refuse("a Tensor has no value, so float() does not work on it", "t.astype('float32')")

    def __complex__(self) -> NoReturn:
        _refuse("complex numbers are not supported", "two Tensors for real and imaginary parts")

    def __format__(self, spec: str) -> str:
        if spec:
            _refuse(f"a Tensor has no value to write as {spec!r}", "t.eval({...}) or gx.function")
        return repr(self)

    def __index__(self) -> NoReturn:
        _refuse(
            "a Tensor has no value, so it cannot be a size, an axis or a Python index",
            "x.shape[i] for sizes and gx.take(x, t, axis=...) to index by a Tensor",
        )

    def __round__(self, ndigits: int = 0) -> Tensor:
        return elementwise.round(self, ndigits)

    def __len__(self) -> int:
        if not self.ndim:
            _refuse("a Tensor without axes has no length", "x.ndim")
        n = self.shape[0]
        if not isinstance(n, int):
            _refuse(f"the length of {self.type} is known at run time only", "x.shape[0]")
        return n

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim or not isinstance(self.shape[0], int):
            _refuse(
                f"iteration needs a first axis of known size, got {self.type}",
                "operations on whole axes, or gx.vmap",
            )
        return iter([self[i] for i in range(self.shape[0])])

    def __contains__(self, item: Any) -> NoReturn:
        _refuse("`in` needs a truth value, which a Tensor has not", "gx.any(x == item)")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        _refuse("a Tensor cannot be assigned to", "x = x.at[key].set(value)")

    def __delitem__(self, key: Any) -> NoReturn:
        _refuse("elements of a Tensor cannot be deleted", "slices and gx.concat")

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self  # values of the graph never change, and their graph may be deep

    def __reduce__(self) -> NoReturn:
        _refuse("a Tensor cannot be pickled", "gx.function(...).graph.save(path)")

    def item(self, *args: Any) -> NoReturn:
        """Refused: there is no value while the graph is declared."""
        _refuse("a Tensor has no value, so item() does not work on it", "t.eval({...})")

    def tolist(self) -> NoReturn:
        """Refused: there is no value while the graph is declared."""
        _refuse("a Tensor has no value, so tolist() does not work on it", "t.eval({...}).tolist()")

    def numpy(self) -> NoReturn:
        """Refused: there is no value while the graph is declared."""
        _refuse("a Tensor has no value, so numpy() does not work on it", "t.eval({...})")

    def eval(self, values: Any = None, **named: Any) -> Any:
        """The value as an ndarray, for `{x: array}`, `{"x": array}` or `x=array`.

        Variables have their present values. For one-off looks; `gx.function` compiles.
        """
        from graphc.evaluate import evaluate

        return evaluate(self, values, named)


def _refuse(what: str, instead: str) -> NoReturn:
    raise UsageError(f"{what}; use {instead}", user_loc())


# The operations need the class above and the class needs them; they are looked up when called.
from graphc import at, elementwise, indexing, manipulation, products  # noqa: E402

methods.link()
