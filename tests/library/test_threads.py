"""Callers on many threads, threads that come and go, forks in the middle, the caller's
floating-point settings."""

import os
import subprocess
import sys

import numpy as np
import pytest
from library_samples import batch, digits_functions, needs_cc, same_bits

import graphc as gx

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


SIZES = (1, 700, 33, 2, 300, 0, 1500, 5)  # some for one thread, some for all of the pool


def test_sixteen_callers_of_a_library(digits, at_once):
    """Calls of all sizes at once, each caller with its own state and arena: as if alone."""
    digits.symbol("set_threads")(3)
    data = [batch(n, n) for n in SIZES]

    def train(k):
        state, arena = digits.new_state(), np.empty(digits.arena("step", max(SIZES)), np.uint8)
        order = [(i + k) % len(SIZES) for i in range(2 * len(SIZES))]
        losses = [
            digits.call("step", state, *data[i], arena=arena.ctypes.data)[0].tobytes()
            for i in order if data[i][0].size
        ]
        return losses, state.tobytes()

    want = [train(k) for k in range(16)]
    for _ in range(3):
        assert at_once(16, train) == want


def test_sixteen_callers_of_a_function(at_once):
    step = digits_functions(64)[0].compile()
    data = [batch(n, n) for n in SIZES if n]

    def train(k):
        own = step.with_state()
        losses = [own(*data[(i + k) % len(data)])["loss"].tobytes() for i in range(12)]
        return losses, {name: a.tobytes() for name, a in own.state.items()}

    want = [train(k) for k in range(16)]
    assert at_once(16, train) == want and step.compilations == 1


PROGRAM = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "digits.h"

static int keeping, made, asked;
char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name) { asked++; return __real_getenv(name); }
int __real_madvise(void *p, size_t n, int advice);
int __wrap_madvise(void *p, size_t n, int advice) {
  return keeping && advice == 18 ? -1 : __real_madvise(p, n, advice);
}
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p) {
  made++;
  return __real_pthread_create(t, a, f, p);
}

enum { ROWS = 1024 };
static float x[ROWS * 64];
static int64_t y[ROWS];
static digits_state start, want, s;
static float loss;

static int step(void) {
  digits_init(&s);
  return digits_step(&s, x, y, &loss, ROWS, NULL);
}
static int tasks(void) {
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}
static int right(void) { return !step() && !memcmp(&s, &want, sizeof s); }
static int busy;
static void *hammer(void *unused) {
  digits_state own;
  float l;
  (void)unused;
  while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) {
    digits_init(&own);
    if (digits_step(&own, x, y, &l, ROWS, NULL) || memcmp(&own, &want, sizeof own)) abort();
  }
  return NULL;
}
static int in_child(int calls) { /* what a forked child makes of it, which ends as programs do */
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    exit(!calls || (right() && right()) ? 0 : 1);
  }
  waitpid(pid, &status, 0);
  return status;
}
#ifdef __x86_64__
static unsigned control(void) {
  unsigned w;
  __asm__ volatile("stmxcsr %0" : "=m"(w));
  return w & ~63u;
}
static void flush_to_zero(void) {
  unsigned w = control() | 0x8040;
  __asm__ volatile("ldmxcsr %0" : : "m"(w));
}
static unsigned short x87(void) {
  unsigned short w;
  __asm__ volatile("fnstcw %0" : "=m"(w));
  return w;
}
static int settings(void) {
  unsigned word, plain = control();
  unsigned short old = x87(), single;
  int code;
  flush_to_zero();
  fesetround(FE_UPWARD);
  single = (unsigned short)(x87() & ~0x300);
  __asm__ volatile("fldcw %0" : : "m"(single));
  word = control();
  digits_init(&s);
  if (digits_step(&s, x, y, &loss, ROWS, NULL)) return 21;
  if (!memcmp(&s, &want, sizeof s)) return 22; /* it has been rounded up */
  if (control() != word || x87() != single || fegetround() != FE_UPWARD) return 23;
  y[7] = 99;
  code = digits_step(&s, x, y, &loss, ROWS, NULL);
  y[7] = 7;
  if (!code || control() != word || fegetround() != FE_UPWARD) return 24;
  __asm__ volatile("fldcw %0" : : "m"(old));
  fesetround(FE_TONEAREST);
  __asm__ volatile("ldmxcsr %0" : : "m"(plain));
  return right() ? 0 : 25; /* nothing of it stays with the workers */
}
#else
static int settings(void) { return 0; }
#endif

int main(void) {
  pthread_t t[4];
  for (int i = 0; i < ROWS * 64; i++) x[i] = (float)(i * 7919 % 1000) / 1000;
  for (int i = 0; i < ROWS; i++) y[i] = i % 10;
  digits_init(&start);
  digits_set_threads(1); /* never creates a thread */
  digits_warmup();
  asked = 0; /* warmup has chosen the level of the CPU */
  if (step() || asked) return 1;
  want = s;
  digits_warmup();
  if (made || tasks() != 1) return 2;
  if (in_child(1)) return 3;
  digits_set_threads(4); /* creates none by itself; warmup does, and then no call does */
  if (made || tasks() != 1) return 4;
  digits_warmup();
  if (made != 3 || tasks() != 4) return 5;
  for (int i = 0; i < 10; i++) if (!right()) return 6;
  if (made != 3) return 7;
  digits_set_threads(2); /* the others stay, asleep */
  if (!right() || made != 3) return 8;
  digits_set_threads(1);
  if (!right() || made != 3) return 9;
  digits_set_threads(4);
  if (in_child(0) || in_child(1) || !right()) return 10;
  busy = 1; /* forks while callers are anywhere */
  for (int i = 0; i < 4; i++) __real_pthread_create(&t[i], NULL, hammer, NULL);
  for (int i = 0; i < 10; i++) if (in_child(i % 2)) return 11;
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  return settings();
}
"""
# The same where the kernel cannot wipe memory at a fork: the process ids are compared instead.
KEEPING = PROGRAM.replace("  digits_init(&start);\n", "  keeping = 1;\n  digits_init(&start);\n")


@needs_cc
@pytest.mark.parametrize("source", (PROGRAM, KEEPING), ids=("wiped", "kept"))
def test_threads_forks_and_settings(tmp_path, source):
    gx.export(digits_functions(64), tmp_path / "digits.a", cpu="v2")
    (tmp_path / "main.c").write_text(source)
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-frounding-math", "main.c", "digits.a",
         "-Wl,--wrap=madvise,--wrap=pthread_create,--wrap=getenv", "-o", "main", "-lm",
         "-pthread"], cwd=tmp_path, check=True,
    )
    env = {k: v for k, v in os.environ.items() if k != "GRAPHC_NUM_THREADS"}
    assert subprocess.run(["./main"], cwd=tmp_path, env=env, timeout=60).returncode == 0


def test_after_a_fork_the_child_goes_on_alone(digits):
    """Loading, warming and calling in a child of a process with threads of its own."""
    digits.symbol("set_threads")(3)
    digits.symbol("warmup")()
    x, y = batch(900)
    (want,) = digits.call("step", digits.new_state(), x, y)
    child = os.fork()
    if child == 0:
        digits.symbol("warmup")()
        same = same_bits(digits.call("step", digits.new_state(), x, y)[0], want)
        os._exit(0 if same and len(os.listdir("/proc/self/task")) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


EXITS = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/time.h>
#include "libwork.h"
enum { N = 1 << 20 };
static void *call(void *nothing)
{
    float *x = calloc(N, 4), *y = calloc(N, 4);
    for (;;)
        work_f(x, y, N, NULL);
}
static void leave(int signal) { exit(7); }
int main(int argc, char **argv)
{
    pthread_t t;
    work_set_threads(3);
    if (argc > 1) { /* other threads call until the very end */
        for (int i = 0; i < 3; i++)
            pthread_create(&t, NULL, call, NULL);
        usleep(20000);
        exit(7);
    }
    struct itimerval soon = {{0, 0}, {0, 20000}};
    signal(SIGALRM, leave);
    setitimer(ITIMER_REAL, &soon, NULL);
    call(NULL);
}
"""


@needs_cc
@pytest.mark.parametrize("others", ([], ["others"]), ids=("inside a call", "beside calls"))
def test_exit_waits_for_no_call(tmp_path, others):
    """A signal's handler may have interrupted a call that the pool is at work for."""
    x = gx.input("x", ("n",))
    gx.export(gx.function([x], gx.exp(x) * gx.sin(x), name="f"), tmp_path / "libwork.so")
    (tmp_path / "main.c").write_text(EXITS)
    subprocess.run(["cc", "main.c", "-o", "main", "libwork.so", "-Wl,-rpath,.", "-pthread"],
                   cwd=tmp_path, check=True)
    for _ in range(5):
        done = subprocess.run(["./main", *others], cwd=tmp_path, timeout=120, check=False)
        assert done.returncode == 7


def test_a_library_that_is_loaded_again_and_again_leaves_nothing(tmp_path):
    x = gx.input("x", ("n",))
    gx.export(gx.function([x], gx.exp(x) * gx.sin(x), name="f"), tmp_path / "libagain.so")
    run = subprocess.run([sys.executable, "-c", """
import ctypes, sys
libc = ctypes.CDLL(None)
n = 1 << 18
x, y = (ctypes.c_float * n)(), (ctypes.c_float * n)()
seen = []
for k in range(40):
    lib = ctypes.CDLL("./libagain.so")
    lib.again_set_threads(3)
    assert lib.again_f(x, y, ctypes.c_int64(n), None) == 0
    assert libc.dlclose(ctypes.c_void_p(lib._handle)) == 0
    seen.append(sum("again" in line or "rw" in line for line in open("/proc/self/maps")))
print(seen[5], seen[-1])
"""], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert after <= before + 2
