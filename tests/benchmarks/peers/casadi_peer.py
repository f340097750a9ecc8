"""CasADi: C code that it generates, compiled by the C compiler, called by its buffer interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import Any

import casadi
import numpy as np

from ..case import Built, Call, Case, NotOfferedError
from . import Library

FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


def generated(function: Any, folder: str) -> str:
    """The path of a shared object with the function's C code."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotOfferedError("there is no C compiler")
    name = function.name()
    here = os.getcwd()
    os.chdir(folder)  # CasADi writes into the current folder
    try:
        function.generate(f"{name}.c", {"with_header": False})
    finally:
        os.chdir(here)
    path = os.path.join(folder, f"{name}.so")
    source = os.path.join(folder, f"{name}.c")
    subprocess.run([compiler, *FLAGS, source, "-o", path, "-lm"], check=True)
    return path


class CasadiNames:
    """What matrix expressions have; they do not broadcast, and have no sums along an axis."""

    exp, log, tanh = staticmethod(casadi.exp), staticmethod(casadi.log), staticmethod(casadi.tanh)
    sin, cos = staticmethod(casadi.sin), staticmethod(casadi.cos)

    def sum(self, x: Any) -> Any:
        return casadi.sum1(casadi.sum2(x))


class Peer(Library):
    name, module = "casadi", casadi

    def __init__(self, threads: int):
        super().__init__(threads)
        self.folder = tempfile.TemporaryDirectory()

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        """A graph of matrix expressions, run by CasADi's virtual machine."""
        if case.letter != "f":
            raise NotOfferedError("left out: it is made for small functions and large graphs")
        ins = [casadi.MX.sym(f"x{k}", *a.shape) for k, a in enumerate(arrays)]
        try:
            outs = [case.formula(CasadiNames(), *ins)]
        except AttributeError as problem:
            raise NotOfferedError(f"its matrices have no {problem.name}") from None
        outs += [casadi.gradient(outs[0], ins[k]) for k in case.wrt]
        return Built(Call(casadi.Function("f", ins, outs).call, (list(arrays),)))

    def compiled(self, function: Any, arrays: tuple[np.ndarray, ...]) -> Built:
        """Called on arrays, which makes CasADi matrices, and through buffers, which does not."""
        f = casadi.external(function.name(), generated(function, self.folder.name))
        buffer, trigger = f.buffer()
        ins = [np.asfortranarray(a) for a in arrays]
        for k, a in enumerate(ins):
            buffer.set_arg(k, memoryview(a.reshape(-1, order="F")))
        outs = [np.zeros(f.size_out(k), order="F") for k in range(f.n_out())]
        for k, o in enumerate(outs):
            buffer.set_res(k, memoryview(o.reshape(-1, order="F")))
        shown = [o[:, 0] if o.shape[1] == 1 else o for o in outs]

        class Kept(Call):
            """The loop times the trigger alone; the check sees the buffers."""

            def __call__(self) -> Any:
                super().__call__()
                return shown

        keep = Kept(trigger)
        object.__setattr__(keep, "alive", (buffer, ins, outs))
        return Built(Call(f.call, (list(arrays),)), keep)

    def numpy(self, result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return [self.numpy(r) for r in result]
        a = np.asarray(result)
        return a[:, 0] if a.ndim == 2 and a.shape[1] == 1 else a
