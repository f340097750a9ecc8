"""Libraries for other machines, run by qemu-user.

AArch64 and RISC-V give the bits of x86-64-v3 and v4; ARMv7, which has no fused multiply-add
either, gives those of v2.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cross_programs import LEVELS, MACHINES, MUSL, run
from cross_samples import inputs, op_functions
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from library_samples import Loaded, arrays, batch, digits_functions, export_loaded, plain, same_bits
from random_graphs import graphs

import graphc as gx
from graphc import ir
from graphc.codegen.machine.platforms import native
from graphc.function import Function, Options


@pytest.fixture(params=[*MACHINES, *LEVELS])
def machine(request):
    """A machine, and the CPU level whose bits it gives."""
    return usable(request.param)


def usable(name):
    m = (MACHINES | LEVELS)[name]
    if m.missing():
        pytest.skip(m.missing())
    return m, "v2" if name in ("v2", "armv7-linux-gnueabihf") else "v3"


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Functions exported for this machine at one level each, by level."""
    if native().base.arch != "x86_64":
        pytest.skip("bits are compared with those of x86-64")
    made = {}

    def at(level, name, make):
        if (level, name) not in made:
            folder = tmp_path_factory.mktemp(level)
            functions = make()
            made[level, name] = export_loaded(functions, folder / f"lib{name}.so", cpu=level)
        return made[level, name]

    return at


def called(lib: Loaded, calls):
    """What the reference library gives, and room for the same from elsewhere."""
    state = lib.new_state() if lib.state_bytes else None
    want = [lib.call(name, state, *arrays) for name, arrays in calls]
    room = [(name, arrays, lib.outputs(name, arrays)) for name, arrays in calls]
    return want, room, b"" if state is None else state.tobytes()


def same(want, room):
    for (name, _, outs), expected in zip(room, want, strict=True):
        for k, (a, b) in enumerate(zip(outs, expected, strict=True)):
            assert same_bits(plain(a), plain(b)), (name, k, a, b)


def test_training_elsewhere(machine, references, tmp_path):
    m, level = machine
    lib = references(level, "digits", digits_functions)
    calls = []
    for k, n in enumerate((32, 1, 0, 7, 100, 32)):
        x, y = batch(n, k)
        calls += [("step", [x, y]), ("predict", [x])]
    want, room, state = called(lib, calls)
    statuses, after = run(m, list(lib.functions.values()), room, tmp_path)
    assert set(statuses) == {0}
    same(want, room)
    assert after == state


@pytest.mark.parametrize("name", list(MACHINES))
def test_every_op_elsewhere(name, references, tmp_path):
    m, level = usable(name)
    lib = references(level, "ops", op_functions)
    calls = [(f.name, inputs(f, n)) for f in lib.functions.values() for n in (3, 41)]
    want, room, _ = called(lib, calls)
    statuses, _ = run(m, list(lib.functions.values()), room, tmp_path)
    assert set(statuses) == {0}
    same(want, room)


@pytest.mark.parametrize("name", list(MACHINES))
@given(drawn=st.lists(graphs(), min_size=5, max_size=5), seed=st.integers(0, 100))
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_graphs_elsewhere(name, drawn, seed):
    """Several at a time, for a program of its own takes a second."""
    m, level = usable(name)
    named = [ir.Graph(f"f{k}", g.inputs, g.nodes, g.outputs) for k, g in enumerate(drawn)
             if not g.variables() and not any(n.op.name == "bitcast" for n in g.nodes)]
    assume(named)
    functions = [Function(g, "list", Options()) for g in named]
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        lib = export_loaded(functions, Path(folder) / "libnear.so", cpu=level)
        calls = [(f.name, arrays(f, rng, n)) for f in functions for n in (0, 1, 3, 18)]
        room = [(name, given, lib.outputs(name, given)) for name, given in calls]
        statuses, _ = run(m, functions, room, folder)
        for (name, given, outs), status in zip(room, statuses, strict=True):
            want = lib.outputs(name, given)
            pointers = [a.ctypes.data for a in (*given, *want)]
            assert status == lib.raw(name, None, pointers, lib.dims(name, given))
            for a, b in zip(outs, want, strict=True):
                assert status or same_bits(plain(a), plain(b)), (name, lib.functions[name].graph)


def failing_functions():
    x, i = gx.input("x", (5, 3)), gx.input("i", ("n",), "int32")
    a, b = gx.input("a", ("n",), "int64"), gx.input("b", ("n",), "int64")
    v = gx.input("v", ("n",))
    square = gx.exp(gx.expand_dims(v, 1) * v)
    return [gx.function([v], gx.sum(square @ square), name="large"),
            gx.function([x, i], gx.take(x, i, axis=0), name="pick"),
            gx.function([a, b], a // b, name="divide")]


def test_errors_elsewhere(machine, references, tmp_path):
    m, level = machine
    lib = references(level, "failing", failing_functions)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    one, zero = np.ones(3, np.int64), np.array([2, 0, 2])
    calls = [("pick", [x, np.array([4, -5, 0], np.int32)]), ("divide", [one, one]),
             ("pick", [x, np.array([4, 5, 0], np.int32)]), ("divide", [one, zero]),
             ("large", [np.zeros(46_000, np.float32)]), ("large", [np.zeros(3, np.float32)])]
    room = [(name, arrays, lib.outputs(name, arrays)) for name, arrays in calls]
    statuses, _ = run(m, list(lib.functions.values()), room, tmp_path)
    assert statuses[:2] == [0, 0]
    assert "index out of range" in lib.explain(statuses[2])
    assert "division by zero" in lib.explain(statuses[3])
    assert "memory" in lib.explain(statuses[4])  # 8 GB do not fit, nor in 32 bits
    assert statuses[5] == 0 and room[5][2][0] == 27
    assert same_bits(room[0][2][0], x[[4, 0, 0]])


def parallel_function():
    x, w = gx.input("x", ("n", 96)), gx.input("w", (96, 80))
    outs = {"rows": gx.sum(gx.tanh(x), axis=1), "product": x @ w, "all": gx.sum(gx.exp(-x * x))}
    return [gx.function([x, w], outs, name="f")]


POOL = """
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "libmany.h"
enum { N = 900 };
static float x[N * 96], w[96 * 80], rows[2][N], product[2][N * 80], all[2];
static int tasks(void) {
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}
int main(int argc, char **argv) {
  void *lib = dlopen(argv[1], RTLD_NOW);
  if (!lib) { puts(dlerror()); return 1; }
  void (*set_threads)(int) = (void (*)(int))dlsym(lib, "many_set_threads");
  int (*f)(const float *, const float *, float *, float *, float *, int64_t, void *) =
      (int (*)(const float *, const float *, float *, float *, float *, int64_t, void *))
          dlsym(lib, "many_f");
  for (int i = 0; i < N * 96; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
  for (int i = 0; i < 96 * 80; i++) w[i] = (float)(i * 104729 % 1000) / 500 - 1;
  int before = tasks();
  set_threads(1);
  if (f(x, w, rows[0], product[0], all, N, 0)) return 2;
  int alone = tasks();
  set_threads(4);
  for (int k = 0; k < 10; k++) {
    if (f(x, w, rows[1], product[1], all + 1, N, 0)) return 3;
    if (memcmp(rows[0], rows[1], sizeof rows[0]) || all[0] != all[1] ||
        memcmp(product[0], product[1], sizeof product[0])) return 4;
  }
  int running = tasks();
  dlclose(lib);
  /* a thread that was joined may still be listed for a moment */
  for (int k = 0; k < 200 && tasks() > before; k++) usleep(5000);
  printf("%d %d %d\\n", alone - before, running - before, tasks() - before);
  return argc - 2;
}
"""


@pytest.mark.parametrize("m", [*MACHINES.values(), MUSL], ids=lambda m: m.target)
def test_threads_elsewhere(m, tmp_path):
    """Started when wanted, stopped when the library is unloaded, and the same bits."""
    if m.missing(libc=True):
        pytest.skip(m.missing(libc=True))
    path = gx.export(parallel_function(), tmp_path / "libmany.so", target=m.target)
    (tmp_path / "p.c").write_text(POOL)
    done = subprocess.run([*m.build_with_libc(tmp_path / "p.c"), path], capture_output=True,
                          text=True, check=False)
    left = 3 if m is MUSL else 0  # musl unloads nothing
    assert (done.stdout, done.returncode) == (f"0 3 {left}\n", 0), done.stderr


ROWS = """
#include "librows.h"
static double x[256 * 4096], y[256 * 4096];
int main(void) {
  rows_set_threads(4);
  for (int k = 0; k < 3; k++) if (rows_f(x, y, 256, 0)) return 1;
  return 0;
}
"""


@pytest.mark.skipif(bool(MUSL.missing(libc=True)), reason=MUSL.missing(libc=True))
def test_threads_have_room_for_rows(tmp_path):
    """Rows that are kept between sweeps stand on the stack, of which musl's threads have little."""
    x = gx.input("x", ("n", 4096), "float64")
    parts = [getattr(gx, name)(x) for name in ("tanh", "exp", "sin", "erf", "cos", "expm1")]
    total = parts[0]
    for p in parts:
        total = total + p / gx.sum(p, axis=1, keepdims=True)
    path = gx.export(gx.function([x], total, name="f"), tmp_path / "librows.so", target=MUSL.target)
    (tmp_path / "p.c").write_text(ROWS)
    command = MUSL.build_with_libc(tmp_path / "p.c", path)
    assert subprocess.run(command, check=False).returncode == 0


STATES = """
#include <stdio.h>
#include "libdigits.h"
static digits_state a, b;
int main(int argc, char **argv) {
  digits_init(&a);
  a.b2[3] = 0.25f;
  if (digits_save_state(&a, argv[1]) || digits_load_state(&b, argv[1])) return 2;
  printf("%d\\n", b.b2[3] == 0.25f && b.w1[7] == a.w1[7]);
  return digits_load_state(&b, "/no/such/file") == 0 || argc != 2;
}
"""


@pytest.mark.parametrize("name", list(MACHINES))
def test_state_files_elsewhere(name, tmp_path):
    """A state that was saved there is one that Python reads."""
    m = MACHINES[name]
    if m.missing(libc=True):
        pytest.skip(m.missing(libc=True))
    functions = digits_functions()
    path = gx.export(functions, tmp_path / "libdigits.so", target=name)
    (tmp_path / "states.c").write_text(STATES)
    command = m.build_with_libc(tmp_path / "states.c", path)
    done = subprocess.run([*command, tmp_path / "saved"], capture_output=True, text=True,
                          check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    step = functions[0]
    gx.load_state(tmp_path / "saved", step)
    (b2,) = [s.array for s in step.graph.variables() if s.name == "b2"]
    assert b2.tolist() == [0, 0, 0, 0.25, 0, 0, 0, 0, 0, 0]
