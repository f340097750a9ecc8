"""The guide: every command in it is run, in order, in a copy of the examples; the texts after them
are what comes out (`...` stands for anything), and quoted code is in the files it is from.
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

from graphc.codegen.machine.platforms import PLATFORMS

GUIDE = (EXAMPLES / "shipping.md").read_text()
BLOCKS = re.findall(
    r"(?:<!-- needs (?P<needs>.*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```\n", GUIDE,
    re.M | re.S,
)
CALLS, LATER = (GUIDE.index(f"\n## {k}. ") for k in (4, 5))  # where all print the same numbers
NUMBERS = next(text for _, _, text in BLOCKS if text.startswith("epoch"))
QUOTED = {"c": ("*.c", "*.h"), "cpp": ("*.cpp",), "cmake": ("cmake/*.txt",)}


@pytest.fixture
def folder(tmp_path):
    """A copy of the examples, in which `graphc` and `python` are these."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler (cc)")
    where = tmp_path / "examples"
    shutil.copytree(EXAMPLES, where, ignore=shutil.ignore_patterns("build", "target"))
    return where


def run(folder, language, text):
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-e", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    return subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path},
                          capture_output=True, text=True, timeout=600, check=False)


def expected(k):
    """The text that follows a block, or the numbers that callers print; None for no matter."""
    following = BLOCKS[k + 1] if k + 1 < len(BLOCKS) else None
    if following is not None and following[1] == "text" and following[2] != NUMBERS:
        return following[2]
    return f"...{NUMBERS}" if CALLS < GUIDE.index(BLOCKS[k][2]) < LATER else None


def missing(needs):
    return [tool for tool in needs.split() if shutil.which(tool) is None]


def test_commands(folder):
    """One test, since they build on each other."""
    absent = []
    for k, (needs, language, text) in enumerate(BLOCKS):
        if language not in ("sh", "python"):
            continue
        if missing(needs):
            absent.append(f"not installed: {', '.join(missing(needs))}")
            continue
        done = run(folder, language, text)
        if no_linker := re.search("no linker for .*", done.stderr):
            absent.append(no_linker[0])
            continue
        assert done.returncode == 0, (text, done.stderr)
        want = expected(k)
        if want is not None:
            pattern = ".*".join(re.escape(part) for part in want.split("..."))
            said = re.sub("^trained in .*\n", "", done.stdout, flags=re.M)
            assert re.fullmatch(pattern, said, re.S), (text, done.stdout)
    quotations(folder)
    if absent:
        pytest.skip(f"all other commands were run: {'; '.join(absent)}")


def quotations(folder):
    """What the guide quotes stands in the examples, or in a header that the commands left."""
    for language, patterns in QUOTED.items():
        found = {line.strip() for pattern in patterns for path in folder.rglob(pattern)
                 for line in path.read_text().splitlines()}
        lines = [line for _, lang, text in BLOCKS if lang == language for line in text.split("\n")]
        assert lines and [line for line in lines if line and line.strip() not in found] == []


def test_the_table_of_targets_is_complete():
    section = GUIDE.split("## 9.")[1].split("## 10.")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| `(\.\w+)`[^|]* \| (\w+) \|", section, re.M)
    assert {name: (shared, threads) for name, shared, threads in rows} == {
        p.name: (p.shared, "yes" if p.threads else "no") for p in PLATFORMS.values()}


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([\w./]+)\)", GUIDE):
        assert (EXAMPLES / target).exists(), target
