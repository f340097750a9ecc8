"""gx.load: libraries called from Python, and the descriptor they are called by."""

import copy
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from library_samples import agree, batch, digits_functions, same_bits

import graphc as gx
from graphc import loaded
from graphc.codegen.calling import pylayout
from graphc.descriptor import MARK, decode_size, encode_size, parse_descriptor, read_descriptor
from graphc.dims import dim, evaluate, maximum, minimum
from graphc.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError, UsageError
from graphc.types import as_dtype


@pytest.fixture(params=["direct", "by way of ctypes"])
def lib(digits, request, monkeypatch):
    monkeypatch.setattr(loaded, "DIRECT_FROM", 0 if request.param == "direct" else 1 << 60)
    return gx.load(digits.path)


@pytest.mark.skipif(not pylayout.usable(), reason="no native call path here")
def test_the_second_call_goes_to_the_library_itself(digits, monkeypatch):
    lib = gx.load(digits.path)
    x, y = batch(9)
    first = lib.step(x, y)
    assert type(lib.step) is loaded.LoadedFunction
    lib.state.reset()
    assert same_bits(lib.step(x, y)["loss"], first["loss"])
    monkeypatch.setattr(loaded.LoadedFunction, "_run", None)  # by way of Python it would fail
    lib.state.reset()
    assert same_bits(lib.step(y=y, x=x.tolist())["loss"], first["loss"])
    lib.state.reset()
    out = {"loss": np.zeros((), "float32")}
    assert lib.step(x, y, out=out) is out and same_bits(out["loss"], first["loss"])


def test_functions_are_called_as_compiled_ones(digits, lib):
    step, predict = (f.with_state() for f in digits.functions.values())
    for k, n in enumerate((32, 1, 7, 32)):
        x, y = batch(n, k)
        got, want = lib.step(x, y), step(x, y)
        assert got.keys() == want.keys() == {"loss"}
        assert same_bits(got["loss"], want["loss"])
    assert lib.state.keys() == step.state.keys()
    assert all(same_bits(lib.state[k], a) for k, a in step.state.items())
    own = predict.with_state({k: step.state[k] for k in predict.state})
    assert same_bits(lib.predict(x), own(x))
    assert same_bits(lib.predict(x=x.tolist()), own(x))
    assert lib.functions["step"](y=y, x=x)["loss"].shape == ()


def test_states_apart(lib):
    x, y = batch(16)
    first = lib.step(x, y)["loss"]
    other = lib.new_state()
    assert same_bits(lib.step.with_state(other)(x, y)["loss"], first)
    copy = other.copy()
    after = lib.step.with_state(other)(x, y)["loss"]
    assert not same_bits(after, first)
    assert same_bits(lib.step.with_state(copy)(x, y)["loss"], after)
    lib.state.reset()
    assert same_bits(lib.step(x, y)["loss"], first)
    lib.state["w1"] = np.zeros((64, 32), "float32")
    assert not lib.state["w1"].any()
    with pytest.raises(ShapeError, match=r"'w1' must be f32\[64,32\], got f64\[3\]"):
        lib.state["w1"] = np.zeros(3)
    with pytest.raises(UsageError, match="'w1' is a masked array"):
        lib.state["w1"] = np.ma.zeros((64, 32), "f4")
    with pytest.raises(UsageError, match="'w1' must be a number or a rectangular array"):
        lib.state["w1"] = object()
    with pytest.raises(UsageError, match="no variable 'w9'"):
        lib.state["w9"] = 0
    with pytest.raises(UsageError, match="takes a state of this library"):
        lib.step.with_state({})


def test_errors_are_those_of_the_function(digits, lib):
    x, y = batch(8)
    y[5] = 10
    before = {k: a.copy() for k, a in lib.state.items()}
    with pytest.raises(IndexOutOfRangeError) as got:
        lib.step(x, y)
    with pytest.raises(IndexOutOfRangeError) as want:
        digits.functions["step"].with_state()(x, y)
    assert agree(want, str(got.value))
    assert all(same_bits(lib.state[k], a) for k, a in before.items())
    with pytest.raises(ShapeError, match=r"step: input 'x': expected f32\[batch,64\]"):
        lib.step(x[:, :3], y)
    with pytest.raises(ShapeError, match=r"batch is 8 in input 'x'"):
        lib.step(x, y[:4])
    with pytest.raises(DTypeError, match="cast it with"):
        lib.step(x.astype("float64"), y)
    with pytest.raises(UsageError, match="takes 2 inputs"):
        lib.step(x)
    with pytest.raises(AttributeError, match="no function 'stop'; it has step, predict"):
        lib.stop  # noqa: B018


@pytest.mark.parametrize("kind", ("none", "one", "list", "tuple", "dict"))
def test_structures_of_results(tmp_path, kind):
    x = gx.input("x", ("n", 3))
    a, b = gx.exp(x), gx.sum(x, axis=1)
    v = gx.variable(np.zeros(3, "float32"), "v")
    outputs = {"none": None, "one": a, "list": [a, b], "tuple": (a, b), "dict": {"b": b, "a b": a}}
    f = gx.function([x], outputs[kind], name="f", updates={v: v + gx.sum(x, axis=0)})
    lib = gx.load(gx.export(f, tmp_path / "libf.so", cpu="v3"))
    data = np.arange(12, dtype="float32").reshape(4, 3)
    got, want = lib.f(data), f(data)
    assert type(got) is type(want)
    if kind == "dict":
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    for g, w in zip([got] if kind == "one" else got or (), [want] if kind == "one" else want or (),
                    strict=True):
        assert same_bits(g, w)
    assert same_bits(lib.state["v"], f.state["v"])


def test_out_and_dimensions_by_name(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHC_VERIFY", raising=False)  # it wants every name in some input
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.broadcast_to(x, (gx.dim("m"), "n")), name="f")
    lib = gx.load(gx.export(f, tmp_path / "libf.so", cpu="v2"))
    data = np.arange(3, dtype="float32")
    assert lib.state is None
    assert same_bits(lib.f(data, m=2), np.tile(data, (2, 1)))
    out = np.zeros((2, 3), "float32")
    assert lib.f(data, m=2, out=out) is out and same_bits(out, np.tile(data, (2, 1)))
    wide = np.zeros((2, 6), "float32")
    lib.f(data, m=2, out=wide[:, ::2])
    assert same_bits(np.ascontiguousarray(wide[:, ::2]), out)
    with pytest.raises(UsageError, match="give it: m="):
        lib.f(data)
    with pytest.raises(ShapeError, match="out= must be"):
        lib.f(data, m=3, out=out)


@pytest.mark.parametrize("dtype", ("bool", "int8", "uint64", "float16", "bfloat16", "float64"))
def test_dtypes(tmp_path, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = gx.input("x", ("n",), dtype)
    v = gx.variable(as_dtype(dtype).numpy.type(1), "v")
    f = gx.function([x], gx.where(x == v, x, v), updates={v: x[0]}, name="f")
    lib = gx.load(gx.export(f, tmp_path / "libf.so", cpu="v3"))
    data = np.array([1, 0, 1]).astype(as_dtype(dtype).numpy)
    assert same_bits(lib.f(data), f(data))
    assert same_bits(lib.state["v"], f.state["v"])


def test_threads_and_states(digits, lib, at_once):
    x, y = batch(33)
    lib.set_threads(2)
    lib.warmup()

    def train(_):
        step = lib.step.with_state(lib.new_state())
        return [step(x, y)["loss"].tobytes() for _ in range(8)]

    got = at_once(8, train)
    assert all(v == got[0] for v in got)


def test_the_descriptor(digits, lib):
    d = read_descriptor(digits.path)
    assert d == lib.descriptor == json.loads(json.dumps(d))
    assert (d["format"], d["version"], d["prefix"]) == ("graphc-library", 1, "digits")
    assert d["graphc"] == gx.__version__ and d["levels"] == ["v2", "v3", "v4"]
    assert d["device"] == "cpu"
    assert f"0x{d['abi']}" in digits.header and f"0x{d['state']['layout']}" in digits.header
    assert d["state"]["bytes"] == digits.state_bytes
    assert d["state"]["variables"][0] == {
        "name": "w1", "c": "w1", "dtype": "f32", "shape": [64, 32], "offset": 0}
    step, predict = d["functions"]
    assert step["inputs"] == [
        {"name": "x", "c": "x", "dtype": "f32", "shape": ["batch", 64]},
        {"name": "y", "c": "y", "dtype": "i64", "shape": ["batch"]}]
    assert step["outputs"] == [{"name": "loss", "c": "loss", "dtype": "f32", "shape": []}]
    assert (step["state"], predict["state"]) == ("update", "read")
    assert step["dims"] == [{"name": "batch", "c": "batch"}]
    for n in (0, 1, 33):
        size = decode_size(step["arena_bytes"])
        assert evaluate(size, {"batch": n}) == digits.arena("step", n)
    assert step["failures"][0]["kind"] == "index"


def test_original_names_are_kept(tmp_path):
    x = gx.input("café", ("n",))
    f = gx.function([x], {"double": x * 2}, name="class")
    path = gx.export(f, tmp_path / "libodd.so", cpu="v2")
    (d,) = read_descriptor(path)["functions"]
    assert d["name"] == "class" and d["inputs"][0]["name"] == "café"
    assert d["inputs"][0]["c"].isidentifier() and d["outputs"][0]["c"] == "double_"
    lib = gx.load(path)
    assert lib.functions["class"]([1, 2])["double"].tolist() == [2, 4]


def test_sizes_as_json():
    n, m = dim("n"), dim("m")
    for size in (0, 7, n, n + 1, 3 * n * m - 2, (n + 1) // 2, n % m, maximum(n, m) * 2 - n,
                 minimum(n * n, (m + 3) // 4 * 4)):
        coded = json.loads(json.dumps(encode_size(size)))
        assert decode_size(coded) == size
    for bad in (None, 1.5, True, ["div", 1, 2], ["add", 1], {}):
        with pytest.raises(ValueError):
            decode_size(bad)


def test_files_that_are_no_libraries(tmp_path, digits):
    def fails(match):
        with pytest.raises(ArgumentError, match=match) as told:
            gx.load(path)
        assert "test_load.py:" in str(told.value)

    path = tmp_path / "libx.so"
    fails("cannot read .*No such file")
    path.write_bytes(b"")
    fails("is empty")
    path.write_bytes(b"hello" * 1000)
    fails("no descriptor")
    path.write_bytes(digits.path.read_bytes()[:-20000])
    fails("load: ")
    path.write_bytes(b'{"format":"graphc-library","version":')
    fails("damaged")
    path.write_bytes(b'{"format":"graphc-library","version":2,"graphc":"9.0"}\0')
    fails("format 2; this graphc reads format 1")
    path.write_bytes(b'{"format":"graphc-library","version":1,"prefix":"x"}\0' * 2)
    fails("several libraries")
    for kind in (".a", ".o"):
        path = gx.export(digits_functions(), tmp_path / f"libdigits{kind}", cpu="v3")
        assert read_descriptor(path)["prefix"] == "digits"
        fails("load: ")
    assert os.path.exists(path)


def test_a_changed_byte_in_the_descriptor_is_noticed(digits, tmp_path, capsys):
    from graphc.cli import main

    raw = bytearray(digits.path.read_bytes())
    begin = raw.index(MARK)
    end = raw.index(0, begin)
    assert parse_descriptor(bytes(raw[begin:end]), "x")["prefix"] == "digits"
    for k in range(begin, end):
        raw[k] ^= 1
        with pytest.raises(ArgumentError, match=r"damaged|format"):
            parse_descriptor(bytes(raw[begin:end]), "x")
        raw[k] ^= 1
    raw[raw.index(b'"offset"', begin) + 1] ^= 1
    path = tmp_path / "libx.so"
    path.write_bytes(raw)
    with pytest.raises(ArgumentError, match="damaged"):
        gx.load(path)
    assert main(["inspect", str(path)]) == 1
    assert capsys.readouterr().err == f"graphc: error: load: the descriptor in {path} is damaged\n"


def test_inspect(digits, capsys):
    from graphc.cli import main

    assert main(["inspect", str(digits.path), "--dim", "batch=3"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[:3] == [
        "digits", f"  written by    graphc {gx.__version__}",
        f"  target        {read_descriptor(digits.path)['target']}, levels v2, v3, v4",
    ]
    assert "\n  variables            0  w1: f32[64,32]\n" in shown
    assert "step\n  inputs        x: f32[batch,64]\n                y: i64[batch]\n" in shown
    assert "  state         read and updated\n" in shown and "  state         read\n" in shown
    arena = digits.arena("step", 3)
    assert f" = {arena:,}\n" in shown
    assert main(["inspect", __file__[:-3] + ".so"]) == 1
    assert "cannot read" in capsys.readouterr().err


LOADER = """
import sys
import numpy as np
from load_library import Library
lib = Library({path!r})
rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 64)).astype("float32"), rng.integers(0, 10, 32)
losses = [lib.step(x, y)["loss"] for _ in range(3)]
lib.save_state("loader.state")
labels = lib.predict(x)
lib.step(x, y)
lib.load_state("loader.state")
np.savez("loader.npz", losses=losses, labels=labels, again=lib.predict(x), w1=lib.state["w1"])
for wrong, error in (((x[:, :3], y), ValueError), ((x, y[:3]), ValueError), ((x,), TypeError),
                     ((x, y + 99), RuntimeError), ((x, y * 0.5), TypeError)):
    try:
        lib.step(*wrong)
    except error as e:
        print(e)
    else:
        raise SystemExit("no error")
assert "graphc" not in sys.modules
"""


def test_the_loader_that_needs_only_numpy(digits, lib, tmp_path):
    examples = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
    run = [sys.executable, "-c", LOADER.format(path=str(digits.path))]
    env = os.environ | {"PYTHONPATH": os.path.abspath(examples)}
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gather: index out of range" in done.stdout
    assert "x must have the shape ['batch', 64], got (32, 3)" in done.stdout
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 64)).astype("float32"), rng.integers(0, 10, 32)
    with np.load(tmp_path / "loader.npz") as got:
        assert same_bits(got["losses"], [lib.step(x, y)["loss"] for _ in range(3)])
        assert same_bits(got["labels"], lib.predict(x)) and same_bits(got["again"], got["labels"])
        assert same_bits(got["w1"], lib.state["w1"])
    lib.state.load(tmp_path / "loader.state")
    shown = subprocess.run(
        [sys.executable, os.path.join(examples, "load_library.py"), str(digits.path)],
        capture_output=True, text=True, check=True,
    ).stdout
    assert shown.splitlines()[0] == (
        "step(x: f32['batch', 64], y: i64['batch']) -> loss: f32[]")


def test_a_library_that_has_changed_since(tmp_path):
    """Written anew or put back: always what the file holds now."""
    x, path = gx.input("x", ("n",)), tmp_path / "libchange.so"

    def save(k, to=path):
        v = gx.variable(np.full(k, 1.0, "f4"), "v")
        gx.export(gx.function([x], x * k + gx.sum(v), updates={v: v + 1}, name="f"), to, cpu="v2")

    def first(lib):
        lib.state.reset()
        return [float(lib.f(np.ones(2, "f4"))[0]) for _ in range(2)]

    libs = []
    for k in (2, 3, 5):
        save(k)
        libs += [gx.load(path), gx.load(path)]
        assert [first(lib) for lib in libs[-2:]] == [[2 * k, 3 * k]] * 2
    os.replace(path, tmp_path / "moved.so")
    save(7)
    os.replace(tmp_path / "moved.so", path)
    assert first(gx.load(path)) == [10, 15]
    for lib, k in zip(libs, (2, 2, 3, 3, 5, 5), strict=True):
        assert first(lib) == [2 * k, 3 * k]


def test_what_a_library_is_not(tmp_path):
    x = gx.input("x", ("n",))
    v = gx.variable(np.ones(2, "f4"), "v")
    gx.export(gx.function([x], x, updates={v: v + 1}, name="f"), tmp_path / "libf.so", cpu="v2")
    lib = gx.load(tmp_path / "libf.so")
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (lib, lib.f):
            with pytest.raises(UsageError, match=r"cannot be pickled or copied; gx\.load its path"):
                use(thing)
    with pytest.raises(AttributeError):
        lib.state.v = 1  # state["v"] = ...


def test_numbers_of_threads(digits):
    """Larger ones than a C int holds mean as many as there can be, not their low bits."""
    lib = gx.load(digits.path)
    for n in (0, -1, 1.5, True, "2", 2**32 * -1):
        with pytest.raises(ArgumentError, match="set_threads: the number of threads must be"):
            lib.set_threads(n)
    asked = []
    lib._symbol = lambda *_: asked.append
    for n in (3, np.int64(4), 2**31, 2**32 + 1, 2**64):
        lib.set_threads(n)
    assert asked == [3, 4] + [2**31 - 1] * 3
