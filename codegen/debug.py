"""Line tables: which line of the user's program each machine instruction computes.

    graphc compile --debug-info digits.py:step -o libdigits.so
    objdump -dl libdigits.so; gdb, perf and addr2line show the same lines

While functions are written, comments note what the lines after them compute (`Emitter.note`), and
each function gets a head that says what it is. They stay in the text through merging; `annotate`
turns them into LLVM's metadata at the end. Nothing of this happens unless it is asked for.

    define internal void @step.k1.v3(ptr %ctx, ptr %scratch) nounwind {
    ;= 14 "step.k1[dot,add,maximum]" "/src/digits.py"
      %t1 = getelementptr ...
    ;@ 15 "/src/digits.py"
      %t2 = fadd <8 x float> %t0, %t1
    ;@
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Mapping
from itertools import groupby
from typing import Any

from graphc.errors import Loc
from graphc.ir import Graph, Node
from graphc.ops.row import Kind

Title = tuple[str, Loc | None]  # what a function is called, and its own line
_SHOWN = 4  # ops in the name of a kernel
_FREE = (Kind.LEAF, Kind.LAYOUT)
_FIRST = 5  # number of the first piece of metadata after `emitter.TAIL`
_HEAD = ";= "
_MARK = ";@"


def mark(loc: Loc | None) -> str:
    """The comment after which lines compute something of this line; None: of no certain one."""
    return _MARK if loc is None else f"{_MARK} {loc.line} {json.dumps(loc.file)}"


def head(title: Title) -> str:
    """The comment that opens a function."""
    name, loc = title
    file, line = loc or ("", 0)
    return f"{_HEAD}{line} {json.dumps(name)} {json.dumps(file)}"


def kernel_nodes(node: Node) -> list[Node]:
    """What a kernel computes, in a chain those of its kernels."""
    body: Graph = node.attrs["body"]
    return [
        m for n in body.nodes for m in (n.attrs["body"].nodes if n.op.name == "fused" else (n,))
    ]


def kernel_name(name: str, node: Node) -> str:
    """`step.k3[dot,add,maximum]`: a kernel and the ops that it computes."""
    nodes = kernel_nodes(node)
    ops = [n.op.name for n in nodes if n.op.kind not in _FREE]
    ops = [op for op, _ in groupby(ops or [n.op.name for n in nodes])]
    shown = ops[:_SHOWN] + ["..."] * (len(ops) > _SHOWN)
    return f"{name}[{','.join(shown)}]" if shown else name


def full_title(symbol: str, titles: Mapping[str, str]) -> str:
    """What to call a function: its title, or that of the kernel that `k3.task` is a part of."""
    kernel = part_of(symbol, titles)
    return f"{titles[kernel]}{symbol.removeprefix(kernel)}" if kernel else symbol


def part_of(symbol: str, kernels: Container[str]) -> str:
    """The kernel that a function is or is a part of (`k3.task`, `k3.p1.task`); "" if of none."""
    while symbol and symbol not in kernels:
        symbol = symbol.rpartition(".")[0]
    return symbol


def kernel_loc(node: Node) -> Loc | None:
    """The line that a kernel is called for: its product's, else its last op's."""
    nodes = kernel_nodes(node)
    main = [n for n in nodes if n.op.kind is Kind.CONTRACT]
    found = [n.loc for n in (*main, node, *reversed(nodes)) if n.loc is not None]
    return found[0] if found else None


def graph_loc(g: Graph) -> Loc | None:
    """A line of the file that declares a graph: that of an output."""
    values = [*g.outputs, *(v for _, v in g.updates), *g.inputs]
    return next((v.node.loc for v in values if v.node.loc is not None), None)


def source_folder(g: Graph) -> str:
    """The folder of the file that declares a graph, which paths in line tables start from."""
    loc = graph_loc(g)
    return os.path.dirname(os.path.abspath(loc.file)) if loc is not None else os.getcwd()


def with_head(text: str, title: Title) -> str:
    """Every function of a module's text with this head."""
    return re.sub(r"^define .*\{$", lambda m: f"{m[0]}\n{head(title)}", text, flags=re.M)


def entitle(functions: dict[str, str], program: Title, kernels: Mapping[str, Title]) -> None:
    """Give a program's own functions their heads; templates, which many programs share, have
    none."""
    titles = {name: title for name, (title, _) in kernels.items()}
    for name, text in functions.items():
        if name == program[0] or name.startswith(f"{program[0]}."):
            _, loc = kernels.get(part_of(name, kernels), program)
            functions[name] = with_head(text, (full_title(name, titles), loc))


class _Metadata:
    """Numbered metadata, each piece once."""

    def __init__(self, producer: str, base: str):
        self.base = base
        self.lines: list[str] = []
        self._known: dict[str, str] = {}
        flags = [self.add(f'!{{i32 2, !"{name}", i32 {v}}}')
                 for name, v in (("Dwarf Version", 4), ("Debug Info Version", 3))]
        self.unit = f"!{_FIRST + len(self.lines)}"
        self.lines.append("")  # the compile unit names a file, which comes after it
        self.type = self.add("!DISubroutineType(types: !{null})")
        self._named = [f"!llvm.dbg.cu = !{{{self.unit}}}",
                       f"!llvm.module.flags = !{{{', '.join(flags)}}}"]
        self._producer = producer

    def add(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = f"!{_FIRST + len(self.lines)}"
            self.lines.append(text)
        return self._known[text]

    def file(self, path: str) -> str:
        """A source file, relative to `base`: the same wherever the sources stand."""
        name = path or "<unknown>"
        if not name.startswith("<"):  # as cells of notebooks are called
            name = os.path.relpath(os.path.abspath(path), self.base)
            if name.startswith(".."):
                name = os.path.basename(path)
        return self.add(f"!DIFile(filename: {_quoted(name)}, directory: \".\")")

    def function(self, name: str, file: str, line: int) -> str:
        """A function; those of several CPU levels are alike, and yet several."""
        where = self.file(file)
        self.lines.append(
            f"distinct !DISubprogram(name: {_quoted(name)}, scope: {where}, file: {where}, "
            f"line: {line}, scopeLine: {line}, type: {self.type}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self.unit})"
        )
        return f"!{_FIRST + len(self.lines) - 1}"

    def place(self, scope: str, own: str, file: str, line: int) -> str:
        """A line within a function; `own` is the function's file."""
        if file != own:
            scope = self.add(
                f"!DILexicalBlockFile(scope: {scope}, file: {self.file(file)}, discriminator: 0)"
            )
        return self.add(f"!DILocation(line: {line}, scope: {scope})")

    def text(self, file: str) -> str:
        self.lines[int(self.unit[1:]) - _FIRST] = (
            f"distinct !DICompileUnit(language: DW_LANG_Python, file: {self.file(file)}, "
            f"producer: {_quoted(self._producer)}, isOptimized: true, runtimeVersion: 0, "
            "emissionKind: FullDebug)"
        )
        numbered = [f"!{_FIRST + k} = {line}" for k, line in enumerate(self.lines)]
        return "\n".join([*self._named, *numbered]) + "\n"


def annotate(text: str, producer: str, base: str) -> str:
    """A module's text with its comments turned into metadata.

    base: the folder that source paths are relative to; files outside it lose theirs.
    """
    meta = _Metadata(producer, base)
    out: list[str] = []
    first = scope = own = place = default = ""
    for line in text.split("\n"):
        if line.startswith(_HEAD):
            number, name, own = _parse(line[len(_HEAD):])
            first = first or own
            scope = meta.function(name, own, number)
            out[-1] = f"{out[-1].removesuffix('{')}!dbg {scope} {{"
            place = default = meta.place(scope, own, own, number)
        elif line.startswith(_MARK):
            if scope:
                place = default
            if scope and line != _MARK:
                number, file = _parse(line[len(_MARK) + 1:])
                place = meta.place(scope, own, file, number)
        elif line == "}":
            scope = ""
            out.append(line)
        elif scope and line.startswith("  "):
            out.append(f"{line}, !dbg {place}")
        else:
            out.append(line)
    return "\n".join(out) + "\n" + meta.text(first)


def _parse(text: str) -> list[Any]:
    """Numbers and strings with spaces between them."""
    decode = json.JSONDecoder().raw_decode
    out, at = [], 0
    while at < len(text):
        item, at = decode(text, at)
        out.append(item)
        at += 1
    return out


def _quoted(text: str) -> str:
    """A metadata string; `!` comes before those that stand alone."""
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(
        chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in raw
    ) + '"'
