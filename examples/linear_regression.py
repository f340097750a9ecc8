"""Linear regression: noisy points around 2x + 1, fitted by gradient descent, plotted.

The plot needs matplotlib (pip install "graphc[examples]"); without it the fit is the same.
"""

import sys

import numpy as np

import graphc as gx

x, y = gx.input("x", ("n",)), gx.input("y", ("n",))
slope = gx.variable(np.zeros((), "float32"), "slope")
offset = gx.variable(np.zeros((), "float32"), "offset")
loss = gx.nn.mse(slope * x + offset, y)
params = [slope, offset]
step = gx.function(
    [x, y], loss, updates=gx.optim.sgd(params, gx.grad(loss, params), lr=0.5), name="step"
)


def data(n=200, noise=0.1):
    rng = np.random.default_rng(0)
    xs = rng.random(n).astype("float32")
    return xs, (2 * xs + 1 + noise * rng.normal(size=n)).astype("float32")


def plot(xs, ys, path):
    """Points and fitted line as a picture; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(xs, ys, ".", label="points")
    ends = np.array([0, 1])
    axes.plot(ends, slope.value * ends + offset.value,
              label=f"{slope.value:.3f} x + {offset.value:.3f}")
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
    return True


def main(path="linear_regression.png"):
    xs, ys = data()
    for k in range(301):
        now = step(xs, ys)
        if k % 100 == 0:
            print(f"step {k}: loss {now:.5f}")
    print(f"y = {slope.value:.3f} x + {offset.value:.3f}")
    drawn = plot(xs, ys, path)
    print(f"plot: {path}" if drawn else "no plot: matplotlib is not installed")


if __name__ == "__main__":
    main(*sys.argv[1:])
