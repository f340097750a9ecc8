"""(e) from C: the small functions called by a C loop, in a process of their own.

    python -m tests.benchmarks.small_c [ROUNDS]

graphc's functions are exported as libraries, exact and with fastmath; CasADi's generated C is
compiled by cc -O3 -march=native; numba's are its C pointers. Prints JSON: for each case and peer
the least and the median seconds of a call, over rounds taken in turns, or what failed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gx

from .case import error, flat
from .cases import small, small_loops

WHO = ("graphc", "graphc-fastmath", "casadi", "numba")
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
Pointers = ctypes.c_void_p * 5


def harness(folder: Path) -> ctypes.CDLL:
    """small.c beside graphc's two libraries."""
    for name, fastmath in (("exact", False), ("fast", True)):
        functions = [small.graphc_function(what, fastmath) for what in small.SHAPES]
        gx.export(functions, folder / f"lib{name}.so", cpu="native")
    path = folder / "harness.so"
    subprocess.run(
        ["cc", *FLAGS, Path(__file__).with_name("small.c"), "-I", folder, "-L", folder, "-lexact",
         "-lfast", f"-Wl,-rpath,{folder}", "-o", path], check=True,
    )
    code = ctypes.CDLL(str(path))
    code.race.restype = ctypes.c_double
    code.race.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_void_p, ctypes.c_void_p,
    ]
    return code


def casadi_pointer(what: str, folder: Path) -> tuple[Any, int]:
    """(what keeps it loaded, address)."""
    from .peers.casadi_peer import generated

    code = ctypes.CDLL(generated(small.casadi_function(what), str(folder)))
    return code, ctypes.cast(getattr(code, what), ctypes.c_void_p).value or 0


def numba_pointer(what: str) -> tuple[Any, int]:
    """The loop as a C function of five pointers; those it does not use are ignored."""
    import numba

    made = small_loops.functions(what, small.constants())
    arrays = small.arrays_of(what, np.random.default_rng(0))
    outs = flat(made["f"](*arrays))
    names = [f"a{k}" for k in range(3)][: len(arrays)] + [f"r{k}" for k in range(len(outs))]
    views = ", ".join(
        f"carray({n}, {a.shape})" for n, a in zip(names, [*arrays, *outs], strict=True)
    )
    space = {"carray": numba.carray, "into": made["into"]}
    exec(f"def f(a0, a1, a2, r0, r1):\n    into({views})\n", space)
    pointer = numba.types.CPointer(numba.float64)
    made["c"] = numba.cfunc(numba.void(*[pointer] * 5), fastmath=True)(space["f"])
    return made, made["c"].address


def times(rounds: int) -> dict[str, Any]:
    """{case: {peer: {"min", "median"} or {"failed"}}}."""
    if shutil.which("cc") is None:
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = harness(folder)
        return {
            f"e/{what} from C/f64/{'x'.join(map(str, next(iter(shapes.values()))))}":
            case(code, what, folder, rounds) for what, shapes in small.SHAPES.items()
        }


def placed(a: np.ndarray) -> np.ndarray:
    """A copy that begins a line of the cache. Where the heap puts it is chance otherwise: a store
    across two pages takes Golden Cove 10 ns, and x + y of 16 numbers 3 in all without one."""
    room = np.empty(a.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    copy = room[begin : begin + a.nbytes].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


def case(code: ctypes.CDLL, what: str, folder: Path, rounds: int) -> dict[str, Any]:
    """One function's peers."""
    arrays = small.arrays_of(what, np.random.default_rng(0))
    want = [np.asarray(e) for e in flat(small.reference(what, *arrays))]
    ins = [placed(a) for a in arrays]
    outs = [placed(np.zeros(e.shape)) for e in want]
    arena = np.zeros(1 << 16, np.uint8)
    given = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in ins))
    taken = (ctypes.c_void_p * 2)(*(a.ctypes.data for a in outs))
    found: dict[str, Any] = {}
    runs: dict[str, tuple[Callable[[int], float], int]] = {}
    alive = []
    for k, who in enumerate(WHO):
        if k >= 2 and importlib.util.find_spec(who) is None:
            continue
        try:
            keep, address = (
                (None, 0) if k < 2 else
                casadi_pointer(what, folder) if who == "casadi" else numba_pointer(what)
            )
            alive.append(keep)

            def run(n: int, k: int = k, address: int = address) -> float:
                place = list(small.SHAPES).index(what)
                return float(code.race(place, k, n, given, taken, arena.ctypes.data, address))

            for o in outs:
                o[...] = np.nan
            run(1)
            got = [
                o.reshape(o.shape[::-1]).T if who == "casadi" and o.ndim == 2 else o for o in outs
            ]
            worst = error(got, want)
            if not worst < 1e-12:
                raise ValueError(f"wrong result: error {worst:.1e}")
            runs[who] = run, max(1, int(2e-4 / run(200)))
            found[who] = {"error": worst, "times": []}
        except Exception as problem:  # recorded as this peer's result
            found[who] = {"failed": f"{type(problem).__name__}: {problem}"[:200]}
    for _ in range(rounds):
        for who, (run, n) in runs.items():
            found[who]["times"] += [run(n) for _ in range(5)]
    for who in runs:
        all_times = found[who].pop("times")
        found[who]["fresh"] = {"min": min(all_times), "median": statistics.median(all_times)}
    return found


if __name__ == "__main__":
    print(json.dumps(times(int(sys.argv[1]) if sys.argv[1:] else 20)))
