"""Gradients accumulated over chunks equal the gradient of the full batch; and stop_gradient.

`accumulate` adds a chunk's gradient, weighted by its number of rows, to state of its own; `apply`
makes one step of what was gathered and clears it. Chunks may differ in size.
"""

import numpy as np

import graphc as gx

rng = np.random.default_rng(0)
x, y = gx.input("x", ("n", 4), "float64"), gx.input("y", ("n",), "float64")
w = gx.variable(rng.normal(size=4), "w")
loss = gx.nn.mse(gx.tanh(x @ w), y)
gradient = gx.grad(loss, w)
full_batch = gx.function([x, y], gradient, name="full_batch")

total = gx.variable(np.zeros(4), "total")
rows = gx.variable(np.zeros(()), "rows")
n = x.shape[0]  # a dimension takes part in arithmetic
accumulate = gx.function(
    [x, y], None, updates={total: total + n * gradient, rows: rows + n}, name="accumulate"
)
mean = total / rows
apply = gx.function(
    [], mean, name="apply",
    updates={w: w - 0.1 * mean, total: gx.zeros_like(total), rows: gx.zeros_like(rows)},
)

# d(v^2)/dv = 2v, but with one factor held constant d(v * stop_gradient(v))/dv = v
v = gx.input("v", ())
through = gx.grad(v * v, v)
stopped = gx.grad(v * gx.stop_gradient(v), v)
slopes = gx.function([v], [through, stopped], name="slopes")


def main():
    xs, ys = rng.normal(size=(100, 4)), rng.normal(size=100)
    whole = full_batch(xs, ys)
    for start in range(0, 100, 32):  # 32, 32, 32 and 4 rows
        accumulate(xs[start : start + 32], ys[start : start + 32])
    gathered = apply()
    print(f"full batch  {whole}\naccumulated {gathered}")
    print("d(v*v)/dv = {}, with stop_gradient {}, at v = 3".format(*slopes(3)))
    return whole, gathered


if __name__ == "__main__":
    main()
