"""Fourier transforms: refused until their primitives exist; each name says so when called."""

from __future__ import annotations

from typing import Any

from graphc.refused import FFT, refusal


def __getattr__(name: str) -> Any:
    if name in FFT:
        return refusal(f"fft.{name}", FFT[name])
    raise AttributeError(f"module 'graphc.fft' has no attribute {name!r}")
