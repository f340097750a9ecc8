"""Line tables: machine code of a library points at the user's lines, and is the same without."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from library_samples import same_bits

import graphc as gx
from graphc.codegen.debug import annotate, mark, with_head
from graphc.errors import Loc

EXAMPLES = Path(__file__).parents[2] / "examples"


def needs(*tools):
    missing = [t for t in tools if shutil.which(t) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}")


def build(folder, *options):
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / "digits.py", folder)
    (folder / "build").mkdir()
    subprocess.run(
        [sys.executable, "-m", "graphc", "compile", "digits.py:step", "digits.py:predict",
         "-o", "build/libdigits.so", "--cpu", "v3", "--kind", "o,ll,s", *options],
        cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )
    return folder / "build" / "libdigits.so"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("debug") / "one", "--debug-info")


def line_of(text):
    """The number of the line of examples/digits.py with this text."""
    lines = (EXAMPLES / "digits.py").read_text().splitlines()
    (found,) = [k for k, line in enumerate(lines, 1) if text in line]
    return found


def listing(path):
    """The source lines that objdump shows within each function."""
    done = subprocess.run(
        ["objdump", "-dl", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    )
    found, name = {}, ""
    for line in done.stdout.splitlines():
        if (m := re.match(r"[0-9a-f]+ <(.*)>:$", line)) is not None:
            name = m[1]
            found[name] = set()
        elif (m := re.match(r"(\S+):(\d+)( |$)", line)) is not None:
            found[name].add((m[1], int(m[2])))
    return found


@needs("objdump")
def test_kernels_show_the_lines_they_compute(library):
    found = listing(library)
    product, relu = line_of("return x @ w + b"), line_of('"l3")')
    loss, adam = line_of("cross_entropy("), line_of("gx.optim.adam(")
    argmax = line_of("gx.argmax(")

    files = {file for at in found.values() for file, _ in at}
    assert files == {"./digits.py"}
    shown = {n for at in found.values() for _, n in at}
    assert {product, relu, loss, adam, argmax} <= shown
    ends = {name: {n for _, n in at} for name, at in found.items() if ".epilogue." in name}
    assert len(ends) > 8 and all(product in at for at in ends.values())
    for name in ends:  # what calls the matrix product is of its line alone
        assert found[name.replace(".epilogue", "")] == {("./digits.py", product)}
    assert {product, relu} in ends.values()             # x @ w + b and relu in one epilogue
    assert {product, adam} in ends.values()             # a gradient's product, then Adam
    tasks = {name: {n for _, n in at} for name, at in found.items() if ".task." in name}
    assert any(loss in at for at in tasks.values()) and {adam} in tasks.values()
    assert [at for name, at in tasks.items() if name.startswith("predict.")][-1] == {argmax}
    assert found["digits_step"] == {("./digits.py", loss)}
    # templates of products belong to nobody's line, nor does the pool
    assert not any(at for name, at in found.items() if name.startswith("graphc_"))


@needs("addr2line", "nm")
def test_every_address_of_a_kernel_has_a_line(library):
    names = subprocess.run(
        ["nm", "-S", library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    kernels = [line.split() for line in names if re.search(r" t (step|predict)\.k\d", line)]
    assert len(kernels) > 10
    at = [f"{a:#x}" for address, size, _, _ in kernels
          for a in range(int(address, 16), int(address, 16) + int(size, 16), 16)]
    places = subprocess.run(
        ["addr2line", "-e", library], input="\n".join(at), capture_output=True, text=True,
        check=True,
    ).stdout.splitlines()
    assert len(places) == len(at)
    assert all(place.startswith("./digits.py:") for place in places)
    # LLVM takes the line from what it moves out of loops
    assert sum(place.split(":")[1][0] != "?" for place in places) > 0.9 * len(places)


@needs("readelf")
def test_it_only_adds(library, tmp_path):
    """What is computed is the same without; and the same bytes come from another directory."""
    again = build(tmp_path / "another" / "place", "--debug-info")
    plain = build(tmp_path / "plain")
    for suffix in (".so", ".o", ".ll"):
        assert again.with_suffix(suffix).read_bytes() == library.with_suffix(suffix).read_bytes()
    assert "!dbg" in library.with_suffix(".ll").read_text()
    text = plain.with_suffix(".ll").read_text()
    assert "!dbg" not in text and "digits.py" not in re.sub(r"@graphc.messages = .*", "", text)
    x, y = np.random.default_rng(0).normal(size=(50, 64)).astype("float32"), np.arange(50) % 10
    libs = [gx.load(path) for path in (library, plain)]
    for _ in range(5):
        for lib in libs:
            lib.step(x, y)
    assert libs[0].state.keys() == libs[1].state.keys()
    assert all(same_bits(a, libs[1].state[name]) for name, a in libs[0].state.items())
    sections = [subprocess.run(["readelf", "-SW", path], capture_output=True, text=True,
                               check=True).stdout for path in (library, plain)]
    assert ".debug_line" in sections[0] and ".debug" not in sections[1]


@needs("objdump", "cc")
def test_assembly_has_the_lines_too(library, tmp_path):
    subprocess.run(["cc", "-c", library.with_suffix(".s"), "-o", tmp_path / "x.o"], check=True)
    (lines,) = (found for name, found in listing(tmp_path / "x.o").items() if name == "digits_step")
    assert {file for file, _ in lines} <= {"./digits.py"}
    kernels = set().union(*listing(tmp_path / "x.o").values())
    assert kernels == set().union(*listing(library.with_suffix(".o")).values())


@needs("gdb")
def test_gdb_stops_at_a_line(library, tmp_path):
    """A breakpoint on a line of Python; the stack names kernel and entry point."""
    code = (
        f"import ctypes, array; lib = ctypes.CDLL({str(library)!r})\n"
        "x = array.array('f', bytes(256)); d = array.array('q', [0])\n"
        "s = (ctypes.c_char * 1000000)(); lib.digits_init(s)\n"
        "p = lambda a: ctypes.c_void_p(a.buffer_info()[0])\n"
        "lib.digits_predict(s, p(x), p(d), ctypes.c_int64(1), None)\n"
    )
    (tmp_path / "main.py").write_text(code)
    relu = line_of('"l3"')
    done = subprocess.run(
        ["gdb", "-q", "-batch", "-nx", "-ex", "set breakpoint pending on",
         "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off",
         "-ex", f"break digits.py:{relu}", "-ex", "run", "-ex", "backtrace",
         "-ex", "kill", "--args", os.path.realpath(sys.executable), tmp_path / "main.py"],
        capture_output=True, text=True, cwd=EXAMPLES, timeout=60,
    )
    if "ptrace" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("gdb may not trace here")
    frames = re.findall(r"^#\d+ .*", done.stdout, re.M)
    product, entry = line_of("return x @ w + b"), line_of("gx.argmax(")
    kernel = r"predict\.k[\d.]+\[dot,.*"
    assert re.match(rf"#0 .*{kernel}\.epilogue .* digits\.py:{relu}$", frames[0]), frames
    assert any(re.search(rf" {kernel} digits\.py:{product}$", f) for f in frames[:9]), frames
    assert any(re.search(rf" digits_predict .* digits\.py:{entry}$", f) for f in frames[:9]), frames


@pytest.mark.parametrize("target", ("aarch64-linux-gnu", "x86_64-windows-gnu", "wasm32",
                                    "aarch64-macos"))
def test_other_targets(tmp_path, target):
    x = gx.input("x", ("n", 3))
    f = gx.function([x], gx.sum(gx.exp(x), axis=1), name="f")
    path = gx.export(f, tmp_path / "f.o", target=target, debug_info=True)
    assert b"test_debug_info.py" in path.read_bytes() and b"f.k0[exp" in path.read_bytes()
    plain = gx.export(f, tmp_path / "g.o", target=target).read_bytes()
    assert b"debug_line" in path.read_bytes() and b"debug_line" not in plain


def test_a_graph_without_lines(tmp_path):
    (tmp_path / "f.gir").write_text("graph @f(%x: f32[n]) {\n  %0: f32[n] = exp %x\n"
                                    "  return %0\n}\n")
    f = gx.Function.from_graph(gx.Graph.load(tmp_path / "f.gir"))
    path = gx.export(f, tmp_path / "libf.so", cpu="v2", debug_info=True)
    assert gx.load(path).f([0.0]).tolist() == [1.0]


def test_odd_names_of_files():
    """Quotes, backslashes, other alphabets and notebook cells; files elsewhere lose their path."""
    places = [Loc('/src/a "b"\\c.py', 1), Loc("/src/pkg/näh.py", 2), Loc("/usr/lib/x.py", 3),
              Loc("<ipython-input-1>", 4), None]
    body = "".join(f"{mark(p)}\n  %v{k} = add i32 0, {k}\n" for k, p in enumerate(places))
    text = with_head(f"define i32 @f() {{\n{body}  ret i32 %v0\n}}\n", ("f", places[0]))
    out = annotate(text, "graphc", "/src")
    names = re.findall(r'DIFile\(filename: "(.*?)", directory', out)
    assert names == ['a \\22b\\22\\5Cc.py', "pkg/n\\C3\\A4h.py", "x.py", "<ipython-input-1>"]
    assert len(re.findall(r"^  .*, !dbg !\d+$", out, re.M)) == 6

    from graphc.codegen.machine import llvm
    from graphc.codegen.machine.target import host

    assert llvm.compile_object(out, host(), use_cache=False)
