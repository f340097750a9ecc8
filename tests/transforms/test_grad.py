"""Reverse-mode gradients: values against closed forms and differences, and every refusal."""

import numpy as np
import pytest

from graphc import declare, errors, ir, prim, reals, transforms
from graphc import elementwise as ew
from graphc.composite import checkpoint, composite
from graphc.convert import cast
from graphc.declare import input, stop_gradient, variable
from graphc.passes import autodiff
from graphc.products import matmul
from graphc.reductions import mean, sum
from graphc.testing import check_grad
from graphc.transforms import depends_on, grad, hessian, hvp, value_and_grad, vjp
from graphc.types import f32, i64


def scalar(name):
    return input(name, (), "float64")


def test_textbook_products(run):
    a, b = scalar("a"), scalar("b")
    e = (a + b) * (b + 1)
    assert [float(v) for v in run([e, *grad(e, [a, b])], {a: 2, b: 6})] == [56, 7, 15]


def test_product_and_log(run):
    x, y = scalar("x"), scalar("y")
    z = x * y + reals.log(x)
    value, (dx, dy) = value_and_grad(z, [x, y])
    got = run([value, dx, dy], {x: 2, y: 3})
    np.testing.assert_allclose(got, [6 + np.log(2), 3.5, 2], rtol=1e-15)


def test_one_tensor_in_one_out(run):
    x = scalar("x")
    g = grad(x * x, x)
    assert float(run(g, {x: 3})) == 6
    assert isinstance(grad(x * x, [x]), list)


def test_repeated_gradients_agree(run):
    x, y = scalar("x"), scalar("y")
    f = x**2 + y**3 - reals.sin(x * y)
    first, second = grad(f, [x, y]), grad(f, [x, y])
    expected = [4 - 3 * np.cos(6), 27 - 2 * np.cos(6)]
    for g in (first, second):
        np.testing.assert_allclose(run(g, {x: 2, y: 3}), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("fn", "third"),
    [
        (reals.sin, lambda x: -np.cos(x)),
        (reals.exp, np.exp),
        (reals.log, lambda x: 2 / x**3),
        (lambda x: x**5, lambda x: 60 * x**2),
        (reals.tanh, lambda x: (6 * np.tanh(x) ** 2 - 2) * (1 - np.tanh(x) ** 2)),
        (lambda x: 1 / x, lambda x: -6 / x**4),
        (reals.sqrt, lambda x: 3 / 8 * x**-2.5),
        (reals.atan, lambda x: (6 * x * x - 2) / (1 + x * x) ** 3),
    ],
)
def test_third_derivative(run, fn, third):
    x = scalar("x")
    y = fn(x)
    for _ in range(3):
        y = grad(y, x)
    np.testing.assert_allclose(run(y, {x: 0.7}), third(0.7), rtol=1e-12)


def test_gradient_with_respect_to_an_intermediate(run):
    x = scalar("x")
    h = reals.exp(x)
    cost = h * h + reals.sin(h)
    gh, gx = grad(cost, [h, x])
    got = run([gh, gx], {x: 0.3})
    e = np.exp(0.3)
    np.testing.assert_allclose(got, [2 * e + np.cos(e), (2 * e + np.cos(e)) * e], rtol=1e-14)


def test_gradient_with_respect_to_the_cost_itself(run):
    x = scalar("x")
    y = x * x
    assert [float(v) for v in run(grad(y, [y, x]), {x: 3})] == [1, 6]


def test_chained_intermediates_each_get_their_total(run):
    x = scalar("x")
    a = x * x
    b = a * x
    c = a + b * a
    got = run(grad(c, [b, a, x]), {x: 2})
    # c = a + b a, b = a x: dc/db = a, dc/da = 1 + b + a x, dc/dx = (dc/da) 2 x + dc/db a
    assert [float(v) for v in got] == [4, 17, 17 * 4 + 4 * 4]


def test_second_derivative_with_respect_to_an_intermediate(run):
    x = scalar("x")
    h = x * 3
    g = grad(h**3, h)
    assert float(run(grad(g, h), {x: 2})) == 36


def test_the_same_parameter_twice(run):
    x = scalar("x")
    assert [float(v) for v in run(grad(x * x, [x, x]), {x: 3})] == [6, 6]


def test_fan_out_accumulates_every_path(run):
    x = input("x", (3,), "float64")
    y = sum(x * x + x * 2 + reals.exp(x))
    v = np.array([0.1, -1.0, 2.0])
    np.testing.assert_allclose(run(grad(y, x), {x: v}), 2 * v + 2 + np.exp(v), rtol=1e-14)


def test_variables_and_symbolic_batch(run):
    rng = np.random.default_rng(0)
    x, w = input("x", ("batch", 4), "float64"), variable(rng.normal(size=(4, 2)), "w")
    cost = mean(matmul(x, w) ** 2)
    g = grad(cost, w)
    assert g.type is w.type
    for n in (1, 7):
        xs = rng.normal(size=(n, 4))
        expected = xs.T @ (xs @ w.value) * 2 / (2 * n)
        np.testing.assert_allclose(run(g, {x: xs}), expected, rtol=1e-12)


def test_mlp_against_differences():
    rng = np.random.default_rng(1)

    def mlp(x, w1, b1, w2, b2):
        hidden = reals.tanh(matmul(x, w1) + b1)
        return mean((matmul(hidden, w2) + b2) ** 2)

    shapes = [(5, 4), (4, 6), (6,), (6, 3), (3,)]
    check_grad(mlp, [rng.normal(size=s) for s in shapes], order=2)


def test_accumulated_chunks_equal_the_full_batch(run):
    rng = np.random.default_rng(2)
    w = variable(rng.normal(size=(4, 3)), "w")
    x = input("x", ("batch", 4), "float64")
    y = input("y", ("batch", 3), "float64")
    g = grad(sum((reals.tanh(matmul(x, w)) - y) ** 2), w)
    xs, ys = rng.normal(size=(12, 4)), rng.normal(size=(12, 3))
    full = run(g, {x: xs, y: ys})
    parts = [run(g, {x: xs[i : i + 5], y: ys[i : i + 5]}) for i in (0, 5, 10)]
    np.testing.assert_allclose(np.add.reduce(parts), full, rtol=1e-12)


def test_vjp_of_several_outputs(run):
    x = input("x", (2,), "float64")
    a, b = x * x, reals.sin(x)
    got = run(vjp([a, b], x, [np.array([1.0, 2.0]), np.array([3.0, 4.0])]), {x: [0.5, 1.5]})
    expected = np.array([1, 2]) * 2 * np.array([0.5, 1.5]) + np.array([3, 4]) * np.cos([0.5, 1.5])
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_gradients_carry_the_forward_line():
    x = scalar("x")
    y = reals.sin(x)
    line = y.node.loc.line
    g = grad(y * 1.5, x)
    nodes = [n for n in ir.reachable([g._value]) if n.op.name == "cos"]
    assert [n.loc.line for n in nodes] == [line]


def test_gradients_are_the_same_every_time():
    def declare_it():
        x = input("x", (3,), "float64")
        g = grad(sum(reals.exp(x) * reals.sin(x) + x), x)
        return [n.op.name for n in ir.collect("g", [x._value], [g._value]).nodes]

    assert declare_it() == declare_it()


# Stability: the cost is stabilised before it is differentiated


def test_log_sum_exp_at_1000(run):
    x = input("x", (3,), "float64")
    g = grad(reals.log(sum(reals.exp(x))), x)
    v = np.array([1000.0, 999.0, -1000.0])
    e = np.exp(v - 1000)
    np.testing.assert_allclose(run(g, {x: v}), e / e.sum(), rtol=1e-14)
    h = hessian(reals.log(sum(reals.exp(x))), x)
    p = e / e.sum()
    np.testing.assert_allclose(run(h, {x: v}), np.diag(p) - np.outer(p, p), atol=1e-15)


def test_log_of_a_softmax_composite_at_1000(run):
    @composite
    def softmax_of_mine(x):
        e = reals.exp(x)
        return e / sum(e)

    x = input("x", (3,), "float64")
    g = grad(reals.log(softmax_of_mine(x))[1], x)
    e = np.exp([0.0, -1.0, -2000.0])
    np.testing.assert_allclose(
        run(g, {x: [1000.0, 999.0, -1000.0]}), [0, 1, 0] - e / e.sum(), rtol=1e-14
    )


def test_an_intermediate_stays_itself_under_stabilisation(run):
    x = input("x", (2,), "float64")
    s = sum(reals.exp(x))
    gs, gx = grad(reals.log(s), [s, x])
    assert float(run(gs, {x: [0.0, 0.0]})) == 0.5
    np.testing.assert_allclose(run(gx, {x: [0.0, np.log(3)]}), [0.25, 0.75])
    assert float(run(grad(gs, s), {x: [0.0, 0.0]})) == -0.25


def test_stabilised_inside_a_checkpoint(run):
    x = input("x", (2,), "float64")
    cost = checkpoint(lambda v: reals.log(sum(reals.exp(v))))(x)
    np.testing.assert_allclose(run(grad(cost, x), {x: [1000.0, 1000.0]}), [0.5, 0.5])


# What has no gradient


def test_unconnected_names_the_parameter():
    x, other = scalar("x"), scalar("other")
    with pytest.raises(errors.GradientError, match=r"input 'other' of type f64\[\] \(position 1\)"
                       r".*does not depend on it.*test_grad.py"):
        grad(x * x, [x, other])


def test_unconnected_zero(run):
    x, other = scalar("x"), input("other", ("batch", 2))
    g = grad(x * x, [x, other], unconnected="zero")
    got = run(g, {x: 3, other: np.ones((4, 2))})
    assert float(got[0]) == 6
    assert np.array_equal(got[1], np.zeros((4, 2), "float32"))


def test_second_derivatives_take_the_same_choice(run):
    """The message advises unconnected="zero", which hessian and hvp did not know."""
    x, other = scalar("x"), input("other", (2,), "float64")
    for name, call in (
        ("hessian", lambda **kw: hessian(x * x * x, [x, other], **kw)),
        ("hvp", lambda **kw: hvp(x * x * x, [x, other], [x, other], **kw)),
    ):
        with pytest.raises(errors.GradientError, match=f"^{name}: .*'other'.*unconnected=\"zero\""):
            call()
        second = call(unconnected="zero")
        rows = second if name == "hvp" else [h for row in second for h in row]
        got = run(rows, {x: 3, other: np.ones(2)})
        assert float(got[0]) == 18 * (3 if name == "hvp" else 1)
        assert not any(np.any(g) for g in got[1:])


def test_stop_gradient_cuts(run):
    x = scalar("x")
    assert float(run(grad(x * stop_gradient(x * x), x), {x: 3})) == 9
    with pytest.raises(errors.GradientError, match=r"every path ends at stop_gradient \(test_grad"):
        grad(stop_gradient(x) * 2, x)


def test_path_through_a_step_function():
    x = scalar("x")
    with pytest.raises(errors.GradientError, match=r"ends at floor .*zero everywhere"):
        grad(ew.floor(x), x)


def test_path_through_an_integer():
    x = scalar("x")
    with pytest.raises(errors.GradientError, match=r"ends at cast .*result is i64\[\]"):
        grad(cast(cast(x, i64), f32) * 1.0, x)


def test_unknown_choice_for_unconnected():
    x = scalar("x")
    with pytest.raises(errors.ArgumentError, match='"raise" or "zero", got \'none\''):
        grad(x, x, unconnected="none")


def test_cost_must_be_a_float_scalar():
    x = input("x", (3,))
    with pytest.raises(errors.GradientError, match=r"float scalar, got f32\[3\].*gx.sum.*gx.vjp"):
        grad(x * 2, x)
    n = input("n", (), "int64")
    with pytest.raises(errors.GradientError, match=r"float scalar, got i64\[\]"):
        grad(n * 2, n)


def test_wrt_must_be_float_tensors():
    x, n = scalar("x"), input("n", (), "int64")
    with pytest.raises(errors.GradientError, match=r"respect to floats, got input 'n' of type i64"):
        grad(x * cast(n, x.dtype), n)
    with pytest.raises(errors.GradientError, match="got float at position 1"):
        grad(x * x, [x, 1.0])


def test_cotangents_must_match():
    x = input("x", (3,))
    with pytest.raises(errors.ShapeError, match=r"cotangents\[0\] .* f32\[3\], got f32\[2\]"):
        vjp(x * 2, x, np.ones(2, "float32"))
    with pytest.raises(errors.ArgumentError, match="match outputs in number, got 2 for 1"):
        vjp(x * 2, x, [x, x])


def test_depends_on():
    x, y = scalar("x"), scalar("y")
    cost = ew.floor(x) * 2
    assert depends_on(cost, x)
    assert depends_on(cost, cost)
    assert not depends_on(cost, y)
    assert not depends_on(x, cost)


# Size


def test_a_chain_50000_deep(run):
    x = scalar("x")
    y = x
    for _ in range(50_000):
        y = prim.neg(y)
    g = autodiff.backward([y._value], [prim.full(y.type, 1)._value], [x._value])[0]
    assert float(run(transforms.Tensor(g), {x: 1.0})) == 1.0
    assert float(run(grad(y, x), {x: 1.0})) == 1.0


def test_a_value_used_20000_times(run):
    x = scalar("x")
    y = x
    for _ in range(20_000):
        y = prim.add(y, x)
    assert float(run(grad(y, x), {x: 1.0})) == 20_001


# The pass


def test_as_a_pass_appends_gradients_of_inputs_and_variables(run):
    from graphc.interpret import evaluate

    x, k = input("x", (2,), "float64"), input("k", (2,), "int64")
    w = variable(np.array([3.0, 4.0]), "w")
    unused = input("unused", (), "float64")
    cost = sum(x * w * cast(k, x.dtype))
    g = ir.collect("f", [t._value for t in (x, k, unused)], [cost._value], (), ["cost"])
    new = autodiff.run(g)
    assert new.output_names == ("cost", "grad_x", "grad_unused", "grad_w")
    got = evaluate(new, [np.array([1.0, 2.0]), np.array([5, 6]), np.array(0.0)])[0]
    assert [a.tolist() for a in got] == [63.0, [15.0, 24.0], 0.0, [5.0, 12.0]]


def test_as_a_pass_needs_a_scalar():
    x = input("x", (2,))
    g = ir.collect("f", [x._value], [(x * 2)._value])
    with pytest.raises(errors.GradientError, match=r"first output of @f .* got f32\[2\]"):
        autodiff.run(g)


def test_hessian_textbook(run):
    x, y = scalar("x"), scalar("y")
    f = x**2 + y**3 - reals.sin(x * y)
    h = run(hessian(f, [x, y]), {x: 2, y: 3})
    s, c = np.sin(6), np.cos(6)
    expected = [[2 + 9 * s, 6 * s - c], [6 * s - c, 18 + 4 * s]]
    np.testing.assert_allclose(h, expected, rtol=1e-13)


def test_names_scopes_follow():
    x = scalar("x")
    with declare.name_scope("net"):
        y = reals.sin(x)
    g = grad(y * 1.5, x)
    assert {n.scope for n in ir.reachable([g._value]) if n.op.name == "cos"} == {"net"}
