"""Function merging: those of a program that differ in a few numbers become one, with parameters.

    step.k6.epilogue: %t16 = mul nsw i64 %i, 512     %number0 = load ctx[18]
    step.k8.epilogue: %t16 = mul nsw i64 %i, 256  -> %t16 = mul nsw i64 %i, %number0

So one function serves an optimizer's updates of matrices of several sizes; the entry point puts the
numbers into the kernels' contexts. Functions that differ in a number of an innermost loop stay
apart, since a constant in an address costs nothing there, and so do those that differ in a divisor.

Where many are alike, as the steps of a loop that a user unrolls, they may also differ in a factor
or a term, or in where they read: a register more costs less than what LLVM takes for each.

    step.k6.task: %t49 = fmul <64 x float> %t48, splat (float 0x4008000000000000)
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from graphc.codegen.emission.emitter import Module
from graphc.codegen.kernels import Call

MOST = 4  # numbers in which functions may differ
_NUMBER = re.compile(
    r"^(  %\S+ = (?:(?:mul|add|sub) nsw i64 %\S+|icmp \w+ i64 %\S+|select i1 %\S+, i64 %\S+), "
    r"(?:i64 )?)(-?\d+)$"
)
MANY = 8  # functions that may differ in these as well
_ADDRESS = re.compile(
    r"^(  %\S+ = getelementptr inbounds \[\d+ x i8\], ptr %\S+, i64 )(-?\d+)$"
)
_FLOAT = re.compile(  # head, width, type, number, tail
    r"^(  %\S+ = f(?:add|sub|mul) (?:[a-z]+ )*(?:<(\d+) x )?(float|double)>? (?:%\S+, )?)"
    r"(?:splat \(\w+ )?(0x\w+)\)?((?:, %\S+)?)$"
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
        lines = [_with(x, "#") if k in self.numbers else x for k, x in enumerate(self.lines)]
        return "\n".join(lines).replace(f"@{self.name}(", "@(")

    @property
    def calls_itself(self) -> bool:
        """With a context of its own, in which no numbers are but those that it was written for."""
        return sum(f"@{self.name}(" in x for x in self.lines) > 1


def share(module: Module, calls: Sequence[Call], alone: Collection[str]) -> list[Call]:
    """Keep one of the functions that are alike; the calls as they are then.

    alone: kernels of which it is known that none is like them.
    """
    kernels = {c.name: c for c in calls if c.name not in alone}
    parts = list(_parts(module, kernels))
    if len(parts) >= MANY:
        wide = [
            p if p.calls_itself else p._replace(numbers=p.numbers | _constants(p.lines))
            for p in parts
        ]
        merged = {name for found in _alike(wide, kernels) if len(found) >= MANY
                  for name in _merge(module, kernels, found)}
        parts = [p for p in parts if p.name not in merged]
    for found in _alike(parts, kernels):
        _merge(module, kernels, found)
    return [
        replace(c, slots=kernels[c.name].slots, launch=kernels[c.name].launch)
        if c.name in kernels else c for c in calls
    ]


def _parts(module: Module, kernels: Iterable[str]) -> Iterable[_Part]:
    """The functions of kernels that have a context."""
    for kernel in kernels:
        for name in (f"{kernel}.task", f"{kernel}.epilogue"):
            text = module.functions.get(name, "")
            if f"@{name}(ptr %ctx, " in text:
                part = _Part(kernel, name, text.split("\n"), {})
                numbers = {} if part.calls_itself else _numbers(part.lines)
                yield part._replace(numbers=numbers)


def _alike(parts: Iterable[_Part], kernels: Mapping[str, Call]) -> Iterable[list[_Part]]:
    """Functions that differ in their numbers at most."""
    alike: dict[str, list[_Part]] = {}
    for p in parts:
        alike.setdefault(p.skeleton, []).append(p)
    for found in alike.values():
        yield from _groups(found, kernels)


def _merge(module: Module, kernels: dict[str, Call], parts: Sequence[_Part]) -> list[str]:
    """Let the first stand for all if they differ in few numbers; the names of those merged."""
    # what differs, once for all places where it is the same in each
    columns = {k: tuple(p.numbers[k] for p in parts) for k in parts[0].numbers}
    different = list(dict.fromkeys(x for x in columns.values() if len(set(x)) > 1))
    if len(parts) == 1 or len(different) > MOST:
        return []
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
    return [p.name for p in parts]


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


def _constants(lines: Sequence[str]) -> dict[int, int]:
    """Factors and terms by their bits, and distances of addresses, by line."""
    found: dict[int, int] = {}
    for k, line in enumerate(lines):
        if (address := _ADDRESS.match(line)) is not None:
            found[k] = int(address[2])
        elif (number := _FLOAT.match(line)) is not None:
            value = struct.unpack(">d", int(number[4], 16).to_bytes(8))[0]
            if math.isfinite(value):
                kind = "<f" if number[3] == "float" else "<d"
                found[k] = int.from_bytes(struct.pack(kind, value), "little", signed=True)
    return found


def _with(line: str, operand: str) -> str:
    """A line with an operand in the place of its number."""
    if (number := _FLOAT.match(line)) is not None:
        return f"{number[1]}{operand}{number[5]}"
    found = _NUMBER.match(line) or _ADDRESS.match(line)
    assert found is not None
    return f"{found[1]}{operand}"


def _text(p: _Part, at: Mapping[int, int], slot: int) -> str:
    """The function with the numbers of some lines taken from the context, from `slot` on."""
    lines = list(p.lines)
    made: dict[str, list[str]] = {}  # what makes a register
    for k, n in sorted(at.items(), key=lambda x: x[1]):
        made[f"%number{n}"] = [
            f"  %number{n}.at = getelementptr inbounds i64, ptr %ctx, i64 {slot + n}",
            f"  %number{n} = load i64, ptr %number{n}.at, align 8",
        ]
        lines[k] = _with(lines[k], _operand(lines[k], f"%number{n}", made))
    begin = lines.index("entry:") + 1
    return "\n".join([*lines[:begin], *(x for y in made.values() for x in y), *lines[begin:]])


def _operand(line: str, number: str, made: dict[str, list[str]]) -> str:
    """The register that a line wants of a number: as it is, as a float, or in all lanes."""
    found = _FLOAT.match(line)
    if found is None:
        return number
    width, t = found[2], found[3]
    one = f"{number}.{t}"
    made[one] = (
        [f"  {one} = bitcast i64 {number} to double"] if t == "double" else
        [f"  {one}.bits = trunc i64 {number} to i32", f"  {one} = bitcast i32 {one}.bits to float"]
    )
    if width is None:
        return one
    v, all_ = f"<{width} x {t}>", f"{one}{width}"
    made[all_] = [
        f"  {all_}.one = insertelement {v} poison, {t} {one}, i64 0",
        f"  {all_} = shufflevector {v} {all_}.one, {v} poison, <{width} x i32> zeroinitializer",
    ]
    return all_


def _call(module: Module, kernels: dict[str, Call], p: _Part, name: str) -> None:
    """Let a kernel use `name` in the place of a part of its own."""
    c = kernels[p.kernel]
    if c.launch is not None and c.launch.task == p.name:
        kernels[p.kernel] = replace(c, launch=c.launch._replace(task=name))
    else:
        own = module.functions[p.kernel]
        module.functions[p.kernel] = re.sub(rf"@{re.escape(p.name)}\b", f"@{name}", own)
