"""LLVM at work while a program is still being written.

LLVM needs no Python. For a long program a second thread loads it, if nothing has: a sixteenth of
what the first compilation of a training step takes. It gives it what programs share
(`templates.begin`) before anything else is written, then those functions that will not change any
more, as soon as there are enough of them for a module. What is left when all is written is
compiled as ever (`llvm.compile_objects`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable

from graphc.codegen import perf_map
from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine import llvm, units
from graphc.codegen.machine.target import Target

# Of text in a part, which takes LLVM some 50 ms: for each the thread waits a few times for Python's
# lock, 5 ms each time (see `generator`).
PART_BYTES = 1 << 17
# Of a graph that is long to write, so that LLVM is there before it is asked for. What is written
# sooner may need none of it, where its objects are in the cache, and would wait: 8 ms of 73.
LONG_NODES = 100


class Overlap:
    """Parts of one module, compiled from when they are full; at the end of a `with` none is.

    nodes: of the graph that the module is for.
    """

    def __init__(self, target: Target, nodes: int = 0):
        self._target, self._nodes = target, nodes
        self._begun: Module | None = None
        self._names: list[str] = []           # settled functions of which there is no part yet
        self._bytes = 0                       # their text
        self._done: dict[str, str] = {}       # those of parts, as they were then
        self._parts: deque[str] = deque()     # that nothing has begun to compile
        self._objects: list[bytes] = []
        self._failed: list[BaseException] = []
        self._thread: threading.Thread | None = None
        self._off = perf_map.wanted()
        self._alone = self._off or llvm.cpus() < 2

    def __enter__(self) -> Overlap:
        if self._nodes >= LONG_NODES and not llvm.is_loaded():
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.clear()
        self._wait()

    def begin(self, module: Module, families: Iterable[Collection[str]]) -> None:
        """These functions are the first of the program, and stay as they are. Each family has the
        same parts in every program, so that the cache has them after the first."""
        self._begun = module
        for names in families if not self._off else ():
            self._take(module, names, max(1, llvm.cpus() // 2))  # what else there is is beside it

    def give(self, module: Module) -> None:
        """Add what the program begins with."""
        if self._begun is not None:
            module.take(self._begun)

    def settle(self, module: Module, names: Collection[str]) -> None:
        """These functions stay as they are."""
        if self._alone:
            return
        self._names += names
        self._bytes += sum(len(module.functions[n]) for n in names)
        if self._bytes < PART_BYTES:
            return
        self._take(module, self._names)
        self._names, self._bytes = [], 0

    def rest(self, text: str) -> str:
        """The module, now that it is whole, less what is compiled or waits for that."""
        return units.without(text, self._done)

    def left(self) -> list[str]:
        """The parts that nothing has begun to compile, for others to do."""
        left = []
        while self._parts:
            try:
                left.append(self._parts.popleft())
            except IndexError:  # the thread has taken it
                break
        return left

    def objects(self) -> list[bytes]:
        """What the others have become; the mistake that LLVM found, if any."""
        self._wait()
        if self._failed:
            raise self._failed[0]
        return self._objects

    def _take(self, module: Module, names: Collection[str], most: int = 1) -> None:
        """Compile these functions, if they can be by themselves, in so many parts at most."""
        text = units.part(module, names)
        if text is not None:
            self._done |= {n: module.functions[n] for n in names}
            self._parts += llvm.cut(text, most)
            self._start()

    def _start(self) -> None:
        if not self._alone and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._work)
            try:
                thread.start()
            except RuntimeError:  # where the system allows no more threads, the parts wait
                self._alone = True
                return
            self._thread = thread

    def _work(self) -> None:
        try:
            if not (self._parts or llvm.is_loaded()):
                llvm.preload()
            while True:
                try:
                    part = self._parts.popleft()
                except IndexError:
                    return
                self._objects.append(llvm.compile_object(part, self._target))
        except BaseException as e:  # told by `objects`
            self._failed.append(e)

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
