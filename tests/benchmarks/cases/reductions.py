"""(b) Reductions over each axis, softmax and its like, forward and gradient, pairwise distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import DTYPES, Arrays, Case
from . import loops

SHAPES = {"64x128": (64, 128), "8x128k": (8, 1 << 17), "1024x1024": (1024, 1024), "128k x8": (
    1 << 17, 8), "1M x8": (1 << 20, 8)}


def named(name: str, **options: Any) -> Any:
    """A namespace's function as a formula."""
    return lambda xp, *arrays: getattr(xp, name)(*arrays, **options)


softmax, logsumexp, cross_entropy = named("softmax"), named("logsumexp"), named("cross_entropy")
layer_norm = named("layer_norm")


def softmax_loss(xp: Any, x: Any, c: Any) -> Any:
    """A scalar whose gradient is that of softmax."""
    return xp.sum(xp.softmax(x) * c)


def logsumexp_loss(xp: Any, x: Any) -> Any:
    return xp.sum(xp.logsumexp(x))


def layer_norm_loss(xp: Any, x: Any, w: Any, b: Any, c: Any) -> Any:
    return xp.sum(xp.layer_norm(x, w, b) * c)


def column_softmax(xp: Any, x: Any) -> Any:
    """Softmax of columns, as of an image's channels."""
    e = xp.exp(x - xp.max(x, axis=0))
    return e / xp.sum(e, axis=0)


def pairwise(xp: Any, x: Any, y: Any) -> Any:
    """Euclidean distances of the rows of x from the rows of y."""
    d = x[:, None, :] - y[None, :, :]
    return xp.sqrt(xp.sum(d * d, axis=2))


def pairwise_loss(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum(pairwise(xp, x, y))


# Gradients by hand: references in float64, and what NumPy's users write.


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_by_hand(x: np.ndarray, c: np.ndarray) -> Any:
    p = _softmax(x)
    q = p * c
    return q.sum(), q - p * q.sum(1, keepdims=True)


def logsumexp_by_hand(x: np.ndarray) -> Any:
    top = x.max(1, keepdims=True)
    e = np.exp(x - top)
    total = e.sum(1, keepdims=True)
    return (np.log(total) + top).sum(), e / total


def layer_norm_by_hand(x: np.ndarray, w: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    centred = x - x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)
    z = centred * rstd
    g = c * w
    dx = rstd * (g - g.mean(1, keepdims=True) - z * (g * z).mean(1, keepdims=True))
    return ((z * w + b) * c).sum(), dx, (c * z).sum(0), c.sum(0)


def cross_entropy_by_hand(x: np.ndarray, y: np.ndarray) -> Any:
    rows = np.arange(len(x))
    shifted = x - x.max(1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(1, keepdims=True)
    loss = (np.log(total[:, 0]) - shifted[rows, y]).mean()
    d = e / total
    d[rows, y] -= 1
    d /= len(x)
    return loss, d


def pairwise_by_hand(x: np.ndarray, y: np.ndarray) -> Any:
    d = x[:, None, :] - y[None, :, :]
    r = np.sqrt((d * d).sum(2))
    g = d / r[:, :, None]
    return r.sum(), g.sum(1), -g.sum(0)


def _case(
    what: str, dtype: str, size: str, formula: Any, extra: tuple[str, ...] = (), **options: Any
) -> Case:
    """extra: "w" a row, "c" another matrix, "y" labels."""
    r, c = SHAPES[size]

    def make(rng: np.random.Generator) -> Arrays:
        arrays = [rng.normal(size=(r, c)).astype(DTYPES[dtype])]
        for e in extra:
            if e == "y":
                arrays.append(rng.integers(0, c, r))
            else:
                arrays.append(rng.normal(size=(r, c) if e == "c" else c).astype(DTYPES[dtype]))
        return tuple(arrays)

    shapes = {"w": (c,), "c": ("r", c), "y": ("r",)}
    return Case(
        f"b/{what}/{dtype}/{size}", make, formula, (("r", c), *(shapes[e] for e in extra)),
        builders={"numba": loops.builder(what)} if what in loops.SOURCES else {},
        threads=(1, 2) if r * c >= 1 << 20 else (1,),
        compilers=dtype == "f32" and size in ("64x128", "1024x1024"),
        quick=size == "64x128" and what in ("sum0", "softmax"),
        tolerance={"f32": 1e-4 if r < 1 << 18 else 1e-3, "f64": 1e-10}[dtype], **options,
    )


def _pairwise(dtype: str, n: int, d: int, gradient: bool) -> Case:
    def make(rng: np.random.Generator) -> Arrays:
        return tuple(rng.normal(size=(n, d)).astype(DTYPES[dtype]) for _ in range(2))

    what = "pairwise_grad" if gradient else "pairwise"
    size = f"{n}x{d}"
    return Case(
        f"b/{what}/{dtype}/{size}", make, pairwise_loss if gradient else pairwise,
        (("n", d), ("m", d)), wrt=(0, 1) if gradient else (),
        reference=pairwise_by_hand if gradient else None,
        builders={"numba": loops.builder(what)},
        skip={"onnxruntime": "its graph has no None index"},
        compilers=(dtype, n) == ("f32", 512),
        tolerance={"f32": 1e-4, "f64": 1e-10}[dtype], threads=(1, 2) if n > 256 else (1,),
    )


def _heads(dtype: str) -> Case:
    """What heads of attention give, side by side for each word, and its layer norm."""
    shape, row = (8, 8, 128, 64), 8 * 64

    def make(rng: np.random.Generator) -> Arrays:
        return tuple(rng.normal(size=s).astype(DTYPES[dtype]) for s in (shape, row, row))

    def formula(xp: Any, x: Any, w: Any, b: Any) -> Any:
        return xp.layer_norm(xp.reshape(xp.swap(x, 1, 2), (8 * 128, row)), w, b)

    return Case(
        f"b/heads_norm/{dtype}/8x128x8x64", make, formula, (shape, (row,), (row,)),
        tolerance={"f32": 1e-4, "f64": 1e-10}[dtype],
        skip={"numexpr": "moves no axes", "numba": "reshapes what is contiguous alone"},
    )


def cases() -> list[Case]:
    made = []
    for size in SHAPES:
        for dtype in DTYPES if size in ("64x128", "1024x1024") else ("f32",):
            for axis in (0, 1):
                made += [
                    _case(f"{what}{axis}", dtype, size, named(what, axis=axis))
                    for what in ("sum", "var", "argmax")
                ]
            if size == "1M x8":
                continue
            large = {"kept": SHAPES[size][0] * SHAPES[size][1] >= 1 << 20}
            made += [
                _case("softmax", dtype, size, softmax, **large),
                _case("softmax_grad", dtype, size, softmax_loss, ("c",), wrt=(0,),
                      reference=softmax_by_hand),
                _case("column_softmax", dtype, size, column_softmax,
                      skip={"numexpr": "no greatest elements of columns"}, **large),
                _case("logsumexp", dtype, size, logsumexp),
                _case("layer_norm", dtype, size, layer_norm, ("w", "w"), **large),
                _case("cross_entropy", dtype, size, cross_entropy, ("y",)),
                _case("cross_entropy_grad", dtype, size, cross_entropy, ("y",), wrt=(0,),
                      reference=cross_entropy_by_hand),
            ]
            if dtype == "f32":
                made += [
                    _case("logsumexp_grad", dtype, size, logsumexp_loss, wrt=(0,),
                          reference=logsumexp_by_hand),
                    _case("layer_norm_grad", dtype, size, layer_norm_loss, ("w", "w", "c"),
                          wrt=(0, 1, 2), reference=layer_norm_by_hand),
                ]
    for dtype in DTYPES:
        made.append(_heads(dtype))
        for n, d in ((64, 8), (512, 16)):
            made += [_pairwise(dtype, n, d, False), _pairwise(dtype, n, d, True)]
    return made
