"""The levels of AArch64: which one is taken, what differs between them, and that results do not."""

import re
import sys
import tempfile

import numpy as np
import pytest
from cross_programs import ARM_LEVELS, run
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gx
from graphc.cli import main
from graphc.codegen.machine.platforms import PLATFORMS
from graphc.codegen.machine.target import host, level_of
from graphc.errors import UsageError
from graphc.interpret import evaluate

NAME = "aarch64-linux-gnu"
ROWS = (0, 1, 2, 3, 4, 5, 8, 9, 21)
DEPTHS = (0, 1, 15, 16, 17, 31, 32, 33, 48, 100)
MISSING = ARM_LEVELS["v8"].missing()
needs_qemu = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def products(dtype):
    """Products whose operands lie in all ways that a kernel tells apart, most along k."""
    x, w = gx.input("x", ("m", "k"), dtype), gx.input("w", ("n", "k"), dtype)
    v, t = gx.input("v", ("k",), dtype), gx.input("t", ("k", "n"), dtype)
    many = gx.input("many", (2, "m", "k"), dtype)
    outs = {"rows": x @ w.T + 1, "batch": many @ w.T, "vector": x @ v, "turned": v @ w.T,
            "near": x @ t, "down": t.T @ x.T, "across": gx.transpose(x) @ gx.transpose(w @ x.T)}
    return gx.function([x, w, v, t, many], outs, name=f"f_{dtype}")


def both():
    return [products("int8"), products("uint8")]


def arrays(f, m, n, k, rng):
    made = []
    for v in f.graph.inputs:
        limits = np.iinfo(v.type.dtype.numpy)
        sizes = {"m": m, "n": n, "k": k}
        shape = [s if isinstance(s, int) else sizes[str(s)] for s in v.type.shape]
        made.append(rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True))
    return made


def called(functions, seed, count):
    """Calls with room for results, and the results that the interpreter has."""
    rng = np.random.default_rng(seed)
    calls, want = [], []
    for _ in range(count):
        m, n, k = (int(rng.choice(c)) for c in (ROWS, ROWS, DEPTHS))
        for f in functions:
            inputs = arrays(f, m, n, k, rng)
            want.append(evaluate(f.graph, inputs)[0])
            calls.append((f.name, inputs, [np.zeros_like(a) for a in want[-1]]))
    return calls, want


@needs_qemu
@pytest.mark.parametrize("cpu, lowered", [("v8", ""), ("v8.2", ""), ("v8.2", "v8")])
@given(seed=st.integers(0, 1000))
@settings(max_examples=3, deadline=None)
def test_products_of_bytes(cpu, lowered, seed):
    """The interpreter's results at both levels; a CPU without dot products runs none."""
    functions = both()
    calls, want = called(functions, seed, 12)
    with tempfile.TemporaryDirectory() as folder:
        statuses, _ = run(ARM_LEVELS[cpu], functions, calls, folder,
                          environment={"GRAPHC_CPU": lowered})
    assert set(statuses) == {0}
    for (name, inputs, outs), expected in zip(calls, want, strict=True):
        for k, (a, b) in enumerate(zip(outs, expected, strict=True)):
            np.testing.assert_array_equal(a, b, f"{name} {k} {[i.shape for i in inputs]}")


@needs_qemu
@pytest.mark.parametrize("cpu, lowered, has", [
    ("v8", "", False), ("v8.2", "", True), ("v8.2", "v8", False), ("v8.2", "v8.2", True),
    ("v8.2", "v8.3", True), ("v8.2", "v", True), ("v8", "v8.2", False),
])
def test_the_level_that_is_taken(cpu, lowered, has, tmp_path):
    """A library for v8.2 alone says whether the CPU has it."""
    functions = both()
    calls, want = called(functions, 1, 1)
    statuses, _ = run(ARM_LEVELS[cpu], functions, calls, tmp_path,
                      environment={"GRAPHC_CPU": lowered},
                      cpu="v8.2")
    assert all(s == 0 for s in statuses) if has else all(s > 0 for s in statuses)
    assert all((a == b).all() for c, w in zip(calls, want, strict=True)
               for a, b in zip(c[2], w, strict=True)) or not has


def bodies(path):
    """The instructions of each function in an assembly file."""
    parts = re.split(r"^([\w.]+):\n", path.with_suffix(".s").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_dot_products_at_their_level_only(tmp_path):
    path = gx.export(both(), tmp_path / "libf.o", target=NAME, kinds=["s"])
    assert gx.descriptor.read_descriptor(path)["levels"] == ["v8", "v8.2"]
    found = bodies(path)
    for instruction, dtype in (("sdot", "i8"), ("udot", "u8")):
        having = {name for name, text in found.items()
                  if re.search(rf"^\s{instruction}\s", text, re.M) and not name.startswith(".")}
        assert having <= {f"graphc_matmul_{dtype}_dots.v8.2"}
        assert instruction in path.with_suffix(".s").read_text()
    low = gx.export(both(), tmp_path / "liblow.o", target=NAME, cpu="v8", kinds=["s"])
    assert not re.search(r"\b[su]dot\b", low.with_suffix(".s").read_text())
    assert gx.descriptor.read_descriptor(low)["levels"] == ["v8"]


def test_what_does_not_differ_is_there_once(tmp_path):
    """One function's product has two levels; of all other kernels there is one."""
    x, w = gx.input("x", ("n", 32), "int8"), gx.input("w", (8, 32), "int8")
    y = gx.input("y", ("n", 8))
    functions = [gx.function([x, w], x @ w.T, name="bytes"),
                 gx.function([y], gx.exp(y @ gx.transpose(y)), name="floats")]
    path = gx.export(functions, tmp_path / "libf.o", target=NAME, kinds=["ll"])
    text = path.with_suffix(".ll").read_text()
    twice = re.findall(r"^define internal .*@([\w.]+)\.v8\.2\(", text, re.M)
    assert "bytes" in twice and not [n for n in twice if "floats" in n or "f32" in n]
    calls = set(re.findall(r"call i32 @(\w+\.v8(?:\.2)?)\(", text))
    assert calls == {"bytes.v8", "bytes.v8.2", "floats.v8"}


def test_levels_by_platform():
    assert PLATFORMS["aarch64-linux-musl"].levels == ("v8", "v8.2")
    assert PLATFORMS["aarch64-macos"].levels == ("base",)  # every one of its CPUs has them
    assert PLATFORMS["aarch64-macos"].base.has_dot


def test_levels_on_the_command_line(tmp_path, capsys):
    (tmp_path / "one.py").write_text(
        "import graphc as gx\nx = gx.input('x', ('n', 32), 'int8')\n"
        "f = gx.function([x], x @ x.T, name='f')\n")
    command = ["compile", str(tmp_path / "one.py"), "-o", str(tmp_path / "libone.o"),
               "--target", NAME]
    for asked, levels in (("v8.2", ["v8.2"]), ("v8.2,v8", ["v8", "v8.2"])):
        assert main([*command, "--cpu", asked]) == 0
        assert gx.descriptor.read_descriptor(tmp_path / "libone.o")["levels"] == levels
    capsys.readouterr()
    assert main([*command, "--cpu", "v3"]) == 2
    assert "--cpu: expected levels of v8,v8.2, or native, got 'v3'" in capsys.readouterr().err


def test_a_host_with_levels(monkeypatch):
    """What is compiled in a process on AArch64."""
    import llvmlite.binding as llvm

    features = llvm.FeatureMap()
    monkeypatch.setattr(sys.implementation, "_multiarch", "aarch64-linux-gnu")
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "aarch64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "neoverse-n1")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features)
    for has, level, taken in ((True, "", "v8.2"), (True, "v8", "v8"), (True, "v8.2", "v8.2"),
                              (False, "", "v8"), (False, "v8.2", "v8")):
        features["dotprod"] = has
        monkeypatch.setenv("GRAPHC_CPU", level)
        here = host.__wrapped__()
        assert (level_of(here), here.cpu, here.vector_bits) == (taken, "neoverse-n1", 128)
    monkeypatch.setenv("GRAPHC_CPU", "v3")
    with pytest.raises(UsageError, match=r"GRAPHC_CPU='v3': expected v8 or v8\.2"):
        host.__wrapped__()
