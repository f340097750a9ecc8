"""composite, checkpoint, define_op, check_grad itself."""

import numpy as np
import pytest

from graphc import elementwise as ew
from graphc import errors, ir, prim, reals
from graphc.composite import checkpoint, composite
from graphc.declare import input, variable
from graphc.define import define_op, same_float
from graphc.ops import OPS, Kind, Op
from graphc.products import matmul
from graphc.reductions import mean, sum
from graphc.testing import check_grad
from graphc.transforms import grad

RNG = np.random.default_rng(3)


def calls(t):
    return [n for n in ir.reachable([t._value]) if n.op.name == "call"]


@composite
def softplus(x, sharpness=1.0):
    return reals.log1p(reals.exp(x * sharpness)) / sharpness


# composite


def test_a_composite_is_one_call_with_a_shared_body(run):
    x, y = input("x", (3,), "float64"), input("y", (3,), "float64")
    a, b, c = softplus(x), softplus(y), softplus(x, sharpness=2.0)
    (na,), (nb,), (nc,) = calls(a), calls(b), calls(c)
    assert na.attrs["name"] == "softplus"
    assert na.attrs["body"] is nb.attrs["body"]
    assert na.attrs["body"] is not nc.attrs["body"]
    v = np.array([-1.0, 0.0, 2.0])
    got = run([a, c], {x: v})
    np.testing.assert_allclose(got, [np.log1p(np.exp(v)), np.log1p(np.exp(2 * v)) / 2], rtol=1e-14)


def test_static_arguments_are_told_apart_by_type():
    @composite
    def scale(x, k):
        return x * k

    x = input("x", (), "int64")
    assert [scale(x, k).dtype.name for k in (1, 1.0, True)] == ["i64", "f32", "i64"]


def test_gradients_go_through_the_body():
    check_grad(lambda x: softplus(x, sharpness=1.5), [RNG.normal(size=4)], order=2)


def test_nested_composites_and_several_results():
    @composite
    def inner(x):
        return reals.sin(x) * x

    @composite(name="pair")
    def outer(x, y):
        return inner(x) * y, inner(y)

    x = input("x", (2,), "float64")
    a, _ = outer(x, x * 2)
    assert calls(a)[0].attrs["name"] == "pair"
    check_grad(lambda x, y: list(outer(x, y)), [RNG.normal(size=3), RNG.normal(size=3)], order=2)


def test_only_one_of_two_results_is_used(run):
    @composite
    def both(x):
        return reals.sin(x), reals.exp(x)

    x = input("x", (), "float64")
    assert float(run(grad(both(x)[1], x), {x: 0.5})) == pytest.approx(np.exp(0.5))


def test_what_a_composite_takes_from_outside_becomes_operands(run):
    w = variable(np.array([2.0, 3.0]), "w")
    z = input("z", (2,), "float64")
    outside = reals.exp(z)

    @composite
    def f(x):
        return x * w + outside

    x = input("x", (2,), "float64")
    y = f(x)
    (n,) = calls(y)
    assert n.args == (x._value, w._value, outside._value)
    assert not any(m.op.name in ("variable", "exp") for m in n.attrs["body"].nodes)
    gw, gz = run(grad(sum(y), [w, z]), {x: [5.0, 7.0], z: [0.0, 1.0]})
    np.testing.assert_allclose(gw, [5, 7])
    np.testing.assert_allclose(gz, [1, np.e])


def test_a_composite_of_a_symbolic_batch(run):
    @composite
    def centred(x):
        return x - mean(x)

    x = input("x", ("batch",), "float64")
    y = centred(x)
    for n in (1, 5):
        v = RNG.normal(size=n)
        np.testing.assert_allclose(run(y, {x: v}), v - v.mean(), atol=1e-15)


def test_composite_refusals():
    x = input("x", (2,))
    with pytest.raises(errors.UsageError, match=r"'sharpness'.: static .* hashable, got set"):
        softplus(x, sharpness={1})
    with pytest.raises(errors.UsageError, match=r"softplus: missing a required argument: 'x'"):
        softplus()
    with pytest.raises(errors.UsageError, match=r"return a Tensor.* got NoneType"):
        composite(lambda x: None, name="nothing")(x)


def test_lists_tuples_and_dicts_of_tensors(run):
    @composite
    def mlp(params, x, *more, scale=1.0):
        for p in params:
            x = reals.tanh(matmul(x, p["w"]) + p["b"]) * scale
        return {"y": x, "extra": (more[0] * 2, [more[1]])}

    params = [
        {"w": input(f"w{i}", (3, 3), "float64"), "b": input(f"b{i}", (3,), "float64")}
        for i in range(2)
    ]
    x, z = input("x", ("n", 3), "float64"), input("z", (), "float64")
    out = mlp(params, x, z, z, scale=2.0)
    (n,) = calls(out["y"])
    assert [v.node.attrs["name"] for v in n.attrs["body"].inputs] == [
        "params0", "params1", "params2", "params3", "x", "more0", "more1"
    ]
    assert n.attrs["body"] is calls(mlp(params, x, z, z, scale=2.0)["y"])[0].attrs["body"]
    leaves = [t for p in params for t in p.values()]
    feeds = {t: RNG.normal(size=t.shape) for t in leaves}
    feeds |= {x: RNG.normal(size=(2, 3)), z: 3.0}
    check_grad([out["y"], out["extra"][0]], feeds)
    assert [float(v) for v in run([out["extra"][0], out["extra"][1][0]], feeds)] == [6.0, 3.0]


def test_a_default_that_is_given_shares_the_body():
    x = input("x", (3,))
    (a,), (b,) = calls(softplus(x)), calls(softplus(x, 1.0))
    assert a.attrs["body"] is b.attrs["body"]


def test_no_gradient_inside_a_composite_is_reported():
    @composite
    def step(x):
        return ew.floor(x)

    x = input("x", ())
    with pytest.raises(errors.GradientError, match="no gradient with respect to input 'x'"):
        grad(step(x), x)


# checkpoint


def test_checkpoint_gives_the_same_gradients_behind_a_barrier(run):
    w = variable(RNG.normal(size=(3, 3)), "w")

    def block(x):
        return reals.tanh(matmul(reals.sin(x), w))

    x = input("x", ("n", 3), "float64")
    plain = sum(block(block(x)) ** 2)
    kept = checkpoint(block)
    cost = sum(kept(kept(x)) ** 2)
    gp, gc = grad(plain, [w, x]), grad(cost, [w, x])
    barriers = [n for n in ir.reachable([t._value for t in gc]) if n.op.name == "barrier"]
    assert len(barriers) == 2
    assert len({n.attrs["id"] for n in barriers}) == 2
    v = RNG.normal(size=(4, 3))
    for a, b in zip(run(gp, {x: v}), run(gc, {x: v}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_checkpoint_recomputes_after_the_cotangent_arrives():
    x = input("x", (3,), "float64")
    y = checkpoint(reals.sin)(x)
    g = grad(sum(reals.exp(y)), x)
    graph = ir.collect("g", [x._value], [g._value])
    (barrier,) = [n for n in graph.nodes if n.op.name == "barrier"]
    assert barrier.args[0].node.op.name == "input"
    assert len(barrier.args) == 2  # the operand and the cotangent


def test_second_derivative_through_checkpoint():
    twice = checkpoint(lambda v: reals.exp(reals.sin(v)))
    check_grad(lambda x: twice(x), [RNG.normal(size=3)], order=3)


# define_op


def test_define_op_runs_differentiates_and_batches(run):
    name = "test_cube"
    cube = define_op(
        Op(name, Kind.ELEMENTWISE, 1, type=same_float(name), ref=lambda x: x * x * x,
           vjp=lambda ct, y, x: [ct * 3 * x * x])
    )
    try:
        x = input("x", (3,), "float64")
        np.testing.assert_allclose(run(cube(x), {x: [1, 2, 3]}), [1, 8, 27])
        check_grad(cube, [RNG.normal(size=4)], order=3)
        from graphc.vmap import vmap

        np.testing.assert_allclose(run(vmap(lambda a: cube(a))(x), {x: [1, 2, 3]}), [1, 8, 27])
        with pytest.raises(errors.UsageError, match="takes 1 operands, got 2"):
            cube(x, x)
        with pytest.raises(errors.UsageError, match="there is an op 'test_cube' already"):
            define_op(OPS[name])
    finally:
        OPS.pop(name, None)


def test_define_op_refusals():
    name = "test_bare"
    bare = define_op(
        Op(name, Kind.ELEMENTWISE, 1, type=same_float(name), ref=lambda x: x,
           vjp=lambda ct, y, x: ct)
    )
    try:
        x = input("x", (3,))
        with pytest.raises(errors.GradientError, match=r"test_bare: its vjp must return a list .* "
                           r"each of its 1 operands, got <Tensor .*\(test_composite.py:"):
            grad(sum(bare(x)), x)
    finally:
        OPS.pop(name, None)
    with pytest.raises(errors.UsageError, match=r"must be ELEMENTWISE, got REDUCE.*composite"):
        define_op(Op("r", Kind.REDUCE, 1, type=same_float("r"), ref=lambda x: x))
    with pytest.raises(errors.UsageError, match="needs a NumPy reference"):
        define_op(Op("r", Kind.ELEMENTWISE, 1, type=same_float("r")))


# check_grad


def test_check_grad_finds_a_wrong_gradient():
    name = "test_wrong"
    wrong = define_op(
        Op(name, Kind.ELEMENTWISE, 1, type=same_float(name), ref=np.sin,
           vjp=lambda ct, y, x: [ct * x])
    )
    try:
        with pytest.raises(AssertionError, match=r"order 1: vjp gives .* central differences"):
            check_grad(wrong, [RNG.normal(size=4)])
    finally:
        OPS.pop(name, None)


def test_check_grad_of_declared_tensors_includes_variables():
    w = variable(RNG.normal(size=(3,)), "w")
    x = input("x", ("n", 3), "float64")
    check_grad(reals.tanh(prim.neg(matmul(x, w))), {x: RNG.normal(size=(2, 3))}, order=2)


def test_check_grad_needs_a_float():
    with pytest.raises(errors.UsageError, match="none of the arguments is a float"):
        check_grad(lambda n: n, [np.array([1])])
