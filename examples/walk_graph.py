"""A graph is data: z = x y + log(x) with its gradients, walked node by node.

By hand, at (2, 3): z = 6 + log 2 = 6.6931, dz/dx = y + 1/x = 3.5, dz/dy = x = 2.
"""

import graphc as gx

x, y = gx.input("x", ()), gx.input("y", ())
z = x * y + gx.log(x)
dx, dy = gx.grad(z, [x, y])
f = gx.function([x, y], {"z": z, "dz/dx": dx, "dz/dy": dy}, name="walk")


def walk(graph):
    """One line a node: its number, op, operands by number, and the line that declared it."""
    number = {v: str(v.node.attrs["name"]) for v in graph.inputs}
    for k, node in enumerate(graph.nodes):
        number.update((v, str(k)) for v in node.outs)
        operands = ", ".join(number[v] for v in node.args)
        yield f"{k}: {node.op.name}({operands})  # {node.loc}"


def main():
    print(f"z is made by {z.node.op.name!r} of {[v.node.op.name for v in z.node.args]}")
    print(*walk(f.graph), sep="\n")
    view = f.graph.to_networkx()
    print(f"for networkx: {view.number_of_nodes()} vertices, {view.number_of_edges()} edges")
    for name, value in f(2, 3).items():
        print(f"{name} = {value:.4f}")


if __name__ == "__main__":
    main()
