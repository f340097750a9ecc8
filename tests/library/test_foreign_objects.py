"""Objects and libraries for wasm, Windows and macOS, read back: names, needs, variables, archives.

Objects need no tools; what needs a linker skips without one.
"""

import importlib.util
import os
import re
import subprocess

import native_graphs as ng
import numpy as np
import object_files
import pytest
import test_rows
from library_samples import digits_functions, needs_cc

import graphc as gx
from graphc.codegen.library import foreign, make
from graphc.codegen.library.foreign import LIBSYSTEM, linkers
from graphc.codegen.library.windows import IMPORTS
from graphc.codegen.machine import linker, llvm
from graphc.codegen.machine.platforms import platform
from graphc.codegen.machine.target import x86
from graphc.errors import CompileError
from graphc.types import f16, f64, i64

NAMES = ("wasm32", "x86_64-windows-gnu", "x86_64-macos", "aarch64-macos")
DTYPES = (f16, f64, i64)


def corpus():
    """Functions over much of the op table, and a state."""
    functions = digits_functions()
    functions += [build(d)[0] for d in DTYPES for build in (test_rows.elementwise, test_rows.casts)]
    for seed in range(2):
        f = ng.function(ng.make(f"foreign {seed}", 30), f"f{seed}")
        for s in f.graph.variables():
            s.name = f"f{seed}_{s.name}"
        functions.append(f)
    return functions


def api(header, name):
    """The C functions that a header declares, as the platform's objects name them."""
    prototype = r"^(?:void|u?int64_t|int|const char) \*?(\w+)\("
    names = set(re.findall(prototype, header.read_text(), re.M))
    return {f"_{n}" for n in names} if "macos" in name else names


def levels(name):
    """All would take as long again."""
    return ["v2", "v4"] if name.startswith("x86_64") else None


def allowed(name):
    """What an object may need of others."""
    if name == "wasm32":
        return {"malloc", "free"}
    if "windows" in name:
        return {f"__imp_{n}" for n in IMPORTS}
    return {f"_{n}" for n in LIBSYSTEM}


@pytest.fixture(scope="module", params=NAMES)
def made(request, tmp_path_factory):
    """The corpus as an object and an archive."""
    folder = tmp_path_factory.mktemp(request.param)
    gx.export(corpus(), folder / "libmany.o", target=request.param, kinds=["a"],
              cpu=levels(request.param))
    return request.param, folder


def test_objects_show_the_api_and_need_little(made):
    name, folder = made
    found = object_files.read((folder / "libmany.o").read_bytes())
    assert found.defined == api(folder / "libmany.h", name)
    assert found.undefined <= allowed(name)
    # the level that was found, and a word of the environment
    assert found.writable <= (0 if name in ("wasm32", "aarch64-macos") else 32)
    header = (folder / "libmany.h").read_text()
    assert ("many_save_state" in header) == (name != "wasm32")
    assert "many_unpack_state" in header and "STATE_FILE_BYTES" in header


# What macOS has in the place of Linux's system calls, with Apple's struct stat.
APPLE = """
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include "libs.h"
struct apple { int32_t dev; uint16_t mode, links; uint64_t inode; char rest[128]; };
int apple_stat(const char *path, struct apple *to) __asm__("stat$INODE64");
int apple_stat(const char *path, struct apple *to)
{
    struct stat s;
    if (stat(path, &s))
        return -1;
    to->mode = (uint16_t)s.st_mode;
    return 0;
}
int main(int argc, char **argv)
{
    s_state s;
    s_init(&s);
    for (int k = 1; k < argc; k++)
        printf("%d ", s_save_state(&s, argv[k]));
}
"""


@needs_cc
@pytest.mark.skipif(not linker.usable(), reason="not x86-64 Linux")
def test_state_files_of_macos_are_as_private_as_the_old_ones(tmp_path):
    """Its code runs here, beside a libc that answers as Apple's does."""
    f = digits_functions()[0]
    gx.export(f, tmp_path / "libs.ll", target="x86_64-macos", cpu="v2")
    text = (tmp_path / "libs.ll").read_text()
    text = re.sub(r"^target \w+ = .*$", "", text, flags=re.M)
    (tmp_path / "s.o").write_bytes(llvm.compile_object(text, x86("v2"), use_cache=False))
    (tmp_path / "main.c").write_text(APPLE)
    subprocess.run(["cc", "main.c", "s.o", "-o", "main"], cwd=tmp_path, check=True)
    for mode in (0o600, 0o640):
        (tmp_path / f"{mode}").write_text("old")
        (tmp_path / f"{mode}").chmod(mode)
    os.mkfifo(tmp_path / "pipe")
    old = os.umask(0o022)
    try:
        done = subprocess.run(["./main", f"{0o600}", f"{0o640}", "new", "pipe"], cwd=tmp_path,
                              capture_output=True, text=True, check=True)
    finally:
        os.umask(old)
    assert done.stdout.split() == ["0", "0", "0", "8"] and (tmp_path / "pipe").is_fifo()
    for name, mode in ((f"{0o600}", 0o600), (f"{0o640}", 0o640), ("new", 0o644)):
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
        assert (tmp_path / name).read_bytes() == (tmp_path / "new").read_bytes() != b"old"


def test_archives_find_the_object(made):
    name, folder = made
    raw, obj = ((folder / f"libmany.{s}").read_bytes() for s in "ao")
    index = object_files.index(raw)
    assert set(index) == api(folder / "libmany.h", name)
    *_, (_, at, body) = object_files.members(raw)
    assert set(index.values()) == {at}
    assert body.rstrip(b"\0\n") == obj.rstrip(b"\0\n")
    if "macos" in name:  # where its objects must begin
        assert (len(raw) - len(body)) % 8 == 0


def test_the_same_bytes_twice(tmp_path):
    for name in NAMES:
        for folder in ("a", "b"):
            (tmp_path / name / folder).mkdir(parents=True)
            gx.export(digits_functions(), tmp_path / name / folder / "x.o", target=name,
                      kinds=["a"], cpu=levels(name))
        for suffix in (".o", ".a", ".h"):
            one, two = ((tmp_path / name / f / "x").with_suffix(suffix) for f in "ab")
            assert one.read_bytes() == two.read_bytes(), (name, suffix)


def test_large_weights_are_put_into_the_object(tmp_path):
    """A mark in the object gives way to the data, in every format."""
    w = np.random.default_rng(0).normal(size=(300, 700)).astype("float32")
    x = gx.input("x", ("n", 300))
    f = gx.function([x], x @ gx.variable(w, "w"), name="f")
    for name in NAMES:
        gx.export(f, tmp_path / "x.o", target=name)
        raw = (tmp_path / "x.o").read_bytes()
        assert raw.count(w.tobytes()) == 1 and len(raw) < 1.1 * w.nbytes + 40_000


def linked(name, folder):
    if not linkers(platform(name)):
        pytest.skip(f"no linker for {name}: LLVM's lld or the ziglang wheel")
    suffix = platform(name).shared
    return gx.export(digits_functions(), folder / f"digits{suffix}", target=name)


@pytest.mark.parametrize("name", NAMES)
def test_libraries_show_the_api_and_load_little(name, tmp_path):
    raw = linked(name, tmp_path).read_bytes()
    found, names = object_files.read(raw), api(tmp_path / "digits.h", name)
    if name == "wasm32":
        assert found.defined == names | {"memory", "malloc", "free"} and not found.undefined
    elif "windows" in name:
        assert found.defined == names and found.needed == {"kernel32.dll"}
        assert found.undefined <= set(IMPORTS)
        imports = (tmp_path / "digits.dll.lib").read_bytes()
        assert names < set(object_files.index(imports))
    else:
        own = {"__mh_dylib_header", "___dso_handle"}  # zig's linker shows these
        assert found.defined - own == names and found.needed == {"/usr/lib/libSystem.B.dylib"}
        assert found.undefined <= allowed(name) | {"dyld_stub_binder"}
    again = linked(name, tmp_path)
    assert again.read_bytes() == raw


@pytest.mark.parametrize("name", NAMES)
def test_linkers_find_what_they_need_in_archives(name, tmp_path):
    """A library of one function that calls another in the archive."""
    if not linkers(platform(name)):
        pytest.skip(f"no linker for {name}: LLVM's lld or the ziglang wheel")
    there = platform(name)
    gx.export(digits_functions(), tmp_path / "digits.a", target=name, cpu=levels(name))
    caller = """declare i64 @digits_predict_arena(i64)
define i64 @go() {
  %r = call i64 @digits_predict_arena(i64 3)
  ret i64 %r
}
"""
    (tmp_path / "library.o").write_bytes(llvm.compile_object(caller, there.base))
    order = foreign.ORDERS[there.format]
    for command, driver in linkers(there):
        options = order("made", ("go",), tmp_path, there, driver)
        subprocess.run([*command, *options, "digits.a"], cwd=tmp_path, check=True)
        found = object_files.read((tmp_path / "made").read_bytes())
        assert "go" in {n.lstrip("_") for n in found.defined}
        assert found.undefined <= allowed(name) | set(IMPORTS) | {"dyld_stub_binder"}


def test_wrong_kinds_are_refused(tmp_path):
    def fails(match, path, **options):
        with pytest.raises(CompileError, match=match):
            gx.export(digits_functions(), tmp_path / path, **options)

    fails("wasm32 ends in .wasm, got 'x.dll'", "x.dll", target="wasm32")
    fails(r"\.obj files are for Windows; .*macos has \.o and \.a", "x.obj", target="x86_64-macos")
    fails(r"\.lib files are for Windows", "x.o", target="wasm32", kinds=["lib"])
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_32_bits_is_refused(tmp_path, monkeypatch):
    class Large(make.Data):
        def add(self, array):
            self.size = 3 << 30
            return "null"

    monkeypatch.setattr(make, "Data", Large)
    with pytest.raises(CompileError, match="wasm32 has 32-bit addresses: 3221225472 bytes"):
        gx.export(digits_functions(), tmp_path / "x.o", target="wasm32")


@pytest.mark.parametrize("name", NAMES)
def test_no_linker_is_said(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == "ziglang" else find(n))
    path = tmp_path / f"x{platform(name).shared}"
    with pytest.raises(CompileError, match=rf"no linker for {name} was found .* ziglang; or write"):
        gx.export(digits_functions(), path, target=name)
    assert not list(tmp_path.iterdir())


def test_a_linker_that_fails_is_quoted(tmp_path, monkeypatch):
    """Every linker is tried; nothing is left behind."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == "ziglang" else find(n))
    tools, out = tmp_path / "tools", tmp_path / "out"
    for folder in (tools, out):
        folder.mkdir()
    for name, text in (("wasm-ld", "echo cannot do this >&2; exit 3"), ("ld.lld", "exit 4")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(CompileError, match=(
        r"linking x\.wasm failed: \S+wasm-ld: cannot do this; \S+ld.lld -flavor wasm: exit code 4; "
        "install wasm-ld"
    )):
        gx.export(digits_functions(), out / "x.wasm", target="wasm32", kinds=["o"])
    assert not list(out.iterdir())
