"""Libraries compute what compiled functions compute, bit for bit."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from library_samples import Loaded, batch, digits_functions, export_loaded, needs_cc, same_bits

import graphc as gx
from graphc.codegen.machine import llvm
from graphc.codegen.machine.target import host


def test_training_equals_the_function_bit_for_bit(digits):
    step, predict = (f.with_state() for f in digits.functions.values())
    state = digits.new_state()
    shared = {s.name: a for s, a in zip(step.graph.variables(), step.state.values(), strict=True)}
    assert list(shared) == list(step.state)
    for k, n in enumerate((32, 1, 0, 7, 100, 32)):
        x, y = batch(n, k)
        (loss,) = digits.call("step", state, x, y)
        assert same_bits(loss, step(x, y)["loss"]) or n == 0
        predicted = predict.with_state({k: step.state[k] for k in predict.state})
        (labels,) = digits.call("predict", state, x)
        assert same_bits(labels, predicted(x))
    assert fields(digits, state).keys() == step.state.keys()
    for name, a in step.state.items():
        assert same_bits(fields(digits, state)[name], a), name


def fields(library, state):
    """The variables in a state, taken apart as C lays it out."""
    from graphc.codegen.library.abi import Unit, make_api

    f = library.functions["step"]
    api = make_api("x", [Unit("step", f.graph, (("v2", f.program),), {})])
    return {
        v.state.name: state[v.offset:v.offset + v.bytes].view(v.state.type.dtype.numpy).reshape(
            v.state.type.shape)
        for v in api.fields
    }


def test_a_learning_library_learns(digits):
    state = digits.new_state()
    x, y = batch(64, 5)
    losses = [digits.call("step", state, x, y)[0] for _ in range(40)]
    assert losses[-1] < losses[0] / 4


LEVELS = """
import sys; sys.path.insert(0, {here!r})
from pathlib import Path
from library_samples import Loaded, batch, digits_functions
import hashlib
lib = Loaded(Path({path!r}), digits_functions())
s = lib.new_state()
h = hashlib.sha256()
for k, n in enumerate((32, 5, 100)):
    x, y = batch(n, k)
    h.update(lib.call("step", s, x, y)[0].tobytes())
h.update(s.tobytes())
print(h.hexdigest(), float(lib.call("step", s, x, y)[0]))
"""


def test_levels_agree(digits):
    out = {}
    for level in ("v2", "v3", "v4"):
        for threads in ("1", "2", "4"):
            env = os.environ | {"GRAPHC_CPU": level, "GRAPHC_NUM_THREADS": threads}
            text = LEVELS.format(here=os.path.dirname(__file__), path=str(digits.path))
            done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True,
                                  text=True, check=True)
            out[level, threads] = done.stdout.split()
    assert out["v3", "1"] == out["v3", "2"] == out["v4", "1"] == out["v4", "2"] == out["v4", "4"]
    np.testing.assert_allclose(float(out["v2", "1"][1]), float(out["v4", "1"][1]), rtol=1e-5)


def test_two_libraries_in_one_process(digits, tmp_path):
    other = export_loaded(digits_functions(hidden=16), tmp_path / "libother.so")
    again = export_loaded(digits_functions(), tmp_path / "libdigits.so")  # the same prefix
    x, y = batch(20)
    want = digits.call("step", digits.new_state(), x, y)
    assert same_bits(again.call("step", again.new_state(), x, y)[0], want[0])
    assert not same_bits(other.call("step", other.new_state(), x, y)[0], want[0])
    for lib in (other, again):
        lib.symbol("warmup")()
        lib.symbol("set_threads")(1)
        assert lib.call("predict", lib.new_state(), x)[0].shape == (20,)


@needs_cc
def test_text_survives_an_optimiser(tmp_path):
    """Whoever compiles the .ll file may run LLVM's passes over it: the same bits."""
    functions = digits_functions()
    path = gx.export(functions, tmp_path / "digits.ll")
    b = llvm.binding()
    machine = b.Target.from_default_triple().create_target_machine(opt=3, reloc="pic")
    module = b.parse_assembly(path.read_text(), b.create_context())
    options = b.create_pipeline_tuning_options(speed_level=3)
    passes = b.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    (tmp_path / "digits.o").write_bytes(machine.emit_object(module))
    subprocess.run(["cc", "-shared", "digits.o", "-o", "libdigits.so"], cwd=tmp_path, check=True)
    shutil.copy(tmp_path / "digits.h", tmp_path / "libdigits.h")
    lib = Loaded(tmp_path / "libdigits.so", functions)
    step, state = functions[0].with_state(), lib.new_state()
    for k, n in enumerate((1, 33, 700)):
        x, y = batch(n, k)
        assert same_bits(lib.call("step", state, x, y)[0], step(x, y)["loss"])


@needs_cc
@pytest.mark.parametrize("suffix", [".ll", ".s"])
def test_text_has_what_no_function_updates(tmp_path, suffix):
    """Weights that are constants of the library, not part of its state."""
    x, w = gx.input("x", ("n", 64)), gx.variable(np.linspace(-1, 1, 64 * 48), "w", "float32")
    f = gx.function([x], gx.tanh(x @ gx.reshape(w, (64, 48))), name="act")
    path = gx.export(f, tmp_path / f"net{suffix}")
    if suffix == ".ll":
        (tmp_path / "net.o").write_bytes(llvm.compile_object(path.read_text(), host()))
    else:
        subprocess.run(["cc", "-c", path, "-o", tmp_path / "net.o"], check=True)
    subprocess.run(["cc", "-shared", "net.o", "-o", "libnet.so"], cwd=tmp_path, check=True)
    values = np.random.default_rng(0).normal(size=(9, 64)).astype("f4")
    assert same_bits(gx.load(tmp_path / "libnet.so").act(values), f(values))


DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64")


def test_every_dtype(tmp_path):
    rng = np.random.default_rng(0)
    inputs, outputs, updates, arrays = [], {}, {}, []
    for d in DTYPES:
        x = gx.input(f"x_{d}", ("n",), d)
        inputs.append(x)
        state = gx.variable(np.ones(3, x.dtype.numpy), f"v_{d}")
        if d == "bool":
            outputs[d] = gx.logical_not(x)
            updates[state] = gx.logical_not(state)
        else:
            outputs[d] = x + x
            updates[state] = state + state
        values = rng.integers(0, 2 if d == "bool" else 100, 9)
        arrays.append(values.astype(x.dtype.numpy))
    f = gx.function(inputs, outputs, updates=updates, name="twice")
    lib = export_loaded([f], tmp_path / "libtwice.so")
    state = lib.new_state()
    got = lib.call("twice", state, *arrays)
    want = f(*arrays)
    for d, a in zip(DTYPES, got, strict=True):
        assert same_bits(a, want[d]), d
    lib.call("twice", state, *arrays)
    f(*arrays)
    assert int(state.sum()) == sum(b for a in f.state.values() for b in a.tobytes())


def test_large_constants_and_read_only_variables(tmp_path):
    rng = np.random.default_rng(1)
    x = gx.input("x", ("n", 200))
    table = gx.constant(rng.normal(size=(200, 50)).astype("float32"))
    w = gx.variable(rng.normal(size=(50, 30)), "w", dtype="float32")
    f = gx.function([x], x @ table @ w, name="f")
    a = rng.normal(size=(6, 200)).astype("float32")
    lib = export_loaded([f], tmp_path / "libconst.so")
    assert "_state" not in lib.header and lib.state_bytes == 0
    assert same_bits(lib.call("f", None, a)[0], f(a))
    held = export_loaded([f], tmp_path / "libheld.so", state=[w])
    assert held.state_bytes == 50 * 30 * 4 and "const held_state *s" in held.header
    s = held.new_state()
    assert same_bits(held.call("f", s, a)[0], f(a))
    s.view(np.float32)[:] = 0
    assert not held.call("f", s, a)[0].any()


def test_initial_and_current_values(tmp_path):
    v = gx.variable(np.arange(5, dtype="float32"), "v")
    f = gx.function([], v, updates={v: v + 1}, name="f")
    f()
    now = export_loaded([f], tmp_path / "libnow.so")
    then = export_loaded([f], tmp_path / "libthen.so", state="initial")
    own = export_loaded([f.with_state({"v": np.full(5, 9, "float32")})], tmp_path / "libown.so")
    assert now.new_state().view(np.float32).tolist() == [1, 2, 3, 4, 5]
    assert then.new_state().view(np.float32).tolist() == [0, 1, 2, 3, 4]
    assert own.new_state().view(np.float32).tolist() == [9] * 5
    assert own.call("f", s := own.new_state())[0].tolist() == [9] * 5
    assert s.view(np.float32).tolist() == [10] * 5


def test_functions_share_the_state_in_mixed_alignment(tmp_path):
    flag = gx.variable(np.array(True), "flag")
    empty = gx.variable(np.zeros((0, 4), "float64"), "empty")
    half = gx.variable(np.zeros(3, "float16"), "half")
    count = gx.variable(np.int64(0), "count")
    up = gx.function([], [flag, empty, count], updates={
        empty: empty + 1, half: half + 0.5, count: count + 1, flag: gx.logical_not(flag),
    }, name="up")
    down = gx.function([], [count, half, flag], updates={count: count - 1}, name="down")
    lib = export_loaded([up, down], tmp_path / "libmixed.so")
    assert lib.state_bytes == 16
    s = lib.new_state()
    assert [lib.call("up", s)[2] for _ in range(3)] == [0, 1, 2]
    count_, half_, flag_ = lib.call("down", s)
    assert (count_, half_.tolist(), flag_) == (3, [1.5] * 3, False)
    assert lib.call("up", s)[2] == 2
    struct = lib.header.split("typedef struct mixed_state {")[1].split("}")[0]
    fields = [line.split()[1].strip("[];3") for line in struct.splitlines() if ";" in line]
    assert fields == ["flag", "half", "count"]


@pytest.mark.parametrize("threads", (1, 2))
def test_a_limit_of_threads_is_kept(tmp_path, threads):
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.exp(x) + 1, name="f", threads=threads)
    lib = export_loaded([f], tmp_path / f"liblimit{threads}.so")
    a = np.linspace(-1, 1, 300_000, dtype="float32")
    f.compile()  # by threads that have ended, some of which the system may still list
    before = set(os.listdir("/proc/self/task"))
    assert same_bits(lib.call("f", None, a)[0], f(a))
    if threads == 1:
        assert set(os.listdir("/proc/self/task")) <= before


def test_dimensions_come_in_order_of_first_appearance(tmp_path):
    x, y = gx.input("x", ("rows", "cols")), gx.input("y", ("depth", "rows"))
    f = gx.function([x, y], gx.sum(x, axis=1) + gx.sum(y, axis=0), name="f")
    lib = export_loaded([f], tmp_path / "libdims.so")
    assert "int64_t rows, int64_t cols, int64_t depth" in " ".join(lib.header.split())
    a, b = np.ones((3, 4), "float32"), np.ones((2, 3), "float32")
    assert lib.call("f", None, a, b)[0].tolist() == [6, 6, 6]
