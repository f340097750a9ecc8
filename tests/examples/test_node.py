"""The digits learnt in Node, from WebAssembly: what the library for x86-64-v2 gives, bit for bit.

Both lack fused multiply-add, and all else is IEEE arithmetic in the same order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from example_files import EXAMPLES

from graphc.codegen.library.foreign import linkers
from graphc.codegen.machine.platforms import platform

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="not installed: node"),
    pytest.mark.skipif(not linkers(platform("wasm32")), reason="no linker for wasm: wasm-ld, "
                       "ld.lld or the ziglang wheel"),
]


def node(*arguments):
    return subprocess.run(["node", *arguments], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wasm(tmp_path_factory):
    path = tmp_path_factory.mktemp("node") / "digits.wasm"
    functions = [f"{EXAMPLES / 'digits.py'}:{name}" for name in ("step", "predict")]
    subprocess.run([sys.executable, "-m", "graphc", "compile", *functions, "--target", "wasm32",
                    "-o", path], check=True, capture_output=True)
    return path


def test_node(library, c_program, wasm, tmp_path):
    learnt = tmp_path / "node.state"
    done = node(EXAMPLES / "node/digits.mjs", wasm, library / "digits.csv", learnt)
    assert done.returncode == 0, done.stderr
    native = subprocess.run(
        [c_program, library / "digits.csv", tmp_path / "v2.state"], text=True,
        env=os.environ | {"GRAPHC_CPU": "v2"}, capture_output=True, check=True)
    time = re.compile(r"^trained in .*\n", re.M)
    assert time.sub("", done.stdout) == time.sub("", native.stdout)
    assert learnt.read_bytes() == (tmp_path / "v2.state").read_bytes()


REFUSALS = """
import { readFile } from "node:fs/promises";
import { load } from "HERE/graphc.mjs";
const lib = await load(await readFile(process.argv[2]));
const state = lib.newState(), before = state.pack();
const say = (f) => { try { f(); console.log("fine"); } catch (e) { console.log(e.message); } };
const x = new Float32Array(128);
say(() => lib.call("step", state, { x, y: new BigInt64Array(2) }, { batch: 3 }));
say(() => lib.call("step", state, { x, y: new BigInt64Array(2) }, {}));
say(() => lib.call("step", state, { x, y: BigInt64Array.of(1n, 10n) }, { batch: 2 }));
say(() => lib.call("fit", state, {}));
const cut = before.slice(0, before.length - 1), damaged = before.slice();
damaged[before.length - 100] ^= 1;
say(() => state.unpack(cut));
say(() => state.unpack(damaged));
console.log(Buffer.compare(before, state.pack()));
state.unpack(before);
const bias = state.get("l3_b");
console.log(bias.constructor.name, bias.length);
console.log(lib.call("step", state, { x, y: new BigInt64Array(2) }, { batch: 2 }).loss.length);
state.free();
"""


def test_refusals(wasm, tmp_path):
    """Errors name what is wrong, and the state stays as it was."""
    script = tmp_path / "refusals.mjs"
    script.write_text(REFUSALS.replace("HERE", (EXAMPLES / "node").as_uri()))
    done = node(script, wasm)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["step: x must be a Float32Array of 192 elements",
                         "the dimension batch is missing"]
    assert re.fullmatch(r"step: gather: index out of range: .*\(digits\.py:\d+\)", lines[2])
    assert lines[3:] == [
        "there is no function fit",
        "the state file is cut short or damaged",
        "the state file is cut short or damaged",
        "0", "Float32Array 10", "1",
    ]


KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "bfloat16", "float32", "float64")
EVERY_KIND = """
import { readFile } from "node:fs/promises";
import { load } from "HERE/graphc.mjs";
const lib = await load(await readFile(process.argv[2]));
const [f] = lib.descriptor.functions, inputs = {};
const like = lib.call("kinds", null, JSON.parse(process.argv[3], (key, value) => {
  if (!Array.isArray(value)) return value;
  const { dtype } = f.inputs.find((a) => a.name === key);
  const Type = globalThis[{ bool: "Uint8", i8: "Int8", i16: "Int16", i32: "Int32", i64: "BigInt64",
    u8: "Uint8", u16: "Uint16", u32: "Uint32", u64: "BigUint64", f16: "Uint16", bf16: "Uint16",
    f32: "Float32", f64: "Float64" }[dtype] + "Array"];
  return Type.from(value, (v) => (dtype.endsWith("64") && dtype !== "f64" ? BigInt(v) : v));
}), { n: 3 });
console.log(JSON.stringify(like, (k, v) => (typeof v === "bigint" ? Number(v)
  : ArrayBuffer.isView(v) ? [...v] : v)));
"""


def test_every_kind_of_number(tmp_path):
    """Typed arrays of every dtype go in and come out; f16 and bf16 as their bits."""
    import numpy as np

    import graphc as gx

    inputs = [gx.input(f"x_{d}", ("n",), d) for d in KINDS]
    outputs = {f"y_{x.dtype}": gx.logical_not(x) if x.dtype.kind == "b" else x + x for x in inputs}
    f = gx.function(inputs, outputs, name="kinds")
    gx.export(f, tmp_path / "kinds.wasm", target="wasm32")
    arrays = [np.array([0, 1, 1] if x.dtype.kind == "b" else [1, 2, 60]).astype(x.dtype.numpy)
              for x in inputs]

    def shown(a):
        return (a.view(np.uint16) if a.dtype.itemsize == 2 and a.dtype.kind in "fV" else a).tolist()

    script = tmp_path / "kinds.mjs"
    script.write_text(EVERY_KIND.replace("HERE", (EXAMPLES / "node").as_uri()))
    given = {v.node.attrs["name"]: shown(a) for v, a in zip(f.graph.inputs, arrays, strict=True)}
    done = node(script, tmp_path / "kinds.wasm", json.dumps(given))
    assert done.returncode == 0, done.stderr
    want = {name: [int(v) for v in shown(a)] for name, a in f(*arrays).items()}
    assert json.loads(done.stdout) == want
