"""The variables of one function: which State stands for each, and the locks that a call takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from graphc.arguments import as_value
from graphc.contents import locked, locks_of
from graphc.declare import Variable
from graphc.errors import UsageError, user_loc
from graphc.ir import Graph, State
from graphc.types import Array


class Variables:
    """The states behind the variables of a graph: those declared, or others in their place.

    Iterating gives the states in the order of `Graph.variables`.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._declared = graph.variables()
        self._instead: dict[State, State] = {}

    def __iter__(self) -> Iterator[State]:
        return map(self.own, self._declared)

    def own(self, declared: State) -> State:
        """The state that stands for a declared one."""
        return self._instead.get(declared, declared)

    def replace(self, declared: State, state: State) -> None:
        """Let `state`, of the same type, stand for a declared one."""
        self._instead[declared] = state

    def replaced(self) -> dict[State, Array]:
        """The arrays of other states by the declared ones, as the interpreter takes them."""
        return {s: a for s, p in self._instead.items() if (a := p.array) is not None}

    def values(self) -> dict[str, Array]:
        """Copies of the present values, by name."""
        with locked(self):
            return {s.name: s.array.copy() for s in self if s.array is not None}

    def locks(self) -> list[Any]:
        """The locks a call takes: those of all variables if it updates any."""
        return locks_of(self) if self._graph.updates else []

    def locked(self) -> AbstractContextManager[None]:
        """While active, no other call updates what a call of this function reads or updates."""
        return locked(self if self._graph.updates else ())

    def copy(self, values: Mapping[Any, Any] | None) -> Variables:
        """Private copies with the present values, or with those of `values` by variable or name.

        Raises UsageError for variables that the graph lacks, ShapeError for other types.
        """
        given = _by_name(values)
        new = Variables(self._graph)
        arrays = {
            s: as_value(f"with_state: variable {s.name!r}", given.pop(s.name), s.type)
            for s in self._declared if s.name in given
        }
        with locked(self):
            for s in self._declared:
                new.replace(s, State(s.name, s.type, arrays.get(s, self.own(s).array)))
        if given:
            raise UsageError(
                f"with_state: {self._graph.name} has no variable {next(iter(given))!r}; it has "
                f"{', '.join(s.name for s in self._declared) or 'none'}", user_loc()
            )
        return new


def _by_name(values: Any) -> dict[str, Any]:
    """{name: array} of {variable or its name: array}."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise UsageError(
            f"with_state: takes a dict of arrays by variable or name, got {type(values).__name__}",
            user_loc(),
        )
    for k in values:
        if not isinstance(k, (str, Variable)):
            raise UsageError(
                f"with_state: the keys are variables or their names, got {k!r}", user_loc()
            )
    return {k if isinstance(k, str) else k.name: v for k, v in values.items()}
