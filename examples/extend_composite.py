"""Extending graphc with a composite: an operation of your own that passes and viewers recognise.

A composite is written with existing operations, so it has gradients, batching and native code at
once. In the graph it is one `call` node until `inline` opens it; a pass that runs before `inline`
may look for its name.
"""

import numpy as np

import graphc as gx


@gx.composite
def rms_norm(x, gain, eps=1e-6):
    """x over its root mean square along the last axis, times gain."""
    return x * gain / gx.sqrt(gx.mean(x * x, axis=-1, keepdims=True) + eps)


x = gx.input("x", ("batch", 4), "float64")
gain = gx.variable(np.ones(4), "gain")
y = rms_norm(x, gain)
loss = gx.sum(y * y)
step = gx.function([x], {"loss": loss, "grad": gx.grad(loss, gain)}, name="step")


def main():
    call = next(n for n in step.graph.nodes if n.op.name == "call")
    print(f"{call.attrs['name']}: {call.out.type}, {len(call.attrs['body'].nodes)} nodes inside")
    out = step(np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 0.0, 0.0, 3.0]]))
    # with gain 1 every row of y has the mean square 1, so the loss counts elements
    print(f"loss {out['loss']:.4f}, gradient {np.round(out['grad'], 4)}")
    gx.testing.check_grad(loss, {x: np.random.default_rng(0).normal(size=(3, 4))}, order=2)
    print("first and second derivatives agree with differences")


if __name__ == "__main__":
    main()
