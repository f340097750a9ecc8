"""States saved to files and memory and loaded again, from C and from Python."""

import ctypes
import os
import resource
import shutil
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from library_samples import batch, digits_functions, export_loaded, needs_cc, same_bits

import graphc as gx
from graphc.errors import ArgumentError, ShapeError, UsageError

NULL, FILE, NOT, OTHER, CUT = 1, 8, 9, 10, 11


def call(lib, name, state, path):
    where = None if path is None else os.fsencode(path)
    address = None if state is None else ctypes.c_void_p(state.ctypes.data)
    return lib.symbol(name)(address, where)


@pytest.fixture
def trained(digits):
    state = digits.new_state()
    for k in range(3):
        digits.call("step", state, *batch(16, k))
    return state


def test_there_and_back(digits, trained, tmp_path):
    path = tmp_path / "digits.state"
    assert call(digits, "save_state", trained, path) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["digits.state"]
    assert f"STATE_FILE_BYTES UINT64_C({path.stat().st_size})" in digits.header
    assert (path.stat().st_size - 16) % 64 == trained.nbytes % 64
    fresh = digits.new_state()
    assert call(digits, "load_state", fresh, path) == 0
    assert same_bits(fresh, trained)
    assert call(digits, "save_state", digits.new_state(), path) == 0  # over the old one
    assert call(digits, "load_state", fresh, path) == 0
    assert same_bits(fresh, digits.new_state())


def test_in_memory(digits, trained, tmp_path):
    path = tmp_path / "digits.state"
    call(digits, "save_state", trained, path)
    room = np.full(path.stat().st_size, 0xEE, np.uint8)
    where = ctypes.c_void_p(room.ctypes.data)
    digits.symbol("pack_state")(ctypes.c_void_p(trained.ctypes.data), where)
    assert room.tobytes() == path.read_bytes()
    fresh = digits.new_state()
    unpack = digits.symbol("unpack_state")
    to = ctypes.c_void_p(fresh.ctypes.data)
    for size, want in ((-1, NOT), (0, NOT), (8, NOT), (16, CUT), (24, CUT), (100, CUT),
                       (room.size - 1, CUT), (room.size + 1, CUT)):
        assert unpack(to, where, ctypes.c_int64(size)) == want, size
    assert unpack(None, where, ctypes.c_int64(room.size)) == NULL
    assert unpack(to, None, ctypes.c_int64(room.size)) == NULL
    assert same_bits(fresh, digits.new_state())
    assert unpack(to, where, ctypes.c_int64(room.size)) == 0
    assert same_bits(fresh, trained)


def test_wrong_files_are_refused_and_nothing_changes(digits, trained, tmp_path):
    path = tmp_path / "digits.state"
    assert call(digits, "save_state", trained, path) == 0
    whole = path.read_bytes()
    lib = gx.load(digits.path)
    before = lib.state.copy()

    def refused(want, match, raw=None):
        if raw is not None:
            path.write_bytes(raw)
        fresh = digits.new_state()
        assert call(digits, "load_state", fresh, path) == want
        assert same_bits(fresh, digits.new_state())
        with pytest.raises(ArgumentError, match=match) as told:
            lib.state.load(path)
        assert "test_state_files.py:" in str(told.value)
        assert all(same_bits(a, before[k]) for k, a in lib.state.items())

    for n in (8, 12, 16):
        refused(NOT if n < 16 else CUT, "cut short", whole[:n])
    for n in (24, 40, 500, len(whole) - 16 - trained.nbytes, len(whole) - 16, len(whole) - 1):
        refused(CUT, "cut short", whole[:n])
    refused(CUT, "cut short", whole + b"\0")
    refused(CUT, "damaged", whole[:40] + b"#" + whole[41:])
    refused(NOT, "not a state file", b"")
    refused(NOT, "not a state file", b"graph" + whole[5:])
    for version in (b"\1", b"\3"):
        refused(NOT, rf"version {version[0]}; .* reads version 2", whole[:8] + version + whole[9:])
    other = export_loaded(digits_functions(hidden=16), tmp_path / "libother.so", cpu="v2")
    assert call(other, "save_state", other.new_state(), path) == 0
    refused(OTHER, r"other variables: it has w1: f32\[64,16\]")
    os.remove(path)
    refused(FILE, "No such file")
    path.mkdir()
    refused(FILE, "Is a directory")
    for code, words in ((FILE, "cannot be read or written"), (NOT, "not a state file"),
                        (OTHER, "other variables"), (CUT, "cut short")):
        assert words in digits.explain(code)


def test_a_changed_byte_is_noticed_anywhere(digits, trained, tmp_path):
    """In the header, the values, and the checksum itself; two words changed against each other."""
    path = tmp_path / "digits.state"
    assert call(digits, "save_state", trained, path) == 0
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    fresh, first = digits.new_state(), whole.size - 16 - trained.nbytes
    before, lib, functions = fresh.copy(), gx.load(digits.path), digits_functions()
    unpack, to = digits.symbol("unpack_state"), ctypes.c_void_p(fresh.ctypes.data)
    values = range(first, whole.size - 16, 997)
    for at in (*range(first), *values, *range(whole.size - 20, whole.size)):
        for bit in (1, 0x80):
            damaged = whole.copy()
            damaged[at] ^= bit
            code = NOT if at < 12 else OTHER if 16 <= at < 24 else CUT
            assert unpack(to, ctypes.c_void_p(damaged.ctypes.data),
                          ctypes.c_int64(whole.size)) == code, at
            if at % 8 == 0:
                path.write_bytes(damaged.tobytes())
                for load in (lib.state.load, lambda path: gx.load_state(path, functions)):
                    with pytest.raises(ArgumentError, match=r"digits\.state "):
                        load(path)
    words = whole[first:].view(np.uint32)
    for i, j, by in ((0, 2, 1 << 31), (10, 4096, 7), (3, 4, 1 << 16)):
        damaged = whole.copy()
        changed = damaged[first:].view(np.uint32)
        changed[[i, j]] = words[[i, j]] + np.array([by, -by]).astype("uint32")
        path.write_bytes(damaged.tobytes())
        assert call(digits, "load_state", fresh, path) == CUT
        with pytest.raises(ArgumentError, match="cut short or damaged"):
            lib.state.load(path)
    assert same_bits(fresh, before)


@pytest.mark.parametrize("n", (1, 2, 3, 4, 7, 1025))
def test_states_of_odd_sizes(tmp_path, n):
    """The last word of the checksum is filled up; C and Python agree."""
    x = gx.input("x", ("n",), "uint8")
    v = gx.variable(np.arange(n, dtype="uint8") + 1, "v")
    f = gx.function([x], gx.sum(x), updates={v: v * 2}, name="f")
    lib = export_loaded([f], tmp_path / "libodd.so", cpu="v2")
    state, path = lib.new_state(), tmp_path / "odd.state"
    assert call(lib, "save_state", state, path) == 0
    raw = path.read_bytes()
    gx.save_state(path, f, library=lib.path)
    assert path.read_bytes() == raw and len(raw) % 4 == n % 4
    fresh = np.zeros_like(state)
    assert call(lib, "load_state", fresh, path) == 0 and same_bits(fresh, state)
    path.write_bytes(raw[:-17] + bytes([raw[-17] ^ 0x80]) + raw[-16:])
    assert call(lib, "load_state", fresh, path) == CUT


def test_failed_saves_leave_the_old_file(digits, trained, tmp_path):
    path = tmp_path / "digits.state"
    assert call(digits, "save_state", trained, path) == 0
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, 2000, trained.nbytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
        try:
            status = call(digits, "save_state", digits.new_state(), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert status == FILE
        assert [p.name for p in tmp_path.iterdir()] == ["digits.state"]
    fresh = digits.new_state()
    assert call(digits, "load_state", fresh, path) == 0 and same_bits(fresh, trained)
    assert call(digits, "save_state", trained, tmp_path / "no" / "where") == FILE
    assert call(digits, "save_state", trained, tmp_path) == FILE
    assert call(digits, "save_state", trained, "x" * 70000) == FILE
    assert call(digits, "save_state", trained, "") == FILE
    for name in ("save_state", "load_state"):
        assert call(digits, name, trained, None) == NULL
        assert call(digits, name, None, path) == NULL
    assert [p.name for p in tmp_path.iterdir()] == ["digits.state"]


@pytest.mark.parametrize("mask", (0o022, 0o077))
def test_a_saved_file_is_as_private_as_the_old_one(digits, trained, tmp_path, mask):
    old = os.umask(mask)
    try:
        for name, save in (
            ("c", lambda path: call(digits, "save_state", trained, path)),
            ("state", lambda path: gx.load(digits.path).state.save(path)),
            ("npz", lambda path: gx.save_state(path, gx.variable(1.0, "v"))),
        ):
            path = tmp_path / name
            assert not save(path) and stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
            for mode in (0o600, 0o664, 0o400):
                path.chmod(mode)
                content = path.read_bytes()
                assert not save(path) and stat.S_IMODE(path.stat().st_mode) == mode
                assert path.read_bytes() == content
    finally:
        os.umask(old)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "npz", "state"]


@pytest.mark.skipif(os.geteuid() != 0 and not os.access("/dev/full", os.W_OK), reason="no /dev")
def test_special_files_are_not_written_through(digits, trained, tmp_path):
    path = tmp_path / "link"
    path.symlink_to("/dev/full")
    assert call(digits, "save_state", trained, path) == FILE
    assert path.readlink() == Path("/dev/full")
    for to in ("file", "nowhere"):  # links to files, or to nothing, are replaced
        (tmp_path / "file").write_text("old")
        path.unlink()
        path.symlink_to(to)
        assert call(digits, "save_state", trained, path) == 0
        assert not path.is_symlink() and call(digits, "load_state", trained, path) == 0
        assert (tmp_path / "file").read_text() == "old"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert call(digits, "save_state", trained, pipe) == FILE
    assert pipe.is_fifo()
    device = tmp_path / "device"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.stat("/dev/full").st_rdev)
    except PermissionError:
        return
    assert call(digits, "save_state", trained, device) == FILE
    assert device.is_char_device()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["device", "file", "link", "pipe"]


def test_python_reads_and_writes_the_same_file(digits, trained, tmp_path):
    path = tmp_path / "digits.state"
    assert call(digits, "save_state", trained, path) == 0
    functions = digits_functions()
    gx.load_state(path, functions)
    x, y = batch(16, 9)
    (want,) = digits.call("step", trained, x, y)
    assert same_bits(functions[0](x, y)["loss"], want)
    gx.save_state(path, functions, library=digits.path)
    assert call(digits, "load_state", (fresh := digits.new_state()), path) == 0
    assert same_bits(fresh, trained)
    lib = gx.load(digits.path)
    lib.state.load(path)
    assert all(same_bits(a, functions[0].state[k]) for k, a in lib.state.items())
    again = tmp_path / "again.state"
    lib.state.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_what_is_constant_in_the_library(tmp_path):
    def make(scale):
        x = gx.input("x", ("n",))
        fixed = gx.variable(np.full((), scale, "float32"), "fixed")
        moved = gx.variable(np.zeros((), "float32"), "moved")
        f = gx.function([x], gx.sum(x) * fixed, updates={moved: moved + gx.sum(x)}, name="f")
        return f, fixed, moved

    f, fixed, moved = make(2)
    lib = gx.load(gx.export(f, tmp_path / "libf.so", cpu="v2"))
    lib.f([1, 2])
    lib.state.save(tmp_path / "f.state")
    g, fixed, moved = make(5)
    gx.load_state(tmp_path / "f.state", g)
    assert (float(fixed.value), float(moved.value)) == (5, 3)
    gx.load_state(tmp_path / "f.state", [moved])
    with pytest.raises(ArgumentError, match=r"load_state: .*f.state lacks 'fixed'"):
        gx.load_state(tmp_path / "f.state", [fixed, moved])
    with pytest.raises(ArgumentError, match="has 'moved' besides"):
        gx.load_state(tmp_path / "f.state", [])
    gx.save_state(tmp_path / "g.state", g, library=tmp_path / "libf.so")
    assert (tmp_path / "g.state").read_bytes() == (tmp_path / "f.state").read_bytes()
    with pytest.raises(ArgumentError, match=r"save_state: .*libf.so has 'moved' besides"):
        gx.save_state(tmp_path / "g.state", [], library=tmp_path / "libf.so")
    wide = gx.variable(np.zeros(2, "float32"), "moved")
    with pytest.raises(ShapeError, match=r"'moved' is f32\[2\], but f32\[\] in"):
        gx.save_state(tmp_path / "g.state", wide, library=tmp_path / "libf.so")
    x = gx.input("x", ("n",))
    gx.export(gx.function([x], x, name="f"), tmp_path / "libnone.so", cpu="v2")
    with pytest.raises(ArgumentError, match="keeps no state"):
        gx.save_state(tmp_path / "g.state", wide, library=tmp_path / "libnone.so")
    with pytest.raises(UsageError):
        gx.save_state(tmp_path / "g.state", 3, library=tmp_path / "libf.so")


def test_savers_at_the_same_time(digits, trained, tmp_path):
    """Threads and processes that save to one path: one of them wins, whole."""
    import threading

    path = tmp_path / "digits.state"
    codes = []

    def save():
        codes.extend(call(digits, "save_state", trained, path) for _ in range(20))

    threads = [threading.Thread(target=save) for _ in range(6)]
    for t in threads:
        t.start()
    child = os.fork()
    if child == 0:
        os._exit(int(any(call(digits, "save_state", trained, path) for _ in range(20))))
    for t in threads:
        t.join()
    assert os.waitpid(child, 0)[1] == 0
    assert set(codes) == {0} and [p.name for p in tmp_path.iterdir()] == ["digits.state"]
    fresh = digits.new_state()
    assert call(digits, "load_state", fresh, path) == 0 and same_bits(fresh, trained)


FAULTS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "digits.h"

static int failing;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) { return failing ? NULL : __real_malloc(size); }
size_t __real_fread(void *p, size_t a, size_t b, FILE *f);
size_t __wrap_fread(void *p, size_t a, size_t b, FILE *f) {
  return failing == 2 ? 0 : __real_fread(p, a, b, f);
}

int main(int argc, char **argv) {
  digits_state *s = (digits_state *)malloc(sizeof *s), *t = (digits_state *)malloc(sizeof *s);
  (void)argc;
  digits_init(s);
  memset(t, 0xAB, sizeof *t);
  if (digits_save_state(s, argv[1])) return 1;
  failing = 1;
  if (digits_save_state(s, argv[1])) return 2; /* needs no memory */
  if (digits_load_state(t, argv[1]) != DIGITS_OUT_OF_MEMORY) return 3;
  failing = 0;
  for (size_t i = 0; i < sizeof *t; i++) if (((unsigned char *)t)[i] != 0xAB) return 4;
  if (digits_load_state(t, argv[1])) return 5;
  return memcmp(s, t, sizeof *s) != 0;
}
"""


@needs_cc
def test_from_c_when_memory_is_short(tmp_path):
    gx.export(digits_functions(), tmp_path / "digits.a")
    (tmp_path / "faults.c").write_text(FAULTS)
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "faults.c", "digits.a",
         "-Wl,--wrap=malloc,--wrap=fread", "-o", "faults", "-pthread"], cwd=tmp_path, check=True,
    )
    assert subprocess.run(["./faults", "s.state"], cwd=tmp_path).returncode == 0


CHECKED = r"""
#include <stdint.h>
#include <stdlib.h>
#include "digits.h"

int main(void) {
  static float x[20 * 64];
  static int64_t y[20], labels[20];
  digits_state *s = (digits_state *)malloc(sizeof *s);
  void *arena = malloc((size_t)digits_step_arena(20));
  void *packed = malloc(DIGITS_STATE_FILE_BYTES);
  float loss;
  digits_init(s);
  digits_set_threads(1);
  if (digits_step(s, x, y, NULL, 20, arena) || digits_step(s, x, y, NULL, 20, NULL)) return 1;
  if (digits_save_state(s, "s.state") || digits_load_state(s, "s.state")) return 2;
  digits_pack_state(s, packed);
  if (digits_unpack_state(s, packed, DIGITS_STATE_FILE_BYTES)) return 3;
  if (digits_step(s, x, y, &loss, 20, arena) || !(loss > 0)) return 4;
  if (digits_predict(s, x, labels, 20, NULL) || digits_descriptor()[0] != '{') return 5;
  if (digits_load_state(s, "missing") != DIGITS_FILE_ERROR) return 6;
  free(packed); free(arena); free(s);
  return 0;
}
"""


@needs_cc
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_memcheck(tmp_path):
    """No invalid access, no use of undefined values, nothing lost."""
    gx.export(digits_functions(), tmp_path / "libdigits.so", cpu=["v2", "v3"])
    (tmp_path / "main.c").write_text(CHECKED.replace("digits.h", "libdigits.h"))
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "main.c", "-L.",
         "-ldigits", "-Wl,-rpath,.", "-o", "main"], cwd=tmp_path, check=True,
    )
    done = subprocess.run(
        ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all",
         "./main"], cwd=tmp_path, env=os.environ | {"GRAPHC_CPU": "v3"}, capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
