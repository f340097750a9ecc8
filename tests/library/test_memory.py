"""Native code stays within what it was given: buffers between pages that may not be touched."""

import ctypes
import mmap
import subprocess

import numpy as np
import pytest
from library_samples import batch, digits_functions, export_loaded, needs_cc, same_bits

import graphc as gx

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Bytes that end (or begin) at a page that may not be touched."""

    def __init__(self, size, at_end=True, fill=0xCD):
        pages = max(1, -(-size // PAGE))
        self.room = mmap.mmap(-1, (pages + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.room))
        ctypes.memset(self.start, fill, (pages + 2) * PAGE)
        for page in (0, pages + 1):
            assert libc.mprotect(self.start + page * PAGE, PAGE, 0) == 0
        self.address = self.start + PAGE + (pages * PAGE - size if at_end else 0)

    def put(self, array):
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)
        return self

    def get(self, like):
        out = np.empty_like(like)
        ctypes.memmove(out.ctypes.data, self.address, out.nbytes)
        return out


def run_guarded(lib, name, arrays, state, at_end):
    dims = lib.dims(name, arrays)
    outs = lib.outputs(name, arrays)
    held = [Guarded(a.nbytes, at_end).put(a) for a in arrays]
    made = [Guarded(o.nbytes, at_end) for o in outs]
    arena = Guarded(lib.arena(name, *dims), at_end)
    s = Guarded(lib.state_bytes, at_end).put(state) if state is not None else None
    args = [ctypes.c_void_p(s.address)] if lib.has_state(name) else []
    args += [ctypes.c_void_p(g.address) for g in (*held, *made)]
    args += [ctypes.c_int64(d) for d in dims]
    status = lib.symbol(name)(*args, ctypes.c_void_p(arena.address))
    assert status == 0, lib.explain(status)
    return [g.get(o) for g, o in zip(made, outs, strict=True)], s.get(state) if s else None


@pytest.mark.parametrize("at_end", (True, False))
@pytest.mark.parametrize("n", (0, 1, 3, 33, 100))
def test_arena_and_arguments_of_the_promised_size(digits, n, at_end):
    x, y = batch(n, n)
    state = digits.new_state()
    (loss,), after = run_guarded(digits, "step", [x, y], state, at_end)
    (want,) = digits.call("step", state, x, y)
    assert same_bits(loss, want) or n == 0
    assert same_bits(after, state)
    (labels,), _ = run_guarded(digits, "predict", [x], state, at_end)
    assert same_bits(labels, digits.call("predict", state, x)[0])


def test_an_arena_at_any_address(digits):
    x, y = batch(20)
    want_state = digits.new_state()
    (want,) = digits.call("step", want_state, x, y)
    size = digits.arena("step", 20)
    for shift in (0, 1, 8, 16, 63, 64):
        room = np.full(size + 256, 0xEE, np.uint8)
        base = -room.ctypes.data % 64
        state = digits.new_state()
        at = room.ctypes.data + base + shift
        assert same_bits(digits.call("step", state, x, y, arena=at)[0], want)
        assert same_bits(state, want_state)
        assert (room[:base + shift] == 0xEE).all() and (room[base + shift + size:] == 0xEE).all()


@pytest.mark.parametrize("n", (1, 7, 64, 300))
def test_many_kernels(tmp_path, n):
    x, y = gx.input("x", ("n", 12)), gx.input("y", ("n",), "float64")
    e = gx.nn.softmax(x @ gx.transpose(x), axis=1)
    outputs = {
        "e": gx.sum(e, axis=1), "c": gx.cumsum(y), "m": gx.mean(x, axis=0),
        "t": gx.transpose(gx.exp(x)), "r": gx.reshape(gx.concat([x, x], axis=1), (-1,)),
    }
    f = gx.function([x, y], outputs, name="f")
    lib = export_loaded([f], tmp_path / "libmany.so", cpu="native")
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(n, 12)).astype("float32"), rng.normal(size=n)
    for at_end in (True, False):
        got, _ = run_guarded(lib, "f", [a, b], None, at_end)
        want = f(a, b)
        assert all(same_bits(g, w) for g, w in zip(got, want.values(), strict=True))


@pytest.mark.parametrize("n", (1, 31, 257, 700))
def test_blocks_of_attention(tmp_path, n):
    """What chains keep in scratch is within the promised arena, and their bits are the JIT's."""
    q, k, v = (gx.input(name, ("b", "n", 16)) for name in "qkv")
    p = gx.nn.softmax(gx.matmul(q, gx.matrix_transpose(k)) * 0.25, axis=-1)
    out = gx.matmul(p, v)
    f = gx.function([q, k, v], [out, *gx.grad(gx.sum(out * out), [q, k, v])], name="f")
    lib = export_loaded([f], tmp_path / "libattention.so", cpu="native")
    rng = np.random.default_rng(n)
    for b in (1, 3):
        arrays = [rng.normal(size=(b, n, 16)).astype("float32") for _ in range(3)]
        for at_end in (True, False):
            got, _ = run_guarded(lib, "f", arrays, None, at_end)
            assert all(same_bits(g, w) for g, w in zip(got, f(*arrays), strict=True))
    assert len(f.kernels) == 2 and lib.arena("f", 3, 20000) < 32 << 20


def optional_function():
    x, y = gx.input("x", ("n", 3)), gx.input("y", ("n",), "float64")
    outputs = {
        "big": gx.exp(x), "flag": gx.sum(x, axis=1) > 0, "wide": y * 2 + gx.cumsum(y),
        "count": gx.astype(gx.argmax(x, axis=1), "int8"), "half": gx.astype(x[:, 0], "float16"),
        "copy": x, "loss": gx.sum(x),
    }
    return gx.function([x, y], outputs, name="f")


@pytest.mark.parametrize("n", (0, 1, 5, 40))
def test_outputs_that_are_not_wanted(tmp_path, n):
    """Any of them may be NULL: the others are the same, and an arena of the promised size does."""
    f = optional_function()
    lib = export_loaded([f], tmp_path / "libopt.so", cpu="native")
    rng = np.random.default_rng(n)
    arrays = [rng.normal(size=(n, 3)).astype("float32"), rng.normal(size=n)]
    want = list(f(*arrays).values())
    for mask in (0, 1, 2, 64, 0b1010101, 0b0101010, 0b1000001, 0b1111111):
        for at_end, shift in ((None, 0), (True, 0), (False, 0), (False, 3)):
            size = lib.arena("f", n)
            held = [Guarded(a.nbytes, True).put(a) for a in arrays]
            made = [Guarded(w.nbytes, True) for w in want]
            arena = None
            if at_end is not None:
                room = Guarded(size + shift, at_end)
                arena = room.address + shift
            pointers = [g.address for g in held]
            pointers += [None if mask >> k & 1 else g.address for k, g in enumerate(made)]
            assert lib.raw("f", None, pointers, [n], arena) == 0
            for k, (g, w) in enumerate(zip(made, want, strict=True)):
                assert mask >> k & 1 or same_bits(g.get(w), w), k


FAULTS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "digits.h"

void *__real_malloc(size_t size);
static int calls, failing, threads;
void *__wrap_malloc(size_t size) { calls++; return failing ? NULL : __real_malloc(size); }
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p) {
  (void)t; (void)a; (void)f; (void)p; threads++; return 11;
}

int main(void) {
  static float x[512 * 64];
  static int64_t y[512], labels[512];
  float loss = 0, again = 0;
  digits_state *s = (digits_state *)__real_malloc(sizeof *s);
  digits_state *was = (digits_state *)__real_malloc(sizeof *s);
  void *arena = __real_malloc((size_t)digits_step_arena(512));
  for (int i = 0; i < 512 * 64; i++) x[i] = (float)(i * 7919 % 1000) / 1000;
  digits_init(s);
  digits_set_threads(2);
  if (digits_step(s, x, y, &loss, 512, arena) || calls) return 1;
  if (digits_predict(s, x, labels, 512, arena) || calls) return 2;
  if (digits_predict(s, x, NULL, 512, arena) || calls) return 8;
  memcpy(was, s, sizeof *s);
  failing = 1;
  if (digits_step(s, x, y, &loss, 512, NULL) != DIGITS_OUT_OF_MEMORY || calls != 1) return 3;
  if (memcmp(was, s, sizeof *s)) return 4;
  failing = 0;
  if (digits_step(s, x, y, &loss, 512, NULL) || calls != 2) return 5;
  if (digits_step(was, x, y, &again, 512, arena) || memcmp(&loss, &again, 4)) return 6;
  if (memcmp(was, s, sizeof *s)) return 7;
  printf("%d", threads);
  return 0;
}
"""


@needs_cc
def test_allocations_and_their_failures(tmp_path):
    """With an arena nothing is allocated; without, once; threads that cannot start are no harm."""
    gx.export(digits_functions(128), tmp_path / "digits.a")
    (tmp_path / "faults.c").write_text(FAULTS)
    subprocess.run(
        ["cc", "-O1", "faults.c", "digits.a", "-Wl,--wrap=malloc,--wrap=pthread_create", "-o",
         "faults", "-pthread"], cwd=tmp_path, check=True,
    )
    done = subprocess.run(["./faults"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) >= 1
