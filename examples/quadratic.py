"""The quadratic model y = a x^2 + b x + c, recovered from its own values with Adam."""

import numpy as np

import graphc as gx

x, y = gx.input("x", ("n",), "float64"), gx.input("y", ("n",), "float64")
coefficients = gx.variable(np.zeros(3), "coefficients")
a, b, c = coefficients
loss = gx.nn.mse(a * x**2 + b * x + c, y)
step = gx.function(
    [x, y], loss, name="step",
    updates=gx.optim.adam([coefficients], [gx.grad(loss, coefficients)], lr=0.05),
)


def main():
    xs = np.linspace(-1, 1, 101)
    ys = 3 * xs**2 - 2 * xs + 0.5
    for _ in range(1000):
        now = step(xs, ys)
    a, b, c = coefficients.value
    print(f"y = {a:.4f} x^2 {b:+.4f} x {c:+.4f}, loss {now:.2e}")


if __name__ == "__main__":
    main()
