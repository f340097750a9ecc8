"""What a benchmark case is, and what a peer makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, ...]
DTYPES = {"f32": "float32", "f64": "float64"}  # by their letters in names of cases


@dataclass(frozen=True)
class Call:
    """fn(*args, **kwargs) is what is timed."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.fn(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Built:
    """A case in a library's form. "kept" writes into arrays that live on; not all libraries can."""

    fresh: Call
    kept: Call | None = None


class NotOfferedError(Exception):
    """The library has no such operation; the message says which."""


@dataclass(frozen=True)
class Case:
    """One computation at one size and dtype.

    name: letter/what/dtype/size. inputs: makes the arrays, in the dtype. formula(xp, *arrays): one
    result or several. dims: the inputs' shapes as declared to compilers that know names for sizes.
    wrt: the inputs to differentiate to; results are then the formula's value and its gradients.
    reference(*float64 arrays): what results are compared with; the formula in NumPy unless given,
    and needed with wrt. builders: peer -> builder(peer, case, arrays), in place of what the peer
    makes of the formula. skip: peer -> why it is left out. tolerance: the largest |error| allowed,
    relative to |reference| + root mean square of the reference. calls: results of so many first
    calls are compared (training steps change their state). kept: also time writing into kept
    arrays. primal: the case whose time a gradient's is divided by. threads: counts to run with.
    compilers: whether those take part that call another compiler for seconds (one thread only).
    """

    name: str
    inputs: Callable[[np.random.Generator], Arrays]
    formula: Callable[..., Any] | None
    dims: tuple[tuple[Any, ...], ...]
    wrt: tuple[int, ...] = ()
    reference: Callable[..., Any] | None = None
    builders: Mapping[str, Callable[..., Built]] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 0.0
    calls: int = 1
    quick: bool = False
    kept: bool = False
    primal: str = ""
    threads: tuple[int, ...] = (1,)
    compilers: bool = True
    seed: int = 0

    @property
    def letter(self) -> str:
        return self.name[0]

    @property
    def dtype(self) -> str:
        return DTYPES[self.name.split("/")[2]]

    def arrays(self) -> Arrays:
        return self.inputs(np.random.default_rng(self.seed))

    def allowed(self) -> float:
        """The tolerance; by dtype where the case states none."""
        return self.tolerance or {"float32": 2e-5, "float64": 1e-11}[self.dtype]

    def expected(self, arrays: Arrays) -> list[np.ndarray]:
        """The float64 reference's results for these inputs, flat over calls."""
        from .peers.numpy_peer import NumpyNames

        wide = tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
        fn = self.reference
        if fn is None:
            assert self.formula is not None and not self.wrt, self.name
            formula, names = self.formula, NumpyNames()
            return flat(formula(names, *wide))
        return flat(fn(*wide))


def flat(result: Any) -> list[np.ndarray]:
    """Arrays of a result: one, or nested lists and tuples."""
    if isinstance(result, (tuple, list)):
        return [a for r in result for a in flat(r)]
    return [np.asarray(result)]


def save(file: Any, arrays: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """A case's inputs and the results that are expected of it, for load() in another process."""
    np.savez(file, **{f"input {i}": a for i, a in enumerate(arrays)},
             **{f"result {i}": a for i, a in enumerate(expected)})
    file.flush()


def load(path: str) -> tuple[Arrays, list[np.ndarray]]:
    """What save() wrote."""
    with np.load(path) as file:
        found = {k: file[k] for k in file.files}
    return (tuple(a for k, a in found.items() if k.startswith("input")),
            [a for k, a in found.items() if k.startswith("result")])


def error(result: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest |error| relative to |reference| + its root mean square; inf where shapes, or
    NaNs, or whole numbers differ."""
    worst = 0.0
    if len(result) != len(expected):
        return float("inf")
    for r, e in zip(result, expected, strict=True):
        if r.shape != e.shape or (not r.size and e.size):
            return float("inf")
        if e.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(r, e) else float("inf"))
            continue
        scale = np.abs(e) + np.sqrt(np.mean(e * e)) + 1e-300
        d = np.max(np.abs(r.astype(np.float64) - e) / scale, initial=0.0)
        worst = max(worst, float(d) if d == d else float("inf"))
    return worst
