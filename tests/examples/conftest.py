"""The digits library and the program in C, made once for all tests of this folder."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys

import pytest
from example_files import EXAMPLES


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A folder with libdigits.so, .a, .h, .hpp, as the command line makes them, and digits.csv."""
    if sys.platform != "linux":
        pytest.skip("shared libraries are for Linux")
    folder = tmp_path_factory.mktemp("digits")
    names = [f"{EXAMPLES / 'digits.py'}:{n}" for n in ("step", "predict")]
    subprocess.run(
        [sys.executable, "-m", "graphc", "compile", *names, "-o", folder / "libdigits.so",
         "--kind", "a,hpp"],
        check=True, capture_output=True, cwd=folder,
    )
    packed = (EXAMPLES / "digits.csv.gz").read_bytes()
    (folder / "digits.csv").write_bytes(gzip.decompress(packed))
    return folder


@pytest.fixture(scope="session")
def c_program(library):
    """digits.c, compiled and linked with the shared library."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    program = library / "digits"
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", EXAMPLES / "digits.c",
         "-I", library, "-L", library, "-ldigits", "-Wl,-rpath,$ORIGIN", "-o", program],
        check=True,
    )
    return program


@pytest.fixture(scope="session")
def from_c(library, c_program):
    """What digits.c prints; it saves its state in digits.state."""
    return subprocess.run(
        [c_program, library / "digits.csv", library / "digits.state"], capture_output=True,
        text=True, check=True,
    ).stdout
