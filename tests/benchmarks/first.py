"""(f) and (g): what a fresh process needs for its first result, and for a new size.

    python -m tests.benchmarks.first import PEER            import time and memory
    python -m tests.benchmarks.first call PEER CASE         import, build, first call, memory
    python -m tests.benchmarks.first sizes PEER CASE        first calls at new sizes

Each prints a line of JSON. Compilers' caches are those of the environment.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from typing import Any

from .case import NotOfferedError
from .worker import brief, die_with_parent


def resident(field: str = "VmRSS") -> float:
    """Megabytes that the process holds, or held at most (VmHWM); 0 where nothing tells."""
    try:
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith(field))
    except (OSError, StopIteration):
        return 0.0


def call(peer: Any, case: Any) -> dict[str, Any]:
    """Seconds to the first result; memory at most until then, and after some more calls.

    "peak MB" and "held MB" are over what the imports and the inputs hold; "process MB" is the whole
    process without the inputs, since some import when they compile.
    """
    arrays = case.arrays()
    inputs = sum(a.nbytes for a in arrays) / 2**20
    gc.collect()
    before = resident()
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as f:
        f.write("5")  # the highest so far begins anew
    begin = time.perf_counter()
    builder = case.builders.get(peer.name)
    built = builder(peer, case, arrays) if builder else peer.build(case, arrays)
    built.fresh()
    took = time.perf_counter() - begin
    after = resident()
    peak = max(0.0, resident("VmHWM") - before)
    answer = {"seconds": took, "before MB": before, "peak MB": peak, "held MB": after - before}
    for _ in range(3):
        built.fresh()
    answer["process MB"] = resident("VmHWM") - inputs
    if hasattr(peer, "work"):
        answer["arena MB"] = peer.work(built.fresh)["arena"] / 2**20
    return answer


def sizes(peer: Any, family: Any) -> dict[str, Any]:
    """Seconds of the first and the second call at new sizes."""
    from .cases.sizes import FIRST, NEW

    case = family(FIRST)
    built = peer.build(case, case.arrays())
    built.fresh()
    first, second = [], []
    for n in NEW:
        arrays = family(n).arrays()
        args = peer.convert(arrays, case.wrt)
        for times in (first, second):
            begin = time.perf_counter()
            built.fresh.fn(*args)
            times.append(time.perf_counter() - begin)
    return {"first": first, "second": second}


def main() -> None:
    die_with_parent()
    what, name, *rest = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        from . import peers

        bare = resident()
        begin = time.perf_counter()
        peer = peers.load(name, int(os.environ.get("GRAPHC_NUM_THREADS", "1")))
        answer: dict[str, Any] = {
            "import": time.perf_counter() - begin, "import MB": resident() - bare,
        }
        if what == "call":
            from .cases import large

            known = {c.name: c for c in (*large.graphs(), *large.steps())}
            answer |= call(peer, known[rest[0]])
        elif what == "sizes":
            from .cases.sizes import families

            answer |= sizes(peer, families()[rest[0]])
    except NotOfferedError as problem:
        answer = {"absent": str(problem)}
    except BaseException as problem:  # RecursionError, MemoryError, ...: recorded
        answer = {"failed": brief(problem)}
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
