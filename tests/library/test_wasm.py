"""wasm libraries in Node: every row of the op table and random graphs, against NumPy and x86-64-v2.

v2 lacks fused multiply-add as wasm does, and all else is IEEE arithmetic in the same order: so the
two agree bit for bit, and the bounds that v2 is tested for hold here.
"""

import re
import subprocess

import native_graphs as ng
import numpy as np
import pytest
import test_rows
from foreign_calls import NodeCalls, agree, needs_node
from library_samples import batch, digits_functions, export_loaded, plain, same_bits
from native_reference import Reference

import graphc as gx
from graphc import interpret
from graphc.codegen.machine.target import host
from graphc.errors import GraphcError
from graphc.types import DTYPES

pytestmark = [
    needs_node,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy on infinities and NaN
    pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="compares with x86-64-v2"),
]


def both(functions, folder, name):
    """Calls of the functions in Node, to compare with a native library of level v2."""
    gx.export(functions, folder / f"{name}.wasm", target="wasm32")
    return NodeCalls(
        folder / f"{name}.wasm", export_loaded(functions, folder / f"lib{name}.so", cpu="v2")
    )


def test_every_row(tmp_path):
    """Elementwise rows and casts of every dtype, over pairs of special values."""
    made = [build(d) for d in DTYPES for build in (test_rows.elementwise, test_rows.casts)]
    calls = both([f for f, _, _ in made], tmp_path, "rows")
    jobs, wanted = [], []
    for f, columns, hows in made:
        for arrays in test_rows.parts(columns):
            jobs.append((f.name, arrays, {}))
            wanted.append((interpret.evaluate(f.graph, arrays)[0], hows))
    rng = np.random.default_rng(0)
    for f, columns, _ in made:  # random bits of floats; as good as v2, which has tests of its own
        if columns[0].dtype.kind not in "biu":
            some = [rng.bytes(3000 * c.itemsize) if c.dtype != bool else bytes(3000)
                    for c in columns]
            jobs.append((f.name, [np.frombuffer(b, c.dtype) for b, c in zip(some, columns,
                                                                           strict=True)], {}))
    for got, (want, hows) in zip(agree(calls, jobs, tmp_path), wanted, strict=False):
        for (op, how, label), a, b in zip(hows, got, want, strict=True):
            try:
                test_rows.same(a, b, op, how)
            except AssertionError as e:
                raise AssertionError(f"{label}: {e}") from None


@pytest.mark.parametrize("shard", range(2))
def test_random_graphs(shard, tmp_path):
    """Random graphs of the whole table at several sizes, the interpreter's complaints included."""
    functions, jobs, references = [], [], []
    for seed in range(6):
        made = ng.make(f"wasm {shard} {seed}", 20 + 6 * seed)
        f = ng.function(made, f"f{seed}")
        for s in f.graph.variables():  # one library's variables have names of their own
            s.name = f"f{seed}_{s.name}"
        functions.append(f)
        for k, sizes in enumerate(ng.SIZES):
            arrays = made.feed(sizes, seed + k)
            known = {d: sizes[d] for d in f.graph.dims()}
            try:
                interpret.evaluate(f.graph, arrays, dims=known)
            except GraphcError:
                continue
            jobs.append((f.name, arrays, known))
            references.append((f, arrays, sizes))
    calls = both(functions, tmp_path, "random")
    results = agree(calls, jobs, tmp_path)
    assert sum(r is not None for r in results) > 20
    for got, (f, arrays, sizes) in zip(results, references, strict=True):
        Reference(f.graph, arrays, sizes).check(got, f"wasm, {sizes}")


def test_products(tmp_path):
    """Blocked products, in every kind of number, with arenas of their sizes."""
    functions, jobs, rng = [], [], np.random.default_rng(0)
    for d in ("float32", "float64", "bfloat16", "int64"):
        a, b = gx.input("a", ("m", "k"), d), gx.input("b", ("k", "n"), d)
        functions.append(gx.function([a, b], gx.transpose(a @ b) + 1, name=f"dot_{d}"))
        for m, k, n in ((129, 300, 200), (1, 500, 600), (600, 500, 1), (5, 0, 7)):
            arrays = [3 * rng.normal(size=s) for s in ((m, k), (k, n))]
            jobs.append((f"dot_{d}", [x.astype(a.dtype.numpy) for x in arrays], {}))
    results = agree(both(functions, tmp_path, "products"), jobs, tmp_path)
    for (_, (a, b), _), (got,) in zip(jobs, results, strict=True):
        a, b = ((x if x.dtype == np.int64 else x.astype("float64")) for x in (a, b))
        near = {2: 1e-2, 4: 1e-4}.get(got.itemsize, 1e-11)
        np.testing.assert_allclose(got.astype("float64"), (a @ b).T + 1, rtol=near, atol=near * 100)


def test_small_static_graphs(tmp_path):
    """Functions whose sizes are all known, straight-line ones among them, and their gradients."""
    functions, jobs, rng = [], [], np.random.default_rng(1)
    steps = (gx.sin, gx.exp, gx.tanh, gx.abs, lambda t: t / (1 + t * t), lambda t: t - gx.sum(t),
             lambda t: gx.where(t > 0, t, -2 * t), gx.cumulative_sum)
    for n in (1, 2, 3, 4, 6, 9):
        a, x = gx.input("a", (n, n)), gx.input("x", (n,), "float32" if n % 2 else "float64")
        y = x
        for k in range(2 + n):
            y = steps[rng.integers(len(steps))](y)
            y = a @ y if k % 3 == 1 else y
        outs = [y, *gx.grad(gx.sum(y * y), [x, a], unconnected="zero")]
        functions.append(gx.function([a, x], outs, name=f"f{n}"))
        for _ in range(3):
            arrays = rng.normal(size=(n, n)), rng.normal(size=n)
            jobs.append((f"f{n}", [v.astype(t.dtype.numpy) for v, t in zip(arrays, (a, x),
                                                                          strict=True)], {}))
    agree(both(functions, tmp_path, "small"), jobs, tmp_path)


def test_training(tmp_path):
    """A state goes through a step as it does in a native library; a failed one leaves it alone."""
    calls = both(digits_functions(), tmp_path, "digits")
    loaded = calls.loaded
    steps = [batch(n, n) for n in (32, 1, 0, 7)]
    x, y = batch(9)
    steps.append((x, np.where(y == y[0], 10, y)))  # no class of these
    for arena in (True, False):
        for arrays in steps:
            calls.add("step", arrays, arena=arena)
    results = calls.run(tmp_path)
    initial = loaded.new_state().tobytes()
    for k, (status, outs, state) in enumerate(results):
        own = loaded.new_state()
        want = loaded.outputs("step", steps[k % 5])
        arrays = (*steps[k % 5], *want)
        dims = loaded.dims("step", steps[k % 5])
        assert status == loaded.raw("step", own, [a.ctypes.data for a in arrays], dims)
        assert state == own.tobytes()
        if k % 5 == 4:
            assert "index out of range" in loaded.explain(status) and state == initial
        else:
            assert status == 0 and same_bits(plain(outs[0]), plain(want[0]))


MEMORY = """
import { readFileSync } from "node:fs";
const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const c = new WebAssembly.Instance(module).exports;
const said = [WebAssembly.Module.imports(module).length, Object.keys(c).sort().join(" ")];
// too much to have, and more than there can be
for (const n of [600000000n, 2000000000n])
  said.push(c.sorted_f_arena(n) >> 31n, c.sorted_f(64, 0, n, 0));
// blocks do not overlap, keep what is in them, and come back whole
const view = () => new Uint8Array(c.memory.buffer), blocks = [];
let seed = 1, wrong = 0;
const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
for (let k = 0; k < 4000; k++) {
  if (blocks.length && random(5) < 2) {
    const [p, n, mark] = blocks.splice(random(blocks.length), 1)[0];
    wrong += view().subarray(p, p + n).some((b) => b !== mark);
    c.free(p);
  } else {
    const n = random(3) ? random(200) : random(90000), p = c.malloc(n) >>> 0;
    wrong += !p || p % 16 !== 0;
    view().fill(k & 255, p, p + n);
    blocks.push([p, n, k & 255]);
  }
}
for (const [p, n, mark] of blocks) {
  wrong += view().subarray(p, p + n).some((b) => b !== mark);
  c.free(p);
}
const bytes = c.memory.buffer.byteLength, all = bytes - 2 * 65536 - (1 << 20);
said.push(wrong, c.malloc(all) !== 0, c.memory.buffer.byteLength === bytes, c.malloc(-1));
console.log(said.join("\\n"));
"""


def test_memory(tmp_path):
    """Nothing is imported; memory that there is not gives a code; the allocator keeps its word."""
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.cumulative_sum(gx.exp(x) / gx.sum(x)) * gx.max(x), name="f")
    gx.export(f, tmp_path / "sorted.wasm", target="wasm32")
    (tmp_path / "memory.mjs").write_text(MEMORY)
    done = subprocess.run(["node", tmp_path / "memory.mjs", tmp_path / "sorted.wasm"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    api = re.findall(r"^\w[\w *]*?(sorted_\w+)\(", (tmp_path / "sorted.h").read_text(), re.M)
    names = sorted(["free", "malloc", "memory", *api])
    assert done.stdout.splitlines() == [
        "0", " ".join(names), "1", "6", "3", "6", "0", "true", "true", "0",
    ]
