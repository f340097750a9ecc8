"""(c) Matrix products of all sizes and transpositions, with epilogues, and chains of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import DTYPES, Arrays, Built, Call, Case

SQUARE = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SKINNY = {"tall": (4096, 32, 32), "flat": (32, 4096, 256), "inner": (32, 32, 4096),
          "odd": (101, 103, 107), "row": (1, 2048, 2048), "column": (2048, 1, 2048)}
NO_EXPR = {"numexpr": "no matrix products"}
UNLIKE = "ranks differ in its product"


def product(xp: Any, a: Any, b: Any) -> Any:
    return a @ b


def transposed_a(xp: Any, a: Any, b: Any) -> Any:
    return xp.swap(a) @ b


def transposed_b(xp: Any, a: Any, b: Any) -> Any:
    return a @ xp.swap(b)


def transposed_both(xp: Any, a: Any, b: Any) -> Any:
    return xp.swap(a) @ xp.swap(b)


def relu_layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.relu(x @ w + b)


def gelu_layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.gelu(x @ w + b)


def k3mm(xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return (a @ b) @ (c @ d)


def transforms(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """Many small matrices: from the tool to the arm, the base and the world."""
    return a @ b @ c


def atax(xp: Any, a: Any, x: Any) -> Any:
    return xp.swap(a) @ (a @ x)


def regression(xp: Any, x: Any, w: Any, y: Any) -> Any:
    """The gradient of half the squared errors of many rows with few columns."""
    return xp.swap(x) @ (x @ w - y)


def mvt(xp: Any, a: Any, x1: Any, x2: Any, y1: Any, y2: Any) -> Any:
    return x1 + a @ y1, x2 + xp.swap(a) @ y2


def gemver(
    xp: Any, a: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any
) -> Any:
    """Vectors are columns."""
    updated = a + u1 @ xp.swap(v1) + u2 @ xp.swap(v2)
    x = 1.2 * (xp.swap(updated) @ y) + z
    return updated, x, 1.5 * (updated @ x)


def grouped_queries(xp: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention of heads that share their keys, for the next word of a text."""
    return xp.softmax(q @ xp.swap(k)) @ v


def _normals(dtype: str, *shapes: tuple[int, ...]) -> Any:
    def make(rng: np.random.Generator) -> Arrays:
        return tuple(
            (rng.normal(size=s) / s[-1] ** 0.5).astype(DTYPES[dtype]) for s in shapes
        )

    return make


def in_numpy(peer: Any, case: Case, arrays: Arrays) -> Built:
    """np.matmul, which can write into an array."""
    a, b = arrays
    what = case.name.split("/")[1]
    a = a.swapaxes(-1, -2) if what in ("transposed_a", "transposed_both") else a
    b = b.swapaxes(-1, -2) if what in ("transposed_b", "transposed_both") else b
    return Built(
        Call(np.matmul, (a, b)), Call(np.matmul, (a, b), {"out": np.matmul(a, b)})
    )


def in_torch(peer: Any, case: Case, arrays: Arrays) -> Built:
    """torch.matmul, which can too."""
    import torch

    built = type(peer).build(peer, case, arrays)
    a, b = built.fresh.args
    what = case.name.split("/")[1]
    a = a.mT if what in ("transposed_a", "transposed_both") else a
    b = b.mT if what in ("transposed_b", "transposed_both") else b
    return Built(built.fresh, Call(torch.matmul, (a, b), {"out": torch.matmul(a, b)}))


def _product(name: str, formula: Any, shapes: Any, dims: Any, **options: Any) -> Case:
    return Case(
        f"c/{name}", _normals(name.split("/")[1], *shapes), formula, dims,
        builders={"numpy": in_numpy, "torch": in_torch}, kept=True,
        skip=NO_EXPR, compilers=False,
        tolerance={"f32": 1e-4, "f64": 1e-11}[name.split("/")[1]], **options,
    )


def _chain(
    name: str, formula: Any, shapes: Any, dims: Any, skip: Any = NO_EXPR, **options: Any
) -> Case:
    dtype = name.split("/")[1]
    return Case(
        f"c/{name}", _normals(dtype, *shapes), formula, dims, skip=skip,
        tolerance={"f32": 1e-4, "f64": 1e-11}[dtype], **options,
    )


def cases() -> list[Case]:
    made = []
    for dtype in DTYPES:
        for n in SQUARE:
            if n == 2048 and dtype == "f64":
                continue
            made.append(_product(
                f"square/{dtype}/{n}", product, ((n, n), (n, n)), (("m", n), (n, n)),
                quick=n == 128, threads=(1, 2) if n >= 256 else (1,),
            ))
        for what, (m, n, k) in SKINNY.items():
            made.append(_product(
                f"{what}/{dtype}/{m}x{n}x{k}", product, ((m, k), (k, n)), (("m", k), (k, n)),
            ))
        for what, formula in (
            ("transposed_a", transposed_a), ("transposed_b", transposed_b),
            ("transposed_both", transposed_both),
        ):
            for n in (64, 512):
                dims = (n, "m") if what != "transposed_b" else ("m", n)
                made.append(_product(
                    f"{what}/{dtype}/{n}", formula, ((n, n), (n, n)), (dims, (n, n))
                ))
        made.append(_product(
            f"batched/{dtype}/64x32", product, ((64, 32, 32),) * 2, (("b", 32, 32),) * 2
        ))
        made.append(_product(
            f"one_matrix/{dtype}/100x64", product, ((64, 64), (100, 64, 64)),
            ((64, 64), ("b", 64, 64)),
        ))
        made.append(_product(
            f"batched/{dtype}/1000x6", product, ((1000, 6, 6),) * 2, (("b", 6, 6),) * 2
        ))
        made.append(_product(
            f"batched/{dtype}/32x128", product, ((32, 128, 64), (32, 64, 128)),
            (("b", 128, 64), ("b", 64, 128)), threads=(1, 2),
        ))
        made.append(_chain(
            f"transforms/{dtype}/10000x4", transforms, ((10_000, 4, 4),) * 3, (("b", 4, 4),) * 3
        ))
        made.append(_chain(
            f"regression/{dtype}/20000x20", regression, ((20_000, 20), (20,), (20_000,)),
            (("n", 20), (20,), ("n",)), skip={**NO_EXPR, "onnxruntime": UNLIKE},
        ))
    for what, formula in (("relu_layer", relu_layer), ("gelu_layer", gelu_layer)):
        for rows in (32, 512):
            made.append(_chain(
                f"{what}/f32/{rows}x784x512", formula, ((rows, 784), (784, 512), (512,)),
                (("m", 784), (784, 512), (512,)), threads=(1, 2) if rows == 512 else (1,),
            ))
    made.append(_chain(
        "grouped_queries/f32/8x4x2048", grouped_queries,
        ((8, 4, 1, 128), (8, 1, 2048, 128), (8, 1, 2048, 128)),
        ((8, 4, 1, 128), (8, 1, "t", 128), (8, 1, "t", 128)), threads=(1, 2),
    ))
    for n in (64, 512):
        made.append(_chain(f"k3mm/f64/{n}", k3mm, ((n, n),) * 4, ((n, n),) * 4))
    n = 2048
    made += [
        _chain(f"atax/f64/{n}", atax, ((n, n), (n,)), ((n, n), (n,)), threads=(1, 2),
               skip={**NO_EXPR, "onnxruntime": UNLIKE}),
        _chain(f"mvt/f64/{n}", mvt, ((n, n), *[(n,)] * 4), ((n, n), *[(n,)] * 4),
               threads=(1, 2), skip={**NO_EXPR, "onnxruntime": UNLIKE}),
        _chain(f"gemver/f64/{n}", gemver, ((n, n), *[(n, 1)] * 6), ((n, n), *[(n, 1)] * 6),
               threads=(1, 2)),
    ]
    return made
