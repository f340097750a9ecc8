"""Libraries under ThreadSanitizer and valgrind: the pool without races, random graphs without
invalid or undefined reads."""

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from library_samples import arrays, digits_functions, plain, same_bits
from random_graphs import graphs

import graphc as gx
from graphc.errors import GraphcError
from graphc.function import Function, Options

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or shutil.which("cc") is None, reason="no valgrind or cc"
)
CALLERS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "digits.h"

enum { CALLERS = 16, ROWS = 256, STEPS = 3 };
static float x[ROWS * 64];
static int64_t y[ROWS];
static digits_state *want;
static int bad;

static void train(digits_state *s) {
  float loss;
  for (int i = 0; i < STEPS; i++)
    if (digits_step(s, x, y, &loss, ROWS, NULL)) __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
}

static void *caller(void *shared) {
  digits_state *s = shared ? (digits_state *)shared : (digits_state *)malloc(sizeof *s);
  if (!shared) digits_init(s);
  train(s);
  if (!shared && memcmp(s, want, sizeof *s)) __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
  if (!shared) free(s);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t t[CALLERS];
  digits_state *shared = NULL;
  (void)argv;
  for (int i = 0; i < ROWS * 64; i++) x[i] = (float)(i * 7919 % 1000) / 1000;
  for (int i = 0; i < ROWS; i++) y[i] = i % 10;
  want = (digits_state *)malloc(sizeof *want);
  digits_init(want);
  digits_set_threads(4);
  digits_warmup();
  if (argc > 1) { /* a mistake of the caller: one state for all */
    shared = (digits_state *)malloc(sizeof *shared);
    digits_init(shared);
  }
  train(want);
  for (int i = 0; i < CALLERS; i++) pthread_create(&t[i], NULL, caller, shared);
  for (int i = 0; i < 20; i++) digits_set_threads(1 + i % 4);
  for (int i = 0; i < CALLERS; i++) pthread_join(t[i], NULL);
  return bad;
}
"""


@pytest.fixture(scope="module")
def tsan():
    """A compiler with ThreadSanitizer that takes LLVM text: zig's, whose wheel brings the run-time
    library along (and compiles it at first use, which takes a minute or two)."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no ziglang (pip install ziglang)")
    return [sys.executable, "-m", "ziglang", "cc", "-fsanitize=thread", "-O1", "-g", "-w",
            "-pthread"]


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory):
    """The library as text in which every function asks for instrumentation.

    At level v2, whose vectors have 16 bytes: ThreadSanitizer passes over wider accesses and masked
    ones. It knows LLVM's atomic instructions, so there is nothing to suppress; what it cannot see,
    sleeping on a futex, orders no accesses: sleepers look at their part's word when they wake.
    """
    path = tmp_path_factory.mktemp("tsan") / "digits.ll"
    gx.export(digits_functions(256), path, cpu="v2", debug_info=True)
    (path.parent / "main.c").write_text(CALLERS)
    text = re.sub(r"^(define .*?\)) ", r"\1 sanitize_thread ", path.read_text(), flags=re.M)
    assert text.count(" sanitize_thread ") == len(re.findall("^define ", text, re.M)) > 50
    return path.parent, text


def build(compiler, folder, text):
    (folder / "checked.ll").write_text(text)
    subprocess.run([*compiler, "main.c", "checked.ll", "-o", "main"], cwd=folder, check=True)


def first_race(folder, *arguments):
    """What is reported first of a run of the callers; "" if nothing is."""
    done = subprocess.run(
        ["./main", *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
        env=os.environ | {"TSAN_OPTIONS": "exitcode=66 halt_on_error=1"},
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot map its shadow memory here")
    race = "WARNING: ThreadSanitizer: data race" in done.stderr
    assert done.returncode == (66 if race else 0), done.stderr[-2000:]
    return done.stderr if race else ""


def race_within(folder, *arguments, runs=20):
    """The first race that one of some runs shows: 1 of 30 meets none, by how threads take turns."""
    return next(filter(None, (first_race(folder, *arguments) for _ in range(runs))), "")


def test_no_races(tsan, instrumented):
    """16 threads, each with its own state, equal to the serial run; one state for all is seen."""
    folder, text = instrumented
    build(tsan, folder, text)
    assert first_race(folder) == ""
    assert "library_samples.py:" in race_within(folder, "shared")  # the declaring line


def test_a_weaker_pool_is_noticed(tsan, instrumented):
    """Were leaving a part no release, the caller might read before the worker has written."""
    folder, text = instrumented
    strong = "atomicrmw sub ptr %part, i64 %here seq_cst"
    assert text.count(strong) == 1
    build(tsan, folder, text.replace(strong, strong.replace("seq_cst", "monotonic")))
    assert race_within(folder)


# --- valgrind ------------------------------------------------------------------------------------

MEMCHECK = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all"]


@needs_valgrind
def test_memcheck_on_the_digits_program(tmp_path):
    """The C example, threads and files included, learning for one epoch instead of thirty."""
    subprocess.run(
        [sys.executable, "-m", "graphc", "compile", "digits.py:step", "digits.py:predict", "-o",
         tmp_path / "libdigits.so", "--cpu", "v3", "--debug-info"], cwd=EXAMPLES, check=True,
        stdout=subprocess.DEVNULL,
    )
    source = (EXAMPLES / "digits.c").read_text()
    assert "EPOCHS = 30" in source
    (tmp_path / "digits.c").write_text(source.replace("EPOCHS = 30", "EPOCHS = 1"))
    (tmp_path / "digits.csv").write_bytes(
        gzip.decompress((EXAMPLES / "digits.csv.gz").read_bytes())
    )
    subprocess.run(["cc", "-g", "-O1", "digits.c", "-L.", "-ldigits", "-Wl,-rpath,$ORIGIN", "-o",
                    "digits"], cwd=tmp_path, check=True)
    # valgrind runs one thread at a time: a caller that waits for a worker must not starve it
    done = subprocess.run(
        [*MEMCHECK, "--fair-sched=yes", "./digits", "digits.csv", "digits.state"], cwd=tmp_path,
        env=os.environ | {"GRAPHC_NUM_THREADS": "2"}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "test accuracy" in done.stdout and (tmp_path / "digits.state").exists()


HEAD = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static FILE *in, *out;
static void *take(size_t n) {  /* malloc knows where it ends */
  void *p = malloc(n);
  if (fread(p, 1, n, in) != n) exit(3);
  return p;
}
static void put(int status, void *p, size_t n) {  /* what is undefined in it is told of by write */
  if (!status) fwrite(p, 1, n, out);
  free(p);
}
"""


def corpus(count):
    """The first random graphs with variables of different names."""
    found = []

    @given(g=graphs())
    @settings(max_examples=3 * count, deadline=None, database=None, derandomize=True,
              phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def collect(g):
        if len(found) < count and len({s.name for s in g.variables()}) == len(g.variables()):
            found.append(g)

    collect()
    return found


def call(k, f, header, inputs, outputs, dims):
    """C that runs one case: every array and the arena of exactly their size."""
    names = [*(f"i{j}" for j in range(len(inputs))), *(f"o{j}" for j in range(len(outputs)))]
    lines = [f"void *i{j} = take({a.nbytes});" for j, a in enumerate(inputs)]
    lines += [f"void *o{j} = malloc({a.nbytes});" for j, a in enumerate(outputs)]
    sizes = [str(d) for d in dims]
    lines.append(f"void *arena = malloc((size_t)g{k}_{f.name}_arena({', '.join(sizes)}));")
    if f"g{k}_state *s" in header:
        lines.append(f"g{k}_state *s = (g{k}_state *)malloc(sizeof *s); g{k}_init(s);")
        names.insert(0, "s")
    lines.append(f"int status = g{k}_{f.name}({', '.join([*names, *sizes, 'arena'])});")
    lines.append("fwrite(&status, 1, sizeof status, out); free(arena);")
    lines += [f"free(i{j});" for j in range(len(inputs))]
    lines += [f"put(status, o{j}, {a.nbytes});" for j, a in enumerate(outputs)]
    lines += ["free(s);"] * (names[0] == "s")
    return "  { " + "\n    ".join(lines) + " }"


def expected(f, inputs):
    try:
        return list(f(*inputs))
    except GraphcError:
        return None


@needs_valgrind
def test_memcheck_on_random_graphs(tmp_path, count=10):
    """At v2 and v3: no invalid access, nothing undefined decided on or written out, no leak; and
    the outputs of the function, bit for bit."""
    rng = np.random.default_rng(0)
    cases, wanted, data, includes = [], [], [], []
    for k, g in enumerate(corpus(count)):
        f = Function(g, "list", Options())
        gx.export(f, tmp_path / f"g{k}.o", cpu=["v2", "v3"])
        includes.append(f'#include "g{k}.h"')
        header = (tmp_path / f"g{k}.h").read_text()
        for n in (0, 1, 3, 18):
            inputs = arrays(f, rng, n)
            sizes = f._signature.bind(inputs, {})
            shapes = f._results.shapes(sizes)
            outputs = [np.empty(s, t.dtype.numpy)
                       for s, t in zip(shapes, f._results.types, strict=True)]
            cases.append(call(k, f, header, inputs, outputs, [sizes[d] for d in g.dims()]))
            data += [a.tobytes() for a in inputs]
            wanted.append((expected(f, inputs), outputs))
    (tmp_path / "in.bin").write_bytes(b"".join(data))
    body = '\nint main(void) {\n  in = fopen("in.bin", "rb"); out = fopen("out.bin", "wb");\n'
    end = "\n  fclose(in); return fclose(out);\n}\n"
    (tmp_path / "main.c").write_text("\n".join(includes) + HEAD + body + "\n".join(cases) + end)
    objects = [f"g{k}.o" for k in range(len(includes))]
    subprocess.run(["cc", "-g", "main.c", *objects, "-o", "main", "-pthread"], cwd=tmp_path,
                   check=True)
    for level in ("v2", "v3"):
        done = subprocess.run(
            [*MEMCHECK, "./main"], cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"GRAPHC_CPU": level, "GRAPHC_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
    # valgrind does not compute every instruction's last bit: values are compared without it
    subprocess.run(["./main"], cwd=tmp_path, check=True)
    raw, at = (tmp_path / "out.bin").read_bytes(), 0
    for want, outputs in wanted:
        status, at = int.from_bytes(raw[at:at + 4], "little"), at + 4
        assert (status == 0) == (want is not None)
        for j, o in enumerate(outputs if want is not None else ()):
            got = np.frombuffer(raw, o.dtype, o.size, at).reshape(o.shape)
            at += o.nbytes
            assert same_bits(plain(got), plain(want[j]))
    assert at == len(raw)
