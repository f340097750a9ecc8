"""Extending graphc with a pass of your own: a function Graph -> Graph in `pipeline=`.

The law is tanh(-x) == -tanh(x): signs move outwards, where one may cancel another. As a row of
the language of rules it is one line; `count_ops` below is a pass written by hand, which looks at
the graph and changes nothing. passes/README.md tells more.
"""

import numpy as np

import graphc as gx
from graphc.passes.patterns import X, exact, heads, rule
from graphc.passes.rewrite import RuleSet, apply_rules

neg, tanh = heads("neg tanh")
ODD = RuleSet([rule("tanh(-x) == -tanh(x)", tanh(neg(X)) >> neg(tanh(X)), exact)])


def odd_functions(graph):
    """Signs inside tanh move out."""
    return apply_rules(graph, ODD)


counts = []


def count_ops(graph):
    """Notes how often each op occurs."""
    ops = [node.op.name for node in graph.nodes]
    counts.append({name: ops.count(name) for name in sorted(set(ops))})
    return graph


x = gx.input("x", ("n",))
y = -gx.tanh(-x)
f = gx.function(
    [x], y, name="f", pipeline=(count_ops, odd_functions, "simplify", "dce", count_ops, "fuse")
)


def main():
    values = np.array([-1.0, 0.0, 2.0], "float32")
    print(f"f({values}) = {f(values)}")
    print(f"before: {counts[0]}\nafter:  {counts[-1]}")


if __name__ == "__main__":
    main()
