"""From measured times to ratios: who is best in each case, and geometric means by letter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .peers import OURS, REORDERING

SHORT = 0.95  # of the best peer's speed: below it the report says what bounds graphc


@dataclass(frozen=True)
class Row:
    """graphc and the best peer in one case, one kind of outputs, one number of threads."""

    case: str
    kind: str
    threads: int
    ours: float
    fast: float | None
    best: str
    theirs: float
    best_fast: float | None
    bound: Mapping[str, Any] | None

    @property
    def letter(self) -> str:
        return self.case[0]

    @property
    def ratio(self) -> float:
        """The best peer's time over graphc's: above 1 graphc is faster."""
        return self.theirs / self.ours

    @property
    def fast_ratio(self) -> float | None:
        """The same with fastmath, against all peers, those included that reorder operations."""
        if self.fast is None or self.best_fast is None:
            return None
        return self.best_fast / self.fast


def rows(result: Mapping[str, Any]) -> list[Row]:
    """The comparisons of one case.

    Small calls (e) count each library's fastest form, exact and, beside it, with fastmath.
    """
    found = []
    peers = result["peers"]
    kinds = ["call"] if result["case"][0] == "e" else ["fresh", "kept"]
    for kind in kinds:
        forms = ("fresh", "kept") if kind == "call" else (kind,)
        times = {
            n: min(p[f]["min"] for f in forms if f in p)
            for n, p in peers.items() if any(f in p for f in forms)
        }
        others = {n: t for n, t in times.items() if n not in OURS}
        strict = {n: t for n, t in others.items() if n not in REORDERING}
        if "graphc" not in times or not strict:
            continue
        best = min(strict, key=lambda n: strict[n])
        found.append(Row(
            result["case"], kind, result["threads"], times["graphc"],
            times.get("graphc-fastmath"), best, strict[best], min(others.values()),
            result.get("bound", {}).get(forms[0]),
        ))
        fast = times.get("graphc-fastmath")
        if kind == "call" and fast is not None:  # as C compilers contract, a row of its own
            found.append(replace(
                found[-1], kind="call, fastmath", ours=fast, theirs=min(others.values()),
                fast=None, best_fast=None, bound=None,
            ))
    return found


def all_rows(report: Mapping[str, Any]) -> list[Row]:
    return [row for result in report["cases"] for row in rows(result)]


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def means(found: Iterable[Row]) -> Iterator[tuple[str, int, str, int, float, float, float]]:
    """(letter, threads, kind, cases, geometric mean, least ratio, mean with fastmath)."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row.letter, row.threads, row.kind), []).append(row)
    for (letter, threads, kind), group in sorted(groups.items()):
        ratios = [r.ratio for r in group]
        fast = [r.fast_ratio for r in group if r.fast_ratio is not None]
        yield letter, threads, kind, len(group), mean(ratios), min(ratios), mean(fast)


def by_peer(report: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, list[float]]]:
    """(letter, threads) -> peer -> its time over graphc's in every case that both have."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for r in report["cases"]:
        ours = r["peers"].get("graphc", {}).get("fresh")
        for n, p in r["peers"].items():
            if ours and n not in OURS and "fresh" in p:
                group = found.setdefault((r["case"][0], r["threads"]), {})
                group.setdefault(n, []).append(p["fresh"]["min"] / ours["min"])
    return found


def gradients(report: Mapping[str, Any], primals: Mapping[str, str]) -> list[dict[str, Any]]:
    """Time of each gradient over that of its primal, for graphc and the peers that have both; and
    of graphc's, the same of its arithmetic."""
    times = {
        (r["case"], r["threads"]): {
            n: p["fresh"]["min"] for n, p in r["peers"].items() if "fresh" in p
        }
        for r in report["cases"]
    }
    counts = {
        (r["case"], r["threads"]): w["products"] + w["slots"]
        for r in report["cases"] if (w := r["peers"].get("graphc", {}).get("work"))
    }
    found = []
    for (case, threads), mine in times.items():
        primal = (primals.get(case, ""), threads)
        base = times.get(primal, {})
        ratios = {n: mine[n] / base[n] for n in mine if n in base}
        if ratios:
            less, more = counts.get(primal, 0), counts.get((case, threads), 0)
            found.append({
                "case": case, "threads": threads, "ratios": ratios,
                "arithmetic": more / less if less and more else None,
            })
    return found
