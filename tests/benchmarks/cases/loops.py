"""Loops that numba's users write for what is not elementwise, as source text by case name."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Built, Call, Case

# Sums of all rows' columns: blocks of rows would be needed to run in parallel; users keep it plain.
SOURCES: dict[str, str] = {
    "sum0": """
def f(x):
    out = np.zeros(x.shape[1], x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]
    return out
""",
    "sum1": """
def f(x):
    out = np.empty(x.shape[0], x.dtype)
    for i in prange(x.shape[0]):
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        out[i] = s
    return out
""",
    "column_softmax": """
def f(x):
    top = x[0].copy()
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            top[j] = max(top[j], x[i, j])
    total = np.zeros(x.shape[1], x.dtype)
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = np.exp(x[i, j] - top[j])
            total[j] += out[i, j]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] /= total[j]
    return out
""",
    "var0": """
def f(x):
    n = x.dtype.type(x.shape[0])
    mean = np.zeros(x.shape[1], x.dtype)
    out = np.zeros(x.shape[1], x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            mean[j] += x[i, j]
    mean /= n
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            d = x[i, j] - mean[j]
            out[j] += d * d
    out /= n
    return out
""",
    "var1": """
def f(x):
    out = np.empty(x.shape[0], x.dtype)
    n = x.dtype.type(x.shape[1])
    for i in prange(x.shape[0]):
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        m = s / n
        v = x.dtype.type(0)
        for j in range(x.shape[1]):
            d = x[i, j] - m
            v += d * d
        out[i] = v / n
    return out
""",
    "argmax0": """
def f(x):
    best = x[0].copy()
    out = np.zeros(x.shape[1], np.int64)
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > best[j]:
                best[j] = x[i, j]
                out[j] = i
    return out
""",
    "argmax1": """
def f(x):
    out = np.empty(x.shape[0], np.int64)
    for i in prange(x.shape[0]):
        k = 0
        for j in range(1, x.shape[1]):
            if x[i, j] > x[i, k]:
                k = j
        out[i] = k
    return out
""",
    "softmax": """
def f(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = math.exp(x[i, j] - top)
            out[i, j] = e
            s += e
        r = x.dtype.type(1) / s
        for j in range(x.shape[1]):
            out[i, j] *= r
    return out
""",
    "softmax_grad": """
def f(x, c):
    out = np.empty_like(x)
    total = 0.0
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        t = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = math.exp(x[i, j] - top)
            out[i, j] = e
            s += e
            t += e * c[i, j]
        r = x.dtype.type(1) / s
        t *= r
        for j in range(x.shape[1]):
            out[i, j] *= (c[i, j] - t) * r
        total += t
    return x.dtype.type(total), out
""",
    "logsumexp": """
def f(x):
    out = np.empty(x.shape[0], x.dtype)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += math.exp(x[i, j] - top)
        out[i] = math.log(s) + top
    return out
""",
    "logsumexp_grad": """
def f(x):
    out = np.empty_like(x)
    total = 0.0
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = math.exp(x[i, j] - top)
            out[i, j] = e
            s += e
        r = x.dtype.type(1) / s
        for j in range(x.shape[1]):
            out[i, j] *= r
        total += math.log(s) + top
    return x.dtype.type(total), out
""",
    "layer_norm": """
def f(x, w, b):
    out = np.empty_like(x)
    n = x.dtype.type(x.shape[1])
    one = x.dtype.type(1)
    eps = x.dtype.type(1e-5)
    for i in prange(x.shape[0]):
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        m = s / n
        v = x.dtype.type(0)
        for j in range(x.shape[1]):
            d = x[i, j] - m
            v += d * d
        r = one / math.sqrt(v / n + eps)
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - m) * r * w[j] + b[j]
    return out
""",
    "cross_entropy": """
def f(x, y):
    total = 0.0
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += math.exp(x[i, j] - top)
        total += math.log(s) + top - x[i, y[i]]
    return x.dtype.type(total / x.shape[0])
""",
    "cross_entropy_grad": """
def f(x, y):
    out = np.empty_like(x)
    total = 0.0
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = math.exp(x[i, j] - top)
            out[i, j] = e
            s += e
        r = x.dtype.type(1) / (s * x.dtype.type(x.shape[0]))
        for j in range(x.shape[1]):
            out[i, j] *= r
        out[i, y[i]] -= x.dtype.type(1) / x.dtype.type(x.shape[0])
        total += math.log(s) + top - x[i, y[i]]
    return x.dtype.type(total / x.shape[0]), out
""",
    "pairwise": """
def f(x, y):
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    for i in prange(x.shape[0]):
        for j in range(y.shape[0]):
            s = x.dtype.type(0)
            for k in range(x.shape[1]):
                d = x[i, k] - y[j, k]
                s += d * d
            out[i, j] = math.sqrt(s)
    return out
""",
    "pairwise_grad": """
def f(x, y):
    gx = np.zeros_like(x)
    gy = np.zeros_like(y)
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            s = x.dtype.type(0)
            for k in range(x.shape[1]):
                d = x[i, k] - y[j, k]
                s += d * d
            s = math.sqrt(s)
            total += s
            r = x.dtype.type(1) / s
            for k in range(x.shape[1]):
                d = (x[i, k] - y[j, k]) * r
                gx[i, k] += d
                gy[j, k] -= d
    return x.dtype.type(total), gx, gy
""",
}


def builder(what: str) -> Any:
    """numba's builder for a case of this name."""

    def build(peer: Any, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        return Built(Call(peer.compiled(SOURCES[what]), arrays))

    return build
