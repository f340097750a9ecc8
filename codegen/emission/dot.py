"""A fused `dot`: a matrix product, and the elementwise ops after it as the product's epilogue."""

from __future__ import annotations

from graphc import dims
from graphc.aligned import LINE
from graphc.codegen.emission.along import Along
from graphc.codegen.emission.frame import Frame, Slots, slots_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.factors import free_axes, walked, ways_of
from graphc.codegen.job import Job
from graphc.codegen.matmul.product import product, product_scratch
from graphc.codegen.matmul.split import passing_rows
from graphc.codegen.matmul.symmetric import pays
from graphc.codegen.nests import loops, lowering
from graphc.codegen.nests.axes import coalesce
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.schedule import plan
from graphc.dims import Size
from graphc.dims import product as times
from graphc.ir import Graph, Node, Value
from graphc.ops.row import Kind
from graphc.passes.bodies import operand
from graphc.passes.roles import buffer_of

# Elements of a row up to which an epilogue is not computed in place, unless rows are whole lines:
# the vector that a row ends with reaches into the next row, which is read when its store is over.
# tanh(x @ w + b) of 1000 x 64 by 64 x 10 took 73 us in the place of 43, by 64 x 100 188 of 176.
SHORT_ROW = 128


def from_buffers(
    body: Graph, products: list[Value], codes: dict[Node, int]
) -> tuple[list[Node], dict[Value, Value]]:
    """The nodes of a body but for its products, which become inputs; and what replaces what."""
    env: dict[Value, Value] = {}
    for c in products:
        env[c] = operand("c", c.type)
    rest = []
    for n in body.nodes:
        if n.outs[0] in env:
            continue
        if any(a in env for a in n.args):
            new = Node(
                n.op, tuple(env.get(a, a) for a in n.args), n.attrs,
                [o.type for o in n.outs], n.origin,
            )
            env.update(zip(n.outs, new.outs, strict=True))
            if n in codes:
                codes[new] = codes[n]
            rest.append(new)
        else:
            rest.append(n)
    return rest, env


class DotKernel:
    """Writes the function of a fused node whose body holds a `dot`.

    ctx is laid out as for a nest whose operands are the body's inputs and then C, the buffer that
    the product itself goes to: one of the outputs where that is safe, else `workspace` bytes. What
    becomes states in the end has no C: its blocks pass through scratch.
    """

    def __init__(self, job: Job, updates: frozenset[Value], least_columns: int):
        self.job, self.module, self.target, self.name = job, job.module, job.target, job.name
        self.least_columns = least_columns
        node, body = job.node, job.body
        # new values of states are better written over the old ones than used to hold the product
        self.kept_free = {k for k, o in enumerate(node.outs) if o in updates}
        self.dot = next(n for n in body.nodes if n.op.kind is Kind.CONTRACT)
        c = self.dot.out
        rest, env = from_buffers(body, [c], job.codes)
        holder = env[c]
        self.a, self.b = (body.inputs.index(buffer_of(self.dot, side)) for side in (0, 1))
        outputs = [env.get(o, o) for o in body.outputs]
        epilogue = Graph("epilogue", (*body.inputs, holder), rest, outputs)
        nest = lowering.lower(epilogue, node.attrs["axes"], (), node.attrs["outputs"])
        self.nest = self._in_groups(nest)
        self.c_output = self._c_output(body, c)
        stored = [s for s in self.nest.stores if not self._is_copy_of_c(s.expr, s.output)]
        self.nest.stores = stored
        self.slots = self._slots()
        self.passing = bool(
            self.kept_free and self.c_output is None and self.nest.stores
            and passing_rows(c.type.dtype, *self._sizes[:2])
        )
        alone = self.c_output is None and not self.passing
        self.workspace: Size = c.type.bytes if alone else 0

    def _axis_groups(self) -> list[list[str]]:
        """The loop axes of batch, rows and columns (dimensions of size 1 have none)."""
        n = self.dot
        counts = (
            len(n.attrs["batch"][0]), len(free_axes(n, 0)), len(free_axes(n, 1))
        )
        groups: list[list[str]] = []
        at = 0
        k = 0
        for count in counts:
            groups.append([])
            for _ in range(count):
                if n.out.type.shape[at] != 1:
                    groups[-1].append(f"%i{k}")
                    k += 1
                at += 1
        return groups

    def _in_groups(self, nest: Nest) -> Nest:
        """The nest with the axes of batch, rows and columns merged, each group for itself."""
        groups = self._axis_groups()
        nest = coalesce(nest, groups)
        self.batch, self.rows, self.cols = (
            [n for n in g if n in nest.sizes] for g in groups
        )
        return nest

    def _c_output(self, body: Graph, c: Value) -> int | None:
        """An output whose buffer can hold the product: the product itself, or one that is written
        just where the product is read, if rows end with a line or are long."""
        if c in body.outputs:
            return body.outputs.index(c)
        columns = self._sizes[1]
        if isinstance(columns, int) and columns <= SHORT_ROW and (
            columns * c.type.dtype.itemsize % LINE
        ):
            return None
        holder = len(body.inputs)
        reads = {e.offset for e in self.nest.exprs if e.kind == "load" and e.param == holder}
        for s in self.nest.stores:
            t = self.nest.outputs[s.output]
            if s.output in self.kept_free:
                continue
            if t.dtype.itemsize == c.type.dtype.itemsize and t.shape == c.type.shape and reads == {
                s.offset
            }:
                return s.output
        return None

    def _is_copy_of_c(self, e: loops.Expr, output: int) -> bool:
        """Whether a store would write C to where it stands already."""
        return output == self.c_output and e.kind == "load" and e.param == len(
            self.nest.params
        ) - 1

    def _slots(self) -> Slots:
        """The ctx layout: as of the nest, and the dimensions of the operands."""
        sizes = list(self.dot.args[0].type.shape) + list(self.dot.args[1].type.shape)
        return slots_of(self.nest, sizes)

    @property
    def scratch(self) -> Size:
        """Bytes that the product needs of the calling thread's scratch."""
        return product_scratch(self.dot.out.type.dtype, *self._sizes, passing=self.passing)

    @property
    def _sizes(self) -> tuple[Size, Size, Size]:
        """Rows of all members of the batch, columns, and what is summed over."""
        n = self.dot
        rows = (*n.attrs["batch"][0], *free_axes(n, 0))
        m = times(n.args[0].type.shape[i] for i in rows)
        cols = times(n.args[1].type.shape[i] for i in free_axes(n, 1))
        k = times(n.args[0].type.shape[i] for i in n.attrs["contract"][0])
        return m, cols, k

    @property
    def work(self) -> Size:
        """Estimated cycles: 16 multiply-adds each."""
        n = self.dot
        a = n.args[0].type
        k = times(a.shape[i] for i in n.attrs["contract"][0])
        return dims.floordiv(n.out.type.size * k, 16) + 200

    @property
    def is_strided(self) -> bool:
        """Whether a block's columns (or its rows, where it has one column) are one loop axis."""
        return len(self.cols) == 1 or (not self.cols and len(self.rows) == 1)

    def define(self) -> None:
        """Add the kernel's functions to the module."""
        epilogue = "null"
        if self.nest.stores:
            self.module.define(f"{self.name}.epilogue", self.epilogue())
            epilogue = f"@{self.name}.epilogue"
        nest = Nest([], [], {}, self.nest.params, self.nest.outputs, [], [])
        f = Frame(self.job, plan(nest, self.target), self.slots)
        n, e = self.dot, f.e
        (batch, ab), (m, ar), (k, ac) = walked(n, 0)
        (_, bb), (cols, bc), (_, br) = walked(n, 1)
        dtype, turned = n.out.type.dtype, (self.a, m, ab, ar, ac) == (self.b, cols, bb, bc, br)
        symmetric = turned and not self.passing and pays(self.target, dtype, cols, k)
        name = product(
            self.module, self.target, dtype,
            rows=m if isinstance(m, int) else None,
            columns=cols if isinstance(cols, int) else self.least_columns or None,
            depth=k if isinstance(k, int) else None, ways=ways_of(n, self.target),
            passing=self.passing, symmetric=symmetric,
        )
        size = f.top.size
        ints = [
            size(x) for x in (batch, m, cols, k, ab, ar, ac, bb, br, bc, m * cols, cols)
        ]
        args = [f"i64 {x}" for x in ints[:4]]
        args += [f"ptr {f.params[self.a]}", *(f"i64 {x}" for x in ints[4:7])]
        args += [f"ptr {f.params[self.b]}", *(f"i64 {x}" for x in ints[7:10])]
        c = "null" if self.passing else f.params[-1]
        args += [f"ptr {c}", *(f"i64 {x}" for x in ints[10:])]
        args += [f"ptr {epilogue}", "ptr %ctx", "ptr %scratch"]
        e.do(f"call void @{name}({', '.join(args)})")
        self.module.define(
            self.name, f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")
        )

    def epilogue(self) -> str:
        """The function that the product calls on every finished block of C, never an empty one."""
        vector = (self.cols or self.rows)[-1] if self.is_strided else ""
        schedule = plan(self.nest, self.target, vector)
        f = Frame(self.job, schedule, self.slots)
        f.params.found[len(f.params) - 1] = "%c"
        e = f.e
        body = Along(f)
        bound: dict[str, str] = {}
        _decompose(f, self.batch, "%batch", bound)

        def element(row: str, column: str) -> None:
            here = dict(bound)
            _decompose(f, self.rows, row, here)
            _decompose(f, self.cols, column, here)
            body.run(Scope(f, f.top, e.section(), here), "0", "1")

        def row(i: str) -> None:
            if vector:
                here = dict(bound)
                _decompose(f, self.rows, i, here)
                grid = Scope(f, f.top, e.section(), here)
                body.run(grid, "%c0", "%c1", partial=True)
            else:
                e.for_each("%c0", "%c1", lambda j: element(i, j), some=True)

        if vector and not self.cols:
            grid = Scope(f, f.top, e.section(), bound)
            body.run(grid, "%r0", "%r1", partial=True)
        else:
            e.for_each("%r0", "%r1", row, some=True)
        return f.finish(
            f"define internal void @{self.name}.epilogue(ptr %ctx, i64 %batch, i64 %r0, i64 %r1, "
            "i64 %c0, i64 %c1, ptr %c, ptr %scratch)"
        )


def _decompose(f: Frame, axes: list[str], index: str, bound: dict[str, str]) -> None:
    """Bind axes that are walked as one by an index."""
    rest = index
    for k, name in enumerate(reversed(axes)):
        if k == len(axes) - 1:
            bound[name] = rest
        else:
            n = f.top.size(f.nest.sizes[name])
            bound[name] = f.e(f"urem i64 {rest}, {n}")
            rest = f.e(f"udiv i64 {rest}, {n}")
