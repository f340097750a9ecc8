"""Small static graphs as straight-line functions: values, bits at every CPU level, what is refused.

Random graphs are those of `native_graphs` with numbers in the place of its dimensions.
"""

from __future__ import annotations

import re

import native_graphs as ng
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from native_reference import Reference

import graphc as gx
from graphc import interpret
from graphc.codegen import compile_graph
from graphc.codegen.calling import fastcall
from graphc.codegen.machine.target import LEVELS, host, x86
from graphc.codegen.straight import blocks, function
from graphc.errors import GraphcError
from graphc.passes.stages import lower

REFUSED = {"index", "scan", "leaf"}
OWN_LEVELS = [v for v in LEVELS if host().cpu.startswith("x86") and v <= host().cpu[-2:]]


@pytest.fixture(scope="module", autouse=True)
def numbers_for_dimensions():
    patch = pytest.MonkeyPatch()
    patch.setattr(ng, "B", 3)
    patch.setattr(ng, "N", 5)
    patch.setattr(ng, "STEPS", [s for s in ng.STEPS if s.__name__ not in REFUSED])
    yield
    patch.undo()


def is_straight(program):
    return [k.name for k in program.kernels] == [f"{program.name}.straight"]


def run(program, target, arrays):
    """The outputs, between guards, by the program's entry point."""
    native = fastcall.Native(fastcall.compile_program(program, target), target)
    made = [np.full(int(np.prod(p.type.shape)) + 16, 77, p.type.dtype.numpy)
            for p in program.outputs]
    inner = [a[8:-8].reshape(p.type.shape) for a, p in zip(made, program.outputs, strict=True)]
    assert native.run(arrays, inner, {}) == 0
    for a in made:
        assert (a[:8] == np.asarray(77, a.dtype)).all() and (a[-8:] == a[:8]).all()
    return inner


def bits(a):
    a = np.asarray(a)
    if a.dtype.kind in "biu":
        return a.tobytes()
    plain = np.where(np.isnan(a.astype(np.float64)), np.asarray(0, a.dtype), a)
    return plain.tobytes() + np.isnan(a.astype(np.float64)).tobytes()


def explore(label, steps, visit):
    """visit(function, arrays, program) for random graphs that the interpreter can evaluate."""
    @given(seed=st.integers(0, 2**32), steps=st.integers(*steps), calm=st.booleans())
    @settings(max_examples=60, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    def check(seed, steps, calm):
        made = ng.make(f"{label}:{seed}", steps)
        f = ng.function(made)
        arrays = [np.ascontiguousarray(a) for a in made.feed({}, seed, calm)]
        try:
            interpret.evaluate(f.graph, arrays, dims={})
        except GraphcError:
            assume(False)
        visit(f, arrays, compile_graph(f.optimized, host(), name="random"))

    check()


def compare(f, arrays, program, what):
    """A program's results with the interpreter's, and its bits with those at other CPU levels."""
    got = run(program, host(), arrays)
    Reference(f.optimized, arrays, {}).check(got, what)
    for level in [v for v in OWN_LEVELS if v >= "v3"][:-1]:
        other = x86(level, host().triple)
        again = run(compile_graph(f.optimized, other, name="random"), other, arrays)
        assert [*map(bits, again)] == [*map(bits, got)], f"{level}\n{f.graph}"


@pytest.mark.parametrize("shard", range(3))
def test_random_graphs(shard):
    """Straight code gives what the interpreter gives, and the same bits on v3 and v4."""
    counts = [0, 0]

    def visit(f, arrays, program):
        counts[0] += 1
        if is_straight(program):
            counts[1] += 1
            compare(f, arrays, program, "straight")

    explore(f"straight {shard}", (2, 20), visit)
    assert counts[1] > counts[0] // 3, counts


def both(inputs, outputs, arrays, **options):
    """(by the straight function, by kernels)"""
    f = gx.function(inputs, outputs, **options)
    programs = [
        compile_graph(f.optimized, host(), fastmath=f.options.fastmath, name="f", kernels=k)
        for k in (False, True)
    ]
    assert is_straight(programs[0]) and not is_straight(programs[1])
    return [run(p, host(), arrays) for p in programs]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32", "uint64"])
@pytest.mark.parametrize("m, k, n", [(1, 8, 16), (3, 3, 3), (6, 6, 1), (2, 9, 7), (5, 1, 7)])
def test_products(dtype, m, k, n):
    """Both operands in memory, one of them made, either turned: with one constant too."""
    if dtype == "float16" and not host().has_f16c:
        pytest.skip("conversions of f16 without hardware are too long for straight code")
    rng = np.random.default_rng(m * k + n)
    shapes = [(m, k), (k, n), (n, k)]
    arrays = [np.rint(rng.normal(size=s) * 3).astype(dtype) if "int" in dtype
              else rng.normal(size=s).astype(dtype) for s in shapes]
    a, b, c = (gx.input(x, s, dtype) for x, s in zip("abc", shapes, strict=True))
    outputs = [a @ b, a @ c.T, (a + a) @ b, (b.T @ a.T), a @ gx.constant(arrays[1]), a @ (b + b)]
    found = [both([a, b, c], [o], arrays) for o in outputs]
    straight, kernels = ([pair[k][0] for pair in found] for k in (0, 1))
    x, y, z = (v.astype(np.float64) if "float" in dtype else v for v in arrays)
    expected = [x @ y, x @ z.T, (x + x) @ y, y.T @ x.T, x @ y, x @ (y + y)]
    close = {"float16": 2e-2, "float32": 2e-6}.get(dtype, 1e-14)
    for got, other, want in zip(straight, kernels, expected, strict=True):
        if "int" in dtype:
            assert (got == want).all() and (other == want).all()
        else:
            np.testing.assert_allclose(got, want, rtol=close, atol=4 * close)
            np.testing.assert_allclose(other, want, rtol=close, atol=4 * close)


def test_zeros_hide_nothing_without_fastmath():
    """0 * NaN is NaN, 0 * -1 is -0.0, and -0.0 + 0.0 is 0.0; x * 1 and x + -0.0 are x."""
    x = gx.input("x", (4,), "float64")
    pattern = gx.constant(np.array([0.0, 1.0, -1.0, 2.0]))
    outputs = [x * pattern, x + gx.constant(np.array([0.0, -0.0, 0.0, -0.0])),
               gx.reshape(x, (2, 2)) @ gx.constant(np.array([[1.0, 0.0], [0.0, 1.0]])),
               gx.sum(x * 0.0)]  # fmt: skip
    f = gx.function([x], outputs)
    assert is_straight(f.program)
    for values in ([np.nan, -0.0, 0.0, np.inf], [-1.0, -0.0, -0.0, -0.0], [np.inf, 1, 2, 3]):
        a = np.array(values)
        with np.errstate(all="ignore"):
            want, _ = interpret.evaluate(f.graph, [a])
        for got, w in zip(f(a), want, strict=True):
            assert bits(got) == bits(w), (a, got, w)
    fast = gx.function([x], outputs, fastmath=True)
    a = np.array([1.5, -2.0, 3.0, 4.0])
    for got, w in zip(fast(a), f(a), strict=True):
        np.testing.assert_allclose(got, w)


def test_states_swap_and_count():
    """Updates read the values from entry, outputs too; a state may be another's new value."""
    a = gx.variable(np.arange(20.0), "a")
    b = gx.variable(-np.arange(20.0), "b")
    n = gx.variable(np.int32(0), "n")
    x = gx.input("x", (20,), "float64")
    f = gx.function([x], [a, a + x, n], updates={a: b, b: a * 2 + x, n: n + 1}, name="f")
    assert is_straight(f.program) and f.memory_plan()
    for k in range(3):
        before, other = a.value, b.value
        x_now = np.full(20, k + 0.5)
        first, second, count = f(x_now)
        assert (first == before).all() and (second == before + x_now).all() and count == k
        assert (a.value == other).all() and (b.value == before * 2 + x_now).all()
    assert n.value == 3 and f.profile(x_now).kernels[0].calls and n.value == 3


def test_inputs_that_are_outputs_and_sizes_of_nothing():
    x = gx.input("x", (3, 0), "float32")
    y = gx.input("y", (), "bool")
    z = gx.input("z", (9,), "bool")
    outputs = [x, gx.sum(x), gx.sum(x, axis=1), x.T @ gx.zeros((3, 4)), x @ gx.zeros((0, 4)),
               y, z[::-1], gx.any(z) & y]  # fmt: skip
    f = gx.function([x, y, z], outputs)
    assert is_straight(f.program)
    arrays = [np.zeros((3, 0), "f4"), np.array(True), np.arange(9) % 2 == 1]
    want, _ = interpret.evaluate(f.graph, arrays)
    for got, w in zip(f(*arrays), want, strict=True):
        assert got.shape == w.shape and got.dtype == w.dtype and (got == w).all()


def test_sines_of_seven_joints_share_a_vector():
    q = gx.input("q", (7,), "float64")
    f = gx.function([q], [gx.sin(q[k]) * (k + 1.0) for k in range(7)])
    assert is_straight(f.program)
    (body,) = re.findall(r"^define i32 @graph\(.*?^}", f.llvm_ir(), re.M | re.S)
    assert "fmul <8 x double>" in body and "fmul double" not in body.partition("extractel")[0]
    a = np.linspace(-3, 1e6, 7)
    np.testing.assert_allclose(f(a), np.sin(a) * np.arange(1, 8), rtol=1e-14)


@pytest.mark.parametrize("make", [
    lambda x, i: gx.take(x, i),
    lambda x, i: i // (i + 1),
    lambda x, i: gx.argmax(x),
    lambda x, i: gx.cumulative_sum(x),
    lambda x, i: gx.zeros((64, 64)) + gx.sum(x),
])  # fmt: skip
def test_what_stays_with_kernels(make):
    x, i = gx.input("x", (5,)), gx.input("i", (), "int64")
    f = gx.function([x, i], make(x, i))
    assert not is_straight(f.program)


def test_the_same_text_every_time():
    x = gx.input("x", (6, 6), "float64")
    f = gx.function([x], [gx.tanh(x @ x.T) @ x, gx.sum(x, axis=0) / gx.max(x)])
    texts = {compile_graph(f.optimized, host(), name="f").llvm for _ in range(3)}
    assert len(texts) == 1


def test_bits_of_a_library(tmp_path):
    x = gx.input("x", (1, 16), "float32")
    w = gx.variable(np.random.default_rng(0).normal(size=(16, 16)).astype("f4") / 4, "w")
    f = gx.function([x], [gx.tanh(x @ w) @ w, gx.nn.softmax(x)], updates={w: w * 0.5}, name="f")
    assert is_straight(f.program)
    a = np.linspace(-2, 2, 16, dtype="f4").reshape(1, 16)
    lib = gx.load(gx.export(f, tmp_path / "libsmall.so"))
    for _ in range(2):
        for got, want in zip(lib.f(a), f(a), strict=True):
            assert np.asarray(got).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rare_cases_in_some_lanes(dtype):
    """Vectors go to a function and come back: both must hold them in the same registers."""
    x = gx.input("x", (8,), dtype)
    top = np.finfo(dtype).max
    a = np.array([0.5, top, -1e6, 3.0, top / 7, np.inf, 1e5, 2.0], dtype)
    for fn in (gx.sin, gx.cos, gx.lgamma, gx.log1p, gx.atan, gx.exp, lambda t: t % 0.7):
        (got,), (want,) = both([x], [fn(x)], [a])
        np.testing.assert_array_equal(got, want)
        (got,), (want,) = both([x], [fn(x[k]) for k in (1,)], [a])
        np.testing.assert_array_equal(got, want)


def test_long_loops_of_one_op_stay_loops():
    """A function of few kernels is worth few lines; its module is as if nothing had been tried."""
    x = gx.input("x", (100,), "float64")
    f = gx.function([x], gx.lgamma(x) + gx.sin(x), name="f")
    assert not is_straight(f.program)
    assert f.llvm_ir() == compile_graph(f.optimized, host(), name="f", kernels=True).llvm


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_large_constants_are_read_where_they_stand(level):
    rng = np.random.default_rng(1)
    values, a = (rng.integers(-9, 9, (66, 16)).astype("f4") for _ in range(2))
    x = gx.input("x", (66, 16))
    f = gx.function([x], gx.sum(x * gx.constant(values), 0))
    program = compile_graph(f.optimized, x86(level), name="f")
    assert is_straight(program) and len(program.constants) == 1
    np.testing.assert_array_equal(f(a), (a * values).sum(0))


def test_ops_that_differ_in_attributes_alone_are_several():
    """Functions of several orders of the same elements, by themselves and beside each other."""
    x, orders = gx.input("x", (3,)), (1, 2, 3)
    a = np.array([0.5, 1, 2.5], np.float32)
    for k, order in enumerate(orders):
        pair = [gx.polygamma(order, x), gx.polygamma(orders[k - 1], x)]
        f = gx.function([x], pair)
        assert is_straight(compile_graph(f.optimized, host(), name="orders"))
        for got, want in zip(f(a), interpret.evaluate(f.graph, [a])[0], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("shard", range(2))
def test_random_graphs_in_blocks(shard, monkeypatch):
    """Graphs that would be one function, as blocks; the same bits at every CPU level."""
    monkeypatch.setattr(function, "MAX_BYTES", 0)
    monkeypatch.setattr(blocks, "LEAST", 2)
    counts = [0]

    def visit(f, arrays, program):
        counts[0] += bool(blocks.gather(lower(f.optimized))[1])
        compare(f, arrays, program, "blocks")

    explore(f"blocks {shard}", (4, 24), visit)
    assert counts[0] > 15, counts
