"""The kernels of a chain, for a block of its operands.

They are the same bodies, but shared axes have the sizes `block.0`, `block.1`, ..., and columns that
a mask may leave out are `used` (see `masks`). A kernel that counts along a shared axis, or sums
over one, is told where its block begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.codegen.chain.masks import USED, find, product_of
from graphc.dims import Size, atom
from graphc.ir import Builder, Graph, Node, Value, finish
from graphc.ops.row import OPS, Kind
from graphc.passes.bodies import operand
from graphc.passes.groups import ONE, Label
from graphc.passes.labels import inner, kernel_labels, operand_labels, sums
from graphc.types import TensorType, i64

Env = dict[tuple[Value, Label], Value]


class Blocks:
    """The body of a `fused` node whose body holds kernels, as a program for blocks."""

    def __init__(self, node: Node):
        body: Graph = node.attrs["body"]
        self.axes: tuple[Size, ...] = node.attrs["axes"]
        self.cut = len(self.axes)  # the label of columns that may be left out
        self.names = [f"block.{a}" for a in range(self.cut)]
        found = kernel_labels(body, node.attrs["outputs"], self.cut)
        assert found is not None, "chains groups only what has labels"
        self.masked = find(body, found, self.cut)
        self.labels = found | (self.masked.labels if self.masked is not None else {})
        self.inputs = body.inputs
        self.outputs = [self.labels[v] for v in body.outputs]
        self.begins = {a: _begin(a) for a in range(self.cut)}
        self.summed: dict[Node, list[TensorType]] = {}  # what sums over blocks: its whole operands
        self.products: list[Value] = []  # that leave out some steps
        self.probes: list[Value] = []    # what must be 0 for that
        self.body = self._body(body)

    def _body(self, body: Graph) -> Graph:
        """All kernels: those that sum over blocks last, see `guards`."""
        b = Builder()
        env = {
            v: operand(str(v.node.attrs["name"]), self.type_of(v, self.labels[v]))
            for v in body.inputs
        }
        inputs = [*env.values(), *self.begins.values()]
        adds_up = {n: sums(self.labels[n.outs[0]], self.cut) for n in body.nodes}
        for n in sorted(body.nodes, key=adds_up.__getitem__):
            if adds_up[n]:
                within, begins = self._sum(n, env), [self.cut - 1]
            else:
                within, begins = self._kernel(n)
            args = [*(env[a] for a in n.args), *(self.begins[a] for a in begins)]
            new = b.emit(OPS["fused"], args, n, **{**n.attrs, "body": within, **self._places(n)})
            if adds_up[n]:
                self.summed[new[0].node] = [
                    a.type if a in body.inputs else env[a].type for a in n.args
                ]
            elif self.masked is not None and n in self.masked.over and product_of(n) is not None:
                self.products += new
            env.update(zip(n.outs, new, strict=False))
            self.probes += new[len(n.outs):]
        return finish(b, body.name, inputs, [*(env[v] for v in body.outputs), *self.probes])

    def _places(self, n: Node) -> dict[str, object]:
        """The axes of a kernel, and which of them its results and probes have."""
        sizes, places = list(n.attrs["axes"]), list(n.attrs["outputs"])
        rows: Label = ()
        for own, v in zip(n.attrs["outputs"], n.outs, strict=True):
            label = self.labels.get(v, ())
            rows = own if self.cut in label else rows
            for axis, shared in zip(own, label, strict=True):
                if shared != ONE:
                    sizes[axis] = self.size(shared)
        places += [(*rows[:-1], ONE)] * len(self._probes_of(n))
        return {"axes": tuple(sizes), "outputs": tuple(places)}

    def _probes_of(self, n: Node) -> Sequence[Value]:
        return self.masked.probes.get(n, ()) if self.masked is not None else ()

    def _sum(self, n: Node, env: Mapping[Value, Value]) -> Graph:
        """The body of a kernel that sums over blocks: a product of blocks of its operands."""
        body: Graph = n.attrs["body"]
        dot = body.nodes[0]
        b = Builder()
        given = {
            v: operand(str(v.node.attrs["name"]), env[a].type)
            for a, v in zip(n.args, body.inputs, strict=True)
        }
        out = b.one(dot.op, [given[v] for v in dot.args], dot, **dot.attrs)
        return finish(b, body.name, [*given.values(), _begin(self.cut - 1)], [out])

    def _kernel(self, kernel: Node) -> tuple[Graph, list[int]]:
        """One kernel's body, and the axes whose beginnings are its last operands.

        Its last results are what it must find to be 0 (see `masks`).
        """
        body: Graph = kernel.attrs["body"]
        outs = [self.labels[o] for o in kernel.outs]
        summed = self.cut if self.masked is not None and kernel in self.masked.over else ONE
        labels = inner(body, outs, summed)
        assert labels is not None
        b = Builder()
        begins: dict[int, Value] = {}
        env: Env = {
            (v, label): operand(str(v.node.attrs["name"]), self.type_of(v, label))
            for v in body.inputs for label in labels[v]
        }
        for n, label in [(m, found) for m in body.nodes for found in labels[m.out]]:
            attrs = dict(n.attrs)
            if "shape" in attrs:
                attrs["shape"] = self.type_of(n.out, label).shape
            given = operand_labels(n, label, summed)
            assert given is not None
            if n.op.name == "iota" and (a := label[n.attrs["axis"]]) in self.begins:
                new = _counted(b, n, attrs, begins.setdefault(a, _begin(a)))
            else:
                new = b.one(n.op, [env[key] for key in zip(n.args, given, strict=True)], n, **attrs)
            env[n.out, label] = new
        inputs = [*(env[v, labels[v][0]] for v in body.inputs), *begins.values()]
        outputs = [env[key] for key in zip(body.outputs, outs, strict=True)]
        if self._probes_of(kernel):
            outputs += self._last_column(b, kernel, env, labels)
        return finish(b, body.name, inputs, outputs), list(begins)

    def _last_column(
        self, b: Builder, kernel: Node, env: Env, labels: Mapping[Value, list[Label]]
    ) -> list[Value]:
        """What a kernel's probes are in the last column of a block, which the mask leaves out.

        Computed from what a mask puts there, if that is known: then rows may be written where they
        are read. Otherwise from the column itself.
        """
        assert self.masked is not None
        body, probes = kernel.attrs["body"], self.masked.probes[kernel]
        constants = self.masked.constants
        wanted, computed = set(probes), set()
        for n in reversed(body.nodes):
            simple = n.op.kind is Kind.ELEMENTWISE or n.op.name == "broadcast"
            if n.out not in wanted or (kernel, n.out) in constants or not simple:
                continue
            if all(len(labels[a]) == 1 for a in n.args):
                computed.add(n.out)
                wanted.update(a for a in n.args if self.cut in labels[a][0])
        here: dict[Value, Value] = {}
        for v in (*body.inputs, *(n.out for n in body.nodes)):
            if v not in wanted:
                continue
            n, x = v.node, env[v, labels[v][0]]
            shape = (*x.type.shape[:-1], 1)
            if (constant := constants.get((kernel, v))) is not None:
                one = b.one("constant", (), n, **constant.node.attrs)
                here[v] = b.one("broadcast", (one,), n, shape=shape, axes=())
            elif v in computed:
                attrs = n.attrs if n.op.name != "broadcast" else {**n.attrs, "shape": shape}
                args = [here.get(a, env[a, labels[a][0]]) for a in n.args]
                here[v] = b.one(n.op, args, n, **attrs)
            else:
                start = (*(0 for _ in shape[1:]), x.type.shape[-1] - 1)
                step = (1,) * len(shape)
                here[v] = b.one("slice", (x,), n, start=start, stop=x.type.shape, step=step)
        return [here[v] for v in probes]

    def size(self, axis: int) -> Size:
        """The size of a block on a shared axis, or how many columns it uses."""
        return atom(USED if axis == self.cut else self.names[axis])

    def type_of(self, v: Value, label: Label) -> TensorType:
        """The type of a block of v."""
        return TensorType(v.type.dtype, tuple(
            size if a == ONE else self.size(a) for a, size in zip(label, v.type.shape, strict=True)
        ))


def _counted(b: Builder, n: Node, attrs: Mapping[str, Any], begin: Value) -> Value:
    """The iota n of a block that begins there; only then does a narrow dtype wrap or round."""
    moved = b.one("broadcast", (begin,), n, shape=attrs["shape"], axes=())
    out = b.one("add", (b.one(n.op, (), n, **{**attrs, "dtype": i64}), moved), n)
    dtype = n.out.type.dtype
    return out if dtype is i64 else b.one("cast", (out,), n, dtype=dtype)


def _begin(axis: int) -> Value:
    """Where a block begins on an axis."""
    return operand(f"begin{axis}", TensorType(i64, ()))
