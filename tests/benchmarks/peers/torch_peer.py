"""PyTorch, eager and under torch.compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..case import Built, Call, Case
from ..formulas import Formulas
from . import Library


class TorchNames(Formulas, library=torch):
    softplus, relu, gelu = map(staticmethod, (F.softplus, F.relu, F.gelu))
    cross_entropy = staticmethod(F.cross_entropy)

    def maximum(self, x: Any, y: Any) -> Any:
        return torch.maximum(x, y) if isinstance(y, torch.Tensor) else torch.clamp(x, min=y)

    def minimum(self, x: Any, y: Any) -> Any:
        return torch.minimum(x, y) if isinstance(y, torch.Tensor) else torch.clamp(x, max=y)

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.sum(x) if axis is None else torch.sum(x, dim=axis, keepdim=keepdims)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.mean(x) if axis is None else torch.mean(x, dim=axis, keepdim=keepdims)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.amax(x) if axis is None else torch.amax(x, dim=axis, keepdim=keepdims)

    def var(self, x: Any, axis: int) -> Any:
        return torch.var(x, dim=axis, correction=0)

    def argmax(self, x: Any, axis: int) -> Any:
        return torch.argmax(x, dim=axis)

    def softmax(self, x: Any) -> Any:
        return torch.softmax(x, dim=-1)

    def logsumexp(self, x: Any) -> Any:
        return torch.logsumexp(x, dim=-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, weight.shape, weight, bias)

    def attention(self, q: Any, k: Any, v: Any, scale: float) -> Any:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)

    def take_along(self, x: Any, labels: Any) -> Any:
        return x.gather(1, labels[:, None])[:, 0]


class Peer(Library):
    name, module = "torch", torch

    def __init__(self, threads: int):
        super().__init__(threads)
        torch.set_num_threads(threads)

    def wrap(self, fn: Any) -> Any:
        """What is called: fn itself, or compiled."""
        return fn

    def convert(
        self, arrays: tuple[np.ndarray, ...], wrt: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        return tuple(
            torch.from_numpy(a.copy()).requires_grad_(k in wrt) for k, a in enumerate(arrays)
        )

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        names, formula = TorchNames(), case.formula
        args = self.convert(arrays, case.wrt)
        torch.set_grad_enabled(bool(case.wrt))

        def primal(*a: Any) -> Any:
            return formula(names, *a)

        f = self.wrap(primal)
        if not case.wrt:
            return Built(Call(f, args))
        grad, wrt = torch.autograd.grad, case.wrt

        def both(*a: Any) -> Any:
            value = f(*a)
            return value.detach(), *grad(value, [a[k] for k in wrt])

        return Built(Call(both, args))

    def numpy(self, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return [self.numpy(r) for r in result]
        return result.detach().numpy() if isinstance(result, torch.Tensor) else result


class Compiled(Peer):
    name = "torch.compile"

    def wrap(self, fn: Any) -> Any:
        torch.compiler.reset()
        return torch.compile(fn)
