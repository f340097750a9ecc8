"""Headers compile everywhere, whatever the user's names are."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from library_samples import (
    Loaded,
    batch,
    digits_functions,
    export_loaded,
    needs_cc,
    needs_cxx,
    same_bits,
)

import graphc as gx
from graphc.codegen.library.abi import Names, identifier
from graphc.codegen.library.header import comment_safe
from graphc.errors import CompileError

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compiles(header, folder):
    """The header alone, in C99 and C++11, twice included."""
    source = folder / "use.c"
    source.write_text(f'#include "{header.name}"\n#include "{header.name}"\nint main(void) '
                      "{ return 0; }\n")
    for compiler, standard, language in (("cc", "c99", "c"), ("c++", "c++11", "c++")):
        done = subprocess.run(
            [compiler, f"-std={standard}", *STRICT, "-fsyntax-only", "-x", language, str(source)],
            cwd=header.parent, capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr


@needs_cc
@needs_cxx
def test_the_header_of_a_trainer(digits):
    compiles(digits.path.with_suffix(".h"), digits.path.parent)


def test_every_argument_has_shape_and_dtype(digits):
    text = " ".join(digits.header.split())
    for declaration in (
        "int digits_step(digits_state *s, const float *x /*[batch,64]*/, const int64_t *y "
        "/*[batch]*/, float *loss /*[]*/, int64_t batch, void *arena);",
        "int digits_predict(const digits_state *s, const float *x /*[batch,64]*/, "
        "int64_t *out /*[batch]*/, int64_t batch, void *arena);",
    ):
        assert declaration in text
    assert "float w1[64 * 32]; /* w1: f32[64,32] */" in text
    assert "int64_t digits_step_arena(int64_t batch);" in text
    assert "in x: f32[batch,64]" in text and "arena: " in text
    assert re.search(r"#define DIGITS_ABI UINT64_C\(0x[0-9a-f]{16}\)", text)


def test_the_library_knows_its_header(digits):
    import ctypes

    abi = digits.symbol("abi")
    abi.restype = ctypes.c_uint64
    assert f"0x{abi():016x}" in digits.header


def test_names_and_formulas_as_short_as_they_can_be(tmp_path):
    s = gx.input("s", ("n",))
    short = gx.function([s], gx.cumsum(s), name="short")
    v = gx.variable(np.zeros(3, "float32"), "v")
    stated = gx.function([s], s + gx.sum(v), updates={v: v + 1}, name="stated")
    many = [gx.input(f"x{k}", (f"length_of_{k}",)) for k in range(30)]
    long = gx.function(many, [gx.cumsum(x) for x in many], name="long")
    gx.export([short, stated, long], tmp_path / "libx.h", cpu="v2")
    text = " ".join((tmp_path / "libx.h").read_text().split())
    assert "int x_short(const float *s /*[n]*/, float *out /*[n]*/, int64_t n, void" in text
    assert "int x_stated(x_state *s, const float *s_2 /*[n]*/" in text  # s is the state
    assert "arena: 4*n+" in text
    assert "arena: what x_long_arena says */ int64_t x_long_arena(int64_t length_of_0, " in text


@needs_cc
@needs_cxx
def test_names_that_are_no_c_names(tmp_path):
    names = ["class", "int", "π", "a b", "a_b", 'quote"s', "end*/", "/*", "1st", "s", "arena",
             "int64_t", "??/", "back\\", "new\nline", "_Upper", "n", "float", "x__y", "weird_state",
             "weird_f", "NULL"]
    inputs = [gx.input(name, ("n",)) for name in names if name.isidentifier()]
    variables = ["class", "a.b", "a_b", "new.int", "int", "NULL", "s", "float"]
    states = [gx.variable(np.zeros(2, "float32"), name) for name in variables]
    total = sum(inputs[1:], inputs[0])
    f = gx.function(inputs, {f"{name}": total + k for k, name in enumerate(names)},
                    updates={v: v + k for k, v in enumerate(states)}, name="f")
    init = gx.function(inputs[:1], inputs[0] * 2, name="init")
    arena = gx.function(inputs[:1], inputs[0] * 3, name="f_arena")
    lib = export_loaded([f, init, arena], tmp_path / "libweird.so", cpu="native")
    compiles(tmp_path / "libweird.h", tmp_path)
    arrays = [np.full(3, k, "float32") for k in range(len(inputs))]
    state = np.zeros(lib.state_bytes, np.uint8)
    got = lib.call("f", state, *arrays)
    want = f(*arrays)
    assert all(same_bits(a, b) for a, b in zip(got, want.values(), strict=True))
    assert state.view(np.float32).tolist() == [k for k in range(len(states)) for _ in "ab"]
    assert "weird_init_2(" in lib.header and "weird_f_arena_2(" in lib.header
    assert lib.header.isascii()


@needs_cc
@needs_cxx
def test_names_that_are_macros(tmp_path):
    """Of the headers that ours includes or is included beside, and of ours."""
    words = ["INT64_MAX", "INT64_C", "UINT_FAST16_MAX", "SIZE_MAX", "WCHAR_MIN", "X_OK", "X_ABI",
             "X_GRAPHC_H", "X_GRAPHC_VERSION", "X_STATE_LAYOUT", "X_STATE_FILE_BYTES", "x_state",
             "x_step", "x_status", "typeof_unqual", "linux", "unix", "signed", "X_GRAPHC_HPP",
             "I", "complex", "NAN", "near", "min", "max", "IN", "OUT", "hyper", "noreturn"]
    states = [gx.variable(np.zeros(2, "float32"), name) for name in words]
    inputs = [gx.input(name, (name,)) for name in words]
    total = sum(map(gx.sum, inputs[1:]), gx.sum(inputs[0]))
    functions = [gx.function(inputs, {f"{w}{w}": total + k for k, w in enumerate(words)},
                             updates={v: v + total for v in states}, name="step")]
    functions += [gx.function(inputs[:1], inputs[0] * 2, name=name)
                  for name in ("state", "status", "ABI", "OK", "FIRST_SITE", "step_arena", "max")]
    for prefix in ("x", "X"):
        path = gx.export(functions, tmp_path / f"lib{prefix}.h", cpu="v2", kinds=["hpp"])
        for language, standard, suffix in (
            ("c", "c99", ""), ("c", "gnu17", ""), ("c++", "c++11", ""), ("c++", "gnu++17", "pp")
        ):
            (tmp_path / "use.c").write_text(
                f"#include <unistd.h>\n#include <stdint.h>\n#include <wchar.h>\n#include <math.h>\n"
                f"#define near\n#include <complex.h>\n"
                f"#ifdef __cplusplus\n#include <memory>\n#include <stdexcept>\n#endif\n"
                f"#define hyper long\n#define IN\n#define OUT\n#define noreturn _Noreturn\n"
                f"#define min(a, b) 1\n#define max(a, b) 2\n"
                f'#include "{path.name}{suffix}"\nint f(void);\n')
            done = subprocess.run(
                ["cc", f"-std={standard}", *STRICT, "-fsyntax-only", "-x", language, "use.c"],
                cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, (prefix, standard, done.stderr)


def test_prefixes_that_are_taken(tmp_path):
    """libc's functions, which the library calls, and graphc's own."""
    x = gx.input("x", ("n",))
    functions = [gx.function([x], x + 1, name=name) for name in ("create", "join")]
    path = gx.export(functions, tmp_path / "libpthread_.so", cpu="v2")  # libpthread is refused
    lib = Loaded(path, functions, "pthread")
    assert "pthread_create_2(" in lib.header and "pthread_create(" not in lib.header
    with pytest.raises(CompileError, match="cannot be called graphc"):
        gx.export(functions, tmp_path / "libgraphc.so")


def test_identifiers():
    assert identifier("a.b c") == "a_b_c"
    assert identifier("ß") == "u00df"
    assert identifier("for") == "for_"
    assert identifier("9") == "_9"
    assert identifier("__x") == "_x"
    assert identifier("_X") == "x_X"
    assert identifier("") == "_"
    names = Names(["a"])
    assert [names("a"), names("a"), names("b"), names("for_"), names("for_")] == [
        "a_2", "a_3", "b", "for_", "for_2"]
    assert comment_safe("*/ /* ??/ \n é") == "* / / * ? ?/   \\xe9"


TRAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "libtrain.h"

int main(int argc, char **argv) {
  static float x[100 * 64], loss;
  static int64_t y[100], labels[100];
  int64_t sizes[] = {32, 1, 0, 7, 100};
  void *arena = malloc((size_t)train_step_arena(100));
  train_state *s = (train_state *)malloc(sizeof *s);
  FILE *data = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  (void)argc;
  if (train_abi() != TRAIN_ABI) return 2;
  train_init(s);
  train_warmup();
  for (int k = 0; k < 5; k++) {
    size_t n = (size_t)sizes[k];
    if (fread(x, 256, n, data) != n || fread(y, 8, n, data) != n) return 3;
    int status = train_step(s, x, y, &loss, sizes[k], k % 2 ? arena : NULL);
    if (status != TRAIN_OK) { puts(train_strerror(status)); return 4; }
    if (train_predict(s, x, labels, sizes[k], NULL)) return 5;
    if (n) fwrite(&loss, 4, 1, out);
    fwrite(labels, 8, n, out);
  }
  fwrite(s, sizeof *s, 1, out);
  free(s); free(arena); fclose(out); fclose(data);
  return 0;
}
"""


def train_data(tmp_path, functions):
    """The program's data file, the library, and what the program must write."""
    lib = export_loaded(functions, tmp_path / "libtrain.so")
    (tmp_path / "main.c").write_text(TRAIN)
    data, want = b"", b""
    state = lib.new_state()
    for k, n in enumerate((32, 1, 0, 7, 100)):
        x, y = batch(n, k)
        data += x.tobytes() + y.tobytes()
        (loss,) = lib.call("step", state, x, y)
        want += (loss.tobytes() if n else b"") + lib.call("predict", state, x)[0].tobytes()
    want += state.tobytes()
    (tmp_path / "data").write_bytes(data)
    return want


@needs_cc
@needs_cxx
def test_programs_in_c_and_cpp_train(tmp_path):
    functions = digits_functions()
    want = train_data(tmp_path, functions)
    gx.export(functions, tmp_path / "train.a")
    builds = {
        "c": ["cc", "-std=c99", *STRICT, "main.c", "-L.", "-ltrain", "-Wl,-rpath,."],
        "cpp": ["c++", "-std=c++11", *STRICT, "-x", "c++", "main.c", "-L.", "-ltrain",
                "-Wl,-rpath,."],
        "static": ["cc", "-std=c99", *STRICT, "main.c", "train.a", "-pthread"],
    }
    for name, command in builds.items():
        subprocess.run([*command, "-o", name], cwd=tmp_path, check=True)
        subprocess.run([f"./{name}", "data", f"{name}.out"], cwd=tmp_path, check=True)
        assert (tmp_path / f"{name}.out").read_bytes() == want, name


@needs_cc
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
@pytest.mark.parametrize("level", ("v2", "v3"))  # valgrind knows no AVX-512
def test_valgrind_has_nothing_to_say(tmp_path, level):
    want = train_data(tmp_path, digits_functions())
    subprocess.run(["cc", "-g", "-std=c99", "main.c", "-L.", "-ltrain", "-Wl,-rpath,.", "-o",
                    "main"], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
         "--errors-for-leak-kinds=definite", "./main", "data", "out"],
        cwd=tmp_path, env=os.environ | {"GRAPHC_CPU": level}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    assert level != "v3" or (tmp_path / "out").read_bytes() == want
