"""Where nodes come from: the user's line, the name scope, a name of their own."""

from __future__ import annotations

import threading
from typing import NamedTuple

from graphc.errors import Loc, user_loc

NO_LINE = Loc("", 0)  # what `DeclaringAs` takes where nodes are to have no line


class Origin(NamedTuple):
    """That of a node; the name is mostly empty."""

    loc: Loc | None = None
    scope: str = ""
    name: str = ""

    def unnamed(self) -> Origin:
        """The same without the name, for nodes that are only parts of what they replace."""
        return Origin(self.loc, self.scope) if self.name else self


NOWHERE = Origin()


class _Now(threading.local):
    """What declared nodes take in this thread; without a line, the user's."""

    origin = NOWHERE


_now = _Now()


class DeclaringAs:
    """While active, declared nodes take this loc and/or an inner scope name.

    Gradients carry the forward node's line this way; `gx.name_scope` adds a scope.
    """

    __slots__ = ("_outer", "origin")

    def __init__(self, loc: Loc | None = None, scope: str | None = None, push: str = ""):
        outer = _now.origin
        if scope is None:
            scope = f"{outer.scope}/{push}" if outer.scope and push else outer.scope or push
        self.origin = Origin(outer.loc if loc is None else loc, scope)

    def __enter__(self) -> DeclaringAs:
        self._outer, _now.origin = _now.origin, self.origin
        return self

    def __exit__(self, *exc: object) -> None:
        _now.origin = self._outer


def here() -> Origin:
    """That of a node which is declared now."""
    loc, scope, _ = _now.origin
    loc = user_loc() if loc is None else loc
    return Origin(None if loc is NO_LINE else loc, scope)
