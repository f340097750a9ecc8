"""A process that runs one peer with one number of threads; it serves measure.py over a pipe.

Requests and answers are lines of JSON: {"do": "prepare", "case": ..., "file": FILE} builds the
case, makes the first call and checks the result; {"do": "time", "kind": "fresh", "seconds": ...}
times calls in a loop; {"do": "drop"} lets go of everything.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from .case import Call, Case, NotOfferedError, error, flat, load
from .limits import LARGEST_COPY, copier, timed

_PR_SET_PDEATHSIG = 1
SHORTEST = 2e-4  # seconds: what is shorter is timed as a loop of calls that take so long


def looped(call: Call) -> Callable[[int], float]:
    """f(n): seconds of n calls, made as a user's loop makes them."""
    names = [f"a{k}" for k in range(len(call.args))]
    names += [f"{k}={k}" for k in call.kwargs]
    space: dict[str, Any] = {"fn": call.fn, "repeat": itertools.repeat, "now": time.perf_counter}
    arguments = {f"a{k}": a for k, a in enumerate(call.args)} | dict(call.kwargs)
    exec(
        f"def f(n, fn=fn, now=now, repeat=repeat{''.join(f', {k}={k}' for k in arguments)}):\n"
        "    begin = now()\n"
        "    for _ in repeat(None, n):\n"
        f"        fn({', '.join(names)})\n"
        "    return now() - begin\n",
        space | arguments, space,
    )
    f: Callable[[int], float] = space["f"]
    return f


class Worker:
    def __init__(self, peer: Any, cases: dict[str, Case]):
        self.peer, self.cases = peer, cases
        self.loops: dict[str, tuple[Callable[[int], float], int]] = {}
        self.calls: dict[str, Call] = {}  # keeps alive what the loops use
        self.copy: Callable[[], object] | None = None

    def prepare(self, case: str, file: str) -> dict[str, Any]:
        """Build, call once, check; what went wrong is said, not raised."""
        found = self.cases[case]
        self.drop()
        arrays, want = load(file)
        begin = time.perf_counter()
        builder = found.builders.get(self.peer.name)
        built = builder(self.peer, found, arrays) if builder else self.peer.build(found, arrays)
        result = built.fresh()
        first = time.perf_counter() - begin
        self.calls = calls = {"fresh": built.fresh}
        got = flat(self.peer.numpy(result))
        for _ in range(found.calls - 1):
            got += flat(self.peer.numpy(built.fresh()))
        worst = error(got, want)
        if built.kept is not None and found.kept:
            calls["kept"] = built.kept
            worst = max(worst, error(flat(self.peer.numpy(built.kept())), want))
        if not worst <= found.allowed():
            raise ValueError(f"wrong result: error {worst:.1e}, allowed {found.allowed():.0e}")
        for kind, call in calls.items():
            run = looped(call)
            run(1)
            number, took = 1, run(1)
            while took < SHORTEST:
                number = max(2 * number, int(number * 1.2 * SHORTEST / max(took, 1e-7)))
                took = run(number)
            self.loops[kind] = run, number
        answer = {"first": first, "error": worst, "kinds": list(self.loops)}
        if hasattr(self.peer, "work"):
            answer["work"] = self.peer.work(built.fresh)
        return answer

    def time(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of one call, many times over."""
        run, number = self.loops[kind]
        run(1)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 2 or time.perf_counter() < end:
            times.append(run(number) / number)
        return {"times": times}

    def copying(self) -> dict[str, Any]:
        """Seconds of a copy of LARGEST_COPY bytes, a few times over."""
        if self.copy is None:
            self.copy = copier(LARGEST_COPY, self.peer.threads)
            self.copy()
        return {"times": [timed(self.copy) for _ in range(3)]}

    def drop(self) -> None:
        self.copy = None
        self.loops.clear()
        self.calls.clear()
        gc.collect()


def die_with_parent() -> None:
    """End this process with the one that made it, be it killed: a worker that is held (SIGSTOP)
    would never see that its requests ended. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def serve(peer: str, threads: int) -> None:
    """Answer requests from stdin until it ends."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    try:
        from . import peers
        from .cases import all_cases

        begin = time.perf_counter()
        loaded = peers.load(peer, threads)
        took = time.perf_counter() - begin
        worker = Worker(loaded, all_cases())
        hello = {"version": loaded.version(), "import": took}
    except Exception as problem:  # a broken installation is a result too
        hello = {"failed": brief(problem)}
    print(json.dumps(hello), file=answers, flush=True)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        try:
            answer = getattr(worker, do)(**request) or {}
        except NotOfferedError as problem:
            answer = {"absent": str(problem)}
        except Exception as problem:  # recorded as the peer's result for this case
            if os.environ.get("BENCH_TRACE"):
                traceback.print_exc()
            answer = {"failed": brief(problem)}
        print(json.dumps(answer), file=answers, flush=True)


def brief(problem: Exception) -> str:
    """One line about an exception."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}"[:200]


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
