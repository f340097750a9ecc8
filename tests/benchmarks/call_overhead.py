"""What a call costs beside the kernel: python tests/benchmarks/call_overhead.py

The kernel adds 1 to 16 floats. Printed are nanoseconds per call, best of many runs, of the object
users hold, of its structures, of a function with updates, and of plain NumPy for comparison.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gx


def nanoseconds(
    call: Callable[..., Any], *args: Any, number: int = 5000, repeat: int = 40
) -> float:
    """Best time of one call."""
    timer = timeit.Timer("call(*args)" if len(args) > 1 else "call(x)",
                         globals={"call": call, "args": args, "x": args[0] if args else None})
    return min(timer.repeat(repeat, number)) / number * 1e9


def main() -> None:
    x = gx.input("x", ("n",))
    s = gx.input("s", ())
    total = gx.variable(np.zeros((), np.float32), "total")
    a, one = np.arange(16, dtype=np.float32), np.array(1, np.float32)
    cases = {
        "one output": (gx.function([x], x + 1), a),
        "list of one": (gx.function([x], [x + 1]), a),
        "dict of two": (gx.function([x], {"a": x + 1, "b": x * 2}), a),
        "update, no output": (gx.function([s], None, updates={total: total + s}), one),
        "update and output": (gx.function([s], total, updates={total: total + s}), one),
    }
    for name, (f, arg) in cases.items():
        f(arg)
        print(f"{name:20} {nanoseconds(f, arg):7.0f} ns")
    f = cases["one output"][0]
    scaled = gx.function([x, s], x * s)
    out = np.empty_like(a)
    scaled(a, one)
    print(f"{'and a Python float':20} {nanoseconds(scaled, a, 0.5):7.0f} ns")
    print(f"{'by name':20} {nanoseconds(lambda x: scaled(x=x, s=0.5), a):7.0f} ns")
    print(f"{'out=':20} {nanoseconds(lambda x: f(x, out=out), a):7.0f} ns")
    print(f"{'converting a list':20} {nanoseconds(f, a.tolist()):7.0f} ns")
    print(f"{'numpy x + 1':20} {nanoseconds(lambda x: x + np.float32(1), a):7.0f} ns")
    print(f"{'numpy.empty(16)':20} {nanoseconds(np.empty, 16):7.0f} ns")


if __name__ == "__main__":
    main()
