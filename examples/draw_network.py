"""One network with several activations, drawn: as DOT, and as SVG where Graphviz is installed.

Clusters follow the name scopes; of the optimised graph they are also the fused kernels.
"""

import pathlib
import sys

import numpy as np

import graphc as gx
from graphc.view import to_dot, to_svg

ACTIVATIONS = {
    "relu": gx.nn.relu, "leaky_relu": gx.nn.leaky_relu, "elu": gx.nn.elu, "gelu": gx.nn.gelu,
    "silu": gx.nn.silu, "sigmoid": gx.nn.sigmoid, "tanh": gx.tanh, "softplus": gx.nn.softplus,
}


def network(activation):
    """A 4-3-2 network; its hidden layer uses the activation."""
    rng = np.random.default_rng(0)
    x = gx.input("x", ("batch", 4))
    with gx.name_scope("hidden"):
        w = gx.variable(rng.normal(size=(4, 3)), "w1", "float32")
        h = ACTIVATIONS[activation](x @ w)
    with gx.name_scope("output"):
        w = gx.variable(rng.normal(size=(3, 2)), "w2", "float32")
        out = gx.nn.softmax(h @ w)
    return gx.function([x], out, name=activation)


def main(folder="."):
    for name in ACTIVATIONS:
        f = network(name)
        for stage, graph in (("", f.graph), ("-fused", f.optimized)):
            path = pathlib.Path(folder, f"{name}{stage}.dot")
            path.write_text(to_dot(graph))
            written = path.name
            try:
                path.with_suffix(".svg").write_text(to_svg(graph))
                written += " and .svg"
            except gx.GraphcError as error:  # no Graphviz
                if name == "relu" and not stage:
                    print(f"no SVG: {error.message}")
            print(f"{written}: {len(graph.nodes)} nodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
