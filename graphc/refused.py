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
    + _OUTSIDE
)
_FFT = f"the fft primitives do not exist yet; {_OUTSIDE}"
_BODIES = "conditions and loops over bodies do not exist yet"
_STEP = f"{_BODIES}; repeat the steps in a Python loop, or compile one step and call it in a loop"
_EXCHANGE = "a Tensor has no memory while the graph is declared: call compiled functions on arrays"

REFUSED: dict[str, str] = {
    "argsort": f"{_SORT}; gx.argmax gives the first place",
    "bitwise_count": "the popcount primitive does not exist yet",
    "complex64": _COMPLEX,
    "complex128": _COMPLEX,
    "cond": f"{_BODIES}; use gx.where(condition, x, y)",
    "conj": _COMPLEX,
    "convolve": "convolutions do not exist yet; add up slices, each times an element of the kernel",
    "fori_loop": _STEP,
    "from_dlpack": f"{_EXCHANGE}; use gx.constant(numpy.from_dlpack(x))",
    "imag": _COMPLEX,
    "isin": f"{_SORT}; use gx.any(x[..., None] == values, axis=-1)",
    "nonzero": f"{_SIZE}; use gx.where(condition, x, y), gx.argmax or gx.count_nonzero",
    "real": _COMPLEX,
    "scan": _STEP,
    "searchsorted": f"{_SORT}; use gx.sum(sorted < x[..., None], axis=-1)",
    "sort": f"{_SORT}; gx.max and gx.min give the extremes",
    "unique": _SIZE,
    "unique_all": _SIZE,
    "unique_counts": f"{_SIZE}; count each of n classes with gx.sum(gx.one_hot(x, n), axis=0)",
    "unique_inverse": _SIZE,
    "unique_values": _SIZE,
    "while_loop": _STEP,
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
