"""graphc against the libraries that its users would otherwise take, on the work that they do.

    python -m tests.benchmarks [--cases a,b/softmax*] [--peers numpy,jax] [--threads 1,2] [--quick]
                               [--json FILE] [--svg FILE] [--report FILE]

Run it in the checkout; `pip install -e '.[bench]'` brings the peers, and those that are missing
are left out. Cases: (a) elementwise, (b) reductions, (c) products, (d) gradients and training, (e)
small calls from Python and C, (f) compile time and memory, (g) new sizes. Every result is checked
against a float64 reference before it is timed; a peer that fails is recorded and the rest goes on.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import chart, firsts, report
from .case import Case
from .cases import LETTERS, all_cases, large, sizes
from .limits import faster
from .measure import KINDS, ROOT, SLOW_TO_COMPILE, Bench, Settings, environment, front
from .model import bound
from .peers import OURS, PEERS, installed
from .summary import all_rows

SCHEMA = 1


def counts(text: str) -> list[int]:
    """Positive numbers between commas."""
    found = [int(t) for t in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def mistake(o: argparse.Namespace, wanted: Callable[[Any], bool]) -> str:
    """What is wrong with the options; "" if nothing is."""
    unknown = [p for p in o.peers.split(",") if p and p not in PEERS]
    if unknown:
        return f"--peers: no such peer: {', '.join(unknown)} (there are {', '.join(PEERS)})"
    if not any(map(wanted, every_case())):
        return f"--cases: none is called {o.cases} (--list shows all)"
    for path in (o.json, o.svg, o.report):
        if path and not Path(path).absolute().parent.is_dir():
            return f"{path}: there is no such folder"
    if o.report and not o.svg:
        return "--report: needs --svg, whose chart it shows"
    return ""


def every_case() -> list[Any]:
    """Those timed over and over, and those of (f) and (g)."""
    others = (*large.graphs(), *large.steps(), *(f(sizes.FIRST) for f in sizes.families().values()))
    return [*all_cases().values(), *others]


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--cases", default="", help="letters, or patterns of names: a,b/softmax*")
    p.add_argument("--peers", default="", help="beside graphc; all that are installed unless given")
    p.add_argument("--threads", type=counts, default=[1, 2], help="how many, in turn (1,2)")
    p.add_argument("--quick", action="store_true", help="few cases, few rounds, quick compilers")
    p.add_argument("--rounds", type=int, default=0, help="how often peers take turns (6 to 36)")
    p.add_argument("--caches", default="", help="where torch.compile and PyTensor keep what they "
                   "compile from run to run (nowhere: every first call is cold)")
    p.add_argument("--json", default="", help="write all figures")
    p.add_argument("--svg", default="", help="write the chart of ratios, and NAME-overview.svg")
    p.add_argument("--report", default="", help="write the report in Markdown")
    p.add_argument("--list", action="store_true", help="name the cases and stop")
    p.add_argument("--log", default=os.devnull, help="what libraries print")
    return p.parse_args(arguments)


def chooser(patterns: str, quick: bool) -> Callable[[Any], bool]:
    """Whether a case is wanted."""
    wanted = [w for w in patterns.split(",") if w]

    def chosen(case: Any) -> bool:
        if not wanted:
            return bool(case.quick or not quick)
        return any(
            case.letter == w if len(w) == 1 else fnmatch.fnmatch(case.name, w) for w in wanted
        )

    return chosen


def machine() -> dict[str, Any]:
    """What the figures were seen on."""
    cpu = platform.processor() or platform.machine()
    memory = 0
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        known = {k.strip(): v.strip() for k, _, v in (x.partition(":") for x in text.splitlines())}
        cpu = known["model name"]  # which a virtual machine may call by its maker's name alone
        cpu += f" (family {known['cpu family']}, model {known['model']})"
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    except (KeyError, OSError, ValueError):
        pass
    from graphc.codegen.machine.target import host

    return {
        "cpu": cpu, "vector bits": host().vector_bits, "cpus": os.cpu_count(),
        "memory GB": memory, "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """The checkout's commit, "+" where files differ."""
    try:
        said = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"],
            capture_output=True, text=True, check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "an unknown commit"
    return said.stdout.strip()


def module(name: str, *arguments: str, threads: int = 1) -> Any:
    """What `python -m tests.benchmarks.NAME` prints as JSON, or None where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", f"tests.benchmarks.{name}", *arguments], cwd=ROOT, text=True,
            capture_output=True, env=environment(threads, folder),
        )
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def explain(result: dict[str, Any], dtype: str, limits: Any) -> None:
    """Add what bounds graphc in this case."""
    ours = result["peers"].get("graphc", {})
    counts = ours.get("work")
    if counts and limits:
        result["bound"] = {
            kind: bound(counts, dtype, limits, ours[kind]["min"], result.get("copied"))
            for kind in KINDS if kind in ours
        }


def told(case: Case, result: dict[str, Any], limits: Any) -> dict[str, Any]:
    """The result, explained and printed."""
    explain(result, case.dtype, limits)
    print("\n".join(report.lines(result)), flush=True)
    return result


def timed(
    o: argparse.Namespace, peers: Sequence[str], threads: int, settings: Settings, limits: Any,
    versions: dict[str, str],
) -> list[dict[str, Any]]:
    """Cases (a) to (e) with one number of threads."""
    chosen = chooser(o.cases, o.quick)
    cases = [c for c in all_cases().values() if chosen(c) and threads in c.threads]
    found: list[dict[str, Any]] = []
    if cases:
        with (
            tempfile.TemporaryDirectory() as folder, open(o.log, "a") as log,
            Bench(peers, threads, settings, folder, log) as bench,
        ):
            versions.update(bench.versions())
            found = [told(case, bench.run(case), limits) for case in cases]
            found = [
                told(case, bench.again(case, result), limits) if front(result) else result
                for case, result in zip(cases, found, strict=True)
            ]
    if threads == 1 and any(c.letter == "e" for c in cases):
        for name, by_peer in (module("small_c", str(3 * settings.rounds)) or {}).items():
            result = {"case": name, "threads": 1, "busy": None,
                      "peers": {n: v for n, v in by_peer.items() if n in peers}}
            found.append(result)
            print("\n".join(report.lines(result)), flush=True)
    return found


def rounded(value: Any) -> Any:
    """Floats with five digits: no clock tells more."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> int:
    o = options(arguments)
    begin = time.perf_counter()
    chosen = chooser(o.cases, o.quick)
    if wrong := mistake(o, chosen):
        print(wrong, file=sys.stderr)
        return 2
    if o.list:
        print("\n".join(c.name for c in every_case() if chosen(c)))
        return 0
    have, asked = installed(), [p for p in o.peers.split(",") if p]
    peers = [p for p in have if (p in asked if asked else
                                 not (o.quick and p in SLOW_TO_COMPILE)) or p in OURS]
    settings = Settings(rounds=3, most=3, seconds=0.01) if o.quick else Settings()
    if o.rounds:
        settings.rounds = settings.most = o.rounds
    settings.caches = str(Path(o.caches).absolute()) if o.caches else ""
    threads = [t for t in o.threads if t == 1 or t <= (os.cpu_count() or 1)]
    missing = [p for p in PEERS if p not in have]
    if missing:
        print(f"not installed: {', '.join(missing)}")
    versions: dict[str, str] = {}
    limits: dict[str, Any] = {str(t): module("limits", str(t), threads=t) for t in threads}
    cases = [
        result for t in threads
        for result in timed(o, peers, t, settings, limits[str(t)], versions)
    ]
    for t, before in limits.items():
        after = module("limits", t, threads=int(t))
        limits[t] = faster(before, after) if before and after else before or after
    known = all_cases()
    for result in cases:
        if result["case"] in known:
            explain(result, known[result["case"]].dtype, limits[str(result["threads"])])

    def say(line: str) -> None:
        print(line, flush=True)

    first = firsts.first_results(peers, chosen, say)
    found: dict[str, Any] = {
        "schema": SCHEMA, "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "-m", "tests.benchmarks", *(arguments or sys.argv[1:])]),
        "machine": machine(), "commit": commit(), "versions": versions,
        "settings": {"rounds": settings.rounds, "most": settings.most,
                     "further": settings.further, "seconds": settings.seconds,
                     "kept caches": bool(settings.caches)},
        "limits": limits, "cases": cases,
        "imports": firsts.imports(peers) if first else {}, "first": first,
        "sizes": firsts.new_sizes(peers, chosen, say),
        "busy": statistics.mean(
            [c["busy"] for c in cases if c["threads"] == 1 and c["busy"]] or [0.0]),
        "minutes": round((time.perf_counter() - begin) / 60, 1),
    }
    print("\n".join(report.table_of_means(found)))
    write(o, found, {c.name: c.primal for c in known.values()}, threads[0])
    return 0


def write(o: argparse.Namespace, found: dict[str, Any], primals: dict[str, str], t: int) -> None:
    """The files that were asked for; charts are of cases with `t` threads."""
    if o.json:
        Path(o.json).write_text(json.dumps(rounded(found), indent=1) + "\n")
    if o.svg:
        shown = [r for r in all_rows(found) if r.threads == t]
        title = f"graphc against the best peer, {t} thread{'s' * (t > 1)}, {found['date']}"
        path = Path(o.svg)
        path.write_text(chart.draw(shown, LETTERS, title))
        path.with_stem(path.stem + "-overview").write_text(chart.overview(shown, LETTERS, title))
    if o.report:
        Path(o.report).write_text(report.markdown(found, primals, Path(o.svg).name))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
