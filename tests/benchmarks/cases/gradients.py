"""(d) Values with gradients: mixture, logistic regression, log-sum-exp, Rosenbrock's function, a
noisy image's smoothness, k-means with a Hessian's product. Each has its primal as a case of its
own, by whose time the gradient's is divided."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import DTYPES, Arrays, Built, Call, Case
from .reductions import logsumexp


def mixture(xp: Any, x: Any, weights: Any, means: Any, scales: Any) -> Any:
    """Log-likelihood of rows of x under Gaussians: log weights before normalisation, means, logs of
    standard deviations (diagonal)."""
    z = (x[:, None, :] - means) * xp.exp(-scales)
    parts = weights - xp.sum(scales, axis=1) - 0.5 * xp.sum(z * z, axis=2)
    return xp.sum(xp.logsumexp(parts)) - x.shape[0] * xp.logsumexp(weights)


def mixture_by_hand(x: Any, weights: Any, means: Any, scales: Any) -> Any:
    inverse = np.exp(-scales)
    z = (x[:, None, :] - means) * inverse
    parts = weights - scales.sum(1) - 0.5 * (z * z).sum(2)
    top = parts.max(1, keepdims=True)
    e = np.exp(parts - top)
    total = e.sum(1, keepdims=True)
    shifted = np.exp(weights - weights.max())
    norm = np.log(shifted.sum()) + weights.max()
    value = (np.log(total) + top).sum() - len(x) * norm
    r = e / total
    rz = r[:, :, None] * z
    return (
        value, r.sum(0) - len(x) * shifted / shifted.sum(), rz.sum(0) * inverse,
        (rz * z).sum(0) - r.sum(0)[:, None],
    )


def logistic(xp: Any, x: Any, y: Any, w: Any, b: Any) -> Any:
    """Mean loss of labels -1 and 1, and a small ridge."""
    return xp.mean(xp.softplus(-y * (x @ w + b))) + 0.005 * xp.sum(w * w)


def logistic_by_hand(x: Any, y: Any, w: Any, b: Any) -> Any:
    z = -y * (x @ w + b)
    e = np.exp(-np.abs(z))
    value = (np.maximum(z, 0) + np.log1p(e)).mean() + 0.005 * (w * w).sum()
    d = -y * np.where(z >= 0, 1 / (1 + e), e / (1 + e)) / len(x)
    return value, x.T @ d + 0.01 * w, d.sum()


def logsumexp_by_hand(x: Any) -> Any:
    top = x.max()
    e = np.exp(x - top)
    total = e.sum()
    return np.log(total) + top, e / total


def rosenbrock(xp: Any, x: Any) -> Any:
    """A valley that neighbours in x share."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_by_hand(x: Any) -> Any:
    off, left = x[1:] - x[:-1] ** 2, 1.0 - x[:-1]
    slope = np.zeros_like(x)
    slope[1:] = 200.0 * off
    slope[:-1] -= 400.0 * x[:-1] * off + 2.0 * left
    return (100.0 * off**2 + left**2).sum(), slope


def denoise(xp: Any, u: Any, noisy: Any) -> Any:
    """How far an image is from a noisy one, and its neighbours from each other."""
    down, right = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
    return xp.sum((u - noisy) ** 2) + 0.5 * (xp.sum(down**2) + xp.sum(right**2))


def denoise_by_hand(u: Any, noisy: Any) -> Any:
    down, right = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
    slope = 2.0 * (u - noisy)
    slope[1:] += down
    slope[:-1] -= down
    slope[:, 1:] += right
    slope[:, :-1] -= right
    value = ((u - noisy) ** 2).sum() + 0.5 * ((down**2).sum() + (right**2).sum())
    return value, slope


def kmeans(xp: Any, x: Any, centers: Any, direction: Any = None) -> Any:
    """Squared distances of points to their nearest centres, summed."""
    d = x[:, None, :] - centers
    return -xp.sum(xp.max(-xp.sum(d * d, axis=2), axis=1))


def kmeans_by_hand(x: Any, centers: Any, direction: Any) -> Any:
    """Value, gradient, and the Hessian times a direction."""
    d = x[:, None, :] - centers
    s = (d * d).sum(2)
    nearest = s.argmin(1)
    counts = np.bincount(nearest, minlength=len(centers)).astype(x.dtype)[:, None]
    totals = np.zeros_like(centers)
    np.add.at(totals, nearest, x)
    return s.min(1).sum(), 2 * (counts * centers - totals), 2 * counts * direction


def _kmeans_graphc(peer: Any, case: Case, arrays: Arrays) -> Built:
    import graphc as gx

    from ..peers.graphc_peer import GraphcNames

    x, c, v = (
        gx.input(n, d, a.dtype.name)
        for n, d, a in zip("xcv", case.dims, arrays, strict=True)
    )
    loss = kmeans(GraphcNames(), x, c)
    f = gx.function(
        [x, c, v], [loss, gx.grad(loss, c), gx.hvp(loss, c, v)], fastmath=peer.fastmath
    )
    peer.function = f
    return peer.built(f, arrays, case.kept)


def _kmeans_jax(peer: Any, case: Case, arrays: Arrays) -> Built:
    import jax

    from ..peers.jax_peer import JaxNames

    def all_of(x: Any, c: Any, v: Any) -> Any:
        f = jax.value_and_grad(lambda c: kmeans(JaxNames(), x, c))
        (value, slope), (_, product) = jax.jvp(f, (c,), (v,))
        return value, slope, product

    return peer.jitted(all_of, arrays)


def _kmeans_torch(peer: Any, case: Case, arrays: Arrays) -> Built:
    import torch

    from ..peers.torch_peer import TorchNames

    torch.set_grad_enabled(True)

    def both(x: Any, c: Any) -> Any:
        slope, value = torch.func.grad_and_value(lambda c: kmeans(TorchNames(), x, c))(c)
        return value, slope

    def all_of(x: Any, c: Any, v: Any) -> Any:
        (value, slope), (_, product) = torch.func.jvp(lambda c: both(x, c), (c,), (v,))
        return value, slope, product

    return Built(Call(peer.wrap(all_of), peer.convert(arrays)))


def _kmeans_pytensor(peer: Any, case: Case, arrays: Arrays) -> Built:
    import pytensor
    import pytensor.tensor as pt

    from ..peers.pytensor_peer import PytensorNames

    pytensor.config.floatX = case.dtype
    x, c, v = (pt.matrix(n, dtype=a.dtype.name) for n, a in zip("xcv", arrays, strict=True))
    loss = kmeans(PytensorNames(), x, c)
    slope = pytensor.grad(loss, c)
    f = pytensor.function([x, c, v], [loss, slope, pytensor.grad(pt.sum(slope * v), c)])
    f.trust_input = True
    return Built(Call(f, arrays))


KMEANS = {
    "graphc": _kmeans_graphc, "graphc-fastmath": _kmeans_graphc, "jax": _kmeans_jax,
    "torch": _kmeans_torch, "torch.compile": _kmeans_torch, "pytensor": _kmeans_pytensor,
    "numpy": lambda peer, case, arrays: Built(Call(kmeans_by_hand, arrays)),
}
LEFT_OUT = {
    "numexpr": "no gradients", "onnxruntime": "no gradients",
    "numba": "no gradients; users write them by hand",
}


def _pair(
    what: str, dtype: str, size: str, formula: Any, by_hand: Any, make: Any, dims: Any,
    wrt: tuple[int, ...], threads: tuple[int, ...], skip: Any,
) -> list[Case]:
    """The primal and its gradient."""
    name = f"d/{what}/{dtype}/{size}"
    tolerance = {"f32": 2e-4, "f64": 1e-9}[dtype]
    common: dict[str, Any] = {
        "tolerance": tolerance, "threads": threads, "quick": what == "logistic" and size == "1k",
        "compilers": size == "1k",
    }
    return [
        Case(name, make, formula, dims, skip=skip, **common),
        Case(f"d/{what}_grad/{dtype}/{size}", make, formula, dims, wrt=wrt, reference=by_hand,
             primal=name, skip=LEFT_OUT, **common),
    ]


def cases() -> list[Case]:
    made: list[Case] = []
    none_index = {"onnxruntime": "its graph has no None index", "numba": "no loop was written",
                  "numexpr": "no products and no sums over an axis"}
    for dtype, kind in DTYPES.items():
        for size, n in (("1k", 1000), ("10k", 10_000)):
            threads = (1, 2) if n == 10_000 else (1,)

            def points(rng: np.random.Generator, n: int = n, kind: str = kind) -> Arrays:
                return tuple(a.astype(kind) for a in (
                    rng.normal(size=(n, 10)), rng.normal(size=25), rng.normal(size=(25, 10)),
                    0.3 * rng.normal(size=(25, 10)),
                ))

            made += _pair(
                "mixture", dtype, size, mixture, mixture_by_hand, points,
                (("n", 10), (25,), (25, 10), (25, 10)), (1, 2, 3), threads, none_index,
            )

            def labelled(rng: np.random.Generator, n: int = n, kind: str = kind) -> Arrays:
                return (
                    rng.normal(size=(n, 64)).astype(kind),
                    rng.choice([-1, 1], n).astype(kind),
                    rng.normal(size=64).astype(kind), np.array(0.1, kind),
                )

            made += _pair(
                "logistic", dtype, size, logistic, logistic_by_hand, labelled,
                (("n", 64), ("n",), (64,), ()), (2, 3), threads, none_index,
            )

            def clusters(rng: np.random.Generator, n: int = n, kind: str = kind) -> Arrays:
                return tuple(
                    rng.normal(size=s).astype(kind) for s in ((n, 8), (16, 8), (16, 8))
                )

            common: dict[str, Any] = {
                "tolerance": {"f32": 2e-4, "f64": 1e-9}[dtype], "threads": threads,
                "compilers": size == "1k",
            }
            dims = (("n", 8), (16, 8), (16, 8))
            made += [
                Case(f"d/kmeans/{dtype}/{size}", lambda rng, f=clusters: f(rng)[:2], kmeans,
                     dims[:2], skip=none_index, **common),
                Case(f"d/kmeans_hvp/{dtype}/{size}", clusters, kmeans, dims, wrt=(1,),
                     reference=kmeans_by_hand, builders=KMEANS,
                     primal=f"d/kmeans/{dtype}/{size}", skip=LEFT_OUT, **common),
            ]
        for size, n in (("1k", 1 << 10), ("1M", 1 << 20)):

            def vector(rng: np.random.Generator, n: int = n, kind: str = kind) -> Arrays:
                return (rng.normal(size=n).astype(kind),)

            made += _pair(
                "logsumexp", dtype, size, logsumexp, logsumexp_by_hand, vector, (("n",),), (0,),
                (1, 2) if n > 1 << 16 else (1,), none_index,
            )
            made += _pair(
                "rosenbrock", dtype, size, rosenbrock, rosenbrock_by_hand, vector, (("n",),), (0,),
                (1, 2) if n > 1 << 16 else (1,), none_index,
            )
        for size, n in (("64x64", 64), ("512x512", 512)):

            def image(rng: np.random.Generator, n: int = n, kind: str = kind) -> Arrays:
                return tuple(rng.normal(size=(n, n)).astype(kind) for _ in range(2))

            made += _pair(
                "denoise", dtype, size, denoise, denoise_by_hand, image, (("n", "m"),) * 2, (0,),
                (1, 2) if n > 64 else (1,), none_index,
            )
    return made
