"""The benchmark suite's machinery, with NumPy as the only peer: tiny runs, figures well formed."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.benchmarks import chart, measure, report, summary  # noqa: E402
from tests.benchmarks.case import error  # noqa: E402
from tests.benchmarks.cases import LETTERS, all_cases  # noqa: E402
from tests.benchmarks.limits import COPY_SIZES, LARGEST_COPY, copier  # noqa: E402
from tests.benchmarks.measure import Race  # noqa: E402
from tests.benchmarks.model import bound  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two tiny cases: what was printed, and the folder of what was written."""
    folder = tmp_path_factory.mktemp("suite")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", "--rounds", "1", "--threads", "1",
         "--peers", "numpy", "--cases", "a/broadcasts/f32/32x32,b/sum0/f32/64x128",
         "--json", folder / "out.json", "--svg", folder / "out.svg", "--report",
         folder / "out.md"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


def test_figures(run):
    printed, folder = run
    found = json.loads((folder / "out.json").read_text())
    assert found["schema"] == 1 and found["versions"]["numpy"] == np.__version__
    assert [c["case"] for c in found["cases"]] == [
        "a/broadcasts/f32/32x32", "b/sum0/f32/64x128"]
    for c in found["cases"]:
        assert c["case"] in printed
        for name in ("graphc", "graphc-fastmath", "numpy"):
            peer = c["peers"][name]
            assert 0 < peer["fresh"]["min"] <= peer["fresh"]["median"] < 0.1
            assert peer["first"] > 0 and 0 <= peer["error"] < 1e-4
        bound = c["bound"]["fresh"]
        assert bound["by"] and bound["share"] > 0 and bound["of"]["bandwidth"] > 0
    limits = found["limits"]["1"]
    assert limits["copy"]["512 KiB"] > 1e8
    assert limits["fma"]["float32"] > limits["divide"]["float32"]


def test_chart_and_report(run):
    _, folder = run
    root = ET.parse(folder / "out.svg").getroot()
    words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "broadcasts/f32/32x32" in words and "sum0/f32/64x128" in words
    dots = ET.parse(folder / "out-overview.svg").getroot()
    assert len(list(dots.iter("{http://www.w3.org/2000/svg}circle"))) == 2
    text = (folder / "out.md").read_text()
    assert "| (a) elementwise | 1 | fresh | 1 |" in text
    assert "| b/sum0/f32/64x128 | fresh |" in text and "(out.svg)" in text


def peer(time):
    return {"fresh": {"min": time, "median": time}}


def test_ratios():
    """The best peer counts; who reorders operations is met by fastmath; failures do not count."""
    result = {"case": "a/x/f32/1k", "threads": 1, "peers": {
        "graphc": peer(2.0), "graphc-fastmath": peer(1.0), "numpy": peer(6.0), "jax": peer(4.0),
        "numba-fastmath": peer(1.5), "torch": {"failed": "why"},
    }}
    (row,) = summary.rows(result)
    assert (row.best, row.ratio, row.fast_ratio) == ("jax", 2.0, 1.5)
    call = {"case": "e/x/f64/1", "threads": 1, "peers": {
        "graphc": peer(2.0), "casadi": {**peer(9.0), "kept": {"min": 1.0, "median": 1.0}}}}
    (row,) = summary.rows(call)
    assert (row.kind, row.ratio) == ("call", 0.5)
    ((*_, count, middle, least, _),) = summary.means([row, row])
    assert (count, middle, least) == (2, pytest.approx(0.5), 0.5)
    assert "failed: why" in "\n".join(report.lines(result))
    ET.fromstring(chart.overview(summary.rows(result), LETTERS, "<&>"))
    ET.fromstring(chart.draw(summary.rows(result), LETTERS, "<&>"))


def test_gradients_stand_beside_their_arithmetic():
    """A gradient in 4 times its primal's time, with 3 times the arithmetic."""
    work = {"products": 80.0, "slots": 20.0}
    primal = {"case": "d/x/f32/1", "threads": 1, "peers": {
        "graphc": {**peer(2.0), "work": work}, "jax": peer(3.0)}}
    slope = {"case": "d/x_grad/f32/1", "threads": 1, "peers": {
        "graphc": {**peer(8.0), "work": {"products": 240.0, "slots": 60.0}}, "jax": peer(15.0)}}
    other = {**slope, "case": "d/y_grad/f32/1"}
    lines = report.table_of_gradients(
        {"cases": [primal, slope, other]}, {"d/x_grad/f32/1": "d/x/f32/1"}
    )
    assert lines[-1] == "| d/x_grad/f32/1 | 1 | 4.00 | 3.00 | jax 5.00 |"
    del primal["peers"]["graphc"]["work"]
    lines = report.table_of_gradients({"cases": [primal, slope]}, {slope["case"]: primal["case"]})
    assert lines[-1] == "| d/x_grad/f32/1 | 1 | 4.00 |  | jax 5.00 |"


def test_copies_of_all_sizes_share_their_threads():
    before = threading.active_count()
    for size in (1 << 12, 1 << 13, 1 << 14):
        copier(size, 2)()
    assert threading.active_count() <= before + 2


def test_copies_that_take_turns_bound_cases_beyond_the_caches(monkeypatch):
    case = next(c for c in all_cases().values() if c.name == "a/polynomial/f32/1M")
    monkeypatch.setattr(measure, "FAR_CASE", 1)
    settings = measure.Settings(rounds=1, most=1, seconds=1e-3)
    with (
        tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log,
        measure.Bench(["graphc"], 1, settings, folder, log) as bench,
    ):
        result = bench.run(case)
    assert 1e-3 < result["copied"] < 10  # the worker's own copy of LARGEST_COPY
    counts = {"needed": 1 << 27, "bytes": 1 << 27, "products": 0, "slots": 0, "divisions": 0}
    limits = {"copy": dict.fromkeys(COPY_SIZES, 1e12), "fma": {"float32": 1e12},
              "divide": {"float32": 1e12}}
    alone = bound(counts, "float32", limits, 0.01)
    beside = bound(counts, "float32", limits, 0.01, copied=LARGEST_COPY / 1e10)
    assert alone["of"]["bandwidth"] == (1 << 27) / 1e12
    assert beside["of"]["bandwidth"] == pytest.approx((1 << 27) / 2e10)
    assert beside["by"] == "bandwidth" and beside["share"] == 0.671


def test_errors():
    one = np.array([1.0, -1.0])
    assert error([one], [one]) == 0 and error([one + 2e-3], [one]) == pytest.approx(1e-3, rel=1e-6)
    assert error([np.array([np.nan, 0])], [one]) == error([one[:1]], [one]) == float("inf")
    assert error([np.array([1, 2])], [np.array([1, 3])]) == float("inf")


def test_cases_are_whole():
    cases = all_cases()
    assert {c.letter for c in cases.values()} == set("abcde")
    for c in cases.values():
        assert not c.primal or c.primal in cases, c.name
        assert c.reference or not c.wrt, c.name


@pytest.mark.parametrize("arguments, said", [
    (["--peers", "numpi"], "no such peer: numpi"),
    (["--cases", "h"], "none is called h"),
    (["--json", "/nowhere/x.json"], "no such folder"),
    (["--threads", "0"], "invalid counts value"),
])
def test_wrong_arguments(arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *arguments], cwd=ROOT, capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_races_last_until_the_front_stands_still():
    race = Race(["graphc", "numpy", "jax", "torch"], 2)
    seen = []
    for graphc, numpy, jax in [(4, 6, 9), (4, 6, 9), (4, 3, 9), (4, 3, 9), (2, 3, 9), (4, 3, 9),
                               (4, 3, 9)]:
        for n, t in {"graphc": graphc, "numpy": numpy, "jax": jax, "torch": 17}.items():
            if n in race.running:
                race.times[n].append([t, t + 1])
        race.running = race.still_open(failed=set())
        seen.append("".join(n[0] for n in race.running))
    # torch is far behind after one round, jax out of reach after two; numpy gains in the third,
    # graphc in the fifth
    assert seen == ["gnj", "gn", "gn", "gn", "gn", "gn", ""]
    alone = Race(["graphc", "graphc-fastmath", "numpy"], 1)
    alone.times = {"graphc": [[1]], "graphc-fastmath": [[1.1]], "numpy": [[2.5]]}
    assert alone.still_open(failed=set()) == []
    assert Race(["graphc", "numpy"], 6).still_open(failed={"numpy"}) == ["graphc"]


def test_those_near_the_front_meet_again(monkeypatch, tmp_path):
    def peers(**times):
        return {n: {"first": 1.0, "fresh": {"min": t, "median": t}} for n, t in times.items()}

    first = {"case": "c", "copied": 3.0, "peers": peers(graphc=4, numpy=6, jax=9) | {
        "numba": {"failed": "no such operation"}}}
    second = {"case": "c", "copied": 2.0, "peers": peers(graphc=3) | {
        "numpy": {"failed": "the process died"}}}
    met = []
    bench = measure.Bench([], 1, measure.Settings(), str(tmp_path), None)
    monkeypatch.setattr(bench, "run", lambda case, among: met.append(among) or second)
    assert bench.again(None, first) == first | {
        "copied": 2.0, "peers": first["peers"] | peers(graphc=3)}
    assert met == [["graphc", "numpy"]]  # jax is far behind
    assert measure.front({"peers": peers(graphc=4, jax=9) | {"graphc-fastmath": {}}}) == []
    assert measure.front({"peers": peers(graphc=9, jax=4, torch=5, numpy=14)}) == []
    fast = {"graphc-fastmath": {"fresh": {"min": 1, "median": 1}}}
    assert measure.front({"peers": peers(graphc=8, jax=7) | fast}) == ["graphc", "jax"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent's elsewhere")
def test_held_workers_end_with_a_run_that_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", """
import os, sys
from tests.benchmarks.measure import Process, environment
p = Process("numpy", 1, environment(1, sys.argv[1]), sys.stderr)
p.start()
p.pause(True)
print(p.child.pid, flush=True)
sys.stdin.read()
""", tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    ended, _, _ = select.select([worker], [], [], 60)
    os.close(worker)
    parent.stdin.close()
    parent.stdout.close()
    assert ended


def test_products_alone():
    done = subprocess.run(
        [sys.executable, "tests/benchmarks/matmul.py", "--seconds", "0.01", "--only", "square 8"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^square 8 +8 +8 +8 +[\d.]+ +", done.stdout, re.MULTILINE)) == 2
