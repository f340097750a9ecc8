"""What the products of a program share, which is written before all else.

LLVM takes longest for it, half of the time of a training step, and it hangs on little: the dtypes
of products, and what is known of their sizes. So `begin` lets LLVM have it before most of this
compiler is imported, and before kernels are written: that takes 6 to 10 % off a training step.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.codegen.emission.emitter import Module
from graphc.codegen.factors import free_axes, ways_of
from graphc.codegen.machine.overlap import Overlap
from graphc.codegen.machine.target import Target
from graphc.codegen.matmul.block import Ways, define_block, families
from graphc.codegen.matmul.product import goes_by_block
from graphc.dims import product
from graphc.ir import Graph, Node
from graphc.ops.row import Kind
from graphc.passes.chains import is_chain
from graphc.passes.stages import is_lowered
from graphc.types import DType

# Multiply-adds of a product whose sizes are known, above which no function of straight-line code
# has room for it.
WRITTEN_OUT = 1 << 14


def begin(g: Graph, target: Target, overlap: Overlap) -> None:
    """Write what the products of a fused graph share, for LLVM to begin with.

    Nothing where some of them may be written out (`straight`): what the others know of sizes is
    seen when it is clear which these are.
    """
    kernels = _kernels(g)
    if is_lowered(g) and all(map(_is_called, _products(kernels))):
        module = Module()
        define_products(module, target, kernels)
        overlap.begin(module, families(module.functions))


def define_products(
    module: Module, target: Target, kernels: Iterable[Node], beside: Iterable[Graph] = ()
) -> None:
    """Write what the products of kernels share, unless it is there: all of a dtype have one block.

    beside: fused graphs whose code stands in the same library: that block will do for them as well.
    """
    asked = _asked(_products(kernels), target)
    for g in beside:
        theirs = [dot for dot in _products(_kernels(g)) if _is_called(dot)]
        for dtype, ways in _asked(theirs, target).items():
            if dtype in asked:
                asked[dtype] |= ways
    for dtype, ways in asked.items():
        define_block(module, target, dtype, ways)


def _asked(dots: Iterable[Node], target: Target) -> dict[DType, Ways]:
    """What products ask of the block of each dtype."""
    asked: dict[DType, Ways] = {}
    for n in dots:
        dtype = n.out.type.dtype
        if goes_by_block(dtype, product(n.args[1].type.shape[a] for a in free_axes(n, 1))):
            ways = ways_of(n, target)
            asked[dtype] = asked.get(dtype, ways) | ways
    return asked


def _kernels(g: Graph) -> list[Node]:
    return [n for n in g.nodes if n.op.name == "fused"]


def _products(kernels: Iterable[Node]) -> list[Node]:
    """The product of each kernel, and of each in a chain; one of several products has its own."""
    single = [k for n in kernels for k in (n.attrs["body"].nodes if is_chain(n) else (n,))]
    found = [[m for m in k.attrs["body"].nodes if m.op.kind is Kind.CONTRACT] for k in single]
    return [dots[0] for dots in found if len(dots) == 1]


def _is_called(dot: Node) -> bool:
    """Whether a product is certain to be a call."""
    depth = product(dot.args[0].type.shape[k] for k in dot.attrs["contract"][0])
    steps = depth * dot.out.type.size
    return not isinstance(steps, int) or steps > WRITTEN_OUT
