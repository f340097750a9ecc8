"""What leaf nodes hold: the Literal of a constant, the State of a variable."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphc.aligned import aligned_copy
from graphc.forks import held
from graphc.types import Array, TensorType, as_dtype

HASHED = 1 << 10  # bytes of a constant from which it is known by its hash


class Literal:
    """The value of a constant: equal when dtype, shape and bytes are (so 0.0 is not -0.0).

    source: another one, of which this is the transpose, if it was made so.
    """

    __slots__ = ("_key", "array", "source", "type")

    def __init__(self, array: Array, source: Literal | None = None):
        a = aligned_copy(np.asarray(array))
        a.flags.writeable = False
        self.array, self.source = a, source
        self.type = TensorType(as_dtype(a.dtype), a.shape)
        self._key: tuple[Any, ...] | None = None

    def key(self) -> tuple[Any, ...]:
        """Type and bytes, or their SHA-256: to keep those of weights would hold them twice."""
        if self._key is None:
            self._key = self.type, _digest(self.array)
        return self._key

    def transposed(self) -> Literal:
        """The same elements with the axes in reverse order, rows contiguous."""
        return Literal(self.array.T, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self is other or self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"Literal({self.array!r})"


class State:
    """What a variable holds: an array, shared by every function that uses it, and its lock.

    `array` may be None for a graph parsed without its .npz: it verifies but does not run.
    """

    __slots__ = ("array", "initial", "lock", "name", "type")

    def __init__(self, name: str, type: TensorType, array: Array | None):
        self.name, self.type = name, type
        self.array = None if array is None else aligned_copy(np.asarray(array))
        self.initial = None if self.array is None else _kept(self.array)
        self.lock = held(threading.RLock())

    def __repr__(self) -> str:
        return f"@{self.name}: {self.type}"


def _digest(array: Array) -> bytes:
    """Bytes that tell an array in C order from others of its type."""
    if array.nbytes < HASHED:
        return array.tobytes()
    import hashlib  # not everyone has large constants

    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()


def locks_of(states: Iterable[State]) -> list[Any]:
    """The locks of variables in one order for all, so that no two who take them deadlock."""
    locks = {id(s.lock): s.lock for s in states}
    return [locks[k] for k in sorted(locks)]


@contextlib.contextmanager
def locked(states: Iterable[State]) -> Iterator[None]:
    """While active, no call changes any of these variables: all have the values of one step."""
    with contextlib.ExitStack() as stack:
        for lock in locks_of(states):
            stack.enter_context(lock)
        yield


def _kept(array: Array) -> Array:
    """A copy. One of zero bits, as optimizers start with, takes no memory until it is read."""
    if array.reshape(-1).view(np.uint8).any():
        return array.copy()
    return np.zeros(array.shape, array.dtype)
