"""Sizes as native code agree with `dims.evaluate`, and overflow or bad divisors are noticed."""

import ctypes
import random

import pytest

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.target import host
from graphc.codegen.sizes import CheckedSizes, SizeCode
from graphc.dims import Dim, dim, evaluate, floordiv, maximum, minimum, mod

NAMES = ("n", "m")
LOW, HIGH = -(2**63), 2**63


def native(sizes):
    """One function per size: (n, m) -> (value, whether something was bad, the value unchecked)."""
    texts = []
    declared = {}
    for k, size in enumerate(sizes):
        e = Emitter(Module())
        e.label("entry")
        code = CheckedSizes(e, {n: f"%{n}" for n in NAMES})
        value = code.value(size)
        wide = e(f"zext i1 {code.bad()} to i64")
        e.do(f"store i64 {wide}, ptr %found")
        unchecked = e("getelementptr i64, ptr %found, i64 1")
        again = SizeCode(e, code.names).value(size)
        e.do(f"store i64 {again}, ptr {unchecked}")
        e.do(f"ret i64 {value}")
        declared |= e.module.declarations
        texts.append(f"define i64 @f{k}(i64 %n, i64 %m, ptr %found) {{\n{e.text()}\n}}")
    text = "\n".join([*declared.values(), *texts])
    names = [f"f{k}" for k in range(len(sizes))]
    code = jit.load([llvm.compile_object(text, host(), use_cache=False)], exports=names)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    found = (ctypes.c_int64 * 2)()

    def call(k, n, m):
        value = kind(code[f"f{k}"])(n, m, ctypes.addressof(found))
        return value, bool(found[0]), found[1]

    return call


def random_size(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([dim("n"), dim("m"), rng.randint(-3, 9)])
    a, b = random_size(rng, depth - 1), random_size(rng, depth - 1)
    fn = rng.choice(["add", "sub", "mul", "floordiv", "mod", "max", "min"])
    if fn in ("floordiv", "mod") and b == 0:
        b = 2
    if fn in ("floordiv", "mod") and isinstance(a, int) and isinstance(b, Dim):
        a = dim("n")
    return {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
        "floordiv": lambda: floordiv(a, b), "mod": lambda: mod(a, b),
        "max": lambda: maximum(a, b), "min": lambda: minimum(a, b),
    }[fn]()


def test_random_sizes():
    rng = random.Random(7)
    sizes = [random_size(rng, rng.randint(1, 4)) for _ in range(300)]
    call = native(sizes)
    compared = 0
    for k, size in enumerate(sizes):
        for n, m in [(0, 0), (1, 1), (7, 3), (3, 7), (1000, 0), (0, 5), (12, 64)]:
            value, bad, unchecked = call(k, n, m)
            try:
                want = evaluate(size, {"n": n, "m": m})
            except ZeroDivisionError:
                assert bad, (str(size), n, m)
                continue
            if not bad:
                compared += 1
                assert value == unchecked == want, (str(size), n, m)
    assert compared > 1500


def test_what_is_proved_is_true():
    """Of maxima and minima that are one of their sides, and so are made without a max or min."""
    rng = random.Random(3)
    found = 0
    for _ in range(3000):
        a, b = (random_size(rng, rng.randint(1, 3)) for _ in "ab")
        large, small = maximum(a, b), minimum(a, b)
        found += large in (a, b)
        for n, m in [(0, 0), (1, 0), (0, 1), (2, 3), (3, 2), (7, 1), (1, 7), (8, 5), (64, 63)]:
            try:
                p, q = (evaluate(x, {"n": n, "m": m}) for x in (a, b))
            except ZeroDivisionError:
                continue
            assert evaluate(large, {"n": n, "m": m}) == max(p, q), (str(a), str(b), n, m)
            assert evaluate(small, {"n": n, "m": m}) == min(p, q), (str(a), str(b), n, m)
    n, m = dim("n"), dim("m")
    assert found > 500
    assert minimum(n, 4 * floordiv(n, 4)) == 4 * floordiv(n, 4)
    assert minimum(n, 2 * n - maximum(0, n - 1)) == n
    assert maximum(7, 8 - mod(n, 2)) == 8 - mod(n, 2)
    assert maximum(0, n - minimum(m, n)) == n - minimum(m, n)
    for open_ in (n - 3 * floordiv(n, 2), n - maximum(1, m), 1 - mod(n, 3), n - minimum(m, 3)):
        assert str(maximum(0, open_)).startswith("max(0, ")


@pytest.mark.parametrize(
    ("size", "n", "m"),
    [
        (dim("n") * dim("m"), 2**32, 2**32), (dim("n") * dim("n") * 2, 2**31, 0),
        (dim("n") + dim("m"), HIGH - 1, 1), (4 * dim("n"), 2**62, 0),
        (floordiv(dim("n"), dim("m")), 5, 0), (mod(dim("n"), dim("m")), 5, 0),
    ],
)
def test_bad_is_noticed(size, n, m):
    assert native([size])(0, n, m)[1]


def test_largest_values_pass():
    call = native([dim("n"), dim("n") - dim("m"), maximum(dim("n"), dim("m"))])
    assert call(0, HIGH - 1, 0) == (HIGH - 1, False, HIGH - 1)
    assert call(1, 0, HIGH - 1) == (-(HIGH - 1), False, -(HIGH - 1))
    assert call(2, 3, HIGH - 1) == (HIGH - 1, False, HIGH - 1)
