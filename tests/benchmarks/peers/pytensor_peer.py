"""PyTensor: pytensor.function of declared tensors, in its default mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from ..case import Built, Call, Case
from ..formulas import Formulas


class PytensorNames(Formulas):
    exp, log, sqrt = staticmethod(pt.exp), staticmethod(pt.log), staticmethod(pt.sqrt)
    sin, cos, tanh = staticmethod(pt.sin), staticmethod(pt.cos), staticmethod(pt.tanh)
    erf, abs, where = staticmethod(pt.erf), staticmethod(pt.abs), staticmethod(pt.switch)
    arctan2 = staticmethod(pt.arctan2)
    maximum, minimum = staticmethod(pt.maximum), staticmethod(pt.minimum)
    reshape = staticmethod(lambda x, shape: x.reshape(shape))
    sum, mean, max = staticmethod(pt.sum), staticmethod(pt.mean), staticmethod(pt.max)
    var, argmax = staticmethod(pt.var), staticmethod(pt.argmax)
    softplus = staticmethod(pt.softplus)
    swap = staticmethod(lambda x, a=-1, b=-2: pt.swapaxes(x, a, b))

    def softmax(self, x: Any) -> Any:
        return pt.special.softmax(x, axis=-1)

    def logsumexp(self, x: Any) -> Any:
        return pt.logsumexp(x, axis=-1)

    def take_along(self, x: Any, labels: Any) -> Any:
        return x[pt.arange(x.shape[0]), labels]


class Peer:
    name = "pytensor"
    modules = ("pytensor",)

    def __init__(self, threads: int):
        self.threads = threads

    def version(self) -> str:
        return pytensor.__version__

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

    def numpy(self, result: Any) -> Any:
        return result
