"""Many modules of LLVM text into one, with functions for different CPUs side by side.

Every symbol that a module defines becomes internal and gets the level as a suffix. What two
modules of one level define alike (the micro-kernels of matrix products) is kept once; so are
constants that are alike at all levels, and functions where a platform's levels differ in nothing
but instructions that the text names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphc.codegen.emission.emitter import TAIL, attributed
from graphc.codegen.machine.target import Target

_SYMBOL = re.compile(r"@([\w.$-]+)")
_LINKAGE = ("internal", "private", "external", "hidden")


class Merger:
    """Collects the definitions and declarations of one library."""

    def __init__(self, alike: bool = False) -> None:
        self.alike = alike                        # what is the same text at two levels is shared
        self._levels: list[str] = []
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}     # final name -> final text
        self._origin: dict[str, str] = {}         # final name -> text as it came
        self._refers: dict[str, dict[str, str]] = {}  # final name -> names in that text -> final

    def add(self, text: str, level: str, target: Target, keep: tuple[str, ...] = ()) -> dict[
        str, str
    ]:
        """Take in a module compiled for `target`; the new name of each symbol that it defines.

        Names in `keep` are defined elsewhere in the library under that very name.
        """
        if level not in self._levels:
            self._levels.append(level)
        items = dict(_items(text))
        defined = {n: t for n, t in items.items() if not t.startswith("declare")}
        refers = {n: {m for m in _SYMBOL.findall(t) if m in defined} for n, t in defined.items()}
        same = {n: self._same(n, t, level) for n, t in defined.items()}
        while True:  # what refers to something that is not the same is not the same after all
            fewer = {
                n: [f for f in finals if self._refers[f].keys() == refers[n]
                    and all(final in same[m] for m, final in self._refers[f].items())]
                for n, finals in same.items()
            }
            if fewer == same:
                break
            same = fewer
        shared = {n: finals[0] for n, finals in same.items() if finals}
        names = {n: shared.get(n) or self._fresh(n, t, level) for n, t in defined.items()}
        for n, t in items.items():
            if n not in defined:
                if n not in keep:
                    self.declarations.setdefault(n, t)
            elif n not in shared:
                final = _SYMBOL.sub(lambda m: f"@{names.get(m[1], m[1])}", t)
                self._origin[names[n]] = t
                self._refers[names[n]] = {m: names[m] for m in refers[n]}
                self.definitions[names[n]] = _finished(final, target)
        return names

    def raw(self, text: str, attributes: str = "") -> None:
        """Take in definitions as they are; functions get `attributes`."""
        for name, item in _items(text):
            if item.startswith("declare"):
                self.declarations.setdefault(name, item)
            else:
                self.definitions[name] = attributed(item, attributes)

    def text(self) -> str:
        """The module."""
        declared = [t for n, t in self.declarations.items() if n not in self.definitions]
        return "\n".join([*declared, *self.definitions.values(), TAIL])

    def _same(self, name: str, text: str, level: str) -> list[str]:
        """Final names of what came as the same text, at this level or one that runs at it."""
        lower = self._levels[:self._levels.index(level)] if self.alike else []
        finals = (name, *(f"{name}.{known}" for known in [*lower, level]))
        return [final for final in finals if self._origin.get(final) == text]

    def _fresh(self, name: str, text: str, level: str) -> str:
        """A name that nothing has yet, taken."""
        wanted = f"{name}.{level}" if text.startswith("define") else name
        final, k = wanted, 1
        while final in self.definitions:
            final, k = f"{wanted}.{k}", k + 1
        self.definitions[final] = ""
        return final


def _items(text: str) -> Iterator[tuple[str, str]]:
    """(symbol, text) of every declaration, global and function; metadata is left out."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("define "):
            body = [line]
            while body[-1] != "}":
                body.append(next(lines))
            yield _SYMBOL.findall(line)[0], "\n".join(body)
        elif line.startswith(("declare ", "@")):
            yield _SYMBOL.findall(line)[0], line
        elif line.strip() and not line.startswith(("!", ";")):
            raise ValueError(f"unexpected line in a module: {line}")


def _finished(text: str, target: Target) -> str:
    """A function made internal and given its CPU; globals are internal or private already."""
    if not text.startswith("define"):
        return text
    if text.split(None, 2)[1] not in _LINKAGE:
        text = text.replace("define ", "define internal ", 1)
    return attributed(
        text, f'"target-cpu"="{target.cpu}" "target-features"="{target.features}"'
    )
