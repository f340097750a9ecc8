"""What the guides show is what comes out (--update-golden rewrites it), and they miss no module."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import graphc as gx
from graphc.codegen import compile_graph
from graphc.codegen.machine.target import x86

ROOT = pathlib.Path(__file__).parents[2]
README, CODEGEN = ROOT / "README.md", ROOT / "codegen" / "README.md"
CORE, PASSES = ROOT / "graphc" / "README.md", ROOT / "passes" / "README.md"
GUIDES = pytest.mark.parametrize(
    "guide", [CORE, PASSES, CODEGEN], ids=["graphc", "passes", "codegen"]
)


def blocks(text, language):
    """The contents of all blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def block(text, language):
    """The contents of the first block of a language."""
    return blocks(text, language)[0]


def outputs(text):
    """Blocks without a language that follow `**name**` and an empty line."""
    return dict(re.findall(r"^\*\*(\w+)\*\*[^\n]*\n\n```\n(.*?)```$", text, re.M | re.S))


def check(path, shown, update):
    text = path.read_text()
    found = outputs(text)
    assert set(shown) <= set(found)
    if update:
        for name, new in shown.items():
            head = re.compile(rf"(^\*\*{name}\*\*[^\n]*\n\n```\n).*?(```$)", re.M | re.S)
            text = head.sub(lambda m, new=new: m[1] + new + m[2], text)
        path.write_text(text)
        return
    for name, new in shown.items():
        assert found[name] == new, f"{path.name}: {name} has changed; --update-golden rewrites it"


def test_codegen_example(update_golden):
    space = {}
    for code in blocks(CODEGEN.read_text(), "python"):
        exec(code, space)
    f, rows = space["f"], compile_graph(space["rows"].optimized, x86("v3"))
    check(CODEGEN, {
        "loops": "".join(f"{k.name}\n{k.text}\n" for k in f.kernels),
        "plan": f.memory_plan() + "\n",
        "task": re.search(r"^define[^\n]*@rows.k0.task.*?^}\n", rows.llvm, re.M | re.S)[0],
    }, update_golden)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The Python example of README.md, run in an empty folder."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "line.py").write_text(block(README.read_text(), "python"))
    return folder


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_readme_examples(example, update_golden):
    text = README.read_text()
    (example / "line.c").write_text(block(text, "c"))
    shown = {}
    for name, command in (
        ("Python", [sys.executable, "line.py"]),
        (None, ["cc", "line.c", "-L.", "-lline", "-Wl,-rpath,.", "-o", "line"]),
        ("C", ["./line"]),
    ):
        done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if name:
            shown[name] = done.stdout
    check(README, shown, update_golden)


def test_readme_links_exist():
    for path in (README, CORE, PASSES, CODEGEN):
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"


@GUIDES
def test_every_module_has_a_place(guide):
    text = guide.read_text()
    for path in guide.parent.glob("*.py"):
        known = f"`{path.stem}`" in text
        assert known or path.stem.startswith("__"), f"{path}: not in {guide.parent.name}/README.md"


def section(guide, heading):
    """What stands under a heading of a guide."""
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", guide.read_text(), re.M | re.S)
    return found


def reading_order(guide):
    """The files of each row of the table of what to read, and how many lines it says they have."""
    table = section(guide, "To read, in this order")
    rows = re.findall(r"^\| (`[^|]*) \|[^|]*\| ([\d,]+) \|$", table, re.M)
    assert len(rows) > 4
    return [(files, int(shown.replace(",", ""))) for files, shown in rows]


@GUIDES
def test_reading_orders_count_the_lines(guide):
    for files, shown in reading_order(guide):
        lines = 0
        for name in re.findall(r"`([\w/]+)`", files):
            lines += len((guide.parent / f"{name}.py").read_text().splitlines())
        assert abs(lines - shown) <= 0.2 * lines + 50, (files, lines)


def test_the_core_says_how_much_there_is_to_read():
    text = section(CORE, "To read, in this order").split("|", maxsplit=1)[0]
    counts = [int(n.replace(",", "")) for n in re.findall(r"\(([\d,]+)(?: lines of it)?\)", text)]
    assert counts == [sum(n for _, n in reading_order(g)) for g in (CORE, PASSES, CODEGEN)]


def test_the_example_of_a_pass_is_one():
    space = {}
    (code,) = (b for b in blocks(PASSES.read_text(), "python") if "def run(" in b)
    exec(code, space)
    x, y = gx.input("x", (3,)), gx.input("y", (3,))
    g = space["run"](gx.function([x, y], x - (-y)).graph)
    assert g.outputs[0].node.op.name == "add"


@pytest.mark.parametrize(("guide", "heading"), [
    (CORE, "To add"), (CODEGEN, "To add"), (PASSES, "A law is one row"),
    (PASSES, "A pass is one file"),
])
def test_how_to_add_names_files_that_are_there(guide, heading):
    names = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", section(guide, heading))
    for name in (n for n in names if "NAME" not in n):
        assert (guide.parent / name).exists() or (ROOT / name).exists(), name
    assert names


FOLDERS = sorted(CODEGEN.parent.glob("*/__init__.py"))


@pytest.mark.parametrize("init", FOLDERS, ids=lambda p: p.parent.name)
def test_every_folder_says_what_its_files_are_for(init):
    assert f"`{init.parent.name}/`" in CODEGEN.read_text()
    table = init.read_text().splitlines()
    named = [name for line in table for name in re.findall(r"^    (\w+(?:, \w+)*)", line)]
    names = {name for part in named for name in part.split(", ")}
    assert names == {p.stem for p in init.parent.glob("*.py")} - {"__init__"}


def test_readme_is_one_page():
    assert len(README.read_text().split()) < 1300
