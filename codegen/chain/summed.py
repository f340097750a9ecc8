"""A kernel of a chain that adds up a product over the chain's blocks (see `passes/labels`).

    define internal void @K(ptr %ctx, ptr %scratch)

ctx: the operands, where the block begins, chains that are not at their end, the result; sizes. The
operands are one where a matrix is multiplied with itself.
"""

from __future__ import annotations

from graphc import dims
from graphc.codegen.emission.frame import Slots
from graphc.codegen.factors import collapse, free_axes
from graphc.codegen.job import Job
from graphc.codegen.kernels import Call
from graphc.codegen.matmul.ir import Function
from graphc.codegen.matmul.sum import define_sum, sum_scratch
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size
from graphc.types import TensorType


def define_summed(job: Job, arrays: list[TensorType], whole: Size) -> Call:
    """Write the kernel of a node whose body multiplies blocks of its first operands.

    They are parts of `arrays`; the last says where they begin on the axis of size `whole` that is
    summed over.
    """
    body = job.body
    dot = body.nodes[0]
    blocks = [v.type.shape for v in dot.args]
    shapes = [arrays[body.inputs.index(v)].shape for v in dot.args]
    dtype = dot.out.type.dtype

    def size(side: int, axes: tuple[int, ...]) -> Size:
        return dims.product(blocks[side][a] for a in axes)

    def step(side: int, axes: tuple[int, ...]) -> Size:
        """The stride of the innermost of some axes."""
        found = collapse(shapes[side], axes)
        assert found is not None, "straighten makes operands plain before fusion"
        return found[1]

    batch, summed = dot.attrs["batch"], dot.attrs["contract"]
    free = [free_axes(dot, side) for side in (0, 1)]
    columns = size(1, free[1])
    assert isinstance(columns, int), "labels.summed_operands asks for that"
    sizes = [size(0, batch[0]), size(0, free[0]), columns, size(0, summed[0]), whole]
    steps = [[step(s, axes) for axes in (batch[s], free[s], summed[s])] for s in (0, 1)]
    steps[1][1:] = reversed(steps[1][1:])
    names = dict.fromkeys(n for x in (*sizes, *steps[0], *steps[1]) for n in dims.names(x))
    operands = len(arrays)
    slots = Slots(operands + 2, 1, tuple(names))

    f = Function(job.module, job.name, "ptr %ctx, ptr %scratch", job.target)
    at = [f(f"load ptr, ptr {f.at('%ctx', 8 * k)}, align 8") for k in range(operands + 3)]
    begins, begun, out = at[operands:]
    code = SizeCode(f, {
        n: f(f"load i64, ptr {f.at('%ctx', 8 * (len(at) + k))}, align 8")
        for k, n in enumerate(names)
    })
    begin = f(f"load i64, ptr {begins}, align 8")
    ints = [*map(code.value, sizes[:4]), begin, code.value(whole)]
    given = [f"i64 {x}" for x in ints]
    for v, side in zip(dot.args, steps, strict=True):
        given += [f"ptr {at[body.inputs.index(v)]}", *(f"i64 {code.value(x)}" for x in side)]
    given += [f"ptr {out}", f"ptr {begun}", "ptr %scratch"]
    f.do(f"call void @{define_sum(job.module, job.target, dtype)}({', '.join(given)})")
    f.finish()
    work = dims.floordiv(dims.product(sizes[:4]), 16) + 200
    return Call(job.name, job.node, slots, scratch=sum_scratch(dtype, columns), work=work)
