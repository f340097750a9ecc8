"""Runs first.py for (f) and (g): a process for every number, each with a limit of time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from .cases import large, sizes
from .measure import ROOT, environment

LIMIT = 30.0  # seconds; what takes longer is recorded as failed
LIBRARIES = {
    "alike": ("graphc", "jax", "casadi"),
    "mixed": ("graphc", "jax", "torch.compile", "pytensor"),
    "step": ("graphc", "numpy", "numexpr", "numba", "jax", "torch", "torch.compile", "pytensor"),
}
CACHING = ("graphc", "jax", "pytensor")


def ask(arguments: Sequence[str], folder: str, limit: float = LIMIT) -> dict[str, Any]:
    """The child's answer, or why there is none."""
    command = [sys.executable, "-m", "tests.benchmarks.first", *arguments]
    env = environment(1, folder)
    env["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/jax"
    env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit + 8, cwd=ROOT, env=env
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {limit:.0f} s"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"failed": f"ended with code {done.returncode}"}
    if found.get("seconds", 0) > limit:
        return {"failed": f"more than {limit:.0f} s"}
    return found


def imports(peers: Sequence[str]) -> dict[str, Any]:
    """Seconds and megabytes of importing each library."""
    with tempfile.TemporaryDirectory() as folder:
        ask(["import", "graphc"], folder)
        return {
            p: ask(["import", p], folder) for p in peers if p not in (
                "graphc-fastmath", "numba-fastmath", "torch.compile")
        }


def first_results(
    peers: Sequence[str], chosen: Callable[[Any], bool], say: Callable[[str], None]
) -> dict[str, Any]:
    """{case: {peer: {"cold": ..., "cached": ...}}}; who fails at a size is spared larger ones."""
    found: dict[str, Any] = {}
    out_of_it: set[tuple[str, str]] = set()
    for case in (*large.graphs(), *large.steps()):
        if not chosen(case):
            continue
        family = case.name.rsplit("/", 1)[0]
        kind = family.split("/")[1].removesuffix("_grad")
        for p in LIBRARIES.get(kind, LIBRARIES["step"]):
            if p not in peers or p in case.skip:
                continue
            if (p, family) in out_of_it:
                answer = {"cold": {"failed": "failed at a smaller size"}, "cached": {}}
            else:
                with tempfile.TemporaryDirectory() as folder:
                    answer = {"cold": ask(["call", p, case.name], folder), "cached": {}}
                    if "failed" not in answer["cold"] and p in CACHING:
                        answer["cached"] = ask(["call", p, case.name], folder)
            if "absent" in answer["cold"]:
                continue
            if "failed" in answer["cold"]:
                out_of_it.add((p, family))
            found.setdefault(case.name, {})[p] = answer
            cold = answer["cold"]
            say(f"{case.name:44} {p:14} " + (
                f"failed: {cold['failed']}" if "failed" in cold else
                f"{cold['seconds']:8.3f} s, {cold['peak MB']:6.0f} MB; cached "
                f"{answer['cached'].get('seconds', float('nan')):8.3f} s"
            ))
    return found


def new_sizes(
    peers: Sequence[str], chosen: Callable[[Any], bool], say: Callable[[str], None]
) -> dict[str, Any]:
    """{case: {peer: {"first": [...], "second": [...]}}}."""
    found: dict[str, Any] = {}
    for name, family in sizes.families().items():
        case = family(sizes.FIRST)
        if not chosen(case):
            continue
        for p in ("graphc", "numpy", "jax", "torch", "torch.compile", "pytensor"):
            if p not in peers or (p == "numpy" and case.wrt):
                continue
            with tempfile.TemporaryDirectory() as folder:
                answer = ask(["sizes", p, name], folder, 60)
            found.setdefault(name, {})[p] = answer
            shown = answer.get("failed") or " ".join(f"{t * 1e6:.0f}" for t in answer["first"])
            say(f"{name:44} {p:14} first calls at new sizes, us: {shown}")
    return found
