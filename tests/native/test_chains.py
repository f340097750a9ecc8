"""Chains of kernels give the bits of the kernels one by one, and keep blocks of what they make.

Blocks of a few rows, which other tests never see, meet every boundary soon.
"""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gx
from graphc import dims, interpret
from graphc.codegen import compile_graph
from graphc.codegen.chain import kernel as chain
from graphc.codegen.machine.target import host
from graphc.passes import chains, fuse
from graphc.types import as_dtype


def separate(g):
    """The fuse pass without chains."""
    return fuse.Fusion(g).run()


def attention(dtype="float32"):
    """Causal attention with a bias for each key, for any sizes."""
    b, n = gx.dim("b"), gx.dim("n")
    q, k, v = (gx.input(name, (b, 3, n, 16), dtype) for name in "qkv")
    bias = gx.input("bias", (b, n), dtype)
    scores = gx.matmul(q, gx.matrix_transpose(k)) * 0.25 + gx.reshape(bias, (b, 1, 1, n))
    at = gx.arange(n)
    scores = gx.where(gx.reshape(at, (n, 1)) >= gx.reshape(at, (1, n)), scores, -1e30)
    return [q, k, v, bias], gx.matmul(gx.nn.softmax(scores, axis=-1), v)


def gradient(dtype="float32"):
    """That of attention, beside the value: scores are needed twice, and sums run over rows."""
    inputs, out = attention(dtype)
    loss = gx.sum(out * out)
    return inputs, [loss, *gx.grad(loss, inputs[:3])]


def weighted(dtype="float32"):
    """The output and a gradient that does not need it: either may come first."""
    inputs, out = attention(dtype)
    c = gx.input("c", out.shape, dtype)
    return [*inputs, c], [out, *gx.grad(gx.sum(out * c), inputs[:3])]


def heads(dtype="float32"):
    """The gradient where heads are parts of longer rows, so that operands come transposed."""
    x, c = gx.input("x", ("b", "n", 48), dtype), gx.input("c", ("b", "n", 48), dtype)
    b, n = x.shape[:2]
    q, k, v = (
        gx.swapaxes(gx.reshape(x * s, (b, n, 3, 16)), 1, 2) for s in (1.0, 0.5, 2.0)
    )
    p = gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)) * 0.25, axis=-1)
    out = gx.reshape(gx.swapaxes(gx.matmul(p, v), 1, 2), (b, n, 48))
    return [x, c], gx.grad(gx.sum(gx.tanh(out) * c), [x])


def network(dtype="float32"):
    """Two layers whose hidden rows are long."""
    x = gx.input("x", ("b", "n", 16), dtype)
    w1, w2 = gx.input("w1", (16, 256), dtype), gx.input("w2", (256, 16), dtype)
    return [x, w1, w2], gx.nn.gelu(x @ w1) @ w2 + x


def gram(dtype="float32"):
    """A product with itself is summed over rows: it has one operand."""
    q = gx.input("q", ("b", "n", 16), dtype)
    k, v = (gx.input(name, ("b", 256, 16), dtype) for name in "kv")
    p = gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)), axis=-1)
    return [q, k, v], [gx.matmul(p, v), gx.matmul(gx.matrix_transpose(p), p)]


def shared(dtype="float32"):
    """Keys that two heads share, values that all members do: no product stores them for each."""
    q = gx.input("q", ("b", 2, "n", 16), dtype)
    k, v = gx.input("k", ("b", 1, 256, 16), dtype), gx.input("v", (256, 16), dtype)
    p = gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)), axis=-1)
    return [q, k, v], gx.matmul(p, gx.broadcast_to(v, ("b", 2, 256, 16)))


def feed(inputs, sizes, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [[dims.evaluate(s, sizes) for s in t.shape] for t in inputs]
    return [rng.normal(size=s).astype(t.dtype.numpy) for s, t in zip(shapes, inputs, strict=True)]


def bits(results):
    return [a.tobytes() for a in (results if isinstance(results, list) else [results])]


def functions(make, dtype, **options):
    inputs, out = make(dtype)
    plain = (*gx.PIPELINE[:-1], separate)
    return inputs, [gx.function(inputs, out, pipeline=p, **options) for p in (gx.PIPELINE, plain)]


@pytest.fixture(params=[(1 << 10, 1, 8), (1 << 12, 5, 40), (1 << 14, 3, 1 << 20)])
def small_blocks(request, monkeypatch):
    """Bytes, rows and cycles of a block that are small."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    for name, value in zip(("BLOCK_BYTES", "LEAST_ROWS", "BLOCK_CYCLES"), request.param,
                           strict=True):  # fmt: skip
        monkeypatch.setattr(chain, name, value)


@pytest.mark.parametrize(
    "make", (attention, gradient, weighted, heads, network, gram, shared))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_bits_are_those_of_the_kernels(make, dtype, small_blocks):
    inputs, (f, g) = functions(make, dtype)
    sizes = [(1, 1), (1, 31), (2, 32), (1, 33), (3, 16), (4, 5), (7, 2), (0, 3)]
    if make in (gradient, weighted, heads, gram):  # chains of 192 or 256 rows begin and end
        sizes += [(1, 191), (2, 193), (1, 255), (2, 257), (1, 300)]
    for b, n in sizes:
        arrays = feed(inputs, {"b": b, "n": n})
        assert bits(f(*arrays)) == bits(g(*arrays)), (b, n)
    assert any(k.text.startswith("blocks") for k in f.kernels) and len(g.kernels) > 1
    assert f.compilations == g.compilations == 1


MASKS = {
    "kept": (lambda r, c, s: gx.where(r >= c, s, -np.inf), True),
    "left out": (lambda r, c, s: gx.where(c > r, -1e9, s), True),
    "strict": (lambda r, c, s: gx.where(c < r, s, -1e9), True),
    "shallow": (lambda r, c, s: gx.where((r >= c) & (c > 2), s, -100.0), True),  # exp: subnormal
    "triangle": (lambda r, c, s: gx.where(gx.tril(gx.ones((*s.shape[1:],))) > 0, s, -1e9), True),
    "scaled": (lambda r, c, s: -gx.where(r < c, np.inf, -s) * 0.5, True),
    "of rows": (lambda r, c, s: gx.where(r <= c, s, -1e9), False),
    "read anyway": (lambda r, c, s: gx.where(r >= c, s, 0.5 * s), False),
}


@pytest.mark.parametrize("name", MASKS)
def test_columns_that_a_mask_leaves_out(name, small_blocks):
    """They are not multiplied; whatever is there, infinities and NaN too, bits are the same."""
    mask, skips = MASKS[name]
    q, k, v = (gx.input(x, ("b", "n", 16)) for x in "qkv")
    at = gx.arange(q.shape[1])
    scores = mask(gx.expand_dims(at, axis=1), at, gx.matmul(q, gx.matrix_transpose(k)))
    out = gx.matmul(gx.nn.softmax(scores, axis=-1), v)
    f, g = (gx.function([q, k, v], out, pipeline=(*gx.PIPELINE[:-1], p), name="f")
            for p in ("fuse", separate))
    assert any("*block.used+i2]" in k.text for k in f.kernels) == skips
    assert ("call i1 @graphc_any_nonzero" in f.llvm_ir()) == skips
    for b, n in ((1, 1), (2, 63), (1, 65), (2, 129), (1, 300)):
        arrays = feed([q, k, v], {"b": b, "n": n})
        arrays[1][0, n // 2, 3] = np.inf if n == 65 else np.nan
        want = g(*arrays)
        np.testing.assert_array_equal(f(*arrays), want)
        assert not skips or n == 1 or np.isfinite(want[0, : n // 2 - 1]).all()
        arrays[0] *= 1e6  # so that many scores are lower than what the mask puts there
        np.testing.assert_array_equal(f(*arrays), g(*arrays))


def test_names_of_sizes_within_a_chain_are_no_names_of_dimensions(monkeypatch):
    """Columns that are left out are a size of the kernels inside, beside the program's own."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr("graphc.passes.chains.TYPICAL", 8)
    q, k = (gx.input(x, (1, 1024, 16)) for x in "qk")
    v = gx.input("v", (1, 1024, "used"))
    at = gx.arange(1024)
    scores = gx.where(at[:, None] >= at, gx.matmul(q, gx.matrix_transpose(k)), -1e9)
    f = gx.function([q, k, v], gx.matmul(gx.nn.softmax(scores, axis=-1), v), name="f")
    assert len(f.kernels) == 1 and "used" in f.kernels[0].text
    for n in (5, 16, 1, 0):
        arrays = feed([q, k, v], {"used": n})
        (want,), _ = interpret.evaluate(f.graph, arrays)
        np.testing.assert_allclose(f(*arrays), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ("int8", "uint8", "bfloat16"))
@pytest.mark.parametrize("size", ("n", 300))
def test_positions_that_wrap_or_round_are_no_causal_mask(dtype, size, small_blocks):
    q, k, v = (gx.input(x, (size, 16)) for x in "qkv")
    at = gx.arange(q.shape[0], dtype=dtype)
    scores = gx.where(gx.expand_dims(at, axis=1) >= at, gx.matmul(q, k.T), -np.inf)
    f = gx.function([q, k, v], gx.matmul(gx.nn.softmax(scores, axis=-1), v))
    arrays = feed([q, k, v], {"n": 300})
    i = np.arange(300).astype(as_dtype(dtype).numpy)
    scores = np.where(i[:, None] >= i, arrays[0] @ arrays[1].T, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    want = weights / weights.sum(1, keepdims=True) @ arrays[2]
    np.testing.assert_allclose(f(*arrays), want, rtol=1e-4, atol=1e-5)


def causal(b, n, m, dtype="float32", shared=False):
    """(inputs, the value and its gradient): m keys of each head, which they may share."""
    q, c = (gx.input(name, (b, n, 16), dtype) for name in "qc")
    k, v = (gx.input(name, (m, 16) if shared else (b, m, 16), dtype) for name in "kv")
    at = gx.expand_dims(gx.arange(q.shape[1]), axis=1) >= gx.arange(k.shape[-2])
    scores = gx.where(at, gx.matmul(q, gx.matrix_transpose(k)) * 0.25, -np.inf)
    out = gx.matmul(gx.nn.softmax(scores, axis=-1), v)
    if shared:  # sums over heads as well as rows are kernels of their own
        return [q, k, v, c], [out]
    return [q, k, v, c], [out, *gx.grad(gx.sum(out * c), [q, k, v])]


SPECIAL = {
    "finite": lambda q, k, v, c, j: None,
    "infinite in V": lambda q, k, v, c, j: v[..., j, 3:4].fill(-np.inf),
    "NaN in V": lambda q, k, v, c, j: v[..., j, 5:6].fill(np.nan),
    "infinite in the gradient": lambda q, k, v, c, j: c[..., j, 2:3].fill(np.inf),
    "products that overflow": lambda q, k, v, c, j: (
        c[..., j, 2:3].fill(np.sqrt(np.finfo(c.dtype).max)),
        v[..., j:, 2].fill(4 * np.sqrt(np.finfo(c.dtype).max)),
    ),
    "NaN in K": lambda q, k, v, c, j: k[..., j, 2:3].fill(np.nan),
    "NaN in Q": lambda q, k, v, c, j: q[..., j, 2:3].fill(np.nan),
    # p v rounds to -0 in the first rows; 0 times the others gives 0, and -0 + 0 is 0
    "negative zeros": lambda q, k, v, c, j: (
        v[..., :j, :].fill(-np.finfo(v.dtype).smallest_subnormal), v[..., j:, :].fill(1),
        q[..., :, :].fill(0),
    ),
}


@pytest.mark.parametrize("args", ((2, "n", "n"), (1, "n", "m", "float64"),
                                  ("b", "n", "n", "float32", True)))  # fmt: skip
def test_weights_that_a_mask_makes_zero(args, small_blocks):
    """They are not multiplied where that gives the same bits, NaN apart."""
    inputs, out = causal(*args)
    f, g = (gx.function(inputs, out, pipeline=(*gx.PIPELINE[:-1], p)) for p in ("fuse", separate))
    assert "call i1 @graphc_any_nonzero" in f.llvm_ir()
    for n, m in ((1, 1), (65, 65), (130, 130), (63, 200), (200, 129)):
        m = m if args[2] == "m" else n
        for special in SPECIAL.values():
            arrays = feed(inputs, {"b": 3, "n": n, "m": m})
            special(*arrays, min(n, m) // 2)
            for a, b in zip(f(*arrays), g(*arrays), strict=True):
                t = f"u{a.itemsize}"
                same = (a.view(t) == b.view(t)) | (np.isnan(a) & np.isnan(b))
                assert same.all(), (special, n, m)


@pytest.mark.parametrize("size", ((1, 1100), (2, 1025)))
def test_a_causal_gradient_at_the_real_block_size(size):
    """One head too, where rows are all that blocks share; and nothing is written outside."""
    b, n = size
    inputs, out = causal(b, n, n)
    plain = gx.function(inputs, out, pipeline=(*gx.PIPELINE[:-1], separate))
    arrays = feed(inputs, {})
    want = plain(*arrays)
    for threads in (1, 2, 4):
        f = gx.function(inputs, out, threads=threads)
        assert sum(k.text.startswith("blocks") for k in f.kernels) == 2
        guarded = [np.full((b + 2, n, 16), 7, "f") for _ in out]
        f(*arrays, out=[a[1:-1] for a in guarded])
        assert bits([a[1:-1] for a in guarded]) == bits(want)
        assert all((a[[0, -1]] == 7).all() for a in guarded)


@pytest.mark.parametrize("make", (attention, gradient, weighted, heads, network, gram))
def test_bits_at_the_real_block_size(make):
    inputs, (f, g) = functions(make, "float32")
    for b, n in ((1, 127), (1, 128), (2, 129), (1, 700), (1, 701)):
        arrays = feed(inputs, {"b": b, "n": n})
        assert bits(f(*arrays)) == bits(g(*arrays)), (b, n)


@pytest.mark.parametrize("make", (attention, gradient, weighted, heads, network, gram))
def test_any_number_of_threads(make, monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    arrays = None
    results = []
    for threads in (1, 2, 4):
        inputs, (f, _) = functions(make, "float32", threads=threads)
        arrays = arrays or feed(inputs, {"b": 3, "n": 401})
        results += [bits(f(*arrays)) for _ in range(5)]
    assert all(r == results[0] for r in results)


def test_values():
    """Against NumPy, with rows whose scores are all masked but one."""
    inputs, (f, _) = functions(attention, "float64")
    q, k, v, bias = arrays = feed(inputs, {"b": 2, "n": 150})
    s = q @ k.swapaxes(-1, -2) * 0.25 + bias[:, None, None]
    s = np.where(np.tri(150, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(f(*arrays), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("make", (gradient, weighted, heads))
def test_memory_of_a_gradient(make):
    """Blocks, and a few arrays that grow with the length."""
    inputs, out = make()
    f = gx.function(inputs, out)
    assert sum(chains.is_chain(n) for n in f.optimized.nodes if n.op.name == "fused") == 2
    arena = compile_graph(f.optimized, host()).arena
    for n in (1024, 8192, 65536):
        assert dims.evaluate(arena, {"b": 2, "n": n}) < (5 << 20) + 12 * (2 * 3 * n * 16 * 4)


def test_an_empty_sum_is_zero():
    """Where there are no rows, what sums over them is made nonetheless."""
    q, c = gx.input("q", (2, "n", 16)), gx.input("c", (2, "n", 16))
    k, v = gx.input("k", (2, "m", 16)), gx.input("v", (2, "m", 16))
    out = gx.matmul(gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)), axis=-1), v)
    f = gx.function([q, k, v, c], gx.grad(gx.sum(out * c), [q, k, v]))
    assert f.kernels[0].text.startswith("blocks")
    none, some = np.zeros((2, 0, 16), "f"), np.ones((2, 5, 16), "f")
    dq, dk, dv = f(none, some, some, none)
    assert dq.shape == none.shape and not dk.any() and not dv.any()


def test_memory_does_not_grow_with_the_square():
    inputs, out = attention()
    g = gx.function(inputs, out).optimized
    arena = compile_graph(g, host()).arena
    plain = compile_graph(separate(gx.function(inputs, out, pipeline=gx.PIPELINE[:-1]).optimized),
                          host()).arena  # fmt: skip
    for n in (1024, 8192, 65536):
        sizes = {"b": 2, "n": n}
        assert dims.evaluate(arena, sizes) < 5 << 20
        assert dims.evaluate(plain, sizes) > 4 * 2 * 3 * n * n
    # and where a single row is more than workers' scratch, one row stands in the arena
    assert dims.evaluate(arena, {"b": 2, "n": 1 << 21}) < (1 << 21) * 4 + (2 << 20)


def test_a_row_larger_than_the_scratch_of_workers(monkeypatch):
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    monkeypatch.setattr(chain, "SCRATCH_BYTES", 4096)
    inputs, (f, g) = functions(attention, "float32", threads=2)
    arrays = feed(inputs, {"b": 1, "n": 300})
    assert bits(f(*arrays)) == bits(g(*arrays))


def test_what_the_plan_says():
    inputs, out = network()
    f = gx.function(inputs, out, name="f")
    assert f.kernels[0].text.splitlines()[0] == "blocks of [b,n]:"
    assert "f.k0.0: f32[block.0,block.1,256] in scratch 0" in f.kernels[0].text
    assert "f.k0.1: f32[block.0,block.1,16] in output 0" in f.kernels[0].text
    assert "f.k0: f32[b,n,16] in output 0" in f.memory_plan()


def kinds(inputs, out):
    g = gx.function(inputs, out).optimized
    return [chains.is_chain(n) for n in g.nodes if n.op.name == "fused"]


def test_what_is_no_chain():
    q, k, v = (gx.input(name, ("b", "n", 16)) for name in "qkv")
    scores = gx.matmul(q, gx.matrix_transpose(k))
    p = gx.nn.softmax(scores, axis=-1)
    assert kinds([q, k, v], gx.matmul(p, v)) == [True]
    # what is wanted itself, what mixes rows, and what is small is made as a whole
    assert not any(kinds([q, k, v], [gx.matmul(p, v), p]))
    assert not any(kinds([q, k, v], gx.matmul(gx.nn.softmax(scores, axis=-2), v)))
    assert not any(kinds([q, k, v], gx.matmul(gx.cumulative_sum(p, axis=1), v)))
    # where others need the scores, a gradient reads them too
    out = gx.matmul(p, v)
    loss = gx.sum(out * out)
    assert not any(kinds([q, k, v], [p, *gx.grad(loss, [q, k, v])]))
    q, k, v = (gx.input(name, (4, 64, 8)) for name in "qkv")
    p = gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)), axis=-1)
    assert not any(kinds([q, k, v], gx.matmul(p, v)))


def test_weights_that_others_read_as_they_stand():
    """A reshape is no kernel, and what reads it does not run by the rows of the weights."""
    q, k, v, w = (gx.input(name, (1024, 8)) for name in "qkvw")
    p = gx.nn.softmax(q @ gx.matrix_transpose(k), axis=-1)
    inputs, outs = [q, k, v, w], [p @ v, gx.matrix_transpose(w)[:, :512] @ gx.reshape(p, (512, -1))]
    outs.append(gx.reshape(p, (-1, 512)) @ w[:512])
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=(1024, 8)).astype("f4") for _ in inputs]
    got = gx.function(inputs, outs)(*arrays)
    want = gx.function(inputs, outs, mode="interpret")(*arrays)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_many_small_layers_are_kernels_of_their_own():
    """What is small stays in cache by itself, and layers that are alike share their code."""
    x, w = gx.input("x", ("n", 16)), gx.input("w", (16, 16))
    y = x
    for _ in range(200):
        y = gx.tanh(y @ w)
    f = gx.function([x, w], y)
    assert not any(chains.is_chain(n) for n in f.optimized.nodes if n.op.name == "fused")
    assert len({k.name for k in f.kernels}) == 1


def test_a_product_whose_axes_end_as_one():
    """Rows of its left operand that the result has no axes for are none to go along."""
    x, v, c = (gx.input(n, s, "float64") for n, s in [("x", (99, 1)), ("v", (1,)), ("c", (99,))])
    y = gx.tensordot(x, v, axes=0) * gx.reshape(c * c, (99, 1, 1))
    f = gx.function([x, v, c], gx.reshape(y, (-1,)) + c)
    ax, av, ac = feed([x, v, c], {})
    np.testing.assert_allclose(f(ax, av, ac), ax[:, 0] * av * ac**2 + ac, rtol=1e-12)
