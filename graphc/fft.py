"""Fourier transforms: refused until their primitives exist; each name says so when called."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from graphc.elsewhere import lookup

    return lookup("fft", name)
