"""Trains the network of digits.py with ctypes alone: this Python needs neither graphc nor NumPy.

    graphc compile digits.py:step digits.py:predict -o build/libdigits.so
    python digits_ctypes.py build/libdigits.so
"""

import ctypes
import gzip
import pathlib
import sys
from array import array
from ctypes import c_char_p, c_float, c_int64, c_void_p

DATA = pathlib.Path(__file__).with_name("digits.csv.gz")
PIXELS, HELD_OUT, BATCH, EPOCHS = 64, 599, 32, 30


class Digits:
    """The library with the signatures of libdigits.h, and a state of its own."""

    def __init__(self, path):
        self.c = c = ctypes.CDLL(path)
        c.digits_state_bytes.restype = c_int64
        c.digits_init.argtypes = c_void_p,
        c.digits_step.argtypes = c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p
        c.digits_predict.argtypes = c_void_p, c_void_p, c_void_p, c_int64, c_void_p
        c.digits_strerror.restype = c_char_p
        self.state = ctypes.create_string_buffer(c.digits_state_bytes())
        c.digits_init(self.state)

    def check(self, code):
        if code:
            raise RuntimeError(self.c.digits_strerror(code).decode())

    def step(self, x, y):
        """The loss before the step. x: array("f"), the rows of a batch; y: array("q")."""
        loss = c_float()
        self.check(self.c.digits_step(
            self.state, address(x), address(y), ctypes.byref(loss), len(y), None))
        return loss.value

    def predict(self, x):
        """The digits that rows of pixels show."""
        digits = array("q", bytes(8 * (len(x) // PIXELS)))
        self.check(self.c.digits_predict(
            self.state, address(x), address(digits), len(digits), None))
        return digits


def address(a):
    return a.buffer_info()[0]


def shuffler(seed=1):
    """Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.py."""
    def shuffle(order):
        nonlocal seed
        for i in range(len(order) - 1, 0, -1):
            seed ^= seed << 13 & 0xFFFFFFFFFFFFFFFF
            seed ^= seed >> 7
            seed ^= seed << 17 & 0xFFFFFFFFFFFFFFFF
            j = (seed >> 33) % (i + 1)
            order[i], order[j] = order[j], order[i]
    return shuffle


def main(library):
    with gzip.open(DATA, "rt") as f:
        rows = [array("f", map(int, line.split(","))) for line in f]
    digits = Digits(library)

    def take(order):
        x = array("f")
        for i in order:
            x += rows[i][:PIXELS]
        return x, array("q", (int(rows[i][PIXELS]) for i in order))

    order, shuffle = list(range(len(rows))), shuffler()
    shuffle(order)
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    for epoch in range(1, EPOCHS + 1):
        shuffle(train)
        total = 0.0
        for i in range(0, len(train), BATCH):
            x, y = take(train[i : i + BATCH])  # the last one is smaller
            total += digits.step(x, y) * len(y)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {total / len(train):.6f}")
    x, y = take(held_out)
    right = sum(a == b for a, b in zip(digits.predict(x), y, strict=True))
    print(f"test accuracy: {100 * right / len(y):.1f}%")


if __name__ == "__main__":
    main(sys.argv[1])
