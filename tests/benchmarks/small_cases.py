"""The functions of `small_calls`, as the users of NumPy, numba, CasADi and graphc write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphc as gx

Array = np.ndarray[Any, Any]

rng = np.random.default_rng(0)
WEIGHTS = [rng.normal(size=(16, 16)) / 4 for _ in range(3)]
BIASES = [rng.normal(size=16) / 4 for _ in range(3)]
DT = 0.1
STEP = np.block([[np.eye(3), DT * np.eye(3)], [np.zeros((3, 3)), np.eye(3)]])
SEEN = np.hstack([np.eye(3), np.zeros((3, 3))])
NOISE, ERROR = 0.01 * np.eye(6), 0.1 * np.eye(3)
# Denavit-Hartenberg: length, twist, offset of each joint of an arm
ARM = [(0.0, -1, 0.34), (0.0, 1, 0.0), (0.0, 1, 0.4), (0.08, -1, 0.0),
       (-0.08, -1, 0.39), (0.0, 1, 0.0), (0.09, 0, 0.13)]  # fmt: skip


@dataclass
class Case:
    """One function: arguments, shapes of the results, and how each library writes it."""

    name: str
    arrays: list[Array]
    results: list[tuple[int, ...]]
    graphc: Callable[..., Any]
    numpy: Callable[..., Any]
    loops: Callable[..., None]                        # for numba: (*arrays, *results)
    casadi: Callable[..., Any] | None = None          # (casadi module, *symbols) -> expressions
    helpers: list[Callable[..., Any]] = field(default_factory=list)
    given: list[Array] = field(default_factory=list)  # results that all write to


# --- x + y ---------------------------------------------------------------------------------------


def add_loops(x: Array, y: Array, out: Array) -> None:
    for i in range(16):
        out[i] = x[i] + y[i]


def add_case(dtype: str) -> Case:
    arrays = [rng.normal(size=16).astype(dtype) for _ in range(2)]
    return Case(
        f"x + y, 16 x {dtype}", arrays, [(16,)], lambda x, y: [x + y], lambda x, y: [x + y],
        add_loops, (lambda ca, x, y: [x + y]) if dtype == "float64" else None,
    )


# --- a policy network ----------------------------------------------------------------------------


def policy_graph(x: Any) -> list[Any]:
    (w1, w2, w3), (b1, b2, b3) = (
        [gx.variable(v, f"{n}{k}") for k, v in enumerate(vs)]
        for n, vs in (("w", WEIGHTS), ("b", BIASES))
    )
    return [gx.tanh(gx.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3]


def policy_numpy(x: Array) -> list[Array]:
    h = np.tanh(x @ WEIGHTS[0] + BIASES[0])
    h = np.tanh(h @ WEIGHTS[1] + BIASES[1])
    return [h @ WEIGHTS[2] + BIASES[2]]


W1, W2, W3 = WEIGHTS
B1, B2, B3 = BIASES


def policy_loops(x: Array, out: Array) -> None:
    h, g = B1.copy(), B2.copy()
    for k in range(16):
        for j in range(16):
            h[j] += x[0, k] * W1[k, j]
    for j in range(16):
        h[j] = np.tanh(h[j])
    for k in range(16):
        for j in range(16):
            g[j] += h[k] * W2[k, j]
    for j in range(16):
        g[j] = np.tanh(g[j])
        out[0, j] = B3[j]
    for k in range(16):
        for j in range(16):
            out[0, j] += g[k] * W3[k, j]


def policy_casadi(ca: Any, x: Any) -> list[Any]:
    h = x
    for k, (w, b) in enumerate(zip(WEIGHTS, BIASES, strict=True)):
        h = ca.mtimes(h, ca.DM(w)) + ca.DM(b).T
        h = ca.tanh(h) if k < 2 else h
    return [h]


# --- a Kalman filter -----------------------------------------------------------------------------


def inverse_of(s: Any, stack: Callable[..., Any]) -> Any:
    """The inverse of a symmetric 3x3 matrix by its cofactors."""
    a, b, c, d, e, f = s[0, 0], s[0, 1], s[0, 2], s[1, 1], s[1, 2], s[2, 2]
    cofactors = [d * f - e * e, c * e - b * f, b * e - c * d,
                 a * f - c * c, b * c - a * e, a * d - b * b]  # fmt: skip
    u, v, w, x, y, z = cofactors
    return stack([u, v, w, v, x, y, w, y, z]) / (a * u + b * v + c * w)


def kalman_with(x: Any, p: Any, z: Any, inverse: Callable[..., Any]) -> list[Any]:
    x = STEP @ x
    p = STEP @ p @ STEP.T + NOISE
    gain = p @ SEEN.T @ inverse(SEEN @ p @ SEEN.T + ERROR)
    return [x + gain @ (z - SEEN @ x), p - gain @ SEEN @ p]


def kalman_graph(x: Any, p: Any, z: Any) -> list[Any]:
    return kalman_with(
        x, p, z, lambda s: inverse_of(s, lambda xs: gx.reshape(gx.stack(xs), (3, 3)))
    )


def kalman_numpy(x: Array, p: Array, z: Array) -> list[Array]:
    return kalman_with(x, p, z, np.linalg.inv)


def product(a: Array, b: Array, out: Array) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            t = 0.0
            for k in range(a.shape[1]):
                t += a[i, k] * b[k, j]
            out[i, j] = t


def kalman_loops(x: Array, p: Array, z: Array, x_out: Array, p_out: Array) -> None:
    t, q, pht = np.empty((6, 6)), np.empty((6, 6)), np.empty((6, 3))
    s, inv, gain, kh = np.empty((3, 3)), np.empty((3, 3)), np.empty((6, 3)), np.empty((6, 6))
    moved, seen = np.empty(6), np.empty(3)
    product(STEP, p, t)
    product(t, STEP.T, q)
    for i in range(6):
        moved[i] = 0.0
        for j in range(6):
            q[i, j] += NOISE[i, j]
            moved[i] += STEP[i, j] * x[j]
    product(q, SEEN.T, pht)
    product(SEEN, pht, s)
    for i in range(3):
        seen[i] = z[i]
        for j in range(6):
            seen[i] -= SEEN[i, j] * moved[j]
        for j in range(3):
            s[i, j] += ERROR[i, j]
    a, b, c, d, e, f = s[0, 0], s[0, 1], s[0, 2], s[1, 1], s[1, 2], s[2, 2]
    inv[0, 0], inv[0, 1], inv[0, 2] = d * f - e * e, c * e - b * f, b * e - c * d
    inv[1, 0], inv[1, 1], inv[1, 2] = inv[0, 1], a * f - c * c, b * c - a * e
    inv[2, 0], inv[2, 1], inv[2, 2] = inv[0, 2], inv[1, 2], a * d - b * b
    det = a * inv[0, 0] + b * inv[0, 1] + c * inv[0, 2]
    for i in range(3):
        for j in range(3):
            inv[i, j] /= det
    product(pht, inv, gain)
    product(gain, SEEN, kh)
    product(kh, q, p_out)
    for i in range(6):
        x_out[i] = moved[i]
        for j in range(3):
            x_out[i] += gain[i, j] * seen[j]
        for j in range(6):
            p_out[i, j] = q[i, j] - p_out[i, j]


def kalman_casadi(ca: Any, x: Any, p: Any, z: Any) -> list[Any]:
    step, seen = ca.sparsify(ca.DM(STEP)), ca.sparsify(ca.DM(SEEN))
    x = step @ x.T
    p = step @ p @ step.T + ca.sparsify(ca.DM(NOISE))
    s = seen @ p @ seen.T + ca.sparsify(ca.DM(ERROR))
    gain = p @ seen.T @ inverse_of(s, lambda xs: ca.reshape(ca.vertcat(*xs), 3, 3))
    return [(x + gain @ (z.T - seen @ x)).T, p - gain @ seen @ p]


# --- an arm --------------------------------------------------------------------------------------


def arm_with(
    q: Any, cos: Callable[..., Any], sin: Callable[..., Any], matrix: Callable[..., Any],
    vector: Callable[..., Any], start: tuple[Any, Any],
) -> tuple[Any, Any]:
    """Position and rotation of the last link."""
    at, turned = start
    for k, (a, twist, d) in enumerate(ARM):
        c, s = cos(q[k]), sin(q[k])
        ct, st = 1.0 - abs(twist), float(twist)
        at = at + turned @ vector([a * c, a * s, d])
        turned = turned @ matrix([[c, -s * ct, s * st], [s, c * ct, -c * st], [0.0, st, ct]])
    return at, turned


def arm_graph(q: Any) -> list[Any]:
    def vector(xs: list[Any]) -> Any:
        return gx.stack([gx.asarray(x, dtype="float64") for x in xs])

    at, turned = arm_with(
        q, gx.cos, gx.sin, lambda rows: gx.stack([vector(r) for r in rows]), vector,
        (gx.zeros(3, dtype="float64"), gx.eye(3, dtype="float64")),
    )
    return [at, turned, gx.jacobian(at, q)]


def arm_numpy(q: Array) -> list[Array]:
    at, turned = np.zeros(3), np.eye(3)
    axes, places = np.empty((7, 3)), np.empty((7, 3))
    for k, (a, twist, d) in enumerate(ARM):
        axes[k], places[k] = turned[:, 2], at
        c, s = np.cos(q[k]), np.sin(q[k])
        ct, st = 1.0 - abs(twist), float(twist)
        at = at + turned @ np.array([a * c, a * s, d])
        turned = turned @ np.array(
            [[c, -s * ct, s * st], [s, c * ct, -c * st], [0.0, st, ct]]
        )
    return [at, turned, np.cross(axes, at - places).T]


LENGTHS, TWISTS, OFFSETS = (np.array([row[k] for row in ARM], float) for k in range(3))


def arm_loops(q: Array, at: Array, turned: Array, jacobian: Array) -> None:
    axes, places, new, own = np.empty((7, 3)), np.empty((7, 3)), np.empty((3, 3)), np.empty((3, 3))
    for i in range(3):
        at[i] = 0.0
        for j in range(3):
            turned[i, j] = 1.0 if i == j else 0.0
    for k in range(7):
        c, s, st, a, d = np.cos(q[k]), np.sin(q[k]), TWISTS[k], LENGTHS[k], OFFSETS[k]
        ct = 1.0 - abs(st)
        own[0, 0], own[0, 1], own[0, 2] = c, -s * ct, s * st
        own[1, 0], own[1, 1], own[1, 2] = s, c * ct, -c * st
        own[2, 0], own[2, 1], own[2, 2] = 0.0, st, ct
        for i in range(3):
            axes[k, i], places[k, i] = turned[i, 2], at[i]
            at[i] += turned[i, 0] * (a * c) + turned[i, 1] * (a * s) + turned[i, 2] * d
        product(turned, own, new)
        turned[:, :] = new
    for k in range(7):
        x, y, z = at[0] - places[k, 0], at[1] - places[k, 1], at[2] - places[k, 2]
        jacobian[0, k] = axes[k, 1] * z - axes[k, 2] * y
        jacobian[1, k] = axes[k, 2] * x - axes[k, 0] * z
        jacobian[2, k] = axes[k, 0] * y - axes[k, 1] * x


def arm_casadi(ca: Any, q: Any) -> list[Any]:
    at, turned = arm_with(
        ca.vec(q), ca.cos, ca.sin, lambda rows: ca.vertcat(*(ca.horzcat(*r) for r in rows)),
        lambda xs: ca.vertcat(*xs), (ca.SX.zeros(3), ca.SX.eye(3)),
    )
    return [at.T, turned, ca.jacobian(at, q)]


def cases() -> list[Case]:
    p = rng.normal(size=(6, 6))
    return [
        add_case("float64"),
        add_case("float32"),
        Case("policy network 16-16-16-16", [rng.normal(size=(1, 16))], [(1, 16)], policy_graph,
             policy_numpy, policy_loops, policy_casadi),
        Case("Kalman step, 6 states", [rng.normal(size=6), p @ p.T, rng.normal(size=3)],
             [(6,), (6, 6)], kalman_graph, kalman_numpy, kalman_loops, kalman_casadi, [product]),
        Case("7-joint arm with Jacobian", [rng.normal(size=7)], [(3,), (3, 3), (3, 7)],
             arm_graph, arm_numpy, arm_loops, arm_casadi, [product]),
    ]  # fmt: skip
