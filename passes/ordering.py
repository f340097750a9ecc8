"""The order of kernels: that of the program, but what frees memory runs as soon as it can.

    d = ..               d = ..
    e = f(d)             x = d @ w       the last to read d: its buffer is free for e
    x = d @ w      ->    e = f(d)

Gradients of a loop that is unrolled are declared in the order in which its values were, which need
not be that of its steps. A kernel of which the operands that few others still read are larger than
its results comes before the program's next: so fewer buffers are alive at once, and they are read
while a cache has them. Those that wait go in the order in which they could have begun.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from graphc import dims
from graphc.ir import Node, Value

REPRESENTATIVE = 64  # what a symbolic dimension counts as
FEW = 4              # readers that a value still has, each of which is said to free its share


class Step(NamedTuple):
    """A node of the fused graph to be: a kernel, or a leaf or view that stands by itself."""

    rank: tuple[int, int]  # place in the program
    node: Node             # whose line the kernel has; or the leaf or view
    reads: Sequence[Value]
    makes: Sequence[Value]
    kernel: dict[str, object] | None = None  # attributes of the `fused` node


def in_order(steps: Sequence[Step], kept: Iterable[Value]) -> Iterator[Step]:
    """Steps after those whose values they read; `kept`: what lives to the end."""
    return _Order(steps, kept).run()


def is_view(u: Step) -> bool:
    """Whether a step makes nothing: its result shows the buffer of its operand."""
    return u.kernel is None and u.node.op.name == "reshape"


def is_kernel(u: Step) -> bool:
    """Whether a step's results take memory of the arena."""
    return u.kernel is not None or u.node.op.name == "fused"


class _Order:
    """One run: what each step waits for, and who still reads a value."""

    def __init__(self, steps: Sequence[Step], kept: Iterable[Value]):
        self.steps = steps
        made_by = {v: k for k, u in enumerate(steps) for v in u.makes}
        self.users: list[list[int]] = [[] for _ in steps]
        self.waiting = [0] * len(steps)
        for k, u in enumerate(steps):
            sources = {made_by[v] for v in u.reads if v in made_by}
            self.waiting[k] = len(sources)
            for s in sources:
                self.users[s].append(k)
        roots = {u.makes[0]: u.reads[0] for u in steps if is_view(u)}

        def root(v: Value) -> Value:
            while v in roots:
                v = roots[v]
            return v

        stays = {root(v) for v in kept}
        self.readers: dict[Value, set[int]] = {}  # of values that the arena holds
        self.reads: list[list[Value]] = []        # such values, of each step
        for k, u in enumerate(steps):
            read = dict.fromkeys(map(root, () if is_view(u) else u.reads))
            self.reads.append([
                v for v in read
                if v in made_by and v not in stays and is_kernel(steps[made_by[v]])
            ])
            for v in self.reads[k]:
                self.readers.setdefault(v, set()).add(k)
        self.bytes: dict[Value, int] = {}
        self.ready: list[tuple[tuple[int, int], int]] = []
        self.freeing: list[tuple[int, tuple[int, int], int]] = []
        self.since: dict[int, int] = {}  # when a step could first have begun
        self.done = [False] * len(steps)

    def run(self) -> Iterator[Step]:
        """The steps, each once."""
        now = 0
        for free, waits in enumerate(self.waiting):
            if not waits:
                self.begin(free, now)
        while (k := self.next()) is not None:
            now += 1
            yield self.steps[k]
            for t in self.users[k]:
                self.waiting[t] -= 1
                if not self.waiting[t]:
                    self.begin(t, now)
            for v in self.reads[k]:
                left = self.readers[v]
                left.discard(k)
                if len(left) <= FEW:
                    for t in left:
                        self.look(t)

    def begin(self, k: int, now: int) -> None:
        """Step k may run from now on."""
        self.since[k] = now
        heapq.heappush(self.ready, (self.steps[k].rank, k))
        self.look(k)

    def look(self, k: int) -> None:
        """Let step k run soon if it can and frees more than it makes, or costs nothing."""
        u = self.steps[k]
        if k in self.since and (is_view(u) or self.frees(k) > sum(map(self.size, u.makes))):
            heapq.heappush(self.freeing, (self.since[k], u.rank, k))

    def frees(self, k: int) -> float:
        """Bytes of the operands, each divided by as many as still read it."""
        counted = [(v, len(self.readers[v])) for v in self.reads[k]]
        return sum(self.size(v) / left for v, left in counted if left <= FEW)

    def size(self, v: Value) -> int:
        if v not in self.bytes:
            self.bytes[v] = dims.estimate(v.type.bytes, REPRESENTATIVE)
        return self.bytes[v]

    def next(self) -> int | None:
        """The step to run next, or None at the end."""
        while self.freeing or self.ready:
            k = heapq.heappop(self.freeing)[-1] if self.freeing else heapq.heappop(self.ready)[-1]
            if not self.done[k]:
                self.done[k] = True
                return k
        return None
