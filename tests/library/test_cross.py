"""Libraries for other machines, read back; those that are linked, where there is a linker."""

import re
import shutil
import subprocess

import pytest
from cross_samples import float_function, integer_function
from library_samples import digits_functions

import graphc as gx
from graphc.cli import main
from graphc.codegen.library.link import LIBC
from graphc.codegen.machine import cross, elf, llvm
from graphc.codegen.machine.platforms import PLATFORMS, native, platform
from graphc.errors import ArgumentError, CompileError, UsageError

ELF = [name for name, p in PLATFORMS.items() if p.format == "elf"]
# word size and machine number in the header of an ELF file
HEADER = {"x86_64": (64, 62), "aarch64": (64, 183), "riscv64": (64, 243), "armv7": (32, 40)}


def scalar():
    x = gx.input("x", ("n",), "float64")
    return gx.function([x], gx.sum(x * 2), name="f")


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given, name", [
    ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu"), ("arm64-linux-gnu", "aarch64-linux-gnu"),
    ("x86_64-pc-linux-gnu", "x86_64-linux-gnu"), ("amd64-linux-musl", "x86_64-linux-musl"),
    ("x86_64-unknown-linux-musl", "x86_64-linux-musl"), ("riscv64-linux", "riscv64-linux-gnu"),
    ("riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu"),
    ("arm-linux-gnueabihf", "armv7-linux-gnueabihf"),
    ("armv7-unknown-linux-gnueabihf", "armv7-linux-gnueabihf"),
    ("wasm32-unknown-unknown", "wasm32"), ("wasm32-wasi", "wasm32"),
    ("wasm32-freestanding", "wasm32"), ("x86_64-w64-mingw32", "x86_64-windows-gnu"),
    ("x86_64-pc-windows-gnu", "x86_64-windows-gnu"), ("arm64-apple-darwin23.1.0", "aarch64-macos"),
    ("aarch64-macos-none", "aarch64-macos"), ("x86_64-apple-macosx11.0", "x86_64-macos"),
])
def test_names_of_targets(given, name):
    assert platform(given) is PLATFORMS[name]


def test_wrong_targets(tmp_path, capsys):
    f = scalar()
    out = tmp_path / "libf.so"
    for name in ("sparc64-linux-gnu", "x86_64-linux-gnueabihf", "aarch64", "", "riscv64-macos"):
        with pytest.raises(UsageError, match=f"export: target: there is no '{name}'.*riscv64"):
            gx.export(f, out, target=name)
    with pytest.raises(ArgumentError, match=r"among v8, v8\.2, or 'native', got 'v3'"):
        gx.export(f, out, target="aarch64-linux-gnu", cpu="v3")
    with pytest.raises(ArgumentError, match="riscv64-linux-gnu has no CPU levels, got cpu='v3'"):
        gx.export(f, out, target="riscv64-linux-gnu", cpu="v3")
    with pytest.raises(ArgumentError, match="cpu must be among v2, v3, v4"):
        gx.export(f, out, target="x86_64-windows-gnu", cpu="native")
    with pytest.raises(CompileError, match=r"for aarch64-macos ends in .dylib, got 'libf.so'"):
        gx.export(f, out, target="aarch64-macos")
    with pytest.raises(CompileError, match=r"for wasm32 ends in .wasm, got 'libf.dll'"):
        gx.export(f, tmp_path / "libf.o", target="wasm32", kinds=["dll"])
    assert main(["compile", "f.py", "-o", str(out), "--target", "pdp11"]) == 2
    assert re.search("error: --target: there is no 'pdp11'; .*wasm32", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


# -- the process that generates code ---------------------------------------------------------------


def test_llvm_dies_in_a_child():
    base = PLATFORMS["aarch64-linux-gnu"].base
    fine = "define internal void @fine{k}() {{\n  ret void\n}}\n"
    text = "".join(fine.format(k=k) for k in range(5)) + (
        "define void @culprit() {\n  call void @llvm.x86.sse2.pause()\n  ret void\n}\n"
        "declare void @llvm.x86.sse2.pause()\n"
    )
    for generate in (llvm.compile_object, llvm.assembly):
        with pytest.raises(CompileError, match=r"aarch64-unknown-linux-gnu: .* for culprit: LLVM "
                                               r"ERROR: Cannot select.*sse2.pause"):
            generate(text, base)
    with pytest.raises(CompileError, match=r"aarch64.*parsing error.*undefined value '@missing'"):
        llvm.compile_object("define void @f() {\n  call void @missing()\n  ret void\n}\n", base)


def test_a_child_that_cannot_start(monkeypatch):
    monkeypatch.setattr(cross.sys, "executable", "/no/such/python")
    with pytest.raises(CompileError, match=r"riscv64.* did not start: No such file"):
        llvm.compile_object("", PLATFORMS["riscv64-linux-gnu"].base, use_cache=False)


# -- objects, which need no tools ------------------------------------------------------------------


@pytest.fixture(scope="module", params=ELF)
def far(request, tmp_path_factory):
    """The digits library for a target: its name and the object."""
    path = tmp_path_factory.mktemp(request.param) / "libdigits.o"
    gx.export(digits_functions(), path, target=request.param, kinds=["a", "s", "ll"])
    return request.param, path


def test_objects(far):
    name, path = far
    found = elf.read(path.read_bytes())
    assert (found.bits, found.machine) == HEADER[name.split("-")[0]]
    assert not set(found.undefined) - set(LIBC)
    header = path.with_suffix(".h").read_text()
    assert set(found.exported) == set(re.findall(r"^[a-z][\w ]* \*?(digits_\w+)\(", header, re.M))
    described = gx.descriptor.read_descriptor(path)
    assert described["target"] == PLATFORMS[name].triple
    assert described["levels"] == list(PLATFORMS[name].levels)


def test_objects_are_reproducible(far, tmp_path, monkeypatch):
    name, path = far
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    gx.export(digits_functions(), tmp_path / "libdigits.o", target=name)
    assert (tmp_path / "libdigits.o").read_bytes() == path.read_bytes()


def test_text_kinds(far):
    """.ll and .s stand alone: they hold what the object holds."""
    name, path = far
    whole = path.with_suffix(".ll").read_text()
    # LLVM reads assembly for the machine it runs on alone
    assert not re.search(r' asm (sideeffect )?"[^"]', whole)
    again = elf.read(llvm.compile_object(whole, PLATFORMS[name].base))
    assert (again.exported, again.undefined) == (
        (found := elf.read(path.read_bytes())).exported, found.undefined)
    assembly = path.with_suffix(".s").read_text()
    assert all(f"{symbol}:" in assembly for symbol in found.exported)


def test_the_native_target_by_name(tmp_path):
    if native().name not in PLATFORMS:
        pytest.skip("this machine is no target")
    for name, folder in (("native", "a"), (native().name, "b")):
        (tmp_path / folder).mkdir()
        gx.export(scalar(), tmp_path / folder / "libf.o", target=name)
    assert (tmp_path / "a/libf.o").read_bytes() == (tmp_path / "b/libf.o").read_bytes()


def test_instructions_that_armv7_lacks(tmp_path):
    """Casts, divisions and roundings would call libgcc and libm: the library brings them."""
    functions = [float_function("float64"), integer_function("int64"), integer_function("uint64")]
    base = PLATFORMS["armv7-linux-gnueabihf"].base
    path = gx.export(functions, tmp_path / "libf.o", target="armv7-linux-gnueabihf", kinds=["ll"])
    assert not set(elf.read(path.read_bytes()).undefined) - set(LIBC)
    text = path.with_suffix(".ll").read_text()
    for symbol in ("__aeabi_ldivmod", "__aeabi_uldivmod", "__aeabi_l2d", "__aeabi_d2lz", "floor"):
        assert re.search(rf"^define internal .*@{symbol}\(", text, re.M)
    assert elf.read(llvm.compile_object(text, base)).undefined


# -- shared libraries ------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
@pytest.mark.parametrize("name", ELF)
def test_shared_libraries(name, tmp_path):
    try:
        path = gx.export(digits_functions(), tmp_path / "libdigits.so", target=name)
    except CompileError as e:
        assert re.search(f"no linker for {name}.*install .*ld.lld.*pip install ziglang", str(e))
        pytest.skip("no linker for it")
    shown = subprocess.run(["readelf", "-dW", "--dyn-syms", path], capture_output=True, text=True,
                           check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", shown) == [PLATFORMS[name].libc]
    assert "TEXTREL" not in shown and "GLIBC" not in shown
    if name != native().name:
        with pytest.raises(ArgumentError, match=f"for {PLATFORMS[name].triple} does not load"):
            gx.load(path)


def test_no_linker_for_another_machine(tmp_path, monkeypatch):
    import graphc.codegen.library.link as link

    name = next(n for n in ELF if PLATFORMS[n].base.arch != native().base.arch)
    monkeypatch.setattr(link, "linkers", lambda _: [])
    with pytest.raises(CompileError, match=f"no linker for {name} was found to make libf.so; "
                                           r"install a C compiler \(.*-gcc\), .*ziglang"):
        gx.export(scalar(), tmp_path / "libf.so", target=name)
    assert not list(tmp_path.iterdir())
