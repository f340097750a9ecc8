"""A fused pair of products that read the same matrix: y = A @ x and z = v @ A, with what follows.

Rows of A are taken in groups. When a group's part of y is there, what depends on it is computed for
these rows (v may be among that); then the group's rows are added to z. What depends on z runs when
all rows have been added. Why one reading is enough: `matmul/both`.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emission.along import Along
from graphc.codegen.emission.dot import from_buffers
from graphc.codegen.emission.frame import Frame, slots_of
from graphc.codegen.emission.scope import Scope
from graphc.codegen.job import Job
from graphc.codegen.matmul.both import define_both, sums_bytes
from graphc.codegen.nests import lowering
from graphc.codegen.nests.axes import polynomials
from graphc.codegen.nests.loops import Nest
from graphc.codegen.nests.schedule import plan
from graphc.dims import Size
from graphc.ir import Graph, Value
from graphc.ops.row import Kind
from graphc.passes.both import is_matrix

ROWS, COLUMNS = 0, 1  # the loop axes of the fused node


class BothKernel:
    """Writes the functions of a fused node whose body holds two `dot`s, as `passes/both` makes it.

    ctx is laid out as for a nest whose operands are the body's inputs and then a workspace, in
    which z stands, with the sums it is made of, and then y.
    """

    def __init__(self, job: Job):
        self.job, self.module, self.name = job, job.module, job.name
        self.body, self.labels = job.body, job.node.attrs["outputs"]
        self.by_rows, self.by_columns = sorted(
            (n for n in self.body.nodes if n.op.kind is Kind.CONTRACT),
            key=lambda n: not is_matrix(n.args[0].type),  # A @ x, then x @ A
        )
        self.m, self.n = self.by_rows.args[0].type.shape
        self.dtype = self.by_rows.out.type.dtype
        products = [self.by_rows.out, self.by_columns.out]
        self.rest, self.env = from_buffers(self.body, products, job.codes)
        self.rows = self._nest(self.by_rows.out, ROWS, self.m)
        self.columns = self._nest(self.by_columns.out, COLUMNS, self.n)
        self.slots = slots_of(
            self.rows, [*polynomials(self.columns), *self.columns.sizes.values(), self.m, self.n]
        )

    def _nest(self, product: Value, axis: int, size: Size) -> Nest:
        """What is stored along one axis."""
        numbers = [k for k, label in enumerate(self.labels) if axis in label]
        outputs = [self.body.outputs[k] for k in numbers]
        nest = lowering.lower(
            Graph(
                "epilogue", (*self.body.inputs, self.env[product]), self.rest,
                [self.env.get(o, o) for o in outputs],
            ),
            (size,), (), tuple(tuple(min(a, 0) for a in self.labels[k]) for k in numbers),
        )
        nest.stores = [s._replace(output=numbers[s.output]) for s in nest.stores]
        nest.outputs = tuple(o.type for o in self.body.outputs)
        return nest

    @property
    def _sums(self) -> Size:
        return sums_bytes(self.dtype, self.m, self.n)

    @property
    def workspace(self) -> Size:
        return self._sums + self.m * self.dtype.itemsize

    @property
    def work(self) -> Size:
        """Estimated cycles: 16 multiply-adds each."""
        return dims.floordiv(self.m * self.n, 8) + 200

    def define(self) -> None:
        """Add the kernel's functions to the module."""
        self._epilogue("rows", self.rows)
        self._epilogue("columns", self.columns)
        nest = Nest([], [], {}, self.rows.params, self.rows.outputs, [], [])
        f = self._frame(nest)
        e, size = f.e, f.top.size
        v = self.by_columns.args[0]
        if v in self.body.inputs:
            factors = f.params[self.body.inputs.index(v)]
        elif v is self.by_rows.out:
            factors = self._y(f)
        else:
            factors = f.outputs[self.body.outputs.index(v)]
        a, x = (f.params[self.body.inputs.index(p)] for p in self.by_rows.args)
        name = define_both(self.module, self.job.target, self.dtype, self.n)
        m, n = size(self.m), size(self.n)
        e.do(f"call void @{name}(i64 {m}, i64 {n}, ptr {a}, ptr {x}, ptr {self._y(f)}, "
             f"ptr {factors}, ptr {f.params[-1]}, ptr @{self.name}.rows, ptr %ctx, ptr %scratch)")
        e.do(f"call void @{self.name}.columns(ptr %ctx, i64 0, i64 {n}, ptr %scratch)")
        self.module.define(
            self.name, f.finish(f"define internal void @{self.name}(ptr %ctx, ptr %scratch)")
        )

    def _frame(self, nest: Nest) -> Frame:
        vector = nest.outer[0] if nest.outer else ""
        return Frame(self.job, plan(nest, self.job.target, vector), self.slots)

    def _y(self, f: Frame) -> str:
        return f.top.e(f"getelementptr i8, ptr {f.params[-1]}, i64 {f.top.size(self._sums)}")

    def _epilogue(self, kind: str, nest: Nest) -> None:
        """The function that computes what is stored along one axis, from %low to %high."""
        f = self._frame(nest)
        if kind == "rows":
            y = self._y(f)
            f.params.found[len(self.body.inputs)] = y
        Along(f).run(Scope(f, f.top, f.e.section(), {}), "%low", "%high", partial=True)
        self.module.define(f"{self.name}.{kind}", f.finish(
            f"define internal void @{self.name}.{kind}(ptr %ctx, i64 %low, i64 %high, "
            "ptr %scratch)"
        ))
