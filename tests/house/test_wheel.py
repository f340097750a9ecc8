"""The wheel holds every module that the tree holds, and works outside the tree."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MAPPED = {"passes": "graphc/passes", "codegen": "graphc/codegen"}

SMOKE = """
import numpy as np
import graphc, graphc.codegen, graphc.passes
for module in (graphc, graphc.codegen, graphc.passes):
    assert module.__file__.startswith({target!r}), module.__file__
x = graphc.input("x", ("n", 3))
w = graphc.variable(np.ones((3, 2)), "w", "float32")
loss = graphc.sum(graphc.tanh(x @ w))
step = graphc.function([x], loss, updates=graphc.optim.sgd([w], [graphc.grad(loss, w)]))
assert abs(step(np.zeros((4, 3), "float32"))) == 0
assert step(np.ones((1, 3), "float32")) > 1.9
print("works")
"""


def tracked():
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [f for f in done.stdout.split("\0") if f and (ROOT / f).is_file()]


def pip(*args):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *args],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of what git tracks, so that no leftover of an earlier build gets in."""
    tmp = tmp_path_factory.mktemp("wheel")
    for f in tracked():
        copy = tmp / "tree" / f
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / f, copy)
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp / "dist"),
        str(tmp / "tree"))
    (path,) = (tmp / "dist").glob("graphc-*.whl")
    return path


def test_wheel_holds_every_module(wheel):
    want = set()
    for f in tracked():
        top, _, rest = f.partition("/")
        if top in ("graphc", *MAPPED) and f.endswith((".py", "py.typed")):
            want.add(f"{MAPPED.get(top, top)}/{rest}")
    with zipfile.ZipFile(wheel) as z:
        names = [n for n in z.namelist() if ".dist-info/" not in n]
        info = [n.rpartition("/")[2] for n in z.namelist() if ".dist-info/" in n]
    assert {n for n in names if n.endswith((".py", "py.typed"))} == want
    assert {n.split("/")[0] for n in names} == {"graphc"}  # nothing else enters site-packages
    assert "LICENSE" in info and "entry_points.txt" in info


def test_wheel_works_outside_the_tree(wheel, tmp_path):
    target = tmp_path / "installed"
    pip("install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
    env = {**os.environ, "PYTHONPATH": str(target)}
    for command in (["-c", SMOKE.format(target=str(target))], ["-m", "graphc", "--help"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (target / "bin" / "graphc").exists()


def test_checkout_works_where_python_starts_in_it():
    """`pip install .` is no help there: Python takes the folder graphc for the package."""
    unaided = (
        "import sys; sys.meta_path[:] = "
        "[f for f in sys.meta_path if getattr(f, '__name__', '') != '_EditableFinder']\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", unaided + SMOKE.format(target=str(ROOT))], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr


def test_editable_install_works_beside_the_checkout(tmp_path):
    """The line that venv.sh adds; without it a folder called graphc is a package of its own."""
    script = (ROOT / "examples" / "venv.sh").read_text()
    (line,) = re.findall(r'^echo "(.*)" > .*/graphc.pth"$', script, re.M)
    (tmp_path / "site").mkdir()
    (tmp_path / "graphc" / "graphc").mkdir(parents=True)
    found = (
        "import importlib.util, site, sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path "
        "if getattr(f, '__name__', '') != '_EditableFinder']\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "site.addsitedir('site')\n"
        "print(importlib.util.find_spec('graphc').origin)\n"
    )
    place = str(ROOT / "graphc" / "__init__.py")
    for added, origin in (("", "None"), (line.replace("$root", str(ROOT)), place)):
        (tmp_path / "site" / "graphc.pth").write_text(added)
        done = subprocess.run(
            [sys.executable, "-S", "-c", found], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        assert done.stdout.strip() == origin, done.stderr


def test_metadata():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    import graphc

    assert project["version"] == graphc.__version__
    assert project["scripts"] == {"graphc": "graphc.cli:main"}
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence
