"""The usual call of a small function of a library, without anything that it does not need.

A function of few arrays of known sizes, whose code needs no arena, takes less time than the checks
of a general call: so one branch asks whether all arrays are given and apart and the level of this
CPU is known, and another, where an arena is given though nothing needs it, whether it is apart
from them. Everything else, mistakes too, goes on to the general call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.library.abi import Entry
from graphc.codegen.library.levels import NUMBERS

if TYPE_CHECKING:
    from graphc.codegen.library.entry import EntryText

FEW = 8  # arrays: every written one is compared with all others


def is_small(entry: Entry) -> bool:
    """Whether the function has a call of its own."""
    few = len(entry.inputs) + len(entry.outputs) <= FEW
    return few and entry.work == 0 and not entry.dims


def usual_call(t: EntryText, sizes: list[int], arena: int, rest: str) -> str:
    """The body; `sizes` are bytes of inputs and outputs, `arena` those that a given arena has,
    `rest` names the general call."""
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
    good = [e(f"icmp ne ptr {p}, null") for p, n in written + read if n]
    every = [(e(f"ptrtoint ptr {p} to i64"), n) for p, n in written + read if n]
    for k in range(sum(n > 0 for _, n in written)):
        good += [_apart(e, every[k], b) for b in every[k + 1 :]]
    lowest = programs[0][0]
    if NUMBERS[lowest] > 1 or len({t.entries[level] for level, _ in programs}) > 1:
        e.do("%level = load atomic i32, ptr @graphc.level.known monotonic, align 4")
        good.append(e(f"icmp sge i32 %level, {NUMBERS[lowest]}"))
    usual, other, plain, given = (e.fresh(x) for x in ("usual", "other", "plain", "given"))
    e.do(f"br i1 {e.all_of(good)}, label %{plain}, label %{other}")
    e.label(other)
    params = ", ".join(t.params())
    e.do(f"ret i32 {e(f'tail call i32 @{rest}({params})')}")
    e.label(plain)
    e.do(f"br i1 {e('icmp eq ptr %arena, null')}, label %{usual}, label %{given}")
    e.label(given)
    room = e("ptrtoint ptr %arena to i64"), arena
    good = [_apart(e, room, b) for b in every if arena]
    e.do(f"br i1 {e.all_of(good)}, label %{usual}, label %{other}")
    e.label(usual)
    e.do(f"ret i32 {t.status(t.dispatch([p for p, _ in arrays], 'null'))}")
    return e.text()


def _apart(e: Emitter, a: tuple[str, int], b: tuple[str, int]) -> str:
    """Whether two ranges (begin, bytes) do not overlap.

    They do where -size(a) < b - a < size(b), which is one unsigned comparison.
    """
    (begin, n), (other, m) = a, b
    moved = e(f"add i64 {e(f'sub i64 {begin}, {other}')}, {n - 1}")
    return e(f"icmp uge i64 {moved}, {n + m - 1}")
