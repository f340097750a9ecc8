"""Rows that carry a body Graph: call (a named composite) and fused (a kernel, made by `fuse`).

The interpreter, autodiff and vmap walk the body themselves, so these rows hold only a type rule.
"""

from __future__ import annotations

from typing import Any

from graphc.ops.row import Attrs, Kind, op
from graphc.ops.typerules import Types, bad_shape, came
from graphc.types import TensorType


def _region_type(name: str) -> Any:
    def rule(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
        body = attrs["body"]
        label = f"{name} @{attrs['name']}" if "name" in attrs else name
        expected = [v.type for v in body.inputs]
        if body.updates:
            bad_shape(label, "a body has no updates", types)
        if list(types) != expected:
            bad_shape(label, f"operands must be {came(expected)}", types)
        return tuple(v.type for v in body.outputs)

    return rule


op("call", Kind.REGION, None, attrs=("name", "body"), type=_region_type("call"))
# A kernel: axes are the sizes of its loops, reduced the axes its reductions consume, outputs the
# axis of each dimension of each result (-1 for a dimension of size 1). See `graphc.passes.fuse`.
op(
    "fused", Kind.REGION, None, attrs=("body", "axes", "reduced", "outputs"),
    type=_region_type("fused"),
)
