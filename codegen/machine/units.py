"""Partitions of a module's text, which are compiled apart: shared by programs, with less effort,
or side by side.

`split` takes the templates that programs share from what is a program's own. Templates (matrix
products) are functions called `graphc_*`. As modules of their own they have the same text in every
program that uses them, so the object cache serves them after the first: one has the products, which
say what a program's kernels know of sizes, and each of the others what these call, such as a block.

`around` takes the kernels from the code around them, which only calls: the entry point of a long
program, and what hands operands on to templates. That is nearly as fast without LLVM's
optimisations, of which some take longer than linear time. `eased` asks for the same inside of a
module, of a library.

`shards` cuts a long text into parts of equal length, which `llvm.compile_objects` gives to
several threads. LLVM works on one function at a time, so the code is the same.

`part` takes some functions of a module that is still being written, for `overlap`, and `without`
leaves them out of its text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from graphc.codegen.emission.emitter import TAIL, Module

_NAME = re.compile(r"@([\w.]+)")
_LINKAGE = re.compile(r"^define (?:internal |private |hidden )?")
_LOCAL = re.compile(r"^define (?:internal|private) ")
_CONSTANT = re.compile(r"^@[\w.]+ = (?:internal|private) (?:unnamed_addr )?constant ")
# Of functions that only call others, neither computing nor looping.
_CALLS = re.compile(r" call [^@\n]*@(?!llvm\.)")
_WORKS = re.compile(r"!llvm\.loop|\b(?:half|bfloat|float|double)\b|<\d+ x ")
PREFIX, PRODUCT = "graphc_", "_product"
# Of code around kernels, from which it is a module of its own: LLVM takes 20 ms for it as part of
# the kernels', and 5 apart, of which 1 is what a module takes by itself. A call of a training step
# that has as much takes 1.7 us or more, and 0.05 more then.
AROUND_BYTES = 24 << 10


def split(text: str) -> list[str]:
    """[own, templates, ..], or the text as it is where it has no templates."""
    functions, rest = _functions(text)
    shared = {n: f for n, f in functions.items() if n.startswith(PREFIX)}
    if not shared or len(shared) == len(functions):
        return [text]
    lines = rest.split("\n")
    declared = {_name(line): line for line in lines if line.startswith("declare ")}
    rest = "\n".join(line for line in lines if not line.startswith("declare "))
    tail = "\n".join(line for line in lines if line.startswith("!"))
    own = [f for n, f in functions.items() if n not in shared]
    if _used([*shared.values()]) - declared.keys() - shared.keys():
        return [text]  # they need something of the program: a constant, another function
    heads = {n: _head(f) for n, f in shared.items()}
    parts = ["\n".join([*_needed(own, declared | heads), rest, *own])]
    for names in _families(shared):
        theirs = [_LINKAGE.sub("define hidden ", shared[n], count=1) for n in names]
        others = {n: h for n, h in heads.items() if n not in names}
        parts.append("\n".join([*_needed(theirs, declared | others), *theirs, tail]))
    return parts


def _families(templates: Mapping[str, str]) -> list[list[str]]:
    """Templates that go together: the products, and before them what a product calls, with what
    that calls and was defined before it."""
    products = [n for n in templates if PRODUCT in n]
    called = _used([templates[n] for n in products])
    families: list[list[str]] = [[]]
    for n in templates:
        if PRODUCT not in n:
            families[-1].append(n)
            if n in called:
                families.append([])
    return [sorted(names) for names in (*families, products) if names]


def around(text: str) -> tuple[str, str]:
    """(kernels, the code around them), which is empty where little is to be gained."""
    functions, rest = _functions(text)
    calling = _calling(functions)
    if not calling:
        return text, ""
    callers = set(calling)
    parts = _parts(functions, rest, [[n for n in functions if n not in callers], calling])
    return (parts[0], parts[1]) if len(parts) == 2 else (text, "")


def eased(text: str) -> str:
    """The module, where LLVM does not optimise long code around the kernels."""
    functions, rest = _functions(text)
    calling = _calling(functions)
    for n in calling:
        f = functions[n]
        end = _signature(f)
        functions[n] = f"{f[:end]} noinline optnone{f[end:]}"
    return "\n".join([rest, *functions.values()]) if calling else text


def _calling(functions: Mapping[str, str]) -> list[str]:
    """The code around kernels and templates; none where little is to be gained."""
    found = [n for n, f in functions.items()
             if _CALLS.search(f) and not _WORKS.search(f) and not n.startswith(PREFIX)]
    return found if sum(_length(functions[n]) for n in found) >= AROUND_BYTES else []


def _length(function: str) -> int:
    """Bytes of a function's text but for comments, which have paths (`debug`)."""
    return sum(len(line) + 1 for line in function.split("\n") if not line.startswith(";"))


def shards(text: str, count: int) -> list[str]:
    """At most `count` modules that together are this one; what several need they all have.

    A text with global variables, which must be one, stays whole.
    """
    functions, rest = _functions(text)
    if count < 2 or len(functions) < 2:
        return [text]
    parts: list[list[str]] = [[] for _ in range(count)]
    total, done = sum(map(len, functions.values())), 0
    for name, f in functions.items():
        parts[(2 * done + len(f)) * count // (2 * total)].append(name)  # where its middle falls
        done += len(f)
    return _parts(functions, rest, parts) or [text]


def part(module: Module, names: Collection[str]) -> str | None:
    """A module of these functions; None where they share a variable, or need what is not there."""
    own = [_LOCAL.sub("define hidden ", module.functions[n], count=1) for n in names]
    used = _used(own)
    values = {_name(line): line for line in module.globals.values()}
    values = {n: line for n, line in values.items() if n in used}
    used |= _used([*values.values()])
    others = {_name(line): line for line in module.declarations.values()}
    others |= {n: _head(f) for n, f in module.functions.items() if n in used}
    if used - others.keys() - values.keys() or not all(map(_CONSTANT.match, values.values())):
        return None
    for n in names:
        del others[n]
    return "\n".join([*_needed(own, others), *values.values(), *own, TAIL])


def without(text: str, gone: Mapping[str, str]) -> str:
    """A module less functions that are compiled elsewhere."""
    if not gone:
        return text
    functions, rest = _functions(text)
    assert all(functions[n].strip() == f.strip() for n, f in gone.items()), "one has changed since"
    theirs = _used([*gone.values()])
    own = [_LOCAL.sub("define hidden ", f, count=1) if n in theirs else f
           for n, f in functions.items() if n not in gone]
    return "\n".join([*_needed(own, {n: _head(f) for n, f in gone.items()}), rest, *own])


def _parts(functions: dict[str, str], rest: str, parts: list[list[str]]) -> list[str]:
    """Modules of the functions of each part; none where they share a variable."""
    lines = rest.split("\n")
    if not all(_CONSTANT.match(line) for line in lines if line.startswith("@")):
        return []
    declared = {_name(line): line for line in lines if line.startswith("declare ")}
    rest = "\n".join(line for line in lines if not line.startswith("declare "))
    heads = {n: _head(f) for n, f in functions.items()}
    made = []
    for names in filter(None, parts):
        own = [_LOCAL.sub("define hidden ", functions[n], count=1) for n in names]
        mine = set(names)
        others = {n: h for n, h in heads.items() if n not in mine}
        made.append("\n".join([*_needed(own, declared | others), rest, *own]))
    return made


def _functions(text: str) -> tuple[dict[str, str], str]:
    """Definitions by name, and the text without them."""
    found: dict[str, str] = {}
    rest = []
    end = 0
    while (start := text.find("define ", end)) >= 0:
        if start and text[start - 1] != "\n":
            rest.append(text[end : start + 1])
            end = start + 1
            continue
        rest.append(text[end:start])
        if (close := text.find("\n}", start)) < 0:
            return {}, text  # LLVM will say what is wrong with it
        end = close + 2
        found[_name(text[start : text.index("\n", start)])] = text[start:end] + "\n"
    rest.append(text[end:])
    return found, "".join(rest)


def _name(line: str) -> str:
    m = _NAME.search(line)
    assert m is not None
    return m[1]


def _used(functions: list[str]) -> set[str]:
    """The symbols that functions name."""
    return {name for f in functions for name in _NAME.findall(f)}


def _needed(functions: list[str], declarations: Mapping[str, str]) -> list[str]:
    """The declarations that functions need."""
    used = _used(functions)
    return [declarations[n] for n in sorted(declarations) if n in used]


def _head(function: str) -> str:
    """A declaration of a function; its attributes matter to the definition only."""
    return _LINKAGE.sub("declare hidden ", function[: _signature(function)], count=1)


def _signature(function: str) -> int:
    """Where the parameters of a function end."""
    depth = 0
    for i in range(function.index("("), function.index("\n")):
        depth += (function[i] == "(") - (function[i] == ")")
        if depth == 0:
            return i + 1
    raise ValueError(f"unbalanced parentheses in {function[:200]!r}")
