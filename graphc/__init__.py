"""graphc: declare a tensor computation once, differentiate it, compile it, ship it.

    import graphc as gx

    x = gx.input("x", ("batch", 64))
    w = gx.variable(numpy.zeros((64, 10), "float32"), "w")
    predict = gx.function([x], gx.argmax(x @ w, axis=1))

Operations have the names of the Python array API standard, and NumPy's where those differ. What
is needed to declare is imported at once; the compiler, gradients, nn, optim, random and linalg at
first use.
"""

# ruff: noqa: F403 -- each module lists what it exports in __all__
from __future__ import annotations

import sys

# The command by its name: until its `main` takes over, an interrupt ends it as it ends a program
# that does not handle it, without a traceback of imports.
if "".join(sys.orig_argv[-len(sys.argv):][:1]).rpartition("/")[2] in ("graphc", "-mgraphc"):
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import importlib
import math
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

# In a checkout passes/ and codegen/ stand beside this folder, which Python takes for the package
# when it is started there, whatever is installed.
if __name__ == "graphc" and not os.path.isdir(os.path.join(__path__[0], "passes")):
    __path__.append(os.path.dirname(__path__[0]))

import graphc.tensor  # first: what follows needs it, and it finds them itself

# isort: split
from graphc.composed import *
from graphc.creation import *
from graphc.declare import *
from graphc.dims import Dim as Dim
from graphc.dtypes import *
from graphc.elementwise import *
from graphc.errors import GraphcError as GraphcError
from graphc.floats import *
from graphc.manipulation import *
from graphc.products import *
from graphc.reals import *
from graphc.reductions import *
from graphc.refused import REFUSED as REFUSED
from graphc.selection import *
from graphc.tensor import Tensor as Tensor

if TYPE_CHECKING:
    from graphc import fft as fft
    from graphc import linalg as linalg
    from graphc import nn as nn
    from graphc import optim as optim
    from graphc import random as random
    from graphc import testing as testing
    from graphc.composite import checkpoint as checkpoint
    from graphc.composite import composite as composite
    from graphc.define import define_op as define_op
    from graphc.define import same_float as same_float
    from graphc.define import same_number as same_number
    from graphc.define import same_type as same_type
    from graphc.export import export as export
    from graphc.function import Function as Function
    from graphc.function import function as function
    from graphc.ir import Graph as Graph
    from graphc.linalg import cross as cross
    from graphc.loaded import load as load
    from graphc.memory import release_memory as release_memory
    from graphc.ops import Kind as Kind
    from graphc.ops import Op as Op
    from graphc.passes import PIPELINE as PIPELINE
    from graphc.state import load_state as load_state
    from graphc.state import save_state as save_state
    from graphc.transforms import depends_on as depends_on
    from graphc.transforms import grad as grad
    from graphc.transforms import hessian as hessian
    from graphc.transforms import hvp as hvp
    from graphc.transforms import jacobian as jacobian
    from graphc.transforms import jvp as jvp
    from graphc.transforms import value_and_grad as value_and_grad
    from graphc.transforms import vjp as vjp
    from graphc.vmap import vmap as vmap

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

# Where each name lives that is imported at first use; None: a module of its own.
_LAZY: dict[str, str | None] = {
    name: home or None
    for home, names in {
        "": "fft linalg nn optim random testing",
        "composite": "checkpoint composite",
        "define": "define_op same_float same_number same_type",
        "export": "export",
        "function": "Function function",
        "ir": "Graph",
        "linalg": "cross",
        "loaded": "load",
        "memory": "release_memory",
        "ops": "Kind Op",
        "passes": "PIPELINE",
        "state": "load_state save_state",
        "transforms": "depends_on grad hessian hvp jacobian jvp value_and_grad vjp",
        "vmap": "vmap",
    }.items()
    for name in names.split()
}


class _Package(ModuleType):
    """The graphc module: `gx.function` stays the function when graphc/function.py is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if _LAZY.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


class _TensorModule(ModuleType):
    """graphc.tensor, which those who come from PyTorch call."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        from graphc.errors import UsageError, user_loc

        raise UsageError(f"tensor: {graphc.tensor.NOT_MADE_SO}", user_loc())


sys.modules[__name__].__class__ = _Package
sys.modules["graphc.tensor"].__class__ = _TensorModule


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from graphc.elsewhere import lookup

        return lookup("", name)
    from graphc.forks import undivided

    home = _LAZY[name]
    with undivided():
        module = importlib.import_module(f"graphc.{home or name}")
    value = module if home is None else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    hidden = {"ModuleType", "NoReturn", "REFUSED", "TYPE_CHECKING", "Any", "annotations"}
    return sorted(
        {k for k, v in globals().items() if k not in hidden and not isinstance(v, ModuleType)}
        | {*_LAZY}
    )
