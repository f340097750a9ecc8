"""Small calls, from Python and from C: python tests/benchmarks/small_calls.py

Four functions whose arithmetic takes less time than most frameworks need to start it: x + y on 16
numbers, a policy network of three layers of 16 units at batch 1, one step of a Kalman filter with
6 states and 3 measurements, and the forward kinematics of a 7-joint arm with its Jacobian.

Each is written as the users of each library write it: for NumPy, for numba with loops, for CasADi
as an SX expression whose generated C is compiled by `gcc -O3 -march=native` and called through
its buffer interface. Values are checked first. Rounds are interleaved; printed is the least time
of a call in nanoseconds, and how many times as long each peer takes as graphc.

Rows "fastmath" stand beside "exact" because gcc contracts multiply and add by default and CasADi
takes 0 * x for 0; numba and NumPy do neither. From C, every function writes into memory it is
given. numba is called from C through `numba.cfunc`.
"""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc as gx

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from small_cases import Array, Case, cases

ROUNDS, NUMBER = 25, 4000


@dataclass
class Contender:
    """One library's version of a case: a call from Python, and one from C."""

    name: str
    call: Any                            # (function, arguments)
    values: Callable[[], Sequence[Array]]
    native: int = 0                      # address of int f(void **)
    pointers: Any = None
    keep: Any = None
    kept: Any = None                     # function, and what it writes to by `out=`


HARNESS = """
#include <time.h>
double time_it(int (*f)(void **), void **a, long n) {
  struct timespec s, e;
  clock_gettime(CLOCK_MONOTONIC, &s);
  for (long i = 0; i < n; i++) if (f(a)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &e);
  return ((e.tv_sec - s.tv_sec) * 1e9 + (e.tv_nsec - s.tv_nsec)) / n;
}
"""


def build(folder: pathlib.Path, name: str, text: str, *others: str) -> ctypes.CDLL:
    """A C file as a loaded library."""
    (folder / f"{name}.c").write_text(text)
    subprocess.run(
        ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", f"{name}.so", f"{name}.c",
         *others, "-lm"], cwd=folder, check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(folder / f"{name}.so"))


def pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def settle(case: Case) -> None:
    """Arguments and results in one block, the same for all: addresses matter at this scale."""
    block = np.zeros(4096, np.uint8)
    at = -block.ctypes.data % 64

    def place(shape: tuple[int, ...]) -> Array:
        nonlocal at
        d = case.arrays[0].dtype
        size = int(np.prod(shape)) * d.itemsize
        out = block[at : at + size].view(d).reshape(shape)
        at += -(-size // 64) * 64
        return out

    for k, a in enumerate(case.arrays):
        new = place(a.shape)
        new[...] = a
        case.arrays[k] = new
    case.given = [place(s) for s in case.results]


def graphc_contender(
    case: Case, folder: pathlib.Path, k: int, fastmath: bool, c: bool
) -> Contender:
    label = "fastmath" if fastmath else "exact"
    names = [f"a{i}" for i in range(len(case.arrays))]
    inputs = [gx.input(n, a.shape, a.dtype) for n, a in zip(names, case.arrays, strict=True)]
    outputs = case.graphc(*inputs)
    f = gx.function(
        inputs, outputs[0] if len(outputs) == 1 else outputs, name="f", fastmath=fastmath
    )
    f(*case.arrays)
    out = Contender(f"graphc {label}", caller(f, case.arrays), lambda: listed(f(*case.arrays)))
    given = case.given[0] if len(outputs) == 1 else case.given
    f(*case.arrays, out=given)
    out.kept = (f, given)
    if c:
        name = f"case{k}_{label}"
        gx.export(f, folder / f"lib{name}.so", cpu="native")
        args = ", ".join(f"a[{i}]" for i in range(len(case.arrays) + len(case.results)))
        library = build(
            folder, f"call_{name}",
            f'#include "lib{name}.h"\nint call(void **a) {{ return {name}_f({args}, 0); }}\n',
            f"lib{name}.so", "-Wl,-rpath,.", f"-L{folder}", f"-Wl,-rpath,{folder}",
        )
        results = case.given
        out.native, out.pointers = address(library, "call"), pointers([*case.arrays, *results])
        out.keep = (library, results)
    return out


def listed(result: Any) -> list[Array]:
    return [result] if isinstance(result, np.ndarray) else list(result)


def caller(f: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    """(f, arrays), which `timeit` calls without anything in between."""
    return (f, tuple(arrays))


def numba_contender(case: Case, folder: pathlib.Path, k: int, c: bool) -> Contender | None:
    try:
        import numba
    except ImportError:
        return None
    scope = dict(case.loops.__globals__)
    for h in case.helpers:
        scope[h.__name__] = numba.njit(h)
    body = numba.njit(type(case.loops)(case.loops.__code__, scope))
    names = ", ".join(f"a{i}" for i in range(len(case.arrays)))
    outs = ", ".join(f"r{i}" for i in range(len(case.results)))
    made = "; ".join(
        f"r{i} = np.empty({s}, np.{case.arrays[0].dtype})" for i, s in enumerate(case.results)
    )
    space: dict[str, Any] = {"np": np, "body": body, "numba": numba}
    exec(f"def f({names}):\n    {made}\n    body({names}, {outs})\n    return {outs}", space)
    f = numba.njit(space["f"])
    f(*case.arrays)
    out = Contender("numba", caller(f, case.arrays), lambda: listed(f(*case.arrays)))
    if c:
        shapes = [a.shape for a in case.arrays] + case.results
        every = [f"a{i}" for i in range(len(shapes))]
        t = getattr(numba.types, str(case.arrays[0].dtype))
        views = "\n".join(
            f"    b{i} = numba.carray(a{i}, {s})" for i, s in enumerate(shapes)
        )
        args = ", ".join(f"b{i}" for i in range(len(shapes)))
        exec(f"def g({', '.join(every)}):\n{views}\n    body({args})\n    return 0", space)
        signature = numba.types.int32(*[numba.types.CPointer(t)] * len(shapes))
        g = numba.cfunc(signature)(space["g"])
        given = ", ".join(["void *"] * len(shapes))
        library = build(
            folder, f"numba{k}",
            f"int (*target)({given});\nint call(void **a) {{ return target("
            + ", ".join(f"a[{i}]" for i in range(len(shapes))) + "); }\n",
        )
        ctypes.c_void_p.in_dll(library, "target").value = g.address
        results = case.given
        out.native, out.pointers = address(library, "call"), pointers([*case.arrays, *results])
        out.keep = (g, library, results)
    return out


def casadi_contender(case: Case, folder: pathlib.Path, k: int) -> Contender | None:
    if case.casadi is None:
        return None
    try:
        import casadi as ca
    except ImportError:
        return None
    # CasADi's matrices stand by columns: ours, by rows, are their transposes
    shapes = [a.shape if a.ndim == 2 else (1, *a.shape) for a in case.arrays]
    symbols = [ca.SX.sym(f"a{i}", *reversed(s)) for i, s in enumerate(shapes)]
    outputs = case.casadi(ca, *(s.T for s in symbols))
    name = f"casadi{k}"
    f = ca.Function(name, symbols, [ca.densify(o.T) for o in outputs])
    generator = ca.CodeGenerator(f"{name}.c")
    generator.add(f)
    text = generator.dump()
    given = len(case.arrays)
    text += (
        f"\nint call(void **a) {{ return {name}((const casadi_real **)a, (casadi_real **)a + "
        f"{given}, 0, work, 0); }}\n"
    ).replace("work", "work" if f.sz_w() else "0")
    if f.sz_w():
        text = text.replace("\nint call", f"\nstatic casadi_real work[{f.sz_w()}];\nint call")
    library = build(folder, name, text)
    external = ca.external(name, str(folder / f"{name}.so"))
    results = case.given
    buffer, trigger = external.buffer()
    for i, a in enumerate(case.arrays):
        buffer.set_arg(i, memoryview(a))
    for i, a in enumerate(results):
        buffer.set_res(i, memoryview(a))

    def values() -> list[Array]:
        trigger()
        return results

    return Contender(
        "CasADi", (trigger, ()), values, address(library, "call"),
        pointers([*case.arrays, *results]), (library, external, buffer, results),
    )


def contenders(case: Case, folder: pathlib.Path, k: int) -> list[Contender]:
    c = shutil.which("gcc") is not None
    found = [
        graphc_contender(case, folder, k, False, c), graphc_contender(case, folder, k, True, c),
        Contender("NumPy", (case.numpy, tuple(case.arrays)),
                  lambda: listed(case.numpy(*case.arrays))),
        numba_contender(case, folder, k, c), casadi_contender(case, folder, k) if c else None,
    ]  # fmt: skip
    return [f for f in found if f is not None]


def check(case: Case, found: Sequence[Contender]) -> None:
    """All values agree with NumPy's, from Python and from C."""
    expected = listed(case.numpy(*case.arrays))
    tolerance = 1e-5 if case.arrays[0].dtype == np.float32 else 1e-9
    for c in found:
        for got, want in zip(c.values(), expected, strict=True):
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance, err_msg=f"{c.name}: {case.name}"
            )
        if c.native:
            results = c.keep[-1]
            for r in results:
                r[...] = np.nan
            call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(c.native)
            assert call(ctypes.addressof(c.pointers)) == 0
            for got, want in zip(results, expected, strict=True):
                np.testing.assert_allclose(
                    got, want, rtol=tolerance, atol=tolerance, err_msg=f"{c.name} in C"
                )


def measure(found: Sequence[Contender], time_it: Any) -> list[list[float]]:
    """[from Python, the same with `out=`, from C] in ns, the least of interleaved rounds."""
    best = [[float("inf")] * 3 for _ in found]
    timers: list[list[timeit.Timer]] = []
    for c in found:
        f, arrays = c.call
        names = ", ".join(f"a{i}" for i in range(len(arrays)))
        space = {"f": f} | {f"a{i}": a for i, a in enumerate(arrays)}
        timers.append([timeit.Timer(f"f({names})", globals=space)])
        if c.kept:
            space["given"] = c.kept[1]
            timers[-1].append(timeit.Timer(f"f({names}, out=given)", globals=space))
    for _ in range(ROUNDS):
        for k, c in enumerate(found):
            for j, timer in enumerate(timers[k]):
                best[k][j] = min(best[k][j], timer.timeit(NUMBER) / NUMBER * 1e9)
            if c.native and time_it:
                best[k][2] = min(best[k][2], time_it(c.native, c.pointers, NUMBER))
    return best


def table(found: Sequence[Contender], times: list[list[float]]) -> None:
    """Nanoseconds, and how many times those of graphc, exact and fastmath, in the same way."""
    exact, fast = times[0], times[1]
    for c, row in zip(found, times, strict=True):
        cells = []
        for j in range(3):
            k = 1 if j == 0 and c.name == "CasADi" else j  # its results stand in given memory
            known = row[j] < float("inf")
            cells.append(
                f"{row[j]:6.0f} {row[j] / exact[k]:6.2f} {row[j] / fast[k]:6.2f}" if known
                else " " * 20
            )
        print(f"  {c.name:16}", "   ".join(cells))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        time_it = None
        if shutil.which("gcc"):
            library = build(folder, "harness", HARNESS)
            time_it = library.time_it
            time_it.restype = ctypes.c_double
            time_it.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        columns = "   ".join(f"{way:>8} exact   fast" for way in ("Python", "out=", "C"))
        for k, case in enumerate(cases()):
            settle(case)
            found = contenders(case, folder, k)
            check(case, found)
            print(f"{case.name}\n{'':16}{columns}")
            table(found, measure(found, time_it))


if __name__ == "__main__":
    main()
