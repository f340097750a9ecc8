"""What Python does to compile long programs: unrolled loops, and kernels that all differ."""

from __future__ import annotations

import sys

import pytest

import graphc as gx
from graphc.codegen import compile_graph
from graphc.codegen.machine.target import x86
from graphc.passes import run_pipeline

# Calls for each node, for one target on every machine, seen with Python 3.11: 358, where each pass
# took its notes of what it left alone 549.
LOOP = 450
# 1263, where all 16 columns of a nest were written out to see that it is no use 1754.
ROWS = 1500


def rolled_out(steps):
    """The gradient of a double pendulum's way, in Runge and Kutta's steps."""
    start, p = gx.input("s", (4,), "float64"), gx.input("p", (4,), "float64")

    def slope(s):
        a, b, v, w = s[0], s[1], s[2], s[3]
        d, m, n, k, l = a - b, *(p[k] for k in range(4))
        den = 2 * m + n - n * gx.cos(2 * d)
        up = -9.81 * (2 * m + n) * gx.sin(a) - 9.81 * n * gx.sin(a - 2 * b)
        x = (up - 2 * gx.sin(d) * n * (w * w * l + v * v * k * gx.cos(d))) / (k * den)
        y = v * v * k * (m + n) + 9.81 * (m + n) * gx.cos(a) + w * w * l * n * gx.cos(d)
        return gx.stack([v, w, x, 2 * gx.sin(d) * y / (l * den)])

    s = start
    for _ in range(steps):
        k1 = slope(s)
        k2 = slope(s + 0.005 * k1)
        k3 = slope(s + 0.005 * k2)
        s = s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + slope(s + 0.01 * k3))
    return gx.function([start, p], gx.grad(gx.sum(s * s), [start, p]), name="rolled")


def rows_of_16(rounds):
    """Kernels that read neighbours in short rows, no two alike."""
    xs = [gx.input(f"x{k}", ("n", 16)) for k in range(8 * rounds)]
    outs = [
        gx.roll(gx.sin(x), k % 15 + 1, axis=1) * (x + k) + gx.flip(gx.abs(x), axis=1)
        for k, x in enumerate(xs)
    ]
    return gx.function(xs, outs, name="rows")


@pytest.mark.parametrize(("program", "most"), [(rolled_out, LOOP), (rows_of_16, ROWS)])
def test_what_python_does_for_a_long_program(program, most):
    """Its calls for each node, from the declaration to LLVM's text: steadier than times."""

    def calls(steps):
        count = 0

        def seen(frame, event, arg):
            nonlocal count
            count += event == "call"

        sys.setprofile(seen)
        try:
            f = program(steps)
            compile_graph(run_pipeline(f.graph, verify=False), x86("v4"), declared=f.graph)
        finally:
            sys.setprofile(None)
        return count, len(f.graph.nodes)

    calls(1)
    (a, few), (b, many) = calls(3), calls(6)
    assert (b - a) / (many - few) < most
