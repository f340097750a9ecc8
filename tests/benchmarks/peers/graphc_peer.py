"""graphc: as its README writes functions. "graphc-fastmath" is the same with fastmath=True."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc as gx

from .. import model
from ..case import Built, Call, Case, flat
from ..formulas import Formulas
from . import Library


class GraphcNames(Formulas, library=gx):
    softmax, gelu, relu = map(staticmethod, (gx.nn.softmax, gx.nn.gelu, gx.nn.relu))
    softplus, layer_norm = map(staticmethod, (gx.nn.softplus, gx.nn.layer_norm))
    cross_entropy = staticmethod(gx.nn.cross_entropy)

    def logsumexp(self, x: Any) -> Any:
        return gx.logsumexp(x, axis=-1)


class Peer(Library):
    name, module = "graphc", gx
    fastmath = False

    def __init__(self, threads: int):
        super().__init__(threads)
        self.function: gx.Function | None = None

    def declare(self, case: Case, arrays: tuple[np.ndarray, ...]) -> gx.Function:
        """The case's formula, and its gradient where it asks for one."""
        inputs = [
            gx.input(f"x{k}", shape, a.dtype.name)
            for k, (shape, a) in enumerate(zip(case.dims, arrays, strict=True))
        ]
        out = case.formula(GraphcNames(), *inputs)
        if case.wrt:
            out = [out, *gx.grad(out, [inputs[k] for k in case.wrt])]
        return gx.function(inputs, out, fastmath=self.fastmath, name="bench")

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        self.function = f = self.declare(case, arrays)
        return self.built(f, arrays, case.kept)

    def built(self, f: gx.Function, arrays: tuple[np.ndarray, ...], kept: bool) -> Built:
        """Calls of a compiled function; with results kept if asked."""
        if not kept:
            return Built(Call(f, arrays))
        first = f(*arrays)
        out = np.empty_like(first) if isinstance(first, np.ndarray) else [
            np.empty_like(a) for a in flat(first)
        ]
        return Built(Call(f, arrays), Call(f, arrays, {"out": out}))

    def work(self, call: Call) -> dict[str, float]:
        """Bytes and operations of a call."""
        assert self.function is not None
        return model.work(self.function, call.args)


class Fastmath(Peer):
    name = "graphc-fastmath"
    fastmath = True
