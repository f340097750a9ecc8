"""A 10-5-1 network with ReLU, trained with mean squared error and SGD; and what inference keeps.

`step` and `predict` come from one declaration. Each Function holds only what its results need, so
no node of a gradient, of the loss or of an update is in `predict`.
"""

import numpy as np

import graphc as gx

rng = np.random.default_rng(0)
x, y = gx.input("x", ("batch", 10)), gx.input("y", ("batch", 1))
w1 = gx.variable(rng.normal(size=(10, 5)) * 0.3, "w1", "float32")
b1 = gx.variable(np.zeros(5), "b1", "float32")
w2 = gx.variable(rng.normal(size=(5, 1)) * 0.3, "w2", "float32")
b2 = gx.variable(np.zeros(1), "b2", "float32")
out = gx.nn.relu(x @ w1 + b1) @ w2 + b2
loss = gx.nn.mse(out, y)
params = [w1, b1, w2, b2]
grads = gx.grad(loss, params)
step = gx.function([x, y], loss, updates=gx.optim.sgd(params, grads, lr=0.05), name="step")
predict = gx.function([x], out, name="predict")


def data(n=256):
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(n, 10)).astype("float32")
    return xs, np.maximum(xs[:, :1] - xs[:, 1:2], 0)  # what two ReLUs can represent


def main():
    xs, ys = data()
    for k in range(501):
        now = step(xs, ys)
        if k % 100 == 0:
            print(f"step {k}: loss {now:.5f}")
    print(f"prediction for one row: {predict(xs[:1])[0, 0]:.3f}, wanted {ys[0, 0]:.3f}")
    print(f"nodes: {len(step.graph.nodes)} in step, {len(predict.graph.nodes)} in predict:",
          ", ".join(n.op.name for n in predict.graph.nodes))


if __name__ == "__main__":
    main()
