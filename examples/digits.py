"""Handwritten digits: a 64-128-128-10 network, its training step and its predictor.

    graphc compile digits.py:step digits.py:predict -o build/libdigits.so     for digits.c
    python digits.py                                                           the same from here

Importing this module declares `step` and `predict`; it trains nothing. Both take any batch size.
"""

import gzip
import pathlib
import time

import numpy as np

import graphc as gx

DATA = pathlib.Path(__file__).with_name("digits.csv.gz")
HELD_OUT, BATCH, EPOCHS = 599, 32, 30  # a third of the images is never trained on


def layer(rng, x, n_in, n_out, name):
    """x @ w + b, with He's initial weights; and the two variables."""
    w = gx.variable(rng.normal(size=(n_in, n_out)) * (2 / n_in) ** 0.5, f"{name}_w", "float32")
    b = gx.variable(np.zeros(n_out), f"{name}_b", "float32")
    return x @ w + b, [w, b]


rng = np.random.default_rng(0)
x = gx.input("x", ("batch", 64))
y = gx.input("y", ("batch",), "int64")
with gx.name_scope("network"):
    h1, p1 = layer(rng, x / 16, 64, 128, "l1")
    h2, p2 = layer(rng, gx.nn.relu(h1), 128, 128, "l2")
    logits, p3 = layer(rng, gx.nn.relu(h2), 128, 10, "l3")
loss = gx.nn.cross_entropy(logits, y)
params = p1 + p2 + p3

step = gx.function(
    [x, y], {"loss": loss},
    updates=gx.optim.adam(params, gx.grad(loss, params), lr=1e-3), name="step",
)
predict = gx.function([x], {"digit": gx.argmax(logits, axis=1)}, name="predict")


class Shuffle:
    """Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.c."""

    def __init__(self):
        self.seed = 1

    def __call__(self, order):
        s = self.seed
        for i in range(len(order) - 1, 0, -1):
            s ^= s << 13 & 0xFFFFFFFFFFFFFFFF
            s ^= s >> 7
            s ^= s << 17 & 0xFFFFFFFFFFFFFFFF
            j = (s >> 33) % (i + 1)
            order[i], order[j] = order[j], order[i]
        self.seed = s


def main():
    with gzip.open(DATA) as f:
        data = np.loadtxt(f, delimiter=",", dtype="float32")
    images, digits = np.ascontiguousarray(data[:, :64]), data[:, 64].astype("int64")
    order, shuffle = list(range(len(data))), Shuffle()
    shuffle(order)
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]

    start = time.perf_counter()
    step.compile()
    predict.compile()
    print(f"compiled in {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        shuffle(train)
        total = 0.0
        for i in range(0, len(train), BATCH):
            batch = train[i : i + BATCH]  # the last one is smaller
            total += float(step(images[batch], digits[batch])["loss"]) * len(batch)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {total / len(train):.6f}")
    print(f"trained in {time.perf_counter() - start:.2f} s")
    right = predict(images[held_out])["digit"] == digits[held_out]
    print(f"test accuracy: {100 * right.mean():.1f}%")


if __name__ == "__main__":
    main()
