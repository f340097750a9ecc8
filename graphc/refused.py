"""Names of the array API (and a few of NumPy) that are refused, each with its reason.

`gx.sort` is a function that raises this reason when called, with the user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from graphc.errors import UsageError, user_loc

_SIZE = "the size of the result would depend on data"
_SORT = "the sort primitive does not exist yet"
_COMPLEX = "complex numbers are not supported: keep real and imaginary parts as two Tensors"
_OUTSIDE = "compute it with NumPy, and pass the result as an input"
_LINALG = (
    "the linear algebra primitives (cholesky, lu, triangular_solve, eigh) do not exist yet; "
    + _OUTSIDE + "; of a known, small size they can be written out (examples/coming_from.md)"
)
_FFT = f"the fft primitives do not exist yet; {_OUTSIDE}"
_BODIES = "conditions and loops over bodies do not exist yet"
_STEP = f"{_BODIES}; repeat the steps in a Python loop, or compile one step and call it in a loop"
_CONV = "convolution and pooling do not exist yet"
_SLICES = "add up slices, each times an element of the kernel"
_EXCHANGE = "a Tensor has no memory while the graph is declared: call compiled functions on arrays"

REFUSED: dict[str, str] = {
    "argpartition": f"{_SORT}; gx.argmax gives the first place",
    "argsort": f"{_SORT}; gx.argmax gives the first place",
    "argwhere": f"{_SIZE}; use gx.where(condition, x, y), gx.argmax or gx.count_nonzero",
    "associative_scan": f"{_STEP}; gx.cumulative_sum, _prod and _max are there",
    "bincount": f"{_SIZE}; of n classes use gx.sum(gx.one_hot(x, n), axis=0)",
    "bitwise_count": "the popcount primitive does not exist yet",
    "complex64": _COMPLEX,
    "complex128": _COMPLEX,
    "cond": f"{_BODIES}; use gx.where(condition, x, y)",
    "conj": _COMPLEX,
    "convolve": f"{_CONV}; {_SLICES}",
    "correlate": f"{_CONV}; {_SLICES}",
    "digitize": f"{_SORT}; use gx.sum(bins <= x[..., None], axis=-1)",
    "erfinv": f"its primitive does not exist yet; {_OUTSIDE}",
    "fori_loop": _STEP,
    "flatnonzero": f"{_SIZE}; use gx.where(condition, x, y), gx.argmax or gx.count_nonzero",
    "from_dlpack": f"{_EXCHANGE}; use gx.constant(numpy.from_dlpack(x))",
    "histogram": f"{_SORT}; of n classes use gx.sum(gx.one_hot(x, n), axis=0)",
    "imag": _COMPLEX,
    "interp": f"{_SORT}; at equal distances take the neighbours with gx.take and weigh them",
    "isin": f"{_SORT}; use gx.any(x[..., None] == values, axis=-1)",
    "masked_select": f"{_SIZE}; use gx.where(mask, x, other), or gx.sum(gx.where(mask, x, 0))",
    "median": f"{_SORT}; {_OUTSIDE}",
    "nanmedian": f"{_SORT}; {_OUTSIDE}",
    "nonzero": f"{_SIZE}; use gx.where(condition, x, y), gx.argmax or gx.count_nonzero",
    "partition": f"{_SORT}; gx.max and gx.min give the extremes",
    "percentile": f"{_SORT}; {_OUTSIDE}",
    "quantile": f"{_SORT}; {_OUTSIDE}",
    "real": _COMPLEX,
    "scan": _STEP,
    "searchsorted": f"{_SORT}; use gx.sum(sorted < x[..., None], axis=-1)",
    "sort": f"{_SORT}; gx.max and gx.min give the extremes",
    "topk": f"{_SORT}; gx.max and gx.argmax give the first",
    "unique": _SIZE,
    "unique_all": _SIZE,
    "unique_counts": f"{_SIZE}; count each of n classes with gx.sum(gx.one_hot(x, n), axis=0)",
    "unique_inverse": _SIZE,
    "unique_values": _SIZE,
    "while_loop": _STEP,
}

_POOL = f"{_CONV}; windows side by side are gx.max or gx.mean of x.reshape(n, h, 2, w, 2, c)"
_RUNNING = (
    "it would keep running statistics: normalise with gx.mean and gx.var, and give their running "
    "means, in variables, to updates="
)
_REJECTION = "it takes a loop whose length depends on its numbers"
_SHUFFLE = f"{_SORT}; draw indices with NumPy, and pass them as an input"

NN: dict[str, str] = {
    **dict.fromkeys(("batch_norm", "BatchNorm1d", "instance_norm"), _RUNNING),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "Conv1d", "Conv2d"),
        f"{_CONV}; {_SLICES}, by @",
    ),
    **dict.fromkeys(
        (
            "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d",
            "MaxPool2d",
        ), _POOL,
    ),
    "ctc_loss": _BODIES,
}

RANDOM: dict[str, str] = {
    **dict.fromkeys(("choice", "permutation", "randperm", "shuffle"), _SHUFFLE),
    **dict.fromkeys(
        ("beta", "binomial", "dirichlet", "gamma", "multinomial", "poisson"),
        f"{_REJECTION}; {_OUTSIDE}",
    ),
    "truncated_normal": f"the inverse of the error function does not exist yet; {_OUTSIDE}",
}

LINALG = dict.fromkeys(
    (
        "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_rank",
        "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    ),
    _LINALG,
)

FFT = dict.fromkeys(
    (
        "fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft",
        "fftfreq", "rfftfreq", "fftshift", "ifftshift",
    ),
    _FFT,
)


def refusal(name: str, reason: str) -> Callable[..., NoReturn]:
    """A function of that name which says why it does not exist."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UsageError(f"{name}: not available, because {reason}", user_loc())

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: {reason}."
    return refuse


def module_hooks(
    home: str, names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module of gx: it shows its names, and what it lacks is
    refused with the reason, or an AttributeError that says what to write."""

    def lacking(name: str) -> Any:
        from graphc.elsewhere import lookup

        return lookup(home, name)

    return lacking, names.copy
