"""Elementwise nests compute several vectors side by side, and what is left one by one."""

from __future__ import annotations

import re
from itertools import groupby

import numpy as np
import pytest

import graphc as gx
from graphc.codegen.compile import compile_graph
from graphc.codegen.emission import streaming
from graphc.codegen.machine import llvm, target
from graphc.codegen.machine.target import GOLDEN_COVE, ZEN5, host, x86
from graphc.codegen.nests.costs import TWELVE

SIDE_BY_SIDE = 4 if host().vector_bits >= 256 else 2


def chain(x: gx.Tensor) -> gx.Tensor:
    """Every step waits for the one before; far angles take sin's branch for single lanes."""
    return gx.tanh(gx.exp(gx.sin(x))) * x


def computes(text: str, vector: str) -> bool:
    """Whether anything is computed of a vector."""
    return re.search(rf"= (f\w+|call) <{vector}>", text) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_do_not_depend_on_their_place(dtype: str) -> None:
    x = gx.input("x", ("n",), dtype)
    f = gx.function([x], chain(x), name="f")
    rng = np.random.default_rng(0)
    register = host().vector_bits // (8 * np.dtype(dtype).itemsize)
    most = 4 * SIDE_BY_SIDE * register + 3
    data = rng.normal(size=most).astype(dtype)
    data[rng.integers(0, most, 9)] = [1e30, -1e12, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e9, 1e-40]
    whole = f(data)
    with np.errstate(all="ignore"):
        wide = data.astype("float64")
        want = np.tanh(np.exp(np.sin(wide))) * wide
    np.testing.assert_allclose(whole, want, rtol=1e-5)
    for n in range(most):
        got = np.full(most + 1, 7, dtype)
        f(data[:n], out=got[:n])
        np.testing.assert_array_equal(got[:n].view(np.uint8), whole[:n].view(np.uint8))
        assert (got[n:] == 7).all()


@pytest.mark.parametrize("broad, count", [("a chain", SIDE_BY_SIDE), ("parallel", 1)])
def test_parallel_formulas_take_one_vector(broad: str, count: int) -> None:
    x = gx.input("x", ("n",))
    if broad == "parallel":
        parts = [(x + 0.1 * k) * (x - 0.3 * k) for k in range(1, 9)]
        while len(parts) > 1:
            parts = [a * b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        y = parts[0]
    else:
        y = ((((x * x + 1.0) * x + 2.0) * x + 3.0) * x + 4.0) * x
    f = gx.function([x], y, name="f")
    f(np.ones(3, "float32"))
    lanes = host().vector_bits // 32
    text = f.llvm_ir()
    assert computes(text, f"{count * lanes} x float")
    assert not computes(text, f"{2 * count * lanes} x float")


@pytest.fixture(params=["", GOLDEN_COVE])
def core(request, monkeypatch) -> str:
    """The core that code is generated for; another than this one computes the same."""
    here = host()._replace(core=request.param)
    monkeypatch.setattr(target, "host", lambda: here)
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_divides_goes_by_itself(dtype: str, core: str) -> None:
    """Of blocks of any length and alignment, with the bits of a call for each place alone; by
    halves of registers where these are faster."""
    x = gx.input("x", ("n",), dtype)
    f = gx.function([x], gx.sqrt(gx.abs(x)) + x, name="f")
    rng = np.random.default_rng(1)
    data = rng.normal(size=13001).astype(dtype)
    data[:5] = [np.inf, -np.inf, np.nan, -0.0, 1e-40]
    with np.errstate(invalid="ignore"):
        want = np.sqrt(np.abs(data)) + data
    for begin, n in ((0, 0), (0, 1), (1, 4095), (3, 4096), (5, 8193), (1, 13000)):
        got = np.full(n + 1, 7, dtype)
        f(data[begin : begin + n], out=got[:n])
        np.testing.assert_array_equal(got[:n], want[begin : begin + n])
        assert got[n] == 7
    if host().vector_bits == 512:
        lanes = 512 // (8 * np.dtype(dtype).itemsize)
        kind = "float" if dtype == "float32" else "double"
        assert computes(f.llvm_ir(), f"{lanes // 2} x {kind}") == (core == GOLDEN_COVE)
        assert computes(f.llvm_ir(), f"{lanes} x {kind}") == (core != GOLDEN_COVE)
        assert computes(f.llvm_ir(), f"{4 * lanes} x {kind}") == (core != GOLDEN_COVE)


def for_golden_cove(f: gx.Function, level: str = "v4") -> str:
    """The code of a function for this core, on whatever machine."""
    return compile_graph(f.optimized, x86(level)._replace(core=GOLDEN_COVE)).llvm


def divided(text: str, kind: str) -> set[int]:
    """How many lanes what divides or takes roots has."""
    found = re.findall(rf"= (?:fdiv|call .*sqrt\.\w+)[ (]<(\d+) x {kind}>", text)
    return set(map(int, found))


@pytest.mark.parametrize("dtype, root, steps, share", [
    ("float32", False, 8, 1 / 2), ("float32", False, 14, 1), ("float32", True, 11, 1 / 2),
    ("float32", True, 16, 1), ("float64", False, 14, 1 / 2), ("float64", False, 20, 1),
    ("float64", True, 18, 1 / 2), ("float64", True, 27, 1),
])  # fmt: skip
def test_other_instructions_wait_for_the_divider(
    dtype: str, root: bool, steps: int, share: float
) -> None:
    """Or are so many that they take whole registers, which those of AVX2 always are."""
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)
    z = [x, y]
    for k in range(steps):
        z.append(z[-1] * z[-2] if k % 2 else z[-1] + z[-2])
    f = gx.function([x, y], z[-1] * (gx.sqrt(x) if root else x / y), name="f")
    kind, lanes = ("double", 8) if dtype == "float64" else ("float", 16)
    assert min(divided(for_golden_cove(f), kind)) == share * lanes
    assert min(divided(for_golden_cove(f, "v3"), kind)) == lanes // 2


@pytest.mark.parametrize("axis, share", [(None, 1 / 2), (0, 1 / 2), (1, 1)])
def test_rows_take_whole_registers(axis: int | None, share: float) -> None:
    """A short one would wait for its vectors, one after the other."""
    x = gx.input("x", ("n", "m"))
    f = gx.function([x], gx.sum(gx.sqrt(x), axis=axis), name="f")
    assert max(divided(for_golden_cove(f), "float")) == share * 16


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_roots_have_the_same_bits(dtype: str, monkeypatch) -> None:
    """By halves of registers and by whole ones: of all elements, of rows and of columns."""
    rng = np.random.default_rng(2)
    x = gx.input("x", ("n", "m"), dtype)
    y = gx.sqrt(x * x + 0.5)
    outs = [gx.sum(y), gx.max(y), gx.mean(y, axis=0), gx.sum(y, axis=1), gx.sum(1.0 / y),
            gx.nn.softmax(1.0 / y, axis=0), y / gx.sum(y, axis=1, keepdims=True)]
    for shape in ((1, 1), (3, 17), (70, 33), (129, 1000)):
        data, found = rng.normal(size=shape).astype(dtype), []
        for core in ("", GOLDEN_COVE):
            here = host()._replace(core=core)
            with monkeypatch.context() as m:
                m.setattr(target, "host", lambda here=here: here)
                found.append(gx.function([x], outs, name="f")(data))
        for a, b in zip(*found, strict=True):
            assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(found[0][0], np.sqrt(data**2 + 0.5).sum(), rtol=1e-5)


@pytest.mark.skipif(host().vector_bits < 512, reason="AVX-512 alone has half registers to take")
@pytest.mark.parametrize("dtype, vectors, formula", [
    ("float64", 8, lambda x: 1.0 / (1.0 + gx.exp(-x))),
    ("float64", 1, gx.tanh),
    ("float32", 1, lambda x: gx.atan2(x, 3.0) + 1.0),
    ("float32", 8, lambda x: gx.atan2(x, gx.exp(gx.sin(x)))),
])
def test_functions_keep_whole_registers(dtype: str, vectors: int, formula, core: str) -> None:
    """Also where a division takes longest; where functions divide, fewer go side by side."""
    x = gx.input("x", ("n",), dtype)
    f = gx.function([x], formula(x), name="f")
    f(np.ones(3, dtype))
    kind, lanes = ("double", 8) if dtype == "float64" else ("float", 16)
    text = f.llvm_ir()
    assert computes(text, f"{vectors * lanes} x {kind}")
    assert not computes(text, f"{2 * vectors * lanes} x {kind}")
    assert not computes(text, f"{lanes // 2} x {kind}")


def horner(x, steps: int):
    """A polynomial in x, each coefficient of which differs."""
    y = x * 0.5 + 1.0
    for k in range(steps):
        y = y * x + (0.25 - 0.0625 * k)
    return y


@pytest.mark.skipif(host().arch != "x86_64", reason="LLVM may have no code for x86-64 here")
@pytest.mark.parametrize("level, core, steps, most, fastmath", [
    ("v3", "", 15, 8, False),
    ("v4", "", 15, 8, False),     # eight hold 16 registers, and 17 numbers no room in the others
    ("v4", ZEN5, 15, 12, False),
    ("v4", ZEN5, 12, 12, False),  # these have: no steps, and LLVM keeps the order
    ("v4", ZEN5, 15, 8, True),
])  # fmt: skip
def test_vectors_stay_in_step_where_registers_are_few(
    level: str, core: str, steps: int, most: int, fastmath: bool
) -> None:
    """LLVM would compute one vector to its end after the other, to save registers."""
    x = gx.input("x", ("n",))
    f = gx.function([x], horner(x, steps), name="f", fastmath=fastmath)
    machine = x86(level)._replace(core=core)
    text = compile_graph(f.optimized, machine, fastmath=fastmath).llvm
    code = llvm.assembly(text, machine)
    found = r"^\t(vmulps|vaddps|vfmadd\d+ps)\t.*[yz]mm"
    ops = re.findall(found, code, re.MULTILINE)
    runs = [len([*run]) for _, run in groupby(op[:5] for op in ops)]
    if fastmath:  # one instruction for both, which has no twelve to wait for
        assert f"<{16 * most} x float>" in text and f"<{16 * TWELVE} x float>" not in text
        return
    assert max(runs) == most  # vectors, of which each takes a product and a sum in turn
    assert runs.count(most) >= 2 * steps


@pytest.mark.parametrize("core", ["", ZEN5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_twelve_vectors_side_by_side(dtype: str, core: str, monkeypatch) -> None:
    """A polynomial, a quotient of two and one that goes back and forth, in each number of vectors
    that is left, from any place of a line; bits are NumPy's."""
    monkeypatch.setattr(target, "host", lambda: host()._replace(core=core))
    x = gx.input("x", ("n",), dtype)

    def formulas(x):
        z = x
        for _ in range(9):
            z = z * 3.5 * (1.0 - z)
        return [horner(x, 14), horner(x, 9) / horner(x * 0.5, 10), z]

    lanes = host().vector_bits // (8 * np.dtype(dtype).itemsize)
    data = np.random.default_rng(11).uniform(0.1, 0.9, 40 * lanes).astype(dtype)
    for k, want in enumerate(formulas(data)):
        f = gx.function([x], formulas(x)[k])
        twelve = f"<{TWELVE * lanes} x " in f.llvm_ir()
        assert twelve == (host().vector_bits == 512 and core == ZEN5)
        for n in (0, 1, *(c * lanes + d for c in (1, 4, 8, 12, 16, 20, 28) for d in (-1, 0, 1))):
            got = np.full(n + 9, 7, dtype)
            f(data[n % 7 : n % 7 + n], out=got[n % 5 : n % 5 + n])
            np.testing.assert_array_equal(got[n % 5 : n % 5 + n], want[n % 7 : n % 7 + n])
            assert (got[: n % 5] == 7).all() and (got[n % 5 + n :] == 7).all()


def test_results_of_twelve_vectors_go_past_the_caches(monkeypatch) -> None:
    monkeypatch.setattr(streaming, "BYTES", 0)
    monkeypatch.setattr(streaming, "NEAR", 0)
    monkeypatch.setattr(target, "host", lambda: host()._replace(core=ZEN5))
    x = gx.input("x", ("n",))
    f = gx.function([x], horner(x, 14))
    if host().vector_bits == 512:  # by vectors, or LLVM would hand them on lane by lane
        assert len(re.findall(r"store <16 x float> .*nontemporal", f.llvm_ir())) >= TWELVE
    data = np.random.default_rng(12).uniform(-1, 1, 5003).astype("float32")
    for n in (1, 191, 192, 200, 5003):
        got = np.full(n + 16, 7, "float32")
        f(data[:n], out=got[5 : n + 5])
        np.testing.assert_array_equal(got[5 : n + 5], horner(data[:n], 14))
        assert (got[:5] == 7).all() and (got[n + 5 :] == 7).all()


@pytest.mark.skipif(host().arch != "x86_64", reason="LLVM may have no code for x86-64 here")
@pytest.mark.parametrize("level, line", [("v3", 32), ("v4", 64)])
def test_vectors_side_by_side_are_read_in_order(level: str, line: int) -> None:
    """LLVM would read the last ones first, and Zen 4 waits for memory at each."""
    n = 1 << 14
    x, y = gx.input("x", (n,)), gx.input("y", (n,))
    z = x * 0.5 + 0.25
    for k in range(11):
        z = z * x + 0.125 * k
    f, machine = gx.function([x, y], z * y + 1.0, name="f"), x86(level)
    code = llvm.assembly(compile_graph(f.optimized, machine).llvm, machine)
    of: dict[str, list[int]] = {}
    read = r"\s(\d*)\((%\w+,%\w+,4)\), %[yz]mm"  # moved, or an operand of an instruction
    for at, base in re.findall(read, code):
        of.setdefault(base, []).append(int(at or 0))
    groups = [offsets[:4] for offsets in of.values() if len(offsets) >= 4]
    assert groups == [[k * line for k in range(4)]] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("steps, anew", [(5, False), (14, True)])
def test_a_chain_that_fills_the_registers_reads_its_operands_from_memory(
    dtype: str, steps: int, anew: bool, monkeypatch
) -> None:
    """Eight vectors of 16 registers, at each step anew; over its operand too."""
    runs = host().vector_bits >= 256
    monkeypatch.setattr(target, "host", lambda: x86("v3"))
    x, y = gx.input("x", ("n",), dtype), gx.input("y", ("n",), dtype)

    def polynomial(v, x, y):
        for k in range(steps):
            v = v * x + (0.75 - 0.125 * k)
        return v * y

    f = gx.function([x, y], [polynomial(x, x, y), gx.where(y > 0.5, x, y)], name="f")
    lone = gx.function([x, y], polynomial(x, x, y), name="lone")
    lanes = 256 // (8 * np.dtype(dtype).itemsize)
    kind = "float" if dtype == "float32" else "double"
    two = gx.function([x, y], polynomial(y, x, y) - y, name="two")  # of which a step needs both
    fast = gx.function([x, y], polynomial(x, x, y), fastmath=True, name="fast")
    reads, held, contracted = (
        len(re.findall(rf"load volatile <{lanes} x {kind}>", g.llvm_ir()))
        for g in (lone, two, fast)
    )
    assert reads == (8 * (steps + 1) if anew else 4 * 2)
    assert held == 4 * 2 and contracted == (8 if anew else 4) * 2
    if not runs:
        return
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 5003)).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        want = polynomial(a, a, b), np.where(b > 0.5, a, b)
    for begin, n in ((0, 4999), (1, 63), (3, 64), (1, 5000)):
        p, q = a.copy(), b.copy()
        at = slice(begin, begin + n)
        f(p[at], q[at], out=[p[at], q[at]])
        for got, old, expected in zip((p, q), (a, b), want, strict=True):
            np.testing.assert_array_equal(got[at], expected[at])
            got[at] = old[at]
            np.testing.assert_array_equal(got, old)
