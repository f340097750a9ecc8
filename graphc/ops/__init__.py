"""The op table: every primitive, one row each, grouped by kind.

    leaf.py         input variable constant dim iota cast bitcast stop_gradient barrier
    unary.py        neg abs sign ... not
    binary.py       add sub ... less_equal, select
    layout.py       reshape transpose broadcast reverse
    slices.py       slice update_slice pad concat
    index.py        gather scatter scatter_add
    reduce.py       reduce_sum ... argmax, cumsum cumprod cummax
                    linear_recurrence
    contract.py     dot
    random.py       random_bits
    region.py       call fused

Shared: typerules.py (type rules), batching.py (vmap rules), halves.py (gradients of f16 and
bf16), numeric.py (references), special.py (erf, normal_cdf, lgamma, polygamma).

To add an op: one row here, one row in `graphc.codegen`; the tests pick it up.
"""

# importing a module enters its rows
from graphc.ops import binary, contract, index, layout, leaf, random, reduce, region, slices, unary  # noqa: F401
from graphc.ops.row import OPS, Kind, Op, op

BUILTIN: frozenset[Op] = frozenset(OPS.values())  # without those from `define_op`

__all__ = ["BUILTIN", "OPS", "Kind", "Op", "op"]
