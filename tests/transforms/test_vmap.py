"""vmap, jvp, jacobian, hessian, hvp: values, symbolic sizes, nesting, refusals."""

import numpy as np
import pytest

from graphc import errors, ir, prim, reals
from graphc.composite import composite
from graphc.declare import constant, input, variable
from graphc.products import matmul
from graphc.reductions import sum
from graphc.transforms import grad, hessian, hvp, jacobian, jvp, vjp
from graphc.vmap import vmap


def vector(name, n, dtype="float64"):
    return input(name, (n,), dtype)


RNG = np.random.default_rng(7)


# vmap


def test_vmap_of_a_matrix_vector_product(run):
    xs, w = input("xs", ("batch", 3), "float64"), input("w", (5, 3), "float64")
    y = vmap(lambda x, w: reals.tanh(matmul(w, x)), in_axes=(0, None))(xs, w)
    assert str(y.type) == "f64[batch,5]"
    wv = RNG.normal(size=(5, 3))
    for n in (0, 1, 4):
        v = RNG.normal(size=(n, 3))
        np.testing.assert_allclose(run(y, {xs: v, w: wv}), np.tanh(v @ wv.T), rtol=1e-14)


def test_vmap_axes_in_and_out(run):
    x = input("x", (3, "n", 2), "float64")
    y = vmap(lambda a: matmul(a, np.ones((2, 4))), in_axes=1, out_axes=-1)(x)
    assert str(y.type) == "f64[3,4,n]"
    v = RNG.normal(size=(3, 5, 2))
    np.testing.assert_allclose(
        run(y, {x: v}), np.moveaxis(np.moveaxis(v, 1, 0) @ np.ones((2, 4)), 0, -1), rtol=1e-14
    )


def test_vmap_closes_over_tensors_and_variables(run):
    w, x, c = variable(np.array([1.0, 2.0, 3.0]), "w"), vector("x", "n"), vector("c", 3)
    outside = reals.exp(c)
    y = vmap(lambda a: a * w + outside)(x)
    cv = np.array([0.0, 1.0, -1.0])
    got = run(y, {x: [1.0, 5.0], c: cv})
    np.testing.assert_allclose(got, np.outer([1, 5], [1, 2, 3]) + np.exp(cv), rtol=1e-15)


def test_nested_vmap_is_an_outer_product(run):
    a, b = vector("a", "n"), vector("b", "m")
    y = vmap(lambda x: vmap(lambda z: x * z + reals.sin(z))(b))(a)
    assert str(y.type) == "f64[n,m]"
    av, bv = RNG.normal(size=3), RNG.normal(size=4)
    np.testing.assert_allclose(
        run(y, {a: av, b: bv}), np.outer(av, bv) + np.sin(bv), rtol=1e-14
    )


def test_vmap_of_a_result_that_is_not_mapped(run):
    x, y = vector("x", "n"), vector("y", 2)
    got = run(list(vmap(lambda a: (a, y * 2))(x)), {x: [1.0, 2.0, 3.0], y: [5.0, 6.0]})
    assert got[0].tolist() == [1, 2, 3]
    assert got[1].tolist() == [[10, 12]] * 3


def test_vmap_of_grad_gives_gradients_per_example(run):
    x, w = input("x", ("n", 3), "float64"), vector("w", 3)
    g = vmap(lambda row: grad(reals.sin(sum(row * w)), w))(x)
    xv, wv = RNG.normal(size=(4, 3)), RNG.normal(size=3)
    np.testing.assert_allclose(
        run(g, {x: xv, w: wv}), np.cos(xv @ wv)[:, None] * xv, rtol=1e-13
    )


def test_grad_through_vmap(run):
    x = vector("x", "n")
    g = grad(sum(vmap(lambda a: a**3)(x)), x)
    np.testing.assert_allclose(run(g, {x: [1.0, 2.0]}), [3, 12])


def test_vmap_through_composites(run):
    @composite
    def norm(v):
        return v / reals.sqrt(sum(v * v))

    @composite
    def twice(v, k):
        return norm(v) * k, k * 2

    x, k = input("x", ("n", 3), "float64"), input("k", (), "float64")
    a, b = vmap(lambda v: twice(v, k))(x)
    names = [n.attrs["name"] for n in ir.reachable([a._value]) if n.op.name == "call"]
    assert names == ["twice"]
    xv = RNG.normal(size=(2, 3))
    got = run([a, b], {x: xv, k: 2.0})
    np.testing.assert_allclose(
        got[0], 2 * xv / np.linalg.norm(xv, axis=1, keepdims=True), rtol=1e-14
    )
    assert got[1].tolist() == [4.0, 4.0]


def test_vmap_of_lists_and_dicts(run):
    params = {"w": input("w", (5, 3), "float64"), "b": input("b", (5,), "float64")}
    x = vector("x", 3)
    both = vmap(lambda p, v: {"y": sum(p["w"] * v) + p["b"], "w": p["w"]}, in_axes=(0, None))
    out = both(params, x)
    wv, bv, xv = RNG.normal(size=(5, 3)), RNG.normal(size=5), RNG.normal(size=3)
    feeds = {params["w"]: wv, params["b"]: bv, x: xv}
    y, w = run([out["y"], out["w"]], feeds)
    np.testing.assert_allclose(y, wv @ xv + bv, rtol=1e-14)
    np.testing.assert_allclose(w, wv)


def test_vmap_leaves_no_stand_in():
    x = vector("x", "n")
    y = vmap(lambda a: prim.sin(a))(x)
    inputs = [n for n in ir.reachable([y._value]) if n.op.name == "input"]
    assert inputs == [x.node]


def test_vmap_refusals():
    x, y = vector("x", "n"), vector("y", "m")
    with pytest.raises(errors.ShapeError, match=r"one size, got n and, for argument 1 .* m"):
        vmap(lambda a, b: a + b)(x, y)
    with pytest.raises(errors.ArgumentError, match=r"in_axes must have one entry for each of 1"):
        vmap(lambda a: a, in_axes=(0, 0))(x)
    with pytest.raises(errors.ArgumentError, match=r"in_axes\[0\] must be an axis of f64\[n\]"):
        vmap(lambda a: a, in_axes=1)(x)
    with pytest.raises(errors.ArgumentError, match="at least one argument"):
        vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(errors.UsageError, match=r"return a Tensor.* got int"):
        vmap(lambda a: 1)(x)


# jvp


def test_jvp_against_differences_and_no_trace(run):
    x, w = vector("x", 3), input("w", (2, 3), "float64")
    y = reals.tanh(matmul(w, reals.exp(x)))
    tx, tw = RNG.normal(size=3), RNG.normal(size=(2, 3))
    pushed = jvp(y, [x, w], [tx, tw])
    inputs = {n for n in ir.reachable([pushed._value]) if n.op.name == "input"}
    assert inputs == {x.node, w.node}
    xv, wv, h = RNG.normal(size=3), 0.1 * RNG.normal(size=(2, 3)), 1e-6
    ends = [run(y, {x: xv + s * h * tx, w: wv + s * h * tw}) for s in (1, -1)]
    np.testing.assert_allclose(
        run(pushed, {x: xv, w: wv}), (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-9
    )


def test_jvp_of_what_does_not_depend(run):
    x, y = vector("x", 2), vector("y", 2)
    got = run(jvp([x * 2, y * 2], x, np.ones(2)), {x: [1, 1], y: [1, 1]})
    assert [a.tolist() for a in got] == [[2, 2], [0, 0]]


def test_vjp_and_jvp_are_transposed(run):
    x = vector("x", 4)
    y = matmul(RNG.normal(size=(3, 4)), reals.sin(x))
    u, t, xv = RNG.normal(size=3), RNG.normal(size=4), RNG.normal(size=4)
    a, b = run([vjp(y, x, u), jvp(y, x, t)], {x: xv})
    assert a @ t == pytest.approx(u @ b, rel=1e-13)


def test_jvp_tangent_must_match():
    x = vector("x", 4)
    with pytest.raises(errors.ShapeError, match=r"tangents\[0\] must have the type of wrt\[0\]"):
        jvp(x, x, np.ones(3))


# jacobian, hessian, hvp


def test_jacobian_with_a_symbolic_batch(run):
    x = input("x", ("batch", 2), "float64")
    y = reals.sin(x) * x
    j = jacobian(y, x)
    assert str(j.type) == "f64[batch,2,batch,2]"
    for n in (1, 3):
        v = RNG.normal(size=(n, 2))
        d = (np.cos(v) * v + np.sin(v)).ravel()
        np.testing.assert_allclose(
            run(j, {x: v}), np.diag(d).reshape(n, 2, n, 2), rtol=1e-13, atol=1e-15
        )


def test_jacobian_of_a_linear_map_is_its_matrix(run):
    a = RNG.normal(size=(3, 4))
    x = vector("x", 4)
    np.testing.assert_allclose(run(jacobian(matmul(a, x), x), {x: np.zeros(4)}), a)


def test_jacobian_through_a_composite_and_of_a_list(run):
    @composite
    def softmax(v):
        e = reals.exp(v)
        return e / sum(e)

    x, s = vector("x", 3), input("s", (), "float64")
    jx, js = jacobian(softmax(x * s), [x, s])
    assert str(js.type) == "f64[3]"
    v = np.array([0.1, 0.2, 0.7])
    p = np.exp(v) / np.exp(v).sum()
    expected = np.diag(p) - np.outer(p, p)
    got = run([jx, js], {x: v, s: 1.0})
    np.testing.assert_allclose(got[0], expected, rtol=1e-13)
    np.testing.assert_allclose(got[1], expected @ v, rtol=1e-12)


def test_jacobian_of_many_outputs_in_few_inputs(run):
    """Column by column, beside one that is made row by row: nothing has two axes of outputs."""
    p, t, w, u = vector("p", 6), input("t", ("n", 50), "float64"), vector("w", 100), vector("u", 3)
    bumps = p[0] * reals.exp(-(((t - p[1]) / p[2]) ** 2)) + reals.sin(p[3] * p[4]) * t
    values = {
        p: np.array([1.5, 0.2, 0.7, 0.1, -0.4, 0.3]), t: np.linspace(-1, 1, 150).reshape(3, 50),
    }
    got = jacobian(bumps, p)
    assert got.shape == (*t.shape, 6)
    found = run(got, values)
    for k in range(6):
        column = run(jvp(bumps, p, constant(np.eye(6)[k])), values)
        np.testing.assert_allclose(found[..., k], column, rtol=1e-12, atol=1e-14)
    g = ir.collect("g", [p._value, t._value], [got._value])
    assert max(v.type.ndim for n in g.nodes for v in n.outs) <= 3
    both = w * u[0] + sum(p * p)
    values = {w: np.arange(100.0), u: np.array([2.0, 0, 0]), p: values[p]}
    by_w, by_u, by_p = run(jacobian(both, [w, u, p]), values)
    np.testing.assert_array_equal(by_w, 2 * np.eye(100))
    np.testing.assert_array_equal(by_u, np.stack([values[w], 0 * values[w], 0 * values[w]], 1))
    np.testing.assert_allclose(by_p, np.tile(2 * values[p], (100, 1)), rtol=1e-12)
    nothing = run(jacobian(w * 2, u, unconnected="zero"), values)
    np.testing.assert_array_equal(nothing, np.zeros((100, 3)))
    with pytest.raises(errors.GradientError):
        jacobian(w * 2, u)


def test_hessian_times_vector(run):
    x = vector("x", "n")
    f = sum(reals.exp(x) * reals.sin(x)) * sum(x * x)
    v, xv = RNG.normal(size=4), RNG.normal(size=4)
    vector_in = vector("v", "n")
    h, hv = run([hessian(f, x), hvp(f, x, vector_in)], {x: xv, vector_in: v})
    assert h.shape == (4, 4)
    np.testing.assert_allclose(h, h.T, rtol=1e-11)
    np.testing.assert_allclose(h @ v, hv, rtol=1e-11)


def test_hessian_of_a_linear_function_is_zero(run):
    x, y = vector("x", 2), vector("y", 2)
    h = run(hessian(sum(x * 3) + sum(y), [x, y]), {x: [1, 1], y: [1, 1]})
    assert all(np.array_equal(b, np.zeros((2, 2))) for row in h for b in row)


def test_hessian_of_a_quadratic_is_its_matrix(run):
    a = RNG.normal(size=(3, 3))
    x = vector("x", 3)
    h = run(hessian(sum(x * matmul(a, x)), x), {x: np.ones(3)})
    np.testing.assert_allclose(h, a + a.T, rtol=1e-13)
