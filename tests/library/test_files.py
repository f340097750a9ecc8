"""What stands in the files, and that they appear whole or not at all."""

import ctypes
import os
import re
import resource
import shutil
import subprocess
import time

import numpy as np
import pytest
from library_samples import Loaded, batch, digits_functions, export_loaded, needs_cc, same_bits

import graphc as gx
from graphc.codegen.machine.platforms import native
from graphc.errors import ArgumentError, CompileError, UsageError

needs_binutils = pytest.mark.skipif(
    shutil.which("nm") is None or shutil.which("readelf") is None, reason="no nm or readelf"
)
LIBC = {"fclose", "ferror", "fflush", "fileno", "fopen", "fread", "fsync", "fwrite", "memcmp",
        "remove", "rename", "strlen",  # those of state files
        "free", "getenv", "getpid", "madvise", "malloc", "memcpy", "memmove", "memset", "mmap",
        "munmap", "pthread_create", "pthread_join", "pthread_sigmask", "sched_getaffinity",
        "sched_yield", "syscall"}


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def small(name="f"):
    x = gx.input("x", ("n",))
    return gx.function([x], x + 1, name=name)


@needs_binutils
def test_only_the_api_is_visible_and_only_libc_is_needed(digits):
    names = [line.split() for line in lines("nm", "-D", str(digits.path))]
    shown = {n[-1] for n in names if n[-2] not in "Uw"}
    assert shown == {f"digits_{n}" for n in (
        "abi", "descriptor", "init", "load_state", "pack_state", "predict", "predict_arena",
        "predict_in", "save_state", "set_threads", "state_bytes", "step", "step_arena", "step_in",
        "strerror", "unpack_state", "warmup")}
    assert {n[-1] for n in names if n[-2] in "Uw"} <= LIBC
    assert {n[-1] for n in names if n[-2] == "w"} == {
        "pthread_create", "pthread_join", "pthread_sigmask"}
    dynamic = lines("readelf", "-dW", str(digits.path))
    assert [line.split()[-1] for line in dynamic if "NEEDED" in line] == ["[libc.so.6]"]
    assert any("SONAME" in line and "[libdigits.so]" in line for line in dynamic)
    assert not any("TEXTREL" in line for line in dynamic)
    assert not any("GLIBC" in line for line in lines("readelf", "-VW", str(digits.path)))
    sections = [line for line in lines("readelf", "-SW", str(digits.path)) if "] ." in line]
    writable = {re.search(r"\] (\.\S+)", s)[1] for s in sections if re.search(r" WAo? ", s)}
    assert writable <= {".fini_array", ".dynamic", ".got", ".got.plt", ".bss"}
    stack = [line for line in lines("readelf", "-lW", str(digits.path)) if "GNU_STACK" in line]
    assert stack and "RWE" not in stack[0]


@needs_binutils
def test_a_function_without_threads_or_arena_needs_nothing(tmp_path):
    x = gx.input("x", ())
    gx.export(gx.function([x], x, name="f"), tmp_path / "libtiny.so")
    needed = {line.split()[-1] for line in lines("nm", "-D", "-u", str(tmp_path / "libtiny.so"))}
    assert needed <= {"getenv", "memcpy", "malloc", "free"}  # malloc: for an output that is NULL


def test_size_of_a_trainer(tmp_path, capsys):
    functions = digits_functions(128)
    weights = 4 * (64 * 128 + 128 + 128 * 10 + 10)
    for cpu in (["v2"], ["v3"], ["v4"], None):
        path = gx.export(functions, tmp_path / "libmlp.so", cpu=cpu)
        size = path.stat().st_size
        with capsys.disabled():
            print(f"  MLP-Adam trainer at {cpu or 'all levels'}: {size} bytes, "
                  f"{size - weights} beside its weights")
        if cpu:
            assert size - weights < 100_000


def test_the_same_bytes_every_time(tmp_path):
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        functions = digits_functions()
        for suffix in (".so", ".a", ".o", ".ll", ".s"):
            gx.export(functions, tmp_path / folder / f"libdigits{suffix}")
        files.append({p.name: p.read_bytes() for p in sorted((tmp_path / folder).iterdir())})
    assert sorted(files[0]) == [f"libdigits.{k}" for k in ("a", "h", "ll", "o", "s", "so")]
    for name in files[0]:
        assert files[0][name] == files[1][name], name


@needs_cc
def test_every_kind_links_into_the_same_library(digits, tmp_path):
    functions = digits_functions()
    x, y = batch(20)
    (want,) = digits.call("step", digits.new_state(), x, y)
    for suffix in (".o", ".s", ".a"):
        gx.export(functions, tmp_path / f"digits{suffix}")
        whole = ["-Wl,--whole-archive"] * (suffix == ".a")
        subprocess.run(["cc", "-shared", "-o", f"lib{suffix[1:]}.so", *whole, f"digits{suffix}",
                        "-Wl,--no-whole-archive"], cwd=tmp_path, check=True)
        (tmp_path / f"lib{suffix[1:]}.h").write_text((tmp_path / "digits.h").read_text())
        lib = Loaded(tmp_path / f"lib{suffix[1:]}.so", functions, "digits")
        assert same_bits(lib.call("step", lib.new_state(), x, y)[0], want), suffix
    gx.export(functions, tmp_path / "only.h")
    assert not (tmp_path / "only.so").exists() and "only_step(" in (tmp_path / "only.h").read_text()


def test_several_kinds_at_once(tmp_path):
    """One compilation, and the same bytes as one after another."""
    kinds = ["a", ".o", "ll", "s", "so", "h", "a"]
    (tmp_path / "many").mkdir()
    path = gx.export(digits_functions(), tmp_path / "many" / "libdigits.so", cpu="v3", kinds=kinds)
    assert path == tmp_path / "many" / "libdigits.so"
    found = sorted(p.name for p in path.parent.iterdir())
    assert found == [f"libdigits.{k}" for k in ("a", "h", "ll", "o", "s", "so")]
    for name in found:
        gx.export(digits_functions(), tmp_path / name, cpu="v3")
        assert (tmp_path / name).read_bytes() == (path.parent / name).read_bytes(), name
    fails(tmp_path / "libf.so", "kinds are so, .*, a, o, ll, s, h.* got .exe.", kinds=["exe"])
    fails(tmp_path / "libf.so", "takes a list of suffixes, got 'a'", error=UsageError, kinds="a")
    (tmp_path / "libg.a").mkdir()
    fails(tmp_path / "libg.so", "libg.a: it is a directory", kinds=["a"])
    assert not list(tmp_path.glob("libf*")) and [p.name for p in tmp_path.glob("libg*")] == [
        "libg.a"]


@needs_cc
def test_archives_side_by_side(tmp_path):
    for name in ("one", "two"):
        gx.export(digits_functions(), tmp_path / f"{name}.a")
    source = """#include "one.h"
#include "two.h"
static one_state a; static two_state b;
int main(void) { float x[64] = {1}, l = 0, m = 0; int64_t y = 3;
  one_init(&a); two_init(&b); one_warmup(); two_warmup();
  return one_step(&a, x, &y, &l, 1, 0) || two_step(&b, x, &y, &m, 1, 0) || l != m; }
"""
    (tmp_path / "both.c").write_text(source)
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "both.c", "one.a", "two.a", "-pthread",
                    "-o", "both"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "both"]).returncode == 0


def test_threads_end_when_the_library_is_unloaded(tmp_path):
    x = gx.input("x", ("n",))
    path = gx.export(gx.function([x], gx.exp(x), name="f"), tmp_path / "libgone.so")

    def tasks():
        return set(os.listdir("/proc/self/task"))

    before = tasks()
    lib = ctypes.CDLL(str(path))
    assert tasks() <= before
    lib.gone_set_threads(3)
    lib.gone_warmup()
    started = tasks() - before
    assert len(started) == 2
    handle = lib._handle
    del lib
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))
    until = time.monotonic() + 5  # the system lists a thread that was joined for a moment longer
    while tasks() & started and time.monotonic() < until:
        time.sleep(0.001)
    assert not tasks() & started


# -- failures --------------------------------------------------------------------------------------


def fails(path, match, functions=None, error=CompileError, **options):
    with pytest.raises(error, match=match) as told:
        gx.export([small()] if functions is None else functions, path, **options)
    assert "test_files.py:" in str(told.value)


def test_outputs_that_cannot_be(tmp_path):
    fails(tmp_path / "f.xyz", "must end in one of .so, .wasm")
    for name, found in (("libm.so", "libm.so or libm.h"), ("libc.a", "libc.a or libc.h"),
                        ("math.o", "math.o or math.h"), ("string.h", "string.h")):
        fails(tmp_path / name, f"would find {found} in the place of the system's; choose a name")
    fails(tmp_path / "nowhere" / "libf.so", "there is no directory")
    (tmp_path / "libdir.so").mkdir()
    fails(tmp_path / "libdir.so", "is a directory")
    (tmp_path / "libh.h").mkdir()
    fails(tmp_path / "libh.so", "libh.h: it is a directory")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["libdir.so", "libh.h"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_not_writable(tmp_path):
    tmp_path.chmod(0o500)
    fails(tmp_path / "libf.so", "not writable")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", (".so", ".o", ".a", ".ll", ".s", ".h"))
def test_a_full_disk_leaves_nothing(tmp_path, suffix):
    f = digits_functions()
    for g in f:
        g.optimized  # noqa: B018
    (tmp_path / "libf.h").write_text("the old one")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
    try:
        fails(tmp_path / f"libf{suffix}", "export: ", f)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [p.name for p in tmp_path.iterdir()] == ["libf.h"]
    assert (tmp_path / "libf.h").read_text() == "the old one"


def test_no_linker(tmp_path, monkeypatch):
    import graphc.codegen.library.link as link

    monkeypatch.setenv("PATH", str(tmp_path))
    find = link.importlib.util.find_spec
    monkeypatch.setattr(
        link.importlib.util, "find_spec",
        lambda name, *more: None if name == "ziglang" else find(name, *more),
    )
    fails(tmp_path / "libf.so", r"no linker for .* was found.*pip install ziglang.*\.o")
    assert not list(tmp_path.iterdir())
    gx.export(small(), tmp_path / "f.o")
    gx.export(small(), tmp_path / "f.a")


def test_a_linker_that_fails_and_another_that_works(tmp_path, monkeypatch):
    import graphc.codegen.library.link as link

    false, real = shutil.which("false"), shutil.which("ld") or shutil.which("ld.lld")
    monkeypatch.setattr(link, "linkers", lambda _: [([false], True)])
    fails(tmp_path / "libf.so", "linking libf.so failed: .*false: exit code 1")
    monkeypatch.setattr(link, "linkers", lambda _: [(["/no/such/linker"], False)])
    fails(tmp_path / "libf.so", "No such file")
    assert not list(tmp_path.iterdir())
    if real is None:
        pytest.skip("no ld")
    monkeypatch.setattr(link, "linkers", lambda _: [([false], True), ([real], False)])
    lib = export_loaded([small()], tmp_path / "libf.so")
    assert lib.call("f", None, np.ones(3, "float32"))[0].tolist() == [2, 2, 2]


def test_every_linker_at_hand(tmp_path, monkeypatch):
    import graphc.codegen.library.link as link

    for k, found in enumerate(link.linkers(native())):
        monkeypatch.setattr(link, "linkers", lambda _, found=found: [found])
        lib = export_loaded(digits_functions(), tmp_path / f"libmade{k}.so", cpu="native")
        x, y = batch(9)
        want = digits_functions()[0](x, y)["loss"]
        assert same_bits(lib.call("step", lib.new_state(), x, y)[0], want), found


def test_wrong_calls(tmp_path):
    path = tmp_path / "libf.so"
    v = gx.variable(np.zeros(2, "float32"), "v")
    given = ((3, "int"), ([3], "int"), (small, "function"), (gx.input("x", ("n",)) + 1, "Tensor"))
    for what, kind in given:
        fails(path, f"takes functions made by gx.function, got {kind}", what, UsageError)
    with pytest.raises(UsageError, match="at least one"):
        gx.export([], path)
    fails(path, "two functions are both called 'f'", [small(), small()])
    fails(path, "cpu must be among v2, v3, v4", error=ArgumentError, cpu="v5")
    fails(path, "cpu must name at least one", error=ArgumentError, cpu=[])
    fails(path, "'current', 'initial'", error=ArgumentError, state="latest")
    fails(path, "which none of the functions reads", error=UsageError, state=[v])
    fails(path, "list of variables, got int", error=UsageError, state=3)
    w = gx.variable(np.zeros(2, "float32"), "v")
    two = [gx.function([], v + 1, name="a"), gx.function([], w + 1, name="b")]
    fails(path, "two different variables are both called 'v'", two, UsageError)
    assert not list(tmp_path.iterdir())


def test_several_kinds_from_the_command_line(tmp_path, monkeypatch, capsys):
    from graphc.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.py").write_text(
        "import graphc as gx\nx = gx.input('x', ('n',))\nf = gx.function([x], x + 1, name='f')\n"
    )
    assert main(["compile", "f.py", "-o", "libf.so", "--kind", "a,h", "--cpu", "v2,v3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in said] == [
        "wrote libf.so", "wrote libf.a", "wrote libf.h"]
    assert gx.load("libf.so").descriptor["levels"] == ["v2", "v3"]
    assert main(["compile", "f.py", "-o", "only.h"]) == 0
    assert sorted(p.name for p in tmp_path.glob("only*")) == ["only.h"]
    assert main(["compile", "f.py", "-o", "libf.so", "--kind", "a,exe"]) == 2
    assert re.search("--kind: expected kinds of so,.*, got .exe.", capsys.readouterr().err)
