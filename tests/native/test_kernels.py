"""How many kernels functions compile to, that one compilation serves all sizes, and that native
calls run on nothing but native code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc as gx
from graphc import interpret
from graphc.codegen.emission import nest
from graphc.codegen.machine.target import host
from graphc.ops import OPS

RNG = np.random.default_rng(0)
SIZES = (0, 1, 7, 1000)


def kernels(f: gx.Function) -> int:
    return len(f.program.kernels)


def agree(f: gx.Function, *arrays: np.ndarray, rtol: float = 2e-5) -> None:
    """Native code and the interpreter on the declared graph."""
    got = f(*arrays)
    got = list(got.values()) if isinstance(got, dict) else got
    got = got if isinstance(got, list) else [got]
    want, _ = interpret.evaluate(f.graph, arrays)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)


def softmax_like(name):
    x = gx.input("x", ("n", 33))
    y = getattr(gx.nn, name)(x, axis=1)
    return [x], y, gx.grad(gx.sum(y * gx.cos(x)), x)


def layer_norm(affine):
    x = gx.input("x", ("n", 33))
    w, b = (gx.input(k, (33,)) for k in "wb")
    y = gx.nn.layer_norm(x, w, b) if affine else gx.nn.layer_norm(x)
    cost = gx.sum(y * gx.cos(x))
    if not affine:
        return [x], y, gx.grad(cost, x)
    return [x, w, b], y, gx.grad(cost, [x, w, b])


def cross_entropy():
    x, y = gx.input("x", ("n", 33)), gx.input("y", ("n",), "int64")
    cost = gx.nn.cross_entropy(x, y)
    return [x, y], cost, gx.grad(cost, x)


CASES = {
    "softmax": lambda: softmax_like("softmax"),
    "log_softmax": lambda: softmax_like("log_softmax"),
    "layer_norm": lambda: layer_norm(False),
    "affine layer_norm": lambda: layer_norm(True),
    "cross_entropy": cross_entropy,
}


def arrays(inputs, n):
    out = []
    for t in inputs:
        shape = [n if isinstance(s, gx.Dim) else s for s in t.type.shape]
        a = RNG.integers(0, 33, shape) if t.dtype.is_int else RNG.normal(size=shape)
        out.append(a.astype(t.dtype.numpy))
    return out


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_for_every_size(name):
    inputs, value, gradient = CASES[name]()
    for outputs in (value, gradient):
        f = gx.function(inputs, outputs)
        logarithms = name == "cross_entropy" and outputs is value  # of the rows' sums (`row_ends`)
        assert kernels(f) == 1 + logarithms, f"{f.optimized}"
        for n in SIZES:
            if n or "entropy" not in name:  # whose mean over nothing is NaN on both sides
                agree(f, *arrays(inputs, n))
        assert f.compilations == 1


def test_value_and_gradient_of_layer_norm_in_each_input_alone():
    inputs, _, gradients = layer_norm(True)
    for g in gradients:
        assert kernels(gx.function(inputs, g)) == 1


def sums_after_sums():
    """Programs of a reduction and a consumer of it, and in how many kernels they go fastest."""
    a, b, x = gx.input("a", (40, 40)), gx.input("b", (40, 40)), gx.input("x", (40,))
    s, n = gx.input("s", ("n", "n")), gx.input("t", ("n", "n"))
    h, columns = gx.tanh(gx.sum(a * x, axis=1)), gx.tanh(gx.sum(a * x[:, None], axis=0))
    softmax = gx.nn.softmax
    narrow, few = gx.input("narrow", (300, 3)), gx.input("few", (300, 20))
    scaled = a * (x * 2)  # whose loops are those of x and one more
    return {
        "b h": ([a, b, x], gx.sum(b * h, axis=1), 2),
        "b h, exp": ([a, b, x], gx.sum(gx.exp(b) * h, axis=1), 2),
        "b h, any size": ([s, n], gx.sum(n * gx.tanh(gx.sum(s * s, axis=1)), axis=1), 2),
        "a h": ([a, x], gx.sum(a * h, axis=1), 2),
        "rows times h": ([a, b, x], b * h, 2),
        "outer product": ([a, x], x[:, None] * h, 2),
        "columns, then rows": ([a, b, x], gx.sum(b * columns, axis=1), 2),
        "softmax of columns": ([few], gx.sum(softmax(few, axis=0) ** 2, axis=1), 2),
        "softmax of 3 columns": ([narrow], gx.sum(softmax(narrow, axis=0) ** 2, axis=1), 1),
        "softmax of rows": ([few], gx.sum(softmax(few, axis=1) ** 2, axis=0), 1),
        "rows times columns": ([a, b, x], b * columns, 1),
        "a' h": ([a, x], gx.sum(a.T * h, axis=1), 1),
        "b' h": ([a, b, x], gx.sum(b.T * h, axis=1), 1),
        "b' h, a transposed": (
            [a, b, x], gx.sum(b.T * gx.tanh(gx.sum(a.T * x, axis=1)), axis=1), 2),
        "softmax of columns, transposed": (
            [few], gx.sum(softmax(few.T, axis=0) ** 2, axis=1), 1),
        "gradient of a transposed softmax": (
            [a, b], gx.grad(gx.sum(softmax(a.T, axis=1) * b), a), 1),
        "scaled": ([a, x], gx.sum(scaled / gx.sum(scaled, axis=1, keepdims=True), axis=0), 1),
    }


@pytest.mark.parametrize("name", sums_after_sums())
def test_a_sum_is_made_beside_another_where_both_walk_rows(name):
    inputs, y, count = sums_after_sums()[name]
    f = gx.function(inputs, y)
    assert kernels(f) == count, f"{f.optimized}"
    agree(f, *(np.abs(t) + 0.1 for t in arrays(inputs, 40)), rtol=1e-4)


@pytest.mark.parametrize("vectors", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_matrix_is_walked_along_its_rows_whatever_vectors_are_beside_it(
    dtype, vectors, monkeypatch
):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    made, plan = [], nest.plan
    monkeypatch.setattr(nest, "plan", lambda *a, **k: made.append(plan(*a, **k)) or made[-1])
    a = gx.input("a", (50, 70), dtype)
    shared = [gx.input(k, (50,), dtype) for k in "xyz"[:vectors]]
    f = gx.function([a, *shared], gx.sum(a * gx.maximum(sum(shared), 0)[:, None], axis=0))
    agree(f, *arrays([a, *shared], 50), rtol=0.02 if dtype == "float16" else 2e-5)
    assert [s.across for s in made] == [False]


def test_thirty_elementwise_ops_with_broadcasts_are_one_kernel():
    x, row, column = gx.input("x", ("n", "m")), gx.input("r", ("m",)), gx.input("c", ("n", 1))
    y = x
    for i in range(10):
        y = gx.tanh(y * row) + column - i / 7
    f = gx.function([x, row, column], y)
    assert len(f.graph.nodes) >= 30 and kernels(f) == 1
    for n, m in ((0, 3), (1, 1), (7, 33), (50, 64)):
        shapes = ((n, m), (m,), (n, 1))
        agree(f, *(RNG.normal(size=s).astype(np.float32) for s in shapes))
    assert f.compilations == 1


@pytest.mark.parametrize("width", [3, "m"])
def test_code_grows_with_the_reductions_of_a_row_that_wait_for_each_other(width):
    x = gx.input("x", ("n", width))
    made = {}
    for depth in (4, 16, 32):
        y = x
        for k in range(depth):
            y = gx.nn.softmax(y * (2 + k / 8), axis=1)
        made[depth] = gx.function([x], y)
    assert kernels(made[4]) == 1
    text = {depth: len(f.llvm_ir()) for depth, f in made.items()}
    assert text[32] < 2.2 * text[16]
    agree(made[32], RNG.normal(size=(5, 3)).astype("f4"))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_a_product_takes_in_what_is_computed_in_another_order_of_axes(order):
    back = tuple(order.index(k) for k in range(3))
    x = gx.input("x", ("b", "m", "k"))
    w = gx.input("w", ("b", "k", "n"))
    y, h = gx.input("y", ("b", "m", "n")), gx.input("h", (("b", "m", "n")[order[0]],))
    scaled = gx.permute_dims(y, order) * gx.expand_dims(h, axis=(1, 2))
    f = gx.function([x, w, y, h], gx.permute_dims(scaled, back) + gx.exp(x @ w + y))
    assert kernels(f) == 1
    for b, m, k, n in ((1, 1, 1, 1), (3, 17, 1, 9), (2, 5, 40, 33)):
        shapes = (b, m, k), (b, k, n), (b, m, n), ((b, m, n)[order[0]],)
        agree(f, *[0.3 * RNG.normal(size=s).astype("float32") for s in shapes])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
def test_an_update_takes_no_more_kernels_than_parameters(optimizer):
    """With the step counter of Adam, one more number, in one of them."""
    shapes = [(64, 128), (128,), (128, 10), (10,)]
    params = [gx.variable(RNG.normal(size=s).astype("f4"), f"p{i}") for i, s in enumerate(shapes)]
    grads = [gx.input(f"g{i}", s) for i, s in enumerate(shapes)]
    f = gx.function(grads, None, updates=getattr(gx.optim, optimizer)(params, grads, lr=1e-2))
    assert kernels(f) <= len(params)
    before = [p.value for p in params]
    arrays = [RNG.normal(size=s).astype("f4") for s in shapes]
    _, want = interpret.evaluate(f.graph, arrays)
    f(*arrays)
    for p, old in zip(params, before, strict=True):
        assert not np.array_equal(p.value, old)
        np.testing.assert_allclose(p.value, want[p.state], rtol=1e-5, atol=1e-6)


def mlp(x, depth=3, width=32):
    """Layers of relu, the last linear; and their parameters."""
    params = []
    for i in range(depth):
        w = gx.variable(RNG.normal(size=(x.shape[1], width)).astype("f4") / 6, f"w{i}")
        b = gx.variable(RNG.normal(size=width).astype("f4"), f"b{i}")
        params += [w, b]
        x = x @ w + b
        x = gx.nn.relu(x) if i < depth - 1 else x
    return x, params


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_one_kernel_per_layer(depth):
    x = gx.input("x", ("n", 48))
    f = gx.function([x], mlp(x, depth)[0])
    assert kernels(f) == depth
    for n in SIZES:
        agree(f, RNG.normal(size=(n, 48)).astype("f4"), rtol=1e-4)
    assert f.compilations == 1


def training_step():
    x, y = gx.input("x", ("n", 48)), gx.input("y", ("n",), "int64")
    logits, params = mlp(x)
    cost = gx.nn.cross_entropy(gx.nn.layer_norm(logits), y)
    updates = gx.optim.adam(params, gx.grad(cost, params))
    return gx.function([x, y], {"cost": cost, "best": gx.argmax(logits, axis=1)}, updates=updates)


def test_a_training_step_compiles_once():
    f = training_step()
    for n in SIZES:
        x, y = RNG.normal(size=(n, 48)).astype("f4"), RNG.integers(0, 32, n)
        want = interpret.evaluate(f.graph, [x, y])[0][0]
        np.testing.assert_allclose(f(x, y)["cost"], want, rtol=1e-3)
    assert f.compilations == 1


def refuse(*args, **kwargs):
    raise AssertionError("native mode called NumPy or the interpreter")


def test_native_calls_run_on_native_code_alone(monkeypatch):
    step = training_step()
    x = gx.input("x", ("n", 33))
    y = gx.nn.softmax(x, axis=1)
    softmax = gx.function([x], [y, gx.grad(gx.sum(y * y), x), gx.cumulative_sum(x, axis=1)])
    data = RNG.normal(size=(7, 48)).astype("f4"), RNG.integers(0, 32, 7)
    rows = RNG.normal(size=(5, 33)).astype("f4")
    want = interpret.evaluate(step.graph, data)[0], interpret.evaluate(softmax.graph, [rows])[0]
    step.compile()
    softmax.compile()
    names = [
        (module, name)
        for module in (np, np.linalg, np.random, np.lib.stride_tricks)
        for name, member in vars(module).items()
        if callable(member) and not isinstance(member, type) and not name.startswith("_")
    ]
    with monkeypatch.context() as patch:
        for row in OPS.values():
            patch.setitem(row.__dict__, "ref", refuse)
        for name in ("evaluate", "_run", "_step"):
            patch.setattr(interpret, name, refuse)
        for module, name in names:
            patch.setattr(module, name, refuse)
        got = step(*data), softmax(rows)
        with pytest.raises(AssertionError, match="native mode called"):
            np.add(1, 1)
        with pytest.raises(AssertionError, match="native mode called"):
            OPS["add"].ref(1, 1)
    np.testing.assert_allclose(got[0]["cost"], want[0][0], rtol=1e-4)
    assert (got[0]["best"] == want[0][1]).all()
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_becomes_an_output_in_place_is_made_there():
    """exp(x - max), which the gradient divides by its sum, stands in the gradient's own buffer."""
    x = gx.input("x", ("n",))
    top = gx.logsumexp(x)
    f = gx.function([x], [top, gx.grad(top, x)], name="f")
    data = np.linspace(-3, 5, 1000, dtype=np.float32)
    value, slopes = f(data)
    wide = data.astype(np.float64)
    np.testing.assert_allclose(value, np.log(np.exp(wide).sum()), rtol=1e-6)
    np.testing.assert_allclose(slopes, np.exp(wide - np.log(np.exp(wide).sum())), rtol=1e-5)
    assert "f32[n] in arena" not in f.memory_plan() and f.memory_plan().count("output 1") == 2
    again = [np.empty((), np.float32), np.empty(1000, np.float32)]
    f(data, out=again)
    assert again[0] == value and (again[1] == slopes).all()


@pytest.mark.parametrize("output", (True, False))
def test_nothing_is_made_over_what_is_read_through_a_view_elsewhere(output):
    """h - g could stand where h does; but g takes other rows of it, behind a barrier."""
    x = gx.input("x", ("n", 33))
    h = gx.cumulative_sum(x, axis=1)
    product = gx.checkpoint(lambda a: gx.sum(gx.roll(a, 7, axis=0) * a))
    z = h - gx.grad(product(h), h)
    f = gx.function([x], z if output else gx.cumulative_sum(z, axis=1))
    data = RNG.integers(-3, 4, (100, 33)).astype("f4")
    rows = np.cumsum(data, axis=1)
    want = rows - np.roll(rows, 7, axis=0) - np.roll(rows, -7, axis=0)
    np.testing.assert_array_equal(f(data), want if output else np.cumsum(want, axis=1))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("length", [7, 101])
def test_column_sums_of_narrow_integers(dtype, length):
    """Rows of two axes begin at any element, so no vector of sums claims more than its alignment:
    not all machines forgive that."""
    x = gx.input("x", ("n", 3, length), dtype)
    t = x + gx.sum(x, axis=(1, 2), keepdims=True, dtype=dtype)
    f = gx.function([x], [t, gx.sum(t, axis=0, dtype=dtype)])
    size, text = np.dtype(dtype).itemsize, f.llvm_ir()
    moved = rf"<\d+ x i{8 * size}>"
    claims = re.findall(rf"masked\.load\S*\(ptr %\S+, i32 (\d+), .*{moved} zeroinit", text)
    assert claims and {*claims} == {str(size)}
    assert not re.search(rf"(load|store) {moved}.*, align 4$", text, re.MULTILINE)
    given = np.random.default_rng(0).integers(-9, 9, (19, 3, length)).astype(dtype)
    rows, columns = f(given)
    np.testing.assert_array_equal(rows, given + given.sum((1, 2), dtype, keepdims=True))
    np.testing.assert_array_equal(columns, rows.sum(0, dtype))


@pytest.mark.parametrize("threads", [1, 3])
def test_products_that_are_zero_end_there_but_not_the_checks(threads):
    """What follows the first element that settles an `any` is not read, wherever chunks end."""
    x, y = gx.input("x", ("n",), "bool"), gx.input("y", ("n",), "int64")
    found = gx.function([x], [gx.any(x), gx.all(x)], threads=threads)
    product = gx.function([y], gx.prod(y), threads=threads)
    checked = gx.function([x, y], gx.all(x & (7 // y > 0)), threads=threads)
    for n in (1, 4096, 4097, 50_000, 700_000):
        for at in {0, n // 3, n - 1}:
            a = np.zeros(n, bool)
            a[at] = True
            assert [bool(v) for v in found(a)] == [True, n == 1]
            assert [bool(v) for v in found(~a)] == [n > 1, False]
            b = np.where(a, 0, 3)
            assert product(b) == 0
            assert product(b + a * 5) == np.prod(b + a * 5)
            with pytest.raises(gx.GraphcError, match="division by zero"):
                checked(np.zeros(n, bool), b)
    assert [bool(v) for v in found(np.zeros(50_000, bool))] == [False, False]
    assert "settled" in product.llvm_ir()
    assert "settled" not in checked.llvm_ir()


@pytest.mark.parametrize("threads", [1, 4])
def test_places_along_named_axes_are_counted(threads, monkeypatch):
    """Two divisions took longer than a row of 16 elements: the first item of a chunk takes them."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    x, y = gx.input("x", ("a", "b", "c", "d")), gx.input("y", ("b", "d"))
    f = gx.function([x, y], gx.permute_dims(x, (0, 2, 1, 3)) * y, threads=threads)
    rng = np.random.default_rng(3)
    for shape in ((1, 1, 1, 1), (0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 4, 0), (3, 5, 7, 2),
                  (2, 3, 4, 4097), (97, 11, 31, 3)):
        a, b = rng.normal(size=shape).astype("f4"), rng.normal(size=shape[1::2]).astype("f4")
        np.testing.assert_array_equal(f(a, b), a.transpose(0, 2, 1, 3) * b)
    task = f.llvm_ir().partition(".task(")[2].partition("\n}")[0]
    # short rows are one block, and these need not be counted
    ways = re.split(r"\n(?:plain\d+:|longer\d+:(?!\n  br))", task)[1:]
    for way, places in zip(ways[-2:], (2, 3), strict=True):
        before, _, after = way.partition("\nloop")
        assert before.count("urem") == places and "urem" not in after


@pytest.mark.parametrize("columns", [3, 8, 16, 32])
def test_epilogues_have_no_vectors_that_are_wider_than_rows(columns):
    """Columns of a block may be fewer than a row's, and never more: vectors side by side were
    written for 64 of 16, which took LLVM four times as long as those that ran."""
    x, w = gx.input("x", ("m", 5)), gx.input("w", (5, columns))
    f = gx.function([x, w], gx.exp(x @ w) + 1)
    text = f.llvm_ir().partition(".epilogue(")[2].partition("\n}")[0]
    lanes = [int(n) for n in re.findall(r"fadd <(\d+) x float>", text)]
    assert lanes and max(lanes) <= max(columns, host().vector_bits // 32)
    a, b = RNG.normal(size=(33, 5)).astype("f4"), RNG.normal(size=(5, columns)).astype("f4")
    np.testing.assert_allclose(f(a, b), np.exp(a @ b) + 1, rtol=1e-5)


@pytest.mark.parametrize(("columns", "own"), [(10, True), (3, True), (16, False), (300, False)])
def test_epilogues_of_short_rows_are_not_computed_in_place(columns, own):
    """A row's last vector reached into the next row, which waited for it: 2.6 times as long."""
    x, w, b = gx.input("x", ("n", 24)), gx.input("w", (24, columns)), gx.input("b", (columns,))
    f = gx.function([x, w, b], gx.tanh(x @ w + b))
    assert (f"{4 * columns}*n bytes" in f.memory_plan()) == own
    for n in SIZES[:3]:
        agree(f, *(RNG.normal(size=s).astype("f4") for s in ((n, 24), (24, columns), (columns,))))
