"""Function merging: those of a program that differ in a few numbers become one, with parameters.

    step.k6.epilogue: %t16 = mul nsw i64 %i, 512     %number0 = load ctx[18]
    step.k8.epilogue: %t16 = mul nsw i64 %i, 256  -> %t16 = mul nsw i64 %i, %number0

So one function serves an optimizer's updates of matrices of several sizes; the entry point puts the
numbers into the kernels' contexts. Functions that differ in a number of an innermost loop stay
apart, since a constant in an address costs nothing there, and so do those that differ in a divisor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from graphc.codegen.emitter import Module
from graphc.codegen.kernels import Call

MOST = 4  # numbers in which functions may differ
_NUMBER = re.compile(
    r"^(  %\S+ = (?:(?:mul|add|sub) nsw i64 %\S+|icmp \w+ i64 %\S+|select i1 %\S+, i64 %\S+), "
    r"(?:i64 )?)(-?\d+)$"
)
_LOOP = re.compile(r"(loop|exit)\d+:$")


class _Part(NamedTuple):
    """A function that has the context of its kernel: the task of a nest, or an epilogue."""

    kernel: str
    name: str
    lines: list[str]
    numbers: dict[int, int]  # by line

    @property
    def skeleton(self) -> str:
        """What must be equal in functions that are alike."""
        lines = [_NUMBER.sub(r"\1#", x) if k in self.numbers else x
                 for k, x in enumerate(self.lines)]
        return "\n".join(lines).replace(f"@{self.name}(", "@(", 1)


def share(module: Module, calls: Sequence[Call]) -> list[Call]:
    """Keep one of the functions that are alike; the calls as they are then."""
    alike: dict[str, list[_Part]] = {}
    kernels = {c.name: c for c in calls}
    for kernel in kernels:
        for name in (f"{kernel}.task", f"{kernel}.epilogue"):
            text = module.functions.get(name, "")
            if f"@{name}(ptr %ctx, " in text:
                lines = text.split("\n")
                part = _Part(kernel, name, lines, _numbers(lines))
                alike.setdefault(part.skeleton, []).append(part)
    for parts in (group for found in alike.values() for group in _groups(found, kernels)):
        # what differs, once for all places where it is the same in each
        columns = {k: tuple(p.numbers[k] for p in parts) for k in parts[0].numbers}
        different = list(dict.fromkeys(x for x in columns.values() if len(set(x)) > 1))
        if len(parts) == 1 or len(different) > MOST:
            continue
        first = parts[0]
        at = {k: different.index(x) for k, x in columns.items() if x in different}
        module.functions[first.name] = _text(first, at, kernels[first.kernel].slots.numbers_at)
        for k, p in enumerate(parts):
            c = kernels[p.kernel]
            slots = replace(c.slots, numbers=tuple(x[k] for x in different))
            kernels[p.kernel] = replace(c, slots=slots)
            if p is not first:
                del module.functions[p.name]
                _call(module, kernels, p, first.name)
    return [
        replace(c, slots=kernels[c.name].slots, launch=kernels[c.name].launch) for c in calls
    ]


def _groups(parts: list[_Part], kernels: Mapping[str, Call]) -> Iterable[list[_Part]]:
    """Those whose numbers have one place in their contexts; all of them, where no number differs.

    The place comes after the sizes that a kernel is given: a product of declared sizes has none.
    """
    if all(p.numbers == parts[0].numbers for p in parts):
        return [parts]
    found: dict[int, list[_Part]] = {}
    for p in parts:
        found.setdefault(kernels[p.kernel].slots.numbers_at, []).append(p)
    return found.values()


def _numbers(lines: Sequence[str]) -> dict[int, int]:
    """The numbers that may come from the context, by line."""
    found: dict[int, int] = {}
    since: dict[int, int] = {}  # the last loop's begin or end
    begun = False
    for k, line in enumerate(lines):
        if (loop := _LOOP.match(line)) is not None:
            begins = loop[1] == "loop"
            if begins or not begun:
                found |= since
            since, begun = {}, begins
        elif (number := _NUMBER.match(line)) is not None:
            since[k] = int(number[2])
    return found | since


def _text(p: _Part, at: dict[int, int], slot: int) -> str:
    """The function with the numbers of some lines taken from the context, from `slot` on."""
    lines = list(p.lines)
    for k, number in at.items():
        lines[k] = _NUMBER.sub(rf"\1%number{number}", lines[k])
    loads = []
    for n in sorted(set(at.values())):
        loads += [
            f"  %number{n}.at = getelementptr inbounds i64, ptr %ctx, i64 {slot + n}",
            f"  %number{n} = load i64, ptr %number{n}.at, align 8",
        ]
    begin = lines.index("entry:") + 1
    return "\n".join([*lines[:begin], *loads, *lines[begin:]])


def _call(module: Module, kernels: dict[str, Call], p: _Part, name: str) -> None:
    """Let a kernel use `name` in the place of a part of its own."""
    c = kernels[p.kernel]
    if c.launch is not None and c.launch.task == p.name:
        kernels[p.kernel] = replace(c, launch=c.launch._replace(task=name))
    else:
        own = module.functions[p.kernel]
        module.functions[p.kernel] = re.sub(rf"@{re.escape(p.name)}\b", f"@{name}", own)
