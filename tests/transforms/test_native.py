"""Transforms compiled: native results equal the interpreter's, for several sizes of one compile."""

import numpy as np
import pytest

import graphc as gx
from graphc import dims
from graphc.codegen.elementwise import scalars
from graphc.errors import CompileError
from graphc.ops import OPS

RNG = np.random.default_rng(11)


def both(inputs, outputs):
    jit = gx.function(inputs, outputs)
    interpreted = gx.function(inputs, outputs, mode="interpret")

    def check(*args, rtol=1e-9, atol=1e-12):
        for a, b in zip(jit(*args), interpreted(*args), strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)

    return jit, check


def test_hessian_jvp_and_vmap_compile_once_for_every_batch():
    x = gx.input("x", ("n", 3), "float64")
    w = gx.variable(RNG.normal(size=(3, 3)), "w")
    cost = gx.sum(gx.log(gx.sum(gx.exp(gx.tanh(x @ w)), axis=1)))
    per_row = gx.vmap(lambda row: gx.grad(gx.sum(gx.sin(row @ w)), row))(x)
    outs = [
        gx.hessian(cost, w), gx.hvp(cost, w, np.eye(3)), gx.jvp(cost, x, gx.sin(x)), per_row,
        gx.jacobian(per_row, x),
    ]
    jit, check = both([x], outs)
    for n in (1, 4, 0):
        check(RNG.normal(size=(n, 3)))
    assert jit.compilations == 1


def test_composites_compile():
    @gx.composite
    def norm(v, eps=1e-6):
        return v / gx.sqrt(gx.sum(v * v, axis=-1, keepdims=True) + eps), gx.mean(v)

    x = gx.input("x", ("n", 5), "float64")
    a, b = norm(x)
    cost = gx.sum(a**3) * b
    _, check = both([x], [a, b, gx.grad(cost, x)])
    check(RNG.normal(size=(4, 5)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_op_from_outside_compiles(dtype):
    def emit(L, args, dtypes, out, attrs):
        squared = scalars.emit(L, "mul", [args[0], args[0]], dtypes * 2, out, {})
        return scalars.emit(L, "mul", [squared, args[0]], [out, out], out, {})

    name = "test_native_cube"
    cube = gx.define_op(
        gx.Op(name, gx.Kind.ELEMENTWISE, 1, type=gx.same_float(name), ref=lambda x: x * x * x,
              vjp=lambda ct, y, x: [ct * 3 * x * x]),
        emit=emit,
    )
    try:
        x = gx.input("x", ("n",), dtype)
        y = cube(x * 2)
        _, check = both([x], [y, gx.grad(gx.sum(y), x)])
        check(RNG.normal(size=19).astype(dtype), rtol=4e-3 if dtype == "float16" else 1e-5)
    finally:
        OPS.pop(name, None)
        scalars.EMIT.pop(name, None)


@pytest.mark.parametrize("size", [2, 70_000])
def test_attributes_that_are_equal_but_not_the_same_make_nodes_of_their_own(size):
    """0.0 and -0.0, and 1, 1.0 and True: merged, all had the first one's result."""
    values = [0.0, -0.0, 1, 1.0, True, (0.0,), (-0.0,)]

    def number(by):
        return float(1 + [repr(v) for v in values].index(repr(by)))

    name = "test_native_by"
    by = gx.define_op(
        gx.Op(name, gx.Kind.ELEMENTWISE, 1, attrs=("by",), type=gx.same_float(name),
              ref=lambda x, by: x * number(by)),
        emit=lambda L, args, dtypes, out, attrs: L.op(
            "fmul", "double", args[0], L.k("double", number(attrs["by"]))),
    )
    try:
        x = gx.input("x", (size,), "float64")
        ys = [by(x, by=v) for v in values]
        called = [gx.composite(lambda x, v=v: by(gx.tanh(x), by=v), name="c")(x) for v in values]
        # a kernel for each, which are alike but for the attribute
        sums = [gx.sum(by(gx.cumsum(x), by=v)) for v in values]
        for mode in ("interpret", "jit"):
            f = gx.function([x], [*ys, *called, *sums], mode=mode)
            found = f(np.ones(size))
            for k in range(len(values)):
                np.testing.assert_array_equal(found[k], k + 1.0)
                np.testing.assert_allclose(found[len(values) + k], (k + 1) * np.tanh(1.0))
                np.testing.assert_array_equal(
                    found[2 * len(values) + k], (k + 1) * size * (size + 1) / 2)
    finally:
        OPS.pop(name, None)
        scalars.EMIT.pop(name, None)


@pytest.mark.parametrize(("emit", "text"), [
    (lambda L, args, dtypes, out, attrs: None, "must return the register of the result, got None"),
    (lambda L, args, *rest: scalars.emit(L, "mull", args * 2, *rest), "no code for an op 'mull'"),
])
def test_mistakes_of_an_op_from_outside(emit, text):
    name = "test_native_wrong"
    wrong = gx.define_op(
        gx.Op(name, gx.Kind.ELEMENTWISE, 1, type=gx.same_float(name), ref=lambda x: x), emit=emit
    )
    try:
        x = gx.input("x", ("n",))
        with pytest.raises(CompileError, match=text):
            gx.function([x], wrong(x) + 1).compile()
    finally:
        OPS.pop(name, None)
        scalars.EMIT.pop(name, None)


def test_checkpoint_keeps_less_and_gives_the_same():
    x = gx.input("x", ("n", 16), "float64")
    ws = [gx.variable(RNG.normal(size=(16, 16)) / 4, f"w{i}") for i in range(6)]

    def block(h, w):
        return gx.tanh(h @ w) * gx.sin(h)

    def gradients(block):
        h = x
        for w in ws:
            h = block(h, w)
        return gx.function([x], gx.grad(gx.mean(h * h), ws))

    plain, kept = gradients(block), gradients(gx.checkpoint(block))
    v = RNG.normal(size=(5, 16))
    for a, b in zip(plain(v), kept(v), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)
    sizes = [dims.evaluate(f.program.arena, {"n": 100_000}) for f in (plain, kept)]
    assert sizes[1] < sizes[0] / 1.5
