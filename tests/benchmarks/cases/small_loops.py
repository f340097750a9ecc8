"""numba's loops for small calls: `f` returns new arrays, `into` writes into given ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

SOURCES = {
    "add": """
def into(x, y, out):
    for i in range(16):
        out[i] = x[i] + y[i]

def f(x, y):
    out = np.empty(16)
    into(x, y, out)
    return out
""",
    "policy": """
def layer(x, w, b, out):
    for j in range(16):
        out[j] = b[j]
    for i in range(16):
        for j in range(16):
            out[j] += x[i] * w[i, j]
    for j in range(16):
        out[j] = math.tanh(out[j])

def into(x, out):
    a = np.empty(16)
    layer(x, w0, b0, out)
    layer(out, w1, b1, a)
    layer(a, w2, b2, out)

def f(x):
    out = np.empty(16)
    into(x, out)
    return out
""",
    "kalman": """
def product(a, b, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s

def into(x, p, z, nx, np_):
    t = np.empty((6, 6))
    u = np.empty((6, 6))
    product(F, p, t)
    product(t, FT, u)
    for i in range(6):
        nx[i] = 0.0
        for j in range(6):
            nx[i] += F[i, j] * x[j]
            u[i, j] += Q[i, j]
    a, b, c, d = u[0, 0] + R[0, 0], u[0, 1], u[1, 0], u[1, 1] + R[1, 1]
    r = 1.0 / (a * d - b * c)
    e0, e1 = z[0] - nx[0], z[1] - nx[1]
    for i in range(6):
        k0 = (u[i, 0] * d - u[i, 1] * c) * r
        k1 = (u[i, 1] * a - u[i, 0] * b) * r
        nx[i] += k0 * e0 + k1 * e1
        for j in range(6):
            np_[i, j] = u[i, j] - k0 * u[0, j] - k1 * u[1, j]

def f(x, p, z):
    nx = np.empty(6)
    np_ = np.empty((6, 6))
    into(x, p, z, nx, np_)
    return nx, np_
""",
    "arm": """
def into(q, position, jacobian):
    axes = np.empty((7, 3))
    places = np.empty((7, 3))
    f = np.eye(3)
    for i in range(3):
        position[i] = 0.0
    for k in range(7):
        s, c = math.sin(q[k]), math.cos(q[k])
        for i in range(3):
            axes[k, i] = f[2, i]
            places[k, i] = position[i]
            x, y, z = c * f[0, i] + s * f[1, i], c * f[1, i] - s * f[0, i], f[2, i]
            position[i] += J[k, 1] * z + J[k, 2] * x
            f[0, i] = x
            if J[k, 0] == 0.0:
                f[1, i], f[2, i] = y, z
            else:
                f[1, i], f[2, i] = J[k, 0] * z, -J[k, 0] * y
    for k in range(7):
        a, b, c = axes[k]
        x, y, z = position[0] - places[k, 0], position[1] - places[k, 1], position[2] - places[k, 2]
        jacobian[0, k] = b * z - c * y
        jacobian[1, k] = c * x - a * z
        jacobian[2, k] = a * y - b * x

def f(q):
    position = np.empty(3)
    jacobian = np.empty((3, 7))
    into(q, position, jacobian)
    return position, jacobian
""",
}


def functions(what: str, constants: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """f and into, compiled at their first calls; global arrays are constants to numba."""
    import numba

    space: dict[str, Any] = {
        "np": np, "math": math, "njit": numba.njit(fastmath=True), **constants}
    source = SOURCES[what].replace("def ", "@njit\ndef ")
    exec(compile(source, "<numba kernel>", "exec"), space)
    return space
