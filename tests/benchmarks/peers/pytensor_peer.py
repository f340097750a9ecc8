"""PyTensor: pytensor.function of declared tensors, in its default mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from ..case import Built, Call, Case
from ..formulas import Formulas
from . import Library


class PytensorNames(Formulas, library=pt):
    softplus = staticmethod(pt.softplus)

    def softmax(self, x: Any) -> Any:
        return pt.special.softmax(x, axis=-1)

    def logsumexp(self, x: Any) -> Any:
        return pt.logsumexp(x, axis=-1)

    def take_along(self, x: Any, labels: Any) -> Any:
        return x[pt.arange(x.shape[0]), labels]


class Peer(Library):
    name, module = "pytensor", pytensor

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        pytensor.config.floatX = case.dtype
        ins = [
            pt.tensor(f"x{k}", dtype=a.dtype.name,
                      shape=tuple(d if isinstance(d, int) else None for d in dims))
            for k, (a, dims) in enumerate(zip(arrays, case.dims, strict=True))
        ]
        out = case.formula(PytensorNames(), *ins)
        if case.wrt:
            out = [out, *pytensor.grad(out, [ins[k] for k in case.wrt])]
        f = pytensor.function(ins, list(out) if isinstance(out, (tuple, list)) else out)
        f.trust_input = True
        return Built(Call(f, arrays))
