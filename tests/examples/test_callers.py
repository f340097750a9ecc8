"""The digits learnt from every language: what the programs print is what digits.c prints.

Each test skips with its reason where its tools are missing; tests/examples/test_shipping.py runs
the commands that the guide gives for the same programs.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from example_files import EXAMPLES

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"]


def needs(*tools):
    missing = [t for t in tools if shutil.which(t) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def said(*command, **options):
    done = subprocess.run(
        list(command), capture_output=True, text=True, check=False, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def expected(from_c):
    """The lines of digits.c that do not tell the time."""
    want = re.sub(r"^trained in .*\n", "", from_c, flags=re.M)
    assert re.fullmatch(r"(epoch \d0: loss 0\.\d{6}\n){3}test accuracy: 9\d\.\d%\n", want)
    return want


@needs("c++")
def test_cpp(library, expected, tmp_path):
    subprocess.run(
        ["c++", "-std=c++17", *STRICT, EXAMPLES / "digits.cpp", "-I", library, "-L", library,
         "-ldigits", f"-Wl,-rpath,{library}", "-o", tmp_path / "digits"], check=True)
    state = tmp_path / "cpp.state"
    assert said(tmp_path / "digits", library / "digits.csv", state) == expected
    assert state.read_bytes() == (library / "digits.state").read_bytes()
    broken = subprocess.run([tmp_path / "digits", os.devnull], capture_output=True, text=True)
    assert (broken.returncode, broken.stderr) == (1, "digits: no images in /dev/null\n")


FIXED = """
graphc_library(fixed ../digits.py:predict STATIC OPTIONS --cpu v2,v3)
file(WRITE ${CMAKE_BINARY_DIR}/fixed.cpp [[
#include "libfixed.hpp"
int main() {
  float x[2][64] = {};
  int64_t digits[2];
  graphc::fixed::Model model;
  model.predict(x, digits, 2);
  return digits[0] != digits[1];
}
]])
add_executable(classify ${CMAKE_BINARY_DIR}/fixed.cpp)
target_compile_features(classify PRIVATE cxx_std_17)
target_link_libraries(classify PRIVATE fixed)
"""


@needs("cmake", "c++")
def test_cmake(library, expected, tmp_path):
    """The example's project, and a static library beside it."""
    for path in (*EXAMPLES.glob("digits.*"), EXAMPLES / "cmake"):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
    with open(tmp_path / "cmake/CMakeLists.txt", "a") as project:
        project.write(FIXED)
    build = tmp_path / "build"
    graphc = pathlib.Path(sys.executable).with_name("graphc")
    said("cmake", "-S", tmp_path / "cmake", "-B", build, f"-DGRAPHC={graphc}")
    assert "graphc compile: libfixed.a" in said("cmake", "--build", build)
    assert said(build / "train", library / "digits.csv") == expected
    assert said(build / "classify") == ""
    assert "graphc compile" not in said("cmake", "--build", build)  # nothing has changed
    os.utime(tmp_path / "digits.py")
    again = said("cmake", "--build", build, "--target", "digits_files")
    assert "graphc compile: libdigits.so" in again and "libfixed" not in again


@needs("cargo", "cc")
def test_rust(library, expected, tmp_path):
    shutil.copytree(EXAMPLES / "rust", tmp_path / "rust")
    state = tmp_path / "rust.state"
    env = os.environ | {"DIGITS_DIR": str(library), "RUSTFLAGS": "-D warnings"}
    run = ["cargo", "run", "--offline", "--locked", "--release", "--quiet", "--"]
    assert said(*run, library / "digits.csv", state, cwd=tmp_path / "rust", env=env) == expected
    assert state.read_bytes() == (library / "digits.state").read_bytes()


@needs("go", "cc")
def test_go(library, expected, tmp_path):
    shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    state = tmp_path / "go.state"
    env = os.environ | {
        "CGO_CFLAGS": f"-I{library} -Wall -Wextra -Werror", "CGO_LDFLAGS": f"-L{library}",
        "GOFLAGS": "-mod=readonly", "GOPROXY": "off", "GOTOOLCHAIN": "local",
    }
    run = ["go", "run", "."]
    assert said(*run, library / "digits.csv", state, cwd=tmp_path / "go", env=env) == expected
    assert state.read_bytes() == (library / "digits.state").read_bytes()


def test_ctypes(library, expected):
    """In a Python that finds no packages at all."""
    run = [sys.executable, "-S", "-E", EXAMPLES / "digits_ctypes.py"]
    assert said(*run, library / "libdigits.so") == expected


@needs("cc")
def test_dlopen(library, expected, tmp_path):
    program = tmp_path / "digits_dlopen"
    subprocess.run(["cc", "-std=c99", *STRICT, EXAMPLES / "digits_dlopen.c", "-I", library, "-ldl",
                    "-o", program], check=True)
    data = (library / "digits.csv",)
    state = library / "digits.state"
    assert said(program, library / "libdigits.so", state, *data) == expected.splitlines(True)[-1]

    def refused(*arguments):
        done = subprocess.run([program, *arguments, *data], capture_output=True, text=True)
        assert done.returncode == 1 and not done.stdout
        return done.stderr

    assert "cannot open shared object" in refused(tmp_path / "none.so", state)
    assert "this is not a state file" in refused(library / "libdigits.so", EXAMPLES / "digits.c")
