"""Fourier transforms: refused until their primitives exist; each name says so when called."""

from graphc.refused import module_hooks

__getattr__, __dir__ = module_hooks("fft", [])
