"""Forks while other threads are at work.

A forked child has the memory of all threads of its parent, but only the one that forked. What
another was in the midst of stays so: a module half imported whose lock nobody gives back, LLVM's
locks and llvmlite's. So a fork waits until no thread compiles (`undivided` marks where one does)
and until no call updates variables (their locks are `held`): a child finds them as they were
between two calls.

It waits no longer than MOST_SECONDS, and not at all where the thread that forks is compiling,
since others may wait for that. The thread pool looks after itself (see `codegen.pool.runtime`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

MOST_SECONDS = 30.0  # enough to compile many thousand nodes

_gate = threading.Condition()
_inside: dict[int, int] = {}  # threads that compile, and how deep they are in `undivided`
_forks = 0                    # threads that wait for all others to leave
_held: weakref.WeakSet[Any] = weakref.WeakSet()
_renewed: list[Any] = []
_mine = threading.local()     # locks: what this thread took for its fork


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """What other threads' forks wait for; nothing that their children need may be begun outside.

    Not to be entered by a thread that another waits for inside.
    """
    me = threading.get_ident()
    with _gate:
        if me not in _inside:
            _gate.wait_for(lambda: not _forks, MOST_SECONDS)
        _inside[me] = _inside.get(me, 0) + 1
    try:
        yield
    finally:
        with _gate:
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
                _gate.notify_all()


def held(lock: Any) -> Any:
    """A lock that a fork takes, so that what it guards is whole in the child. Of several, threads
    take that of lower id first."""
    with _gate:
        _held.add(lock)
    return lock


def renewed(lock: Any) -> Any:
    """A lock of the process that is free in a child; what it guards is right at any moment."""
    _renewed.append(lock)
    return lock


def _before() -> None:
    global _forks
    _mine.locks = []  # Ctrl-C ends the waiting, not the fork, which gives back what it has
    with _gate:
        _forks += 1
        if threading.get_ident() not in _inside:
            _gate.wait_for(lambda: not _inside, MOST_SECONDS)
        locks = sorted(_held, key=id)
    for lock in locks:
        if lock.acquire(timeout=MOST_SECONDS):
            _mine.locks.append(lock)


def _after() -> None:
    global _forks
    for lock in _mine.locks:
        lock.release()
    with _gate:
        _forks -= 1
        _gate.notify_all()


def _in_child() -> None:
    global _gate, _forks
    _gate, _forks = threading.Condition(), 1
    me = threading.get_ident()
    for other in _inside.keys() - {me}:
        del _inside[other]
    for lock in _renewed:
        lock._at_fork_reinit()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
