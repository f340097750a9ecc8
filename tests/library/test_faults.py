"""What goes wrong outside: full and read-only disks, threads, memory and files that fail."""

import ctypes
import os
import subprocess
import sys

import pytest
from library_samples import batch, digits_functions, needs_cc

import graphc as gx
from graphc.errors import ArgumentError, CompileError

FILE = 8


class Disk:
    """A small file system of its own."""

    def __init__(self, path):
        self.path = path

    def mount(self, *options):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", self.path],
            capture_output=True, text=True,
        )
        if done.returncode:
            pytest.skip(f"cannot mount a file system here: {done.stderr.strip()}")

    def fill(self, leave):
        """Leave so many bytes, in whole pages."""
        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
        (self.path / "ballast").write_bytes(bytes(free - leave))

    def files(self):
        return {p.name: p.read_bytes() for p in self.path.iterdir() if p.name != "ballast"}


@pytest.fixture
def disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    (tmp_path / "disk").mkdir()
    d = Disk(tmp_path / "disk")
    d.mount("size=512k")
    yield d
    subprocess.run(["umount", "-l", d.path], check=True)


@pytest.fixture(scope="module")
def functions():
    return digits_functions()


@pytest.mark.parametrize("suffix", (".so", ".a", ".o", ".ll", ".s", ".h"))
def test_a_full_disk_while_a_library_is_written(disk, functions, suffix):
    """Whatever the room, either all files are new or all are as they were."""
    path = disk.path / f"libdigits{suffix}"
    other = [s for s in (".so", ".h") if s != suffix]
    for leave in (0, 4096, 16384):
        for p in (path, *(path.with_suffix(s) for s in other)):
            p.write_text("the old one")
        before = disk.files()
        disk.fill(leave)
        try:
            gx.export(functions, path, cpu="v3")
        except CompileError as e:
            assert disk.files() == before
            assert "export: " in str(e) and "test_faults.py:" in str(e)
            said = str(e)
        else:
            assert suffix == ".h" and leave
        (disk.path / "ballast").unlink()
    if suffix not in (".so", ".h"):  # a linker tells of it in its own words
        assert f"cannot write {path}: No space left on device" in said


def test_a_read_only_disk(disk, functions, tmp_path):
    gx.export(functions, disk.path / "libdigits.so", cpu="v3")
    before = disk.files()
    disk.mount("remount", "ro")
    with pytest.raises(CompileError, match=r"cannot write .*libdigits.so: .*not writable"):
        gx.export(functions, disk.path / "libdigits.so")
    lib = gx.load(disk.path / "libdigits.so")
    with pytest.raises(ArgumentError, match=r"cannot write .*state: Read-only file system"):
        lib.state.save(disk.path / "digits.state")
    assert disk.files() == before
    done = subprocess.run(
        [sys.executable, "-m", "graphc", "compile", "f.py", "-o", disk.path / "libf.so"],
        cwd=made(tmp_path), capture_output=True, text=True,
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "not writable" in done.stderr and disk.files() == before


def made(folder):
    (folder / "f.py").write_text(
        "import graphc as gx\nx = gx.input('x', ('n',))\nf = gx.function([x], x + 1, name='f')\n"
    )
    return folder


def test_the_command_line_on_a_full_disk(disk, tmp_path):
    disk.fill(4096)
    done = subprocess.run(
        [sys.executable, "-m", "graphc", "compile", "f.py", "-o", disk.path / "f.o"],
        cwd=made(tmp_path), capture_output=True, text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.endswith("f.o: No space left on device\n")
    assert len(done.stderr.splitlines()) == 1 and disk.files() == {}


def test_a_state_on_a_full_disk(disk, digits, functions):
    """Neither C nor Python loses the old file, or leaves a part of the new one."""
    state, path = digits.new_state(), disk.path / "digits.state"
    where, lib = os.fsencode(path), gx.load(digits.path)
    save = digits.symbol("save_state")
    assert save(ctypes.c_void_p(state.ctypes.data), where) == 0
    before = disk.files()
    digits.call("step", state, *batch(8))
    for leave in (0, 4096, state.nbytes // 2):
        disk.fill(leave)
        assert save(ctypes.c_void_p(state.ctypes.data), where) == FILE
        with pytest.raises(ArgumentError, match=r"digits\.state: No space left on device"):
            lib.state.save(path)
        with pytest.raises(ArgumentError, match=r"digits\.state: No space left on device"):
            gx.save_state(path, functions, library=digits.path)
        assert disk.files() == before
        (disk.path / "ballast").unlink()
    assert save(ctypes.c_void_p(state.ctypes.data), where) == 0
    assert disk.files() != before


# Every call of a function of libc fails in turn, each time in a process of its own. The scenario
# must go on, rightly, or tell of it and change nothing.
SCENARIO = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "digits.h"

enum { MALLOC, MMAP, MADVISE, CREATE, SIGMASK, AFFINITY, GETENV, FOPEN, FWRITE, FFLUSH, FSYNC,
       FCLOSE, RENAME, FREAD, KINDS };
static const char *names[] = {"malloc", "mmap", "madvise", "pthread_create", "pthread_sigmask",
  "sched_getaffinity", "getenv", "fopen", "fwrite", "fflush", "fsync", "fclose", "rename",
  "fread"};
static int kind = -1, countdown, fired;
static int fails(int k) {
  if (k != kind || --countdown) return 0;
  fired = 1;
  errno = ENOMEM;
  return 1;
}
#define WRAP(type, name, k, bad, params, args) \
  type __real_##name params; \
  type __wrap_##name params { return fails(k) ? (bad) : __real_##name args; }
WRAP(void *, malloc, MALLOC, NULL, (size_t n), (n))
WRAP(void *, mmap, MMAP, MAP_FAILED, (void *p, size_t n, int a, int b, int c, off_t o),
     (p, n, a, b, c, o))
WRAP(int, madvise, MADVISE, -1, (void *p, size_t n, int a), (p, n, a))
WRAP(int, pthread_create, CREATE, EAGAIN,
     (pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p), (t, a, f, p))
WRAP(int, pthread_sigmask, SIGMASK, EINVAL, (int h, const sigset_t *s, sigset_t *o), (h, s, o))
WRAP(int, sched_getaffinity, AFFINITY, -1, (pid_t p, size_t n, void *m), (p, n, m))
WRAP(char *, getenv, GETENV, NULL, (const char *n), (n))
WRAP(FILE *, fopen, FOPEN, NULL, (const char *p, const char *m), (p, m))
WRAP(size_t, fwrite, FWRITE, n / 2, (const void *p, size_t s, size_t n, FILE *f), (p, s, n, f))
WRAP(int, fflush, FFLUSH, EOF, (FILE *f), (f))
WRAP(int, fsync, FSYNC, -1, (int f), (f))
int __real_fclose(FILE *f);
int __wrap_fclose(FILE *f) { int r = __real_fclose(f); return fails(FCLOSE) ? EOF : r; }
WRAP(int, rename, RENAME, -1, (const char *a, const char *b), (a, b))
WRAP(size_t, fread, FREAD, 0, (void *p, size_t s, size_t n, FILE *f), (p, s, n, f))

enum { ROWS = 512 };
static float x[ROWS * 64];
static int64_t y[ROWS], labels[ROWS], right[ROWS];
static digits_state was, s, t, old, trained;
static float loss, want;

static int bad(int k, int n, const char *what) {
  fprintf(stderr, "%s fails at call %d: %s\n", names[k], n, what);
  return 1;
}

static int scenario(int k, int n) {
  int code;
  digits_init(&s);
  if (k == CREATE || k == SIGMASK || k == MMAP) digits_set_threads(4);
  digits_warmup();
  was = s;
  code = digits_step(&s, x, y, &loss, ROWS, NULL);
  if (code && memcmp(&s, &was, sizeof s)) return bad(k, n, "a failed step changed the state");
  if (code && digits_step(&s, x, y, &loss, ROWS, NULL)) return bad(k, n, "it goes on failing");
  if (memcmp(&loss, &want, 4) || memcmp(&s, &trained, sizeof s)) return bad(k, n, "wrong step");
  code = digits_predict(&s, x, labels, ROWS, NULL);
  if (code && digits_predict(&s, x, labels, ROWS, NULL)) return bad(k, n, "so does predict");
  if (memcmp(labels, right, sizeof right)) return bad(k, n, "wrong labels");
  code = digits_save_state(&s, "now.state");
  if (digits_load_state(&t, "now.state") && digits_load_state(&t, "now.state"))
    return bad(k, n, "a save left no state");
  if (memcmp(&t, code ? &old : &s, sizeof t) && !(code && k == FCLOSE))
    return bad(k, n, code ? "a failed save lost the old file" : "a save wrote something else");
  t = was;
  code = digits_load_state(&t, "now.state");
  if (code && memcmp(&t, &was, sizeof t)) return bad(k, n, "a failed load changed the state");
  return 0;
}

int main(void) {
  int cases = 0;
  for (int i = 0; i < ROWS * 64; i++) x[i] = (float)(i * 7919 % 1000) / 1000;
  for (int i = 0; i < ROWS; i++) y[i] = i % 10;
  digits_init(&old);
  for (int k = 0; k < KINDS; k++)
    for (int n = 1;; n++) {
      int status;
      if (fork() == 0) { /* before any thread is started: every child begins afresh */
        trained = old;
        digits_set_threads(1);
        if (digits_step(&trained, x, y, &want, ROWS, NULL)) _exit(1);
        if (digits_predict(&trained, x, right, ROWS, NULL)) _exit(1);
        if (digits_save_state(&old, "now.state")) _exit(1);
        digits_set_threads(2);
        kind = k;
        countdown = n;
        alarm(20); /* never a deadlock */
        status = scenario(k, n);
        _exit(status ? 1 : fired ? 0 : 2);
      }
      wait(&status);
      if (!WIFEXITED(status)) return bad(k, n, "it died");
      if (WEXITSTATUS(status) == 1) return 1;
      if (WEXITSTATUS(status) == 2) break; /* there is no such call */
      cases++;
    }
  printf("%d", cases);
  return 0;
}
"""


@needs_cc
def test_every_call_of_libc_fails_in_turn(tmp_path):
    gx.export(digits_functions(128), tmp_path / "digits.a", cpu=["v2", "v3"])
    (tmp_path / "faults.c").write_text(SCENARIO)
    wrapped = ("malloc", "mmap", "madvise", "pthread_create", "pthread_sigmask",
               "sched_getaffinity", "getenv", "fopen", "fwrite", "fflush", "fsync", "fclose",
               "rename", "fread")
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "faults.c", "digits.a",
         "-Wl," + ",".join(f"--wrap={n}" for n in wrapped), "-o", "faults", "-pthread"],
        cwd=tmp_path, check=True,
    )
    done = subprocess.run(["./faults"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"digits.a", "digits.h", "faults", "faults.c", "now.state"}
