"""The main job: the digits learnt from Python, and from C with the library, with equal results."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys

import pytest
from example_files import EXAMPLES, load


def accuracy(said):
    found = re.fullmatch(r"test accuracy: (\d+\.\d)%", said.splitlines()[-1])
    assert found, said
    return float(found[1])


def losses(said):
    return re.findall(r"^epoch \d+: loss .*$", said, re.M)


@pytest.fixture(scope="module")
def from_python():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "digits.py"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_import_trains_nothing(capsys):
    ex = load("digits")
    assert capsys.readouterr().out == ""
    assert ex.step.compilations == ex.predict.compilations == 0
    assert not ex.params[1].value.any()  # a bias, as it was declared


def test_python(from_python):
    assert accuracy(from_python) >= 95
    assert len(losses(from_python)) == 3 and "compiled in" in from_python


SAVE = """
import sys
sys.path.insert(0, sys.argv[1])
import digits
import graphc as gx
digits.main()
gx.save_state(sys.argv[3], [digits.step, digits.predict], library=sys.argv[2])
"""


def test_c_learns_the_same(library, from_c, from_python, tmp_path):
    assert accuracy(from_c) == accuracy(from_python) >= 95
    assert losses(from_c) == losses(from_python)  # to the last printed digit
    assert "trained in" in from_c
    state = tmp_path / "python.state"
    run = [sys.executable, "-c", SAVE, EXAMPLES, library / "libdigits.so", state]
    subprocess.run(run, check=True, capture_output=True, cwd=tmp_path)
    assert state.read_bytes() == (library / "digits.state").read_bytes()  # to the last bit


def test_c_reports_a_label_out_of_range(library, c_program, tmp_path):
    text = (library / "digits.csv").read_text()
    (tmp_path / "digits.csv").write_text(re.sub(r",\d\n", ",10\n", text))  # there is no digit 10
    done = subprocess.run(
        [c_program, tmp_path / "digits.csv"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.search(r"digits: step: .*index out of range.*digits\.py:\d+", done.stderr)


def test_data_are_what_data_md_says():
    assert (EXAMPLES / "DATA.md").read_text().count("CC BY 4.0") == 1
    rows = gzip.decompress((EXAMPLES / "digits.csv.gz").read_bytes()).decode().split()
    assert len(rows) == 1797
    assert all(0 <= int(v) <= 16 for row in rows for v in row.split(","))
    assert {row.rsplit(",", 1)[1] for row in rows} == set("0123456789")
