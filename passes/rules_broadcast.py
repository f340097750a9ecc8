"""Elementwise ops work on the tensor before it is broadcast.

One row for each elementwise op, made from the op table. Ops that can fail stay: the broadcast may
be to no elements at all, where nothing fails.
"""

from __future__ import annotations

from graphc.ir import Value
from graphc.ops import OPS, Kind
from graphc.passes.patterns import Apply, Head, Rule, exact, rule, var
from graphc.passes.rewrite import Match, splat

broadcast = Head("broadcast")
_OPERANDS = tuple(broadcast(var(name)) for name in "xyz")


def _inside(op: str) -> Rule:
    n = OPS[op].arity
    assert n is not None and n <= len(_OPERANDS)
    names = ("x", "y", "z")[:n]
    inner = ", ".join(f"broadcast({v})" for v in names)
    law = f"{op}({inner}) == broadcast({op}({', '.join(names)}))"
    left: Apply = Head(op)(*_OPERANDS[:n])

    def build(m: Match) -> Value | None:
        if OPS[op].fails_on([a.type for a in m.args]):
            return None
        full = [a for a in m.args if splat(a) is None]
        model = full[0] if full else m.args[0]
        axes, shape = model.node.attrs["axes"], model.node.args[0].type.shape
        args = []
        for a in m.args:
            number = splat(a)
            if number is not None:
                args.append(m.full(number, a.type.with_shape(shape)))
            elif a.node.attrs["axes"] == axes:
                args.append(a.node.args[0])
            else:
                return None
        return m.emit(
            "broadcast", m.emit(op, *args, **m.attrs), shape=m.type.shape, axes=axes
        )

    return rule(law, left >> build, exact)


RULES: tuple[Rule, ...] = tuple(
    _inside(name) for name, row in OPS.items() if row.kind is Kind.ELEMENTWISE and row.arity
)
