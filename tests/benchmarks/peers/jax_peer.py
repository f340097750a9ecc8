"""JAX: jax.jit over jax.numpy, inputs on the device, and a wait for every result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..case import Built, Call, Case
from ..formulas import Formulas
from . import Library

jax.config.update("jax_enable_x64", True)


class JaxNames(Formulas, library=jnp):
    erf, softmax, relu = map(staticmethod, (jax.scipy.special.erf, jax.nn.softmax, jax.nn.relu))
    softplus = staticmethod(jax.nn.softplus)
    gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))

    def logsumexp(self, x: Any) -> Any:
        return jax.nn.logsumexp(x, axis=-1)

    def take_along(self, x: Any, labels: Any) -> Any:
        return jnp.take_along_axis(x, labels[:, None], 1)[:, 0]


class Peer(Library):
    name, module = "jax", jax

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

    def convert(
        self, arrays: tuple[np.ndarray, ...], wrt: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        return tuple(jnp.asarray(a) for a in arrays)

    def numpy(self, result: Any) -> Any:
        return jax.tree.map(np.asarray, result)
