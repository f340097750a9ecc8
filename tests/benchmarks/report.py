"""What is printed and written: a line for each case, means, and the dated report in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cases import LETTERS
from .summary import SHORT, Row, all_rows, by_peer, gradients, mean, means, rows


def duration(seconds: float) -> str:
    """With a unit: 0.10 us, 12.3 us, 4.56 ms, 1.20 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        value = seconds * scale
        if value < 1000 or unit == "s":
            return f"{value:.2f} {unit}" if value < 100 else f"{value:.0f} {unit}"
    raise AssertionError


def lines(result: Mapping[str, Any]) -> list[str]:
    """What is printed about a case: the comparison, then all times, then what failed."""
    said = []
    head = f"{result['case']:44} {result['threads']} thr"
    for row in rows(result):
        fast = f"  fastmath {row.fast_ratio:.2f}" if row.fast_ratio is not None else ""
        short = ""
        if row.bound:
            short = f"  [{row.bound['by']}, {100 * row.bound['share']:.0f}% of its limit]"
        said.append(
            f"{head} {row.kind:14} {duration(row.ours):>9}  {row.ratio:5.2f}x {row.best}"
            f" ({duration(row.theirs)}){fast}{short}"
        )
    if not said:
        said.append(head + " no comparison")
    for name, peer in result["peers"].items():
        if "failed" in peer:
            said.append(f"    {name} failed: {peer['failed']}")
    return said


def verdict(row: Row) -> str:
    """Why a case is short, as far as the model tells."""
    if not row.bound:
        return "not modelled"
    of = ", ".join(f"{k} {duration(v)}" for k, v in row.bound["of"].items() if v > 0.05 * row.ours)
    return f"{row.bound['by']} ({100 * row.bound['share']:.0f}% of that limit; {of})"


def table_of_means(report: Mapping[str, Any]) -> list[str]:
    said = [
        "| cases | threads | outputs | number | mean | least | mean with fastmath |",
        "|---|---|---|---|---|---|---|",
    ]
    for letter, threads, kind, count, middle, least, fast in means(all_rows(report)):
        shown = f"{fast:.2f}" if fast == fast else ""
        said.append(
            f"| ({letter}) {LETTERS[letter]} | {threads} | {kind} | {count} | {middle:.2f} | "
            f"{least:.2f} | {shown} |"
        )
    return said


def table_by_peer(report: Mapping[str, Any]) -> list[str]:
    """Mean and least ratio to every single peer."""
    groups = by_peer(report)
    peers = [p for p in report["versions"] if any(p in g for g in groups.values())]
    said = ["| cases | threads | " + " | ".join(peers) + " |", "|---|---|" + "---|" * len(peers)]
    for (letter, threads), group in sorted(groups.items()):
        cells = [
            f"{mean(group[p]):.2f} ({min(group[p]):.2f})" if p in group else "" for p in peers
        ]
        said.append(f"| ({letter}) | {threads} | " + " | ".join(cells) + " |")
    return said


def table_of_gradients(report: Mapping[str, Any], primals: Mapping[str, str]) -> list[str]:
    """Gradients over their primals, and what would be least at the primal's speed."""
    said = [
        "## Gradient over primal", "",
        "\"arithmetic\" is what graphc computes for value and gradient, in multiply-adds and "
        "vector instructions, over what it computes for the value alone: the ratio of times if "
        "both ran at the same speed. A product's gradient is two products of its size, which with "
        "its own make 3, and no order of the sums makes them fewer.", "",
        "| case | threads | graphc | arithmetic | peers |", "|---|---|---|---|---|",
    ]
    for g in gradients(report, primals):
        others = ", ".join(f"{n} {v:.2f}" for n, v in g["ratios"].items() if n != "graphc")
        ours, least = (
            "" if v is None else f"{v:.2f}" for v in (g["ratios"].get("graphc"), g["arithmetic"])
        )
        said.append(f"| {g['case']} | {g['threads']} | {ours} | {least} | {others} |")
    return said


def markdown(report: Mapping[str, Any], primals: Mapping[str, str], chart: str) -> str:
    """The dated report."""
    said = [
        f"# Benchmarks, {report['date']}", "", *how_it_was_made(report), "",
        f"![speed against the best peer of each case]({chart})", "",
        "## Geometric means", "", *table_of_means(report), "",
        "\"kept\" writes into arrays that live on (`out=` and the like), \"fresh\" returns new "
        "ones; in (e) \"call\" is each library's faster form.", "",
        "Against each peer alone, fresh outputs: geometric mean, and least, of the cases that "
        "both have:", "", *table_by_peer(report), "",
        "## The machine's limits, measured in the same run", "", *machine_limits(report), "",
        *table_below(report), "", *table_of_gradients(report, primals), "",
        *first_tables(report), "## Every case", "", *tables_of_cases(report),
        "## What failed", "", *failures(report),
    ]
    return "\n".join(said).rstrip() + "\n"


def how_it_was_made(report: Mapping[str, Any]) -> list[str]:
    """The machine, the command, and how times are taken."""
    m = report["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    rounds = " to ".join(dict.fromkeys(str(report["settings"][k]) for k in ("rounds", "most")))
    return [
        f"{m['cpu']}, {m['cpus']} CPUs with vectors of {m['vector bits']} bits, "
        f"{m['memory GB']} GB; {m['system']}; Python {m['python']}.",
        f"graphc at {report['commit']}. {versions}.", "",
        "```sh", report["command"], "```", "",
        f"Took {report['minutes']} minutes. Times are the least of "
        f"{rounds} rounds in which the peers "
        "take turns, those near the front until none of them gains any more or "
        f"{report['settings']['further']:g} s are over, those far behind in half as many; those "
        "near the front meet once more when all cases were run, since what others do to the "
        "machine changes over minutes. Each library has a process of its own; one-thread "
        "processes are bound to one CPU. A ratio is the best peer's time over graphc's: above 1 "
        "graphc is faster. Every result was checked against a float64 reference before it was "
        "timed. "
        f"On average {report['busy']:.2f} CPUs were busy while cases with one thread ran (1.00 on "
        "a machine that does nothing else).",
    ]


def machine_limits(report: Mapping[str, Any]) -> list[str]:
    """What the machine can do, by number of threads."""
    said = []
    for threads, found in report["limits"].items():
        copies = ", ".join(f"{k} {v / 1e9:.1f}" for k, v in found["copy"].items())
        fresh = ", ".join(f"{k} {v / 1e9:.1f}" for k, v in found["copy fresh"].items())
        fma = ", ".join(f"{k} {v / 1e9:.0f}" for k, v in found["fma"].items())
        div = ", ".join(f"{k} {v / 1e9:.2f}" for k, v in found["divide"].items())
        said.append(
            f"- {threads} thread{'s' * (threads != '1')}: copying GB/s (read and written) {copies};"
            f" into fresh memory {fresh}; multiply-adds GFLOP/s {fma}; divisions G/s {div}"
        )
    return said


def table_below(report: Mapping[str, Any]) -> list[str]:
    """Cases that the best peer is ahead in, and what bounds them."""
    short = [r for r in all_rows(report) if r.ratio < SHORT]
    return [
        f"## Below {SHORT} of the best peer: {len(short)}", "",
        "What bounds them comes from a simple model: bytes that must move, passes over memory, "
        "multiply-adds and vector instructions, divisions, each against its limit. Copies take "
        "turns with cases beyond the caches, since others use the memory too; theirs, not those "
        "above, are the limit of such a case. Beside the ratio stands that with fastmath: JAX, and "
        "gcc for PyTensor and CasADi, always round a product and a sum once, which graphc does by "
        "fastmath only.", "",
        "| case | threads | outputs | graphc | best peer | ratio | with fastmath | bound |",
        "|---|---|---|---|---|---|---|---|", *(
        f"| {r.case} | {r.threads} | {r.kind} | {duration(r.ours)} | {r.best} "
        f"{duration(r.theirs)} | {r.ratio:.2f} | {_ratio(r.fast_ratio)} | {verdict(r)} |"
        for r in short),
    ]


def _ratio(r: float | None) -> str:
    return "" if r is None else f"{r:.2f}"


def tables_of_cases(report: Mapping[str, Any]) -> list[str]:
    """Every case and peer, a table for each number of threads."""
    said = []
    peers = list(report["versions"])
    for threads in dict.fromkeys(r["threads"] for r in report["cases"]):
        said += [
            f"### {threads} thread{'s' * (threads != 1)}", "",
            "| case | outputs | bound, share reached | " + " | ".join(peers) + " |",
            "|---|---|---|" + "---|" * len(peers),
        ]
        for result in report["cases"]:
            if result["threads"] != threads:
                continue
            for kind in ("fresh", "kept"):
                if any(kind in p for p in result["peers"].values()):
                    cells = [cell(result["peers"].get(p, {}), kind) for p in peers]
                    bound = result.get("bound", {}).get(kind)
                    limit = f"{bound['by']} {100 * bound['share']:.0f}%" if bound else ""
                    said.append(
                        f"| {result['case']} | {kind} | {limit} | " + " | ".join(cells) + " |")
        said.append("")
    return said


def failures(report: Mapping[str, Any]) -> list[str]:
    """What peers could not run or got wrong."""
    failed = [
        (r["case"], r["threads"], n, p["failed"])
        for r in report["cases"] for n, p in r["peers"].items() if "failed" in p
    ]
    return [f"- {c}, {t} thread{'s' * (t != 1)}: {n}: {why}" for c, t, n, why in failed]


def cell(peer: Mapping[str, Any], kind: str) -> str:
    """Least and median time of a peer."""
    if kind in peer:
        return f"{duration(peer[kind]['min'])} ({duration(peer[kind]['median'])})"
    return "failed" if "failed" in peer and kind == "fresh" else ""


def first_tables(report: Mapping[str, Any]) -> list[str]:
    """Compile times, memory and new sizes, from first.py."""
    said = []
    if report["imports"]:
        said += ["## Import", "", "| library | seconds | MB |", "|---|---|---|"]
        said += [
            f"| {n} | {v.get('import', 0):.2f} | {v.get('import MB', 0):.0f} |"
            for n, v in report["imports"].items()
        ]
        said.append("")
    if report["first"]:
        said += [
            "## First result: declaration, compilation and first call", "",
            "Without the import (but with what graphc imports when it compiles). Cold: no cache; "
            "cached: with what an earlier process left. Memory is what the process holds at most, "
            "inputs aside: cold and cached, imports and all (compilers that run as processes of "
            "their own are not counted), and above its imports; graphc imports its compiler only "
            "when it compiles. The arena, as graphc reports it before running, holds all that a "
            "call needs beside inputs, outputs and state.", "",
            "| case | library | cold | cached | process MB, cold | cached | above imports, cold "
            "| arena MB |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for case, found in report["first"].items():
            for n, v in found.items():
                if "failed" in v["cold"]:
                    said.append(f"| {case} | {n} | failed: {v['cold']['failed']} | | | | | |")
                    continue
                arena = v["cold"].get("arena MB")
                cached, held = v["cached"].get("seconds"), v["cached"].get("process MB")
                said.append(
                    f"| {case} | {n} | {duration(v['cold']['seconds'])} | "
                    f"{'' if cached is None else duration(cached)} | "
                    f"{v['cold'].get('process MB', 0):.0f} | "
                    f"{'' if held is None else f'{held:.0f}'} | "
                    f"{v['cold']['peak MB']:.0f} | {'' if arena is None else f'{arena:.2f}'} |"
                )
        said.append("")
    if report["sizes"]:
        said += [
            "## A new size on a compiled function: the first call at it", "",
            "| case | library | median first call | longest | median second call |",
            "|---|---|---|---|---|",
        ]
        for case, found in report["sizes"].items():
            for n, v in found.items():
                if "failed" in v:
                    said.append(f"| {case} | {n} | failed: {v['failed']} | | |")
                    continue
                first, second = sorted(v["first"]), sorted(v["second"])
                middle = len(first) // 2
                said.append(
                    f"| {case} | {n} | {duration(first[middle])} | {duration(first[-1])} | "
                    f"{duration(second[middle])} |"
                )
        said.append("")
    return said
