"""JAX: jax.jit over jax.numpy, inputs on the device, and a wait for every result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..case import Built, Call, Case
from ..formulas import Formulas

jax.config.update("jax_enable_x64", True)


class JaxNames(Formulas):
    exp, log, sqrt = staticmethod(jnp.exp), staticmethod(jnp.log), staticmethod(jnp.sqrt)
    sin, cos, tanh = staticmethod(jnp.sin), staticmethod(jnp.cos), staticmethod(jnp.tanh)
    abs, where, arctan2 = staticmethod(jnp.abs), staticmethod(jnp.where), staticmethod(jnp.arctan2)
    maximum, minimum = staticmethod(jnp.maximum), staticmethod(jnp.minimum)
    erf, reshape = staticmethod(jax.scipy.special.erf), staticmethod(jnp.reshape)
    swap = staticmethod(lambda x, a=-1, b=-2: jnp.swapaxes(x, a, b))
    softmax, relu = staticmethod(jax.nn.softmax), staticmethod(jax.nn.relu)
    softplus = staticmethod(jax.nn.softplus)
    gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))
    sum, mean, max = staticmethod(jnp.sum), staticmethod(jnp.mean), staticmethod(jnp.max)
    var, argmax = staticmethod(jnp.var), staticmethod(jnp.argmax)

    def logsumexp(self, x: Any) -> Any:
        return jax.nn.logsumexp(x, axis=-1)

    def take_along(self, x: Any, labels: Any) -> Any:
        return jnp.take_along_axis(x, labels[:, None], 1)[:, 0]


class Peer:
    name = "jax"
    modules = ("jax",)

    def __init__(self, threads: int):
        self.threads = threads

    def version(self) -> str:
        return jax.__version__

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        names, formula = JaxNames(), case.formula

        def primal(*a: Any) -> Any:
            return formula(names, *a)

        return self.jitted(
            jax.value_and_grad(primal, argnums=case.wrt) if case.wrt else primal, arrays
        )

    def jitted(self, fn: Any, arrays: tuple[np.ndarray, ...]) -> Built:
        """fn under jit; the result is waited for, as whoever uses it would have to."""
        f, wait = jax.jit(fn), jax.block_until_ready
        return Built(Call(lambda *a: wait(f(*a)), self.convert(arrays)))

    def convert(self, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
        """Arrays as calls take them."""
        return tuple(jnp.asarray(a) for a in arrays)

    def numpy(self, result: Any) -> Any:
        return jax.tree.map(np.asarray, result)
