"""Print the largest error of every math function, in ULP, per dtype and CPU level.

    python tests/benchmarks/ulp.py [--count 20000] [--ops exp,log] [--levels v2,v3] [--where]
    python tests/benchmarks/ulp.py --every 64      every 64th f32 there is, against f64 functions
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen_scalars"))
from math_reference import BOUNDS, WIDE, exact, samples, ulps
from scalar_harness import levels, run

from graphc.types import f32, f64

SLOW = {"erf": 8, "lgamma": 8, "polygamma": 20}  # references by mpmath: fewer points


def sweep(ops: list[str], chosen: list[str], every: int) -> None:
    """The largest error over every `every`-th f32, of functions that NumPy has in f64."""
    print(f"{'op':12}{'dtype':6}" + "".join(f"{v:>9}" for v in chosen)
          + f"{'bound':>8}{'points':>11}")
    for op in (o for o in ops if o in WIDE and o not in ("pow", "atan2")):
        worst = dict.fromkeys(chosen, 0.0)
        points = 0
        for first in range(0, 1 << 32, 1 << 28):
            x = np.arange(first, first + (1 << 28), every, np.uint32).view(np.float32)
            points += len(x)
            with np.errstate(all="ignore"):
                want = WIDE[op](x.astype(np.float64))
                _, exponent = np.frexp(want)
                step = np.ldexp(1.0, np.maximum(exponent - 24, -149))
                for level in chosen:
                    got, _ = run(op, [x], [f32], f32, level=level, width=16)
                    error = np.abs(got.astype(np.float64) - want) / step
                    error[got == want.astype(np.float32)] = 0  # infinities
                    wrong = np.isnan(got) != np.isnan(want)
                    error[np.isnan(want)] = 0
                    error[wrong] = np.inf
                    worst[level] = max(worst[level], float(np.max(error)))
        print(f"{op:12}{'f32':6}" + "".join(f"{worst[v]:9.3f}" for v in chosen)
              + f"{BOUNDS[op]:8.1f}{points:11}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--ops", default=",".join(BOUNDS))
    p.add_argument("--levels", default=",".join(levels()))
    p.add_argument("--where", action="store_true", help="also print the worst operands")
    p.add_argument("--every", type=int, default=0, metavar="N", help="sweep f32 instead")
    a = p.parse_args()
    chosen = a.levels.split(",")
    if a.every:
        sweep(a.ops.split(","), chosen, a.every)
        return
    print(f"{'op':12}{'dtype':6}" + "".join(f"{v:>9}" for v in chosen)
          + f"{'bound':>8}{'points':>10}{'seconds':>9}")
    for op in a.ops.split(","):
        for d in (f32, f64):
            begin = time.perf_counter()
            orders = (0, 1, 3) if op == "polygamma" else (0,)
            xs = samples(op, d, max(50, a.count // SLOW.get(op, 1)))
            worst = dict.fromkeys(chosen, 0.0)
            at = {}
            for n in orders:
                want = exact(op, xs, n)
                attrs = {"n": n} if op == "polygamma" else None
                for level in chosen:
                    got, _ = run(op, xs, [d] * len(xs), d, level=level,
                                 width=64 // d.itemsize, attrs=attrs)
                    error = ulps(got, want, d)
                    i = int(np.argmax(error))
                    if error[i] >= worst[level]:
                        worst[level] = float(error[i])
                        at[level] = (n, *(float(x[i]) for x in xs), float(got[i]), float(want[i]))
            seconds = time.perf_counter() - begin
            print(f"{op:12}{d.name:6}" + "".join(f"{worst[v]:9.3f}" for v in chosen)
                  + f"{BOUNDS[op]:8.1f}{len(xs[0]):10}{seconds:9.1f}", flush=True)
            if a.where:
                for level in chosen:
                    print("     ", level, *at[level])


if __name__ == "__main__":
    main()
