"""The usual call of a small function of a library, without anything that it does not need.

A function of few arrays of known sizes, whose code needs no arena, takes less time than the checks
of a general call: so one branch asks whether all arrays are given and apart, there is no arena,
and the level of this CPU is known. Everything else, mistakes too, goes on to the general call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.emitter import Emitter
from graphc.codegen.library_abi import Entry
from graphc.codegen.library_levels import NUMBERS

if TYPE_CHECKING:
    from graphc.codegen.library_entry import EntryText

FEW = 8  # arrays: every written one is compared with all others


def is_small(entry: Entry) -> bool:
    """Whether the function has a call of its own."""
    few = len(entry.inputs) + len(entry.outputs) <= FEW
    return few and entry.work == 0 and not entry.dims


def usual_call(t: EntryText, sizes: list[int], rest: str) -> str:
    """The body; `sizes` are bytes of inputs and outputs, `rest` names the general call.

    a and b overlap where -size(a) < b - a < size(b), which is one unsigned comparison.
    """
    entry, inputs = t.entry, len(t.entry.inputs)
    e = t.emit = Emitter(t.module)
    e.label("entry")
    programs = entry.unit.programs
    slots = max(len(sizes) + len(p.states) + len(p.constants) for _, p in programs)
    e.do(f"%args = alloca [{max(1, slots)} x i64], align 16")
    e.do("%dims = alloca i64, align 16")
    arrays = [(f"%arg.{k}", n) for k, n in enumerate(sizes)]
    written, read = arrays[inputs:], arrays[:inputs]
    if entry.state:
        (written if entry.state == "update" else read).append(("%s", t.state_bytes))
    good = [e("icmp eq ptr %arena, null")]
    good += [e(f"icmp ne ptr {p}, null") for p, n in written + read if n]
    every = [(e(f"ptrtoint ptr {p} to i64"), n) for p, n in written + read]
    for i in range(len(written)):
        for (a, n), (b, m) in ((every[i], other) for other in every[i + 1 :]):
            if n and m:
                moved = e(f"add i64 {e(f'sub i64 {a}, {b}')}, {n - 1}")
                good.append(e(f"icmp uge i64 {moved}, {n + m - 1}"))
    lowest = programs[0][0]
    if lowest != "base":
        e.do("%level = load atomic i32, ptr @graphc.level.known monotonic, align 4")
        good.append(e(f"icmp sge i32 %level, {NUMBERS[lowest]}"))
    all_good = good[0]
    for g in good[1:]:
        all_good = e(f"and i1 {all_good}, {g}")
    usual, other = e.fresh("usual"), e.fresh("other")
    e.do(f"br i1 {all_good}, label %{usual}, label %{other}")
    e.label(other)
    params = ", ".join(t.params())
    e.do(f"ret i32 {e(f'tail call i32 @{rest}({params})')}")
    e.label(usual)
    e.do(f"ret i32 {t.status(t.dispatch([p for p, _ in arrays], 'null'))}")
    return e.text()
