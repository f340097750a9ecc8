"""(e) Small calls, float64: a sum, a policy network, a Kalman step, a robot arm with its Jacobian.

All shapes are static. Called from Python here; `small_c` calls the same from C.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ..case import Arrays, Built, Call, Case
from . import small_loops

WIDTH = 16
# A 7-joint arm: each joint's twist (multiples of 90 degrees), offset along its axis, length.
JOINTS = (
    (-1, 0.34, 0.0), (1, 0.0, 0.0), (1, 0.4, 0.0), (-1, 0.0, 0.0), (-1, 0.4, 0.0), (1, 0.0, 0.0),
    (0, 0.126, 0.05),
)
AXES, ORIGIN = tuple(np.eye(3)), np.zeros(3)
SKIP = {
    "numexpr": "no matrix products", "numba-fastmath": "the same as numba here",
    "onnxruntime": "left out: its calls take 5 us and more",
}


def add(xp: Any, x: Any, y: Any) -> Any:
    return x + y


@cache
def weights() -> list[tuple[np.ndarray, np.ndarray]]:
    """The policy network's constants."""
    rng = np.random.default_rng(1)
    return [
        (rng.normal(size=(WIDTH, WIDTH)) / 4, 0.1 * rng.normal(size=WIDTH)) for _ in range(3)
    ]


def policy(xp: Any, x: Any) -> Any:
    """Three layers of 16 units, one row."""
    for w, b in weights():
        x = xp.tanh(x @ xp.constant(w) + xp.constant(b))
    return x


@cache
def kalman_model() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Constant acceleration in the plane: transition, observation, and their noises."""
    dt = 0.01
    f = np.eye(6)
    f[0, 2] = f[1, 3] = f[2, 4] = f[3, 5] = dt
    f[0, 4] = f[1, 5] = dt * dt / 2
    h = np.zeros((2, 6))
    h[0, 0] = h[1, 1] = 1
    return f, h, 0.001 * np.eye(6), 0.05 * np.eye(2)


def kalman(xp: Any, x: Any, p: Any, z: Any) -> Any:
    """Predict and update; the 2x2 innovation is inverted by its formula."""
    f, h, q, r = (xp.constant(a) for a in kalman_model())
    x = f @ x
    p = f @ p @ xp.swap(f) + q
    ph = p @ xp.swap(h)
    s = h @ ph + r
    d = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
    adjugate = xp.matrix2(s[1, 1], -s[0, 1], -s[1, 0], s[0, 0])
    k = ph @ (adjugate / d)
    return x + k @ (z - h @ x), p - k @ (h @ p)


def constants() -> dict[str, np.ndarray]:
    """What numba's loops use, by name."""
    made = {f"{n}{k}": a for k, layer in enumerate(weights())
            for n, a in zip("wb", layer, strict=True)}
    f, _, q, r = kalman_model()
    return {**made, "F": f, "FT": np.ascontiguousarray(f.T), "Q": q, "R": r, "J": np.array(JOINTS)}


def arm(xp: Any, q: Any) -> Any:
    """The tool's position, by the axes of each joint's frame."""
    x, y, z = (xp.constant(a) for a in AXES)
    position = xp.constant(ORIGIN)
    for k, (twist, offset, length) in enumerate(JOINTS):
        s, c = xp.sin(q[k]), xp.cos(q[k])
        x, y = c * x + s * y, c * y - s * x
        position = position + offset * z + length * x
        if twist:
            y, z = twist * z, -twist * y
    return position


def arm_by_hand(q: Any) -> Any:
    """Position and Jacobian: axis of each joint times the way from it to the tool."""
    x, y, z = AXES
    position, axes, places = ORIGIN, [], []
    for k, (twist, offset, length) in enumerate(JOINTS):
        axes.append(z)
        places.append(position)
        s, c = math.sin(q[k]), math.cos(q[k])
        x, y = c * x + s * y, c * y - s * x
        position = position + offset * z + length * x
        if twist:
            y, z = twist * z, -twist * y
    return position, np.cross(np.array(axes), position - np.array(places)).T


# -- graphc ------------------------------------------------------------------------------------


def _names(peer_names: Any, **extra: Any) -> Any:
    """A peer's namespace with what only these cases use."""
    return type("Names", (peer_names,), {k: staticmethod(v) for k, v in extra.items()})()


def graphc_function(what: str, fastmath: bool) -> Any:
    """The compiled case; static shapes."""
    import graphc as gx

    from ..peers.graphc_peer import GraphcNames

    xp = _names(
        GraphcNames, constant=lambda a: gx.constant(a, "float64"),
        matrix2=lambda a, b, c, d: gx.reshape(gx.stack([a, b, c, d]), (2, 2)),
    )
    ins = [gx.input(n, s, "float64") for n, s in SHAPES[what].items()]
    out = FORMULAS[what](xp, *ins)
    if what == "arm":
        out = [out, gx.jacobian(out, ins[0])]
    return gx.function(
        ins, list(out) if isinstance(out, tuple) else out, fastmath=fastmath, name=what
    )


def _graphc(peer: Any, case: Case, arrays: Arrays) -> Built:
    peer.function = graphc_function(_what(case), peer.fastmath)
    return peer.built(peer.function, arrays, True)


# -- peers -------------------------------------------------------------------------------------


def _numpy(peer: Any, case: Case, arrays: Arrays) -> Built:
    from ..peers.numpy_peer import NumpyNames

    xp = _names(
        NumpyNames, constant=lambda a: a,
        matrix2=lambda a, b, c, d: np.array([[a, b], [c, d]]),
    )
    what = _what(case)
    if what == "arm":
        return Built(Call(arm_by_hand, arrays))
    if what == "add":
        return Built(Call(np.add, arrays), Call(np.add, (*arrays, np.empty(WIDTH))))
    def run(*a: Any) -> Any:
        return FORMULAS[what](xp, *a)
    return Built(Call(run, arrays))


def _jax(peer: Any, case: Case, arrays: Arrays) -> Built:
    import jax
    import jax.numpy as jnp

    from ..peers.jax_peer import JaxNames

    xp = _names(
        JaxNames, constant=jnp.asarray, matrix2=lambda a, b, c, d: jnp.array([[a, b], [c, d]])
    )
    what = _what(case)

    def run(*a: Any) -> Any:
        return FORMULAS[what](xp, *a)

    if what == "arm":
        return peer.jitted(lambda q: (run(q), jax.jacfwd(run)(q)), arrays)
    return peer.jitted(run, arrays)


def _torch(peer: Any, case: Case, arrays: Arrays) -> Built:
    import torch

    from ..peers.torch_peer import TorchNames

    made: dict[int, Any] = {}  # every constant is one array, made once

    def constant(a: np.ndarray) -> Any:
        if id(a) not in made:
            made[id(a)] = torch.from_numpy(a.copy())
        return made[id(a)]

    xp = _names(
        TorchNames, constant=constant,
        matrix2=lambda a, b, c, d: torch.stack([a, b, c, d]).reshape(2, 2),
    )
    what = _what(case)
    torch.set_grad_enabled(False)

    def run(*a: Any) -> Any:
        return FORMULAS[what](xp, *a)

    if what == "arm":
        return Built(Call(lambda q: (run(q), torch.func.jacfwd(run)(q)), peer.convert(arrays)))
    return Built(Call(run, peer.convert(arrays)))


def casadi_function(what: str) -> Any:
    """The case as scalar expressions; matrices are stored by columns."""
    import casadi as ca

    xp = type("Names", (), {
        "constant": staticmethod(ca.DM), "tanh": staticmethod(ca.tanh),
        "sin": staticmethod(ca.sin), "cos": staticmethod(ca.cos),
        "swap": staticmethod(lambda a: a.T),
        "matrix2": staticmethod(lambda a, b, c, d: ca.vertcat(ca.horzcat(a, b), ca.horzcat(c, d))),
    })()
    ins = [ca.SX.sym(n, *s) for n, s in SHAPES[what].items()]
    if what == "policy":
        x = ins[0]
        for w, b in weights():
            x = ca.tanh(ca.DM(w).T @ x + ca.DM(b))
        outs = [x]
    else:
        out = FORMULAS[what](xp, *ins)
        outs = list(out) if isinstance(out, tuple) else [out]
    if what == "arm":
        outs.append(ca.jacobian(outs[0], ins[0]))
    return ca.Function(what, ins, [ca.densify(o) for o in outs])


def _casadi(peer: Any, case: Case, arrays: Arrays) -> Built:
    return peer.compiled(casadi_function(_what(case)), arrays)


def _numba(peer: Any, case: Case, arrays: Arrays) -> Built:
    made = small_loops.functions(_what(case), constants())
    outs = made["f"](*arrays)
    outs = outs if isinstance(outs, tuple) else (outs,)
    into = made["into"]
    if len(outs) > 1:
        results: Any = [np.empty_like(o) for o in outs]
    else:
        results = [np.empty_like(outs[0])]
    into(*arrays, *results)

    class Kept(Call):
        """The loop times `into`, which returns nothing; the check sees what it wrote."""

        def __call__(self) -> Any:
            super().__call__()
            return results

    return Built(Call(made["f"], arrays), Kept(into, (*arrays, *results)))


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "add": {"x": (WIDTH,), "y": (WIDTH,)}, "policy": {"x": (WIDTH,)},
    "kalman": {"x": (6,), "p": (6, 6), "z": (2,)}, "arm": {"q": (7,)},
}
FORMULAS: dict[str, Any] = {"add": add, "policy": policy, "kalman": kalman, "arm": arm}
BUILDERS = {
    "graphc": _graphc, "graphc-fastmath": _graphc, "numpy": _numpy, "jax": _jax,
    "torch": _torch, "numba": _numba, "casadi": _casadi,
}


def _what(case: Case) -> str:
    return case.name.split("/")[1]


def arrays_of(what: str, rng: np.random.Generator) -> Arrays:
    """Inputs; a covariance is symmetric and positive."""
    made = []
    for shape in SHAPES[what].values():
        a = rng.normal(size=shape)
        made.append(a @ a.T + np.eye(6) if shape == (6, 6) else a)
    return tuple(made)


def reference(what: str, *arrays: np.ndarray) -> Any:
    """Results in NumPy."""
    if what == "arm":
        return arm_by_hand(*arrays)
    return _numpy(None, cases_by_what()[what], arrays).fresh()


def cases_by_what() -> dict[str, Case]:
    return {_what(c): c for c in cases()}


def cases() -> list[Case]:
    return [
        Case(
            f"e/{what}/f64/{'x'.join(map(str, next(iter(shapes.values()))))}",
            lambda rng, what=what: arrays_of(what, rng), FORMULAS[what], tuple(shapes.values()),
            reference=lambda *a, what=what: reference(what, *a), builders=BUILDERS, skip=SKIP,
            kept=True, compilers=False, quick=what == "add", tolerance=1e-12,
        )
        for what, shapes in SHAPES.items()
    ]
