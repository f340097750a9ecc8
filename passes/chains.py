"""Chains of kernels that share outer axes become one `fused` node whose body holds kernels.

In attention the scores are as large as the square of the length, while what they are made of and
what becomes of them grows with the length alone. All three kernels (scores, softmax, weighted sum)
run over heads and rows, and a row needs only that row of the kernel before. So the three may run
one after the other for a block of rows, then for the next block, and of what they hand to each
other there is never more than a block.

    %0: f32[h,n,n] = fused %q, %k {..dot..}       %0: f32[h,n,64] = fused %q, %k, %v {axes=(h, n),
    %1: f32[h,n,n] = fused %0 {..softmax..}    ->     outputs=((0, 1, -1)), body={..the three..}}
    %2: f32[h,n,64] = fused %1, %v {..dot..}      return %0
    return %2

`axes` are the shared ones, `outputs` says where the results have them. A chain ends in a product
whose left operand it makes, and grows against the flow of data as long as what a kernel makes is
not much smaller than what it reads. Rows stay whole, so that each is computed as it was before.

In the gradient two products sum over the rows: they get their own result from each block, and add
it up (`labels.summed_operands`). The rows' softmax, which the forward pass needs as well, is
computed once more by a chain of the backward pass where it is large: then neither stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import compress

from graphc import dims
from graphc.dims import Size
from graphc.ir import Builder, Graph, Node, Value, finish, finish_as, reachable
from graphc.ops.row import OPS, Kind
from graphc.passes.bodies import operand
from graphc.passes.groups import ONE, Label
from graphc.passes.labels import agree, is_block, kernel_labels, operands, summed_operands
from graphc.passes.roles import buffer_of
from graphc.types import TensorType

# A chain pays where what it need not store has LEAST_BYTES, more than the nearest caches hold, and
# is no less than what it reads and writes anyway. A product's right operand that serves more rows
# than BLOCK_ROWS is packed again for each block; then it must be GAIN times that. Measured: a
# network four times as wide inside would lose 7%, attention gains from 128 positions on.
LEAST_BYTES = 1 << 20
BLOCK_ROWS = 512
GAIN = 3
AGAIN_BYTES = 1 << 22  # of a value from which it is computed a second time rather than kept
MOST_KERNELS = 12      # of a chain: they are written for it alone, and share no code with others
TYPICAL = 2048         # what a symbolic dimension counts as, where bytes are estimated

Readers = dict[Value, list[Node | None]]  # None: the graph's results


@dataclass(eq=False)
class Chain:
    """Kernels that become one node."""

    nodes: list[Node]         # in order
    again: set[Node]          # those of them that stay outside as well
    axes: list[Size]
    args: list[Value]         # what it reads
    results: dict[Value, Label]

    @property
    def outs(self) -> Iterable[Value]:
        """What it makes for others."""
        return self.results


def run(g: Graph, fuse: Callable[[Graph], Graph]) -> Graph:
    """Make the chains of a graph of kernels; `fuse` makes kernels."""
    order, readers = find(g)
    if not any(isinstance(u, Chain) for u in order):
        return g
    b = Builder()
    env: dict[Value, Value] = {v: v for v in g.inputs}
    for u in order:
        if isinstance(u, Chain):
            args, attrs = _joined(u, fuse)
            new = b.emit(OPS["fused"], [env[a] for a in args], u.nodes[-1], **attrs)
            env.update(zip(u.results, new, strict=True))
        elif u.op.name == "fused":
            _emit(b, u, env, {o for o in u.outs if readers.get(o)})
        else:
            b.repeat(u, env)
    return finish_as(b, g, env)


def is_chain(n: Node) -> bool:
    """Whether a `fused` node holds kernels."""
    return any(m.op.name == "fused" for m in n.attrs["body"].nodes)


def find(g: Graph) -> tuple[list[Node | Chain], Readers]:
    """The nodes of g in order, with chains in the place of their kernels; what reads each value."""
    readers: Readers = {v: [None] for v in g.results}
    for n in g.nodes:
        for a in n.args:
            readers.setdefault(a, []).append(n)
    position: dict[Node | Chain, int] = {n: k for k, n in enumerate(g.nodes)}
    order: list[Node | Chain | None] = [*g.nodes]
    search = Search(readers, position)
    for n in reversed(g.nodes):
        chain = search.chain(n)
        if chain is not None and _place(chain, order, position):
            search.take(chain)
    return [u for u in order if u is not None], readers


def _rows(n: Node) -> int:
    """How many dimensions of a product's result its left operand shares, all that it keeps."""
    if n.op.name != "fused":
        return 0
    dots = [m for m in n.attrs["body"].nodes if m.op.kind is Kind.CONTRACT]
    return dots[0].args[0].type.ndim - len(dots[0].attrs["contract"][0]) if len(dots) == 1 else 0


def _shared(last: Node, rows: int) -> tuple[list[Size], list[Label]]:
    """The sizes of the shared axes, and where the results have them: in their first `rows`."""
    shape = last.outs[0].type.shape[:rows]
    if len(shape) < rows or any(o.type.shape[:rows] != shape for o in last.outs):
        return [], []  # an epilogue has put them together
    kept = [a for a in range(rows) if shape[a] != 1]
    label = tuple(kept.index(a) if a in kept else ONE for a in range(rows))
    return [shape[a] for a in kept], [label + (ONE,) * (o.type.ndim - rows) for o in last.outs]


class Search:
    """Looks for chains, from the end of a graph to its beginning."""

    def __init__(self, readers: Readers, position: dict[Node | Chain, int]):
        self.readers, self.position = readers, position
        self.taken: set[Node] = set()

    def chain(self, last: Node, without: AbstractSet[Node] = frozenset()) -> Chain | None:
        """The chain that ends in a product, if it pays; `without` says who reads no longer."""
        if last in self.taken or (rows := _rows(last)) == 0:
            return None
        for again in (False,) if without else (True, False):
            found = self.grow(last, rows, again, without)
            if found is None:
                return None
            chain, labels = found
            if _pays(chain, labels) and all(self._freed(n, chain) for n in chain.again):
                return chain
        return None

    def grow(
        self, last: Node, rows: int, again: bool, without: AbstractSet[Node]
    ) -> tuple[Chain, dict[Value, Label]] | None:
        """The kernels that may run block by block with the last one, and the labels of operands.

        If `again`, kernels whose results are read elsewhere as well may be among them.
        """
        axes, outs = _shared(last, rows)
        before = any(
            a.node.op.name == "fused" and _bytes([a]) >= LEAST_BYTES and _inflates(a.node)
            for a in last.args
        )
        labels = operands(last, outs) if axes and before else None
        if labels is None:
            return None
        chain, results = {last}, dict(zip(last.outs, outs, strict=True))
        waiting = list(labels)
        while waiting and len(chain) < MOST_KERNELS:
            n = waiting.pop().node
            if n in chain or n in self.taken or n.op.name != "fused" or not _inflates(n):
                continue
            others = [m for m in self._others(n, chain) if m not in without]
            joined = self._with(n, others, labels, len(axes))
            if joined is None or (len(joined[0]) < len(others) and not again):
                continue
            sums, labels = joined
            chain |= {n, *sums}
            results.update((m.outs[0], label) for m, label in sums.items())
            waiting += [a for m in (n, *sums) for a in m.args if a in labels]
        if len(chain) < 2 or not results.keys().isdisjoint(labels):
            return None
        nodes = sorted(chain, key=self.position.__getitem__)
        results = {o: results[o] for n in nodes for o in n.outs if o in results}
        ends = {o.node for o in results}
        twice: set[Node] = set()
        for n in reversed(nodes):
            if n not in ends and any(m not in without for m in self._others(n, chain - twice)):
                twice.add(n)
        read = dict.fromkeys(a for n in nodes for a in n.args)
        # operands that only results without readers need have no labels
        args = [a for a in read if a in labels and a.node not in chain]
        return Chain(nodes, twice, axes, args, results), labels

    def _with(
        self, n: Node, others: list[Node | None], labels: dict[Value, Label], axes: int
    ) -> tuple[dict[Node, Label], dict[Value, Label]] | None:
        """What comes of a chain by a kernel n whose results `others` read as well as the chain.

        The products among these that sum over the last shared axis, with the labels of their
        results: they join with n. And the labels of all operands. None where n may not join.
        """
        found = labels.copy()
        sums: dict[Node, Label] = {}
        for m in others:
            if m is None:  # a result of the graph
                return None
            summed = summed_operands(m, axes)
            if summed is None or m in self.taken or not agree(found, summed[1]):
                continue
            if all(is_block(o, summed[1][o]) for o in n.outs if o in summed[1]):
                found.update(summed[1])
                sums[m] = summed[0]
        if any(
            {*found[o]} - {ONE} != {*range(axes)} or not is_block(o, found[o])
            for o in n.outs if o in found
        ):
            return None
        more = operands(n, [found.get(o) for o in n.outs])
        if more is None or not agree(found, more):
            return None
        return sums, found | more

    def _others(self, n: Node, chain: AbstractSet[Node]) -> list[Node | None]:
        """What reads results of n outside of a chain."""
        found = dict.fromkeys(m for o in n.outs for m in self.readers.get(o, ()))
        return [m for m in found if m not in chain]

    def _freed(self, n: Node, chain: Chain) -> bool:
        """Whether nobody needs the results of n as a whole, if a chain computes them again."""
        nodes = set(chain.nodes)
        for m in self._others(n, nodes):
            other = self.chain(m, nodes - chain.again) if m is not None else None
            if other is None or n not in other.nodes:
                return False
        return True

    def take(self, chain: Chain) -> None:
        """Take the kernels of a chain out of the search."""
        inside = set(chain.nodes) - chain.again
        self.taken |= inside
        made = {o for n in chain.nodes for o in n.outs}
        for n in chain.again:
            for o in n.outs:
                self.readers[o] = [m for m in self.readers[o] if m not in inside]
            for a in n.args:
                if a not in made:
                    self.readers[a].append(chain.nodes[-1])


def _inflates(n: Node) -> bool:
    """Whether a kernel makes no less than two thirds of the largest that it reads."""
    return 3 * _bytes(n.outs) >= 2 * max((_typical_bytes(a.type) for a in n.args), default=0)


def _pays(chain: Chain, labels: dict[Value, Label]) -> bool:
    """Whether what need not be stored is worth the blocks."""
    made = {o for n in chain.nodes for o in n.outs}
    read = {a for n in chain.nodes for a in n.args}
    kept = _bytes(made & read)
    rows = max(_typical(_reuse(n, labels, chain.axes)) for n in chain.nodes)
    gain = GAIN if rows > BLOCK_ROWS else 1
    largest = max(_typical_bytes(v.type) for v in made & read)  # small ones stay in cache
    least = AGAIN_BYTES if chain.again else LEAST_BYTES
    return largest >= least and kept >= gain * _bytes({*chain.args, *chain.results})


def _reuse(n: Node, labels: dict[Value, Label], axes: list[Size]) -> Size:
    """The rows that the right operand of a product serves."""
    body: Graph = n.attrs["body"]
    for m in body.nodes:
        if m.op.kind is Kind.CONTRACT:
            label = labels[n.args[body.inputs.index(buffer_of(m, 1))]]
            return dims.product(size for a, size in enumerate(axes) if a not in label)
    return 1


def _bytes(values: Iterable[Value]) -> int:
    """Bytes of values, symbolic dimensions taken as TYPICAL."""
    return sum(_typical_bytes(v.type) for v in values)


@cache
def _typical_bytes(t: TensorType) -> int:
    return _typical(t.bytes)


def _typical(size: Size) -> int:
    return dims.estimate(size, TYPICAL)


def _place(
    chain: Chain, order: list[Node | Chain | None], position: dict[Node | Chain, int]
) -> bool:
    """Put a chain where its last kernel stands, and behind it what needs its results.

    False where it would need them itself, by way of something else.
    """
    inside = {*chain.nodes} - chain.again
    places = [position[n] for n in inside]
    first, end = min(places), max(places) + 1
    late = set(chain.results)
    before: list[Node | Chain | None] = []
    after: list[Node | Chain] = []
    for u in order[first:end]:
        if u is None or u in inside:
            continue
        if late.isdisjoint(u.args):
            before.append(u)
        else:
            after.append(u)
            late.update(u.outs)
    if not late.isdisjoint(chain.args):
        return False
    here = [*before, chain, *after]
    order[first:end] = [None] * (end - first - len(here)) + here
    position.update((u, k) for k, u in enumerate(order[first:end], first) if u is not None)
    return True


def _joined(
    chain: Chain, fuse: Callable[[Graph], Graph]
) -> tuple[list[Value], dict[str, object]]:
    """(operands, attributes) of the fused node of a chain.

    What is computed again has fewer readers than where it was fused: so kernels are made anew.
    """
    wanted = {a for n in chain.nodes for a in n.args} | set(chain.results)
    b = Builder()
    env: dict[Value, Value] = {}
    for k, a in enumerate(chain.args):
        env[a] = operand(f"p{k}", a.type, a.node.loc)
    for n in chain.nodes:
        _emit(b, n, env, wanted)
    body = finish(
        b, "chain", [env[a] for a in chain.args], [env[o] for o in chain.results]
    )
    outs = tuple(chain.results.values())
    if chain.again:
        anew = fuse(_inlined(body))
        if kernel_labels(anew, outs, len(chain.axes)) is not None:
            body = anew
    return chain.args, {
        "body": body, "axes": tuple(chain.axes), "reduced": (), "outputs": outs,
    }


def _inlined(body: Graph) -> Graph:
    """The ops of kernels."""
    b = Builder()
    env: dict[Value, Value] = {v: v for v in body.inputs}
    for n in body.nodes:
        kernel: Graph = n.attrs["body"]
        here = dict(zip(kernel.inputs, (env[a] for a in n.args), strict=True))
        for m in kernel.nodes:
            b.repeat(m, here)
        env.update((o, here[v]) for o, v in zip(n.outs, kernel.outputs, strict=True))
    return finish_as(b, body, env)


def _emit(b: Builder, n: Node, env: dict[Value, Value], wanted: Container[Value]) -> None:
    """A kernel without those of its results that nobody wants any more."""
    outs = [o for o in n.outs if o in wanted]
    if len(outs) == len(n.outs):
        new = b.copy(n, tuple([env[a] for a in n.args]))
    else:
        body: Graph = n.attrs["body"]
        picked = [k for k, o in enumerate(n.outs) if o in wanted]
        results = [body.outputs[k] for k in picked]
        live = set(reachable(results))
        read = [v.node in live for v in body.inputs]
        args = [env[a] for a in compress(n.args, read)]
        less = Graph(
            body.name, tuple(compress(body.inputs, read)), [m for m in body.nodes if m in live],
            results,
        )
        labels = tuple(n.attrs["outputs"][k] for k in picked)
        new = b.emit(n.op, args, n, **{**n.attrs, "body": less, "outputs": labels})
    env.update(zip(outs, new, strict=True))
