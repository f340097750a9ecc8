"""How far results are from exact values."""

from __future__ import annotations

import mpmath
import numpy as np


def ulps(got: np.ndarray, exact: list, dtype: str) -> float:
    """The largest distance from the exact values in units of the last place."""
    worst = 0.0
    for g, e in zip(got, exact, strict=True):
        if mpmath.isnan(e) or mpmath.isinf(e) or abs(e) > float(np.finfo(dtype).max):
            same = (np.isnan(g) and mpmath.isnan(e)) or (np.isinf(g) and (g > 0) == (e > 0))
            assert same or abs(g) == np.finfo(dtype).max, (g, e)
            continue
        spacing = float(np.spacing(np.abs(np.dtype(dtype).type(float(e)))))
        worst = max(worst, float(abs(mpmath.mpf(float(g)) - e) / spacing))
    return worst
