"""The C++ header: it compiles for any names, checks sizes, and owns state and arena."""

import shutil
import subprocess

import numpy as np
import pytest
from library_samples import batch, digits_functions

import graphc as gx
from graphc.errors import CompileError

STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C++ compiler (g++, clang++)")


def compiles(folder, text, *options):
    (folder / "use.cpp").write_text(text)
    for compiler in COMPILERS:
        done = subprocess.run([compiler, *STRICT, *options, "-fsyntax-only", "use.cpp"],
                              cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_any_names(tmp_path):
    words = ["class", "In", "Out", "Model", "data", "code", "s", "misfit", "π", "step", "arena",
             "std", "bytes", "operator", "int64_t", "Count", "state"]
    inputs = [gx.input(name, (f"{name}_n", gx.dim("Out") + k)) for k, name in enumerate(words)]
    total = gx.sum(inputs[0])
    state = gx.variable(np.zeros((), "float32"), "state")
    names = ["save", "Model", "Result", "step", "run_step", "reserve_step", "digits", "operator"]
    functions = [
        gx.function(inputs, {w: total + k for k, w in enumerate(words)}, name=name,
                    updates={state: state + total} if k % 2 else None)
        for k, name in enumerate(names)
    ]
    for prefix in ("index", "std", "time", "digits", "class"):
        gx.export(functions, tmp_path / f"lib{prefix}.h", kinds=["hpp"], cpu="v2")
    everywhere = "".join(f'#include "lib{p}.hpp"\n' * 2
                         for p in ("index", "std", "time", "digits", "class"))
    use = "#include <strings.h>\n" + everywhere + (
        "int digits(graphc::index::Model &a, const graphc::class_::Model &b) {\n"
        "  graphc::index::Model c = a;\n  (void)b;\n  return c.state() == nullptr;\n}\n"
    )
    compiles(tmp_path, use)
    compiles(tmp_path, use, "-fno-exceptions")
    compiles(tmp_path, use, "-DGRAPHC_NO_EXCEPTIONS", "-std=c++20")
    with pytest.raises(CompileError, match="cannot include"):
        gx.export(functions[:1], tmp_path / 'a"b.h', kinds=["hpp"], cpu="v2")
    assert not list(tmp_path.glob("a*"))


SIZES = r"""
#include <array>
#include <cstdio>
#include "libf.hpp"
using namespace graphc::f;
int main() {
  Model model;
  float x[7] = {1, 2, 3, 4, 5, 6, 7}, rows[3][1];
  std::array<float, 8> both{};
  const std::array<double, 1> y{{5}};
  model.f(x, y, both, rows, 7, 1);
  if (both[6] != 14 || both[7] != 5 || rows[1][0] != 4 || rows[2][0] != 7) return 1;
  const Model &fixed = model;
  fixed.f({x, 7}, y[0], nullptr, rows, 7, 1);
  const int64_t wrong[][3] = {{7, 2, wrong_size}, {6, 1, wrong_size},
                              {-1, 1, F_NEGATIVE_DIMENSION},
                              {INT64_MAX, INT64_MAX, F_SIZE_OVERFLOW}};
  for (auto [n, m, code] : wrong) {
    try {
      model.f(x, y, nullptr, rows, n, m);
      return 2;
    } catch (const Error &e) {
      if (e.code() != code) return 3;
      std::puts(e.what());
    }
  }
}
"""


def test_sizes_are_checked(tmp_path):
    """Formulas with rounded division among them."""
    n = gx.dim("n")
    x, y = gx.input("x", ("n",)), gx.input("y", ("m",), "float64")
    thirds = (n + 2) // 3
    rows = gx.reshape(gx.pad(x, ((0, 3 * thirds - n),)), (thirds, 3))
    both = gx.concat([x * 2, gx.astype(y, "float32")])
    f = gx.function([x, y], {"both": both, "rows": rows[:, :1]}, name="f")
    gx.export(f, tmp_path / "libf.a", kinds=["hpp"], cpu="v2")
    done = run(tmp_path, "sizes", SIZES, "libf.a", "-pthread")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        "f: y[m] has 2 elements, got 1", "f: x[n] has 6 elements, got 7",
        "f: a dimension is negative",
        "f: a dimension is so large that the size of an array overflows",
    ]


PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <vector>
#include "libdigits.hpp"

static int taken;
extern "C" void *__real_malloc(size_t size);
extern "C" void *__wrap_malloc(size_t size) { taken++; return __real_malloc(size); }
#define CHECK(what) if (!(what)) { std::printf("line %d: %s\n", __LINE__, #what); return 1; }

using graphc::digits::Error;
using graphc::digits::Model;

template <class F>
static int code_of(F call) {
  try { call(); } catch (const Error &e) { std::puts(e.what()); return e.code(); }
  return 0;
}

int main(int, char **argv) {
  const int64_t n = 33;
  std::vector<float> x(n * 64);
  std::vector<int64_t> y(n), labels(n), again(n);
  std::ifstream data(argv[1], std::ios::binary);
  data.read(reinterpret_cast<char *>(x.data()), n * 256);
  data.read(reinterpret_cast<char *>(y.data()), n * 8);
  CHECK(data);

  graphc::digits::set_threads(1);
  graphc::digits::warmup();
  Model model;
  model.reserve_step(n);
  model.reserve_predict(n);
  taken = 0;
  float loss[3];
  for (float &l : loss) model.step(x, y, l, n);
  model.step({x.data(), 64}, {y.data(), 1}, nullptr, 1);
  model.predict(x, labels, n);
  CHECK(taken == 0);
  const Model copy = model;
  copy.predict(x, again, n);
  CHECK(taken > 0 && labels == again);
  std::ofstream(argv[2], std::ios::binary).write(reinterpret_cast<char *>(loss), sizeof loss);

  const auto same = [](const Model &a, const Model &b) {
    return std::memcmp(a.state(), b.state(), sizeof(digits_state)) == 0;
  };
  model.step(x, y, loss[0], n);
  CHECK(!same(model, copy));
  model.save("cpp.state");
  Model other;
  other.load("cpp.state");
  CHECK(same(other, model) && code_of([&] { other.load("none.state"); }) == DIGITS_FILE_ERROR);
  CHECK(same(other, model));
  other = copy;
  CHECK(same(other, copy));
  other.reset();
  CHECK(same(other, Model()));
  Model moved = std::move(model);
  CHECK(moved && !model);
  CHECK(code_of([&] { model.step(x, y, loss[0], n); }) == DIGITS_NULL_ARGUMENT);
  CHECK(code_of([&] { model.reset(); }) == DIGITS_NULL_ARGUMENT);
  model = moved;
  CHECK(model && same(model, moved));
  Model empty(std::move(moved)), none = moved;
  CHECK(!none);
  model = none;
  CHECK(!model);
  std::swap(empty, model);
  CHECK(model && !empty);

  labels.clear();
  CHECK(code_of([&] { model.predict(x, labels, n); }) == graphc::digits::wrong_size);
  CHECK(code_of([&] { model.step(x, y, loss[0], n - 1); }) == graphc::digits::wrong_size);
  CHECK(code_of([&] { model.step(x, y, loss[0], -1); }) == DIGITS_NEGATIVE_DIMENSION);
  CHECK(code_of([&] { model.reserve_step(-1); }) == DIGITS_NEGATIVE_DIMENSION);
  CHECK(code_of([&] { model.reserve_step(INT64_MAX / 8); }) == DIGITS_SIZE_OVERFLOW);
  y[7] = 10;
  const Model before = model;
  CHECK(code_of([&] { model.step(x, y, loss[0], n); }) >= DIGITS_FIRST_SITE);
  CHECK(same(before, model));
}
"""

CODES = r"""
#include <cstdio>
#include "libdigits.hpp"
int main() {
  graphc::digits::Model model;
  float x[2][64] = {}, loss;
  const int64_t y[] = {3, 4}, bad[] = {3, 12};
  if (!model || model.step(x, y, loss, 2) || model.reserve_step(100) || model.reset()) return 1;
  int codes[] = {model.step(x, y, loss, 1), model.step(x, bad, loss, 2), model.load("none.state"),
                 model.reserve_step(-1)};
  for (int code : codes) std::puts(graphc::digits::explain(code));
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    gx.export(digits_functions(), folder / "libdigits.a", kinds=["so", "hpp"])
    return folder


def run(folder, name, text, *options, arguments=()):
    (folder / f"{name}.cpp").write_text(text)
    subprocess.run([COMPILERS[0], *STRICT, f"{name}.cpp", *options, "-o", name], cwd=folder,
                   check=True)
    return subprocess.run([f"./{name}", *arguments], cwd=folder, capture_output=True, text=True)


def test_a_model(folder):
    lib = gx.load(folder / "libdigits.so")
    x, y = batch(33)
    (folder / "data").write_bytes(x.tobytes() + y.tobytes())
    done = run(folder, "model", PROGRAM, "libdigits.a", "-pthread", "-Wl,--wrap=malloc",
               arguments=["data", "losses"])
    assert done.returncode == 0, done.stdout
    want = np.array([lib.step(x, y)["loss"] for _ in range(3)])
    assert (folder / "losses").read_bytes() == want.tobytes()
    lib.state.load(folder / "cpp.state")
    said = done.stdout.splitlines()
    assert said[:5] == [
        "load: the file cannot be read or written", "step: a pointer argument is null",
        "reset: a pointer argument is null", "predict: out[batch] has 33 elements, got 0",
        "step: x[batch,64] has 2048 elements, got 2112",
    ]
    assert said[-1].startswith("step: gather: index out of range")
    assert "library_samples.py:" in said[-1]


def test_codes_instead_of_exceptions(folder):
    done = run(folder, "codes", CODES, "libdigits.a", "-pthread", "-fno-exceptions")
    assert done.returncode == 0
    said = done.stdout.splitlines()
    assert said[0] == "an array has another size than its shape"
    assert "gather: index out of range" in said[1]
    assert said[2:] == ["the file cannot be read or written", "a dimension is negative"]


def test_an_older_language_is_named(folder):
    done = subprocess.run(
        [COMPILERS[0], "-std=c++14", "-fsyntax-only", "-x", "c++", "libdigits.hpp"], cwd=folder,
        capture_output=True, text=True,
    )
    assert done.returncode != 0
    assert '#error "this header needs C++17 (-std=c++17, /std:c++17); libdigits.h' in done.stderr


def test_a_header_of_another_version(folder, tmp_path):
    text = (folder / "libdigits.h").read_text()
    at = text.index("UINT64_C(0x") + 11
    digit = "1" if text[at] == "0" else "0"
    (tmp_path / "libdigits.h").write_text(text[:at] + digit + text[at + 1:])
    shutil.copy(folder / "libdigits.hpp", tmp_path)
    shutil.copy(folder / "libdigits.a", tmp_path)
    done = run(tmp_path, "old", '#include <cstdio>\n#include "libdigits.hpp"\nint main() { try {'
               " graphc::digits::Model m; } catch (const graphc::digits::Error &e) {"
               " std::puts(e.what()); } }", "libdigits.a", "-pthread")
    assert done.stdout == "Model: this header belongs to another version of the library\n"
