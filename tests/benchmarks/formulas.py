"""What all namespaces share: functions written with a library's own primitives.

A case's formula is called with a namespace, `xp`, and arrays or symbols: `formula(xp, x, y)`. A
peer's namespace is `class Names(Formulas, library=...)`: it has the library's own PRIMITIVES, adds
those that go by other names there, and overrides what the library has ready, as its users would.
"""

from __future__ import annotations

from typing import Any

PRIMITIVES = (
    "exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "abs", "where", "arctan2", "maximum",
    "minimum", "sum", "mean", "max", "var", "argmax", "reshape", "swapaxes",
)


class Formulas:
    """softmax and its like over exp, log, sqrt, erf, sum, max, mean, maximum and take_along."""

    def __init_subclass__(cls, library: Any = None) -> None:
        for name in PRIMITIVES:
            if hasattr(library, name) and name not in vars(cls):
                setattr(cls, name, staticmethod(getattr(library, name)))

    def swap(self: Any, x: Any, a: int = -1, b: int = -2) -> Any:
        """Two axes exchanged."""
        return self.swapaxes(x, a, b)

    def softmax(self: Any, x: Any) -> Any:
        """Along the last axis."""
        e = self.exp(x - self.max(x, axis=-1, keepdims=True))
        return e / self.sum(e, axis=-1, keepdims=True)

    def logsumexp(self: Any, x: Any) -> Any:
        """Along the last axis."""
        top = self.max(x, axis=-1, keepdims=True)
        return self.log(self.sum(self.exp(x - top), axis=-1)) + top[..., 0]

    def var(self: Any, x: Any, axis: int) -> Any:
        centred = x - self.mean(x, axis=axis, keepdims=True)
        return self.mean(centred * centred, axis=axis)

    def layer_norm(self: Any, x: Any, weight: Any, bias: Any) -> Any:
        """Over the last axis, eps 1e-5."""
        centred = x - self.mean(x, axis=-1, keepdims=True)
        spread = self.mean(centred * centred, axis=-1, keepdims=True)
        return centred / self.sqrt(spread + 1e-5) * weight + bias

    def cross_entropy(self: Any, logits: Any, labels: Any) -> Any:
        """Mean over rows of -log softmax at the labels."""
        return self.mean(self.logsumexp(logits) - self.take_along(logits, labels))

    def relu(self: Any, x: Any) -> Any:
        return self.maximum(x, 0.0)

    def gelu(self: Any, x: Any) -> Any:
        """x times the normal distribution function, by erf."""
        return 0.5 * x * (1.0 + self.erf(x * 0.7071067811865476))

    def softplus(self: Any, x: Any) -> Any:
        return self.maximum(x, 0.0) + self.log(1.0 + self.exp(-self.abs(x)))

    def attention(self: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
        """softmax(scale q k^T) v."""
        return self.softmax(q @ self.swap(k) * scale) @ v
