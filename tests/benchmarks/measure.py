"""Timing: every peer in a process of its own, taking turns.

A process is asked for some milliseconds of calls, then the next, for several rounds, so that a
disturbance of the machine meets all alike. One-thread processes are bound to one CPU.

The least time of a call is what the library needs once nothing disturbs it, and on a machine that
others share a quiet moment may take long to come. So the rounds go on between those near the front
until the least of none of them falls, or some seconds have passed: a race is not decided by who
happened to meet the moment. Those far behind leave after half of the rounds.

What others do to the machine also changes over minutes, and where a process has its arrays decides
some races. So those near the front meet twice: again when all cases were run, prepared anew.
"""

from __future__ import annotations

import compileall
import ctypes.util
import functools
import itertools
import json
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .case import Case, save
from .limits import FAR_CASE
from .peers import OURS

ROOT = Path(__file__).parents[2]
THREAD_VARIABLES = (
    "GRAPHC_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "PJRT_NPROC", "NPROC",
)
# Compiled together, because each takes seconds of another compiler's time.
SLOW_TO_COMPILE = ("torch.compile", "pytensor")
# A neighbour on the core's other hardware thread costs a product half as much again (1.55), so who
# stands within NEAR of the least may still be the fastest, and nobody beyond FAR is worth more
# than half the rounds; FELL is a fall that counts.
NEAR, FAR, FELL = 1.6, 4.0, 0.99
KINDS = ("fresh", "kept")


def environment(threads: int, folder: str, caches: str = "") -> dict[str, str]:
    """A process's variables: so many threads, and caches that begin empty.

    Only the caches of SLOW_TO_COMPILE may stand in a folder of their own, kept from earlier runs.
    """
    compile_bytecode()
    env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    env["TORCHINDUCTOR_CACHE_DIR"] = f"{caches or folder}/inductor"
    env["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    env["PYTENSOR_FLAGS"] = f"base_compiledir={caches or folder}/pytensor"
    if ctypes.util.find_library("openblas"):  # as its documentation advises
        env["PYTENSOR_FLAGS"] += ",blas__ldflags=-lopenblas"
    env["NUMBA_CACHE_DIR"] = f"{folder}/numba"
    env["GRAPHC_CACHE_DIR"] = f"{folder}/graphc"
    if threads == 1:
        env["XLA_FLAGS"] = " ".join((
            env.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false",
            "intra_op_parallelism_threads=1",
        ))
    for name in ("GRAPHC_VERIFY", "GRAPHC_DUMP", "GRAPHC_STOP_AFTER"):
        env.pop(name, None)
    return env


@functools.cache
def compile_bytecode() -> None:
    """What peers have from their installation: in a checkout, the bytecode of graphc's modules may
    have to be made by every process."""
    for name in ("graphc", "passes", "codegen"):
        compileall.compile_dir(ROOT / name, quiet=2)


class Process:
    """One worker; started again when it died or was too slow."""

    def __init__(self, peer: str, threads: int, env: dict[str, str], log: Any):
        self.peer, self.threads, self.env, self.log = peer, threads, env, log
        self.child: subprocess.Popen[bytes] | None = None
        self.hello: dict[str, Any] = {}

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.worker", self.peer, str(self.threads)]
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        if cpus:
            chosen = ",".join(map(str, cpus[-self.threads:]))
            command = ["taskset", "-c", chosen, *command] if _taskset() else command
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=ROOT,
            env=self.env,
        )
        self.hello = self.answer(120)

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        self.send(**request)
        return self.answer(limit)

    def send(self, **request: Any) -> None:
        if self.child is None:
            self.start()
        assert self.child is not None and self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(request).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says that it died

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line; "failed" where the process died or the time was over."""
        assert self.child is not None and self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        line = self.child.stdout.readline() if ready else b""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        why = "the process died" if ready else f"not ready within {seconds:.0f} s"
        self.stop()
        return {"failed": why}

    def pause(self, still: bool) -> None:
        """Hold all its threads, or let them go on: those of thread pools spin after a call."""
        if self.child is not None and hasattr(signal, "SIGSTOP"):
            self.child.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None


def _taskset() -> bool:
    import shutil

    return shutil.which("taskset") is not None


@dataclass
class Settings:
    """How long to measure: rounds of so many seconds; peers must be ready within `patience`.

    most: rounds at most, where the least times of those near the front go on falling.
    further: seconds that a case may take, in each sitting, for rounds after the first `rounds`.
    caches: the folder of the slow compilers' caches; "" begins empty.
    """

    rounds: int = 6
    most: int = 36
    further: float = 2.5
    seconds: float = 0.015
    patience: float = 90.0
    caches: str = ""


@dataclass
class Bench:
    """Runs cases with one number of threads."""

    peers: Sequence[str]
    threads: int
    settings: Settings
    folder: str
    log: Any
    processes: dict[str, Process] = field(default_factory=dict)
    times: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def __enter__(self) -> Bench:
        env = environment(self.threads, self.folder, self.settings.caches)
        self.processes = {p: Process(p, self.threads, env, self.log) for p in self.peers}
        for p in self.processes.values():
            p.start()
        return self

    def __exit__(self, *_: Any) -> None:
        for p in self.processes.values():
            p.stop()

    def versions(self) -> dict[str, str]:
        """What is installed; "failed: ..." where importing fails."""
        return {
            n: p.hello.get("version") or f"failed: {p.hello.get('failed')}"
            for n, p in self.processes.items()
        }

    def run(self, case: Case, among: Collection[str] | None = None) -> dict[str, Any]:
        """{"case": ..., "peers": {name: {"first", "error", "fresh": {...}} or {"failed"}}}.

        among: who takes part; all unless given. Times are of this sitting and of earlier ones.
        "copied": seconds of a copy of LARGEST_COPY bytes, beside cases beyond the caches.
        """
        answers = self.prepare(case, self.processes if among is None else among)
        results = {n: {k: v for k, v in a.items() if k != "kinds"} for n, a in answers.items()}
        kinds = {n: a["kinds"] for n, a in answers.items() if "kinds" in a}
        races = {
            kind: Race([n for n, own in kinds.items() if kind in own], self.settings.rounds)
            for kind in dict.fromkeys(itertools.chain(*kinds.values()))
        }
        far = answers.get("graphc", {}).get("work", {}).get("needed", 0) >= FAR_CASE
        copies: list[float] = []
        busy, done, end = Load(), 0, math.inf
        while self.goes_on(done, end) and any(race.running for race in races.values()):
            for kind, race in races.items():
                for n in race.running:
                    if "failed" in results[n]:  # in another kind of call
                        continue
                    a = self.alone(n, do="time", kind=kind, seconds=self.settings.seconds)
                    if "times" in a:
                        race.times[n].append(a["times"])
                    else:
                        results[n] = a
            if far:
                copies += self.alone("graphc", do="copying").get("times", [])
            for race in races.values():
                race.running = race.still_open(failed={n for n in kinds if "failed" in results[n]})
            done += 1
            if done == self.settings.rounds:
                end = time.perf_counter() + self.settings.further
        load = busy.share()
        for kind, race in races.items():
            for n, rounds in race.times.items():
                if rounds and "failed" not in results[n]:
                    found = self.times.setdefault((case.name, kind, n), [])
                    found += itertools.chain(*rounds)
                    results[n][kind] = {"min": min(found), "median": statistics.median(found)}
        for n in kinds:
            self.processes[n].ask(60, do="drop")
        copied = {"copied": min(copies)} if copies else {}
        return {
            "case": case.name, "threads": self.threads, "busy": load, **copied, "peers": results}

    def again(self, case: Case, first: dict[str, Any]) -> dict[str, Any]:
        """What run() found, with the times of a second sitting of those near the front."""
        second = self.run(case, front(first))
        peers = {
            n: p | {k: v for k, v in second["peers"].get(n, {}).items() if k in KINDS}
            for n, p in first["peers"].items()
        }
        copied = [r["copied"] for r in (first, second) if "copied" in r]
        return first | {"peers": peers} | ({"copied": min(copied)} if copied else {})

    def goes_on(self, done: int, end: float) -> bool:
        """Whether there may be another round, after so many and before that time."""
        return done < self.settings.rounds or (
            done < self.settings.most and time.perf_counter() < end)

    def alone(self, name: str, **request: Any) -> dict[str, Any]:
        """One process's answer while the others are held."""
        for n, p in self.processes.items():
            p.pause(n != name)
        try:
            return self.processes[name].ask(60, **request)
        finally:
            for p in self.processes.values():
                p.pause(False)

    def prepare(self, case: Case, among: Collection[str]) -> dict[str, dict[str, Any]]:
        """Every peer's answer to "prepare"."""
        alive = [n for n, p in self.processes.items() if n in among and "version" in p.hello]
        skip = dict(case.skip)
        if not case.compilers or self.threads > 1:
            skip |= dict.fromkeys(SLOW_TO_COMPILE, "left out, for it takes seconds to compile")
        chosen = [n for n in alive if n not in skip]
        answers: dict[str, dict[str, Any]] = {n: {"absent": skip[n]} for n in alive if n in skip}
        with tempfile.NamedTemporaryFile(suffix=".npz", dir=self.folder) as file:
            arrays = case.arrays()  # once for all peers: random numbers take longer than a file
            save(file, arrays, case.expected(arrays))
            del arrays
            request = {"do": "prepare", "case": case.name, "file": file.name}
            for n in chosen:
                if n not in SLOW_TO_COMPILE:
                    answers[n] = self.processes[n].ask(self.settings.patience, **request)
            slow = [n for n in chosen if n in SLOW_TO_COMPILE]
            for n in slow:
                self.processes[n].send(**request)
            for n in slow:
                answers[n] = self.processes[n].answer(self.settings.patience)
        return {n: answers[n] for n in self.processes if n in answers}


class Race:
    """One kind of call, each peer's times by rounds, and who still runs."""

    def __init__(self, peers: Sequence[str], rounds: int):
        self.times: dict[str, list[list[float]]] = {n: [] for n in peers}
        self.running, self.rounds = list(peers), rounds

    def still_open(self, failed: Set[str]) -> list[str]:
        """Who takes part in the next round.

        All do in the first half of `rounds`, those not far behind in the rest; then those near the
        front, of graphc's and of the peers, until none of them has a new least in as many rounds;
        nobody where one side is alone there.
        """
        running = [n for n in self.running if n not in failed]
        done = max((len(self.times[n]) for n in running), default=0)
        if done < self.rounds // 2:
            return running
        least = {n: min(map(min, self.times[n])) for n in running}
        near, in_sight = (within(least, behind) for behind in (NEAR, FAR))
        if done < self.rounds:
            return in_sight
        before = {n: min(map(min, self.times[n][:-self.rounds]), default=math.inf) for n in near}
        if not contested(near) or all(least[n] >= FELL * before[n] for n in near):
            return []
        return near


def within(least: Mapping[str, float], behind: float) -> list[str]:
    """Those whose time is at most `behind` times the least."""
    return [n for n, t in least.items() if t <= behind * min(least.values())]


def contested(peers: Collection[str]) -> bool:
    """Whether both graphc and a peer are among them."""
    return len({n in OURS for n in peers}) == 2


def front(result: Mapping[str, Any]) -> list[str]:
    """Who stands near the least time of a kind of call for which graphc and a peer race; with
    fastmath graphc races apart, since what it reaches says nothing of the other."""
    found: set[str] = set()
    for kind, ours in itertools.product(KINDS, OURS):
        times = {
            n: p[kind]["min"] for n, p in result["peers"].items()
            if kind in p and (n == ours or n not in OURS)
        }
        near = within(times, NEAR)
        if contested(near):
            found.update(near)
    return [n for n in result["peers"] if n in found]


class Load:
    """How busy the machine's CPUs were, as a number of CPUs; 0 where the system does not tell."""

    def __init__(self) -> None:
        self.idle, self.begin = self.read(), time.perf_counter()

    def read(self) -> float:
        try:
            with open("/proc/stat") as f:
                fields = [int(v) for v in f.readline().split()[1:]]
        except OSError:
            return 0.0
        return (fields[3] + fields[4]) / os.sysconf("SC_CLK_TCK")

    def share(self) -> float:
        took = time.perf_counter() - self.begin
        return round((os.cpu_count() or 1) - (self.read() - self.idle) / max(took, 1e-9), 2)
