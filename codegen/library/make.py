"""From compiled functions to a native library: the pieces put together, and what can be written.

    library = make_library("digits", units, platform, values)
    library.header, library.object(), library.assembly(), library.llvm()

One LLVM module holds everything: the exported functions of the API, each function's kernels at
every CPU level, the thread pool, and the data. Only the API is visible outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphc.codegen.debug import annotate, graph_loc, source_folder, with_head
from graphc.codegen.library.abi import Api, Unit, make_api
from graphc.codegen.library.data import Data, add_values, init_text, string_constant
from graphc.codegen.library.descriptor import descriptor_text
from graphc.codegen.library.entry import OVERLAP_TEXT, EntryText
from graphc.codegen.library.header import header_text
from graphc.codegen.library.levels import level_text
from graphc.codegen.library.libc import with_libc
from graphc.codegen.library.merge import Merger
from graphc.codegen.library.pool import USED, limited, pool_text, uses_pool, with_pool
from graphc.codegen.library.state import state_text
from graphc.codegen.machine import llvm
from graphc.codegen.machine.libcalls import completed
from graphc.codegen.machine.platforms import Platform
from graphc.codegen.machine.units import eased
from graphc.errors import CompileError
from graphc.ir import State


class Library:
    """Text, data and header of a library; see `make_library`."""

    def __init__(self, api: Api, platform: Platform, code: str, data: Data, header: str):
        self.api, self.platform, self.data, self.header = api, platform, data, header
        self._code = code
        self._object: list[Any] | None = None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the C functions."""
        return tuple(re.findall(r"^define i?\w+ @(\w+)", self._code, re.M))

    def llvm(self) -> str:
        """A self-contained module as LLVM text."""
        if self.platform.libcalls:
            self.object()
        return f'target triple = "{self.platform.triple}"\n{self.data.inline()}{self._code}'

    def assembly(self) -> str:
        """A self-contained module as assembly."""
        return llvm.assembly(self.llvm(), self.platform.base)

    def object(self) -> list[Any]:
        """The object file, as parts to write one after another."""
        if self._object is None:  # several kinds of files begin with it
            made = self._compiled()
            if self.platform.libcalls:
                self._code = completed(self._code, made)
                made = self._compiled()
            self._object = self.data.fill(made)
        return self._object

    def _compiled(self) -> bytes:
        text = self.data.placeholder() + self._code
        return llvm.compile_object(text, self.platform.base, use_cache=not self.data.size)


def make_library(
    prefix: str, units: Sequence[Unit], platform: Platform, values: Mapping[State, Any],
    kept: Iterable[State], debug: bool,
) -> Library:
    """Put functions together.

    values: the array of every variable; kept: see `make_api`; debug: with line tables.
    """
    import graphc

    api = make_api(prefix, units, kept, files=platform.files)
    fields = {f.state: f for f in api.fields}
    merger = Merger(platform.alike)
    around = f'"target-cpu"="{platform.base.cpu}"'
    if platform.base.features:
        around += f' "target-features"="{platform.base.features}"'
    merger.raw(level_text(platform), around)
    data = Data()
    entries = [_compiled(u, merger, platform) for u in units]
    pool = uses_pool(units)
    if pool:
        merger.raw(pool_text(units, platform), around)
    for e, symbols in zip(api.entries, entries, strict=True):
        u = e.unit
        states = [u.owners.get(s, s) for _, p in u.programs for s in p.states]
        pointers = add_values(
            data, dict.fromkeys(s for s in states if s not in fields), dict(values),
            [c for _, p in u.programs for c in p.constants],
        )
        text = EntryText(e, fields, api.state_bytes, symbols, pointers).text()
        if debug:
            text = with_head(text, (e.c, graph_loc(u.graph)))
        merger.raw(text, around)
    merger.raw(OVERLAP_TEXT, around)
    if api.fields:
        merger.raw(
            init_text(f"{prefix}_init", api.fields, api.state_bytes, dict(values), data), around
        )
        merger.raw(state_text(api, platform), around)
    merger.raw(_services(api, pool), around)
    merger.raw(descriptor_text(api, platform.triple, graphc.__version__), around)
    code = USED * (pool and platform.threads) + merger.text()
    if debug:
        code = annotate(code, f"graphc {graphc.__version__}", source_folder(units[0].graph))
    code = with_libc(code, platform, around)
    if platform.base.pointer_bits == 32 and max(data.size, api.state_bytes) >> 31:
        raise CompileError(
            f"export: {platform.name} has 32-bit addresses: {data.size} bytes of constants and a "
            f"state of {api.state_bytes} bytes do not fit below 2 GiB"
        )
    return Library(api, platform, code, data, header_text(api, graphc.__version__))


def _compiled(u: Unit, merger: Merger, platform: Platform) -> dict[str, str]:
    """Take a function's code at every level; the symbols of its entries."""
    found = {}
    own = platform.targets([level for level, _ in u.programs])
    for level, p in u.programs:
        names = merger.add(eased(with_pool(p.llvm, u)), level, own[level], keep=(limited(u),))
        found[level] = names[p.name]
    return found


def _services(api: Api, pool: bool) -> str:
    """warmup, set_threads, strerror and abi."""
    p = api.prefix
    start = "  call void @graphc_parallel(ptr @graphc.nothing, ptr null, i64 2, ptr null)\n" * pool
    limit = "  call void @graphc_set_threads(i32 %n)\n" * pool
    count = api.messages[-1][0] + 1
    texts = dict(api.messages)
    blob = b"unknown status code\0"
    offsets = []
    for code in range(count):
        offsets.append(len(blob) if code in texts else 0)
        if code in texts:
            blob += texts[code].encode() + b"\0"
    offsets.append(0)
    table = ", ".join(f"i32 {o}" for o in offsets)
    abi = api.abi_hash - (1 << 64) if api.abi_hash >> 63 else api.abi_hash
    return f"""
{string_constant("@graphc.messages", blob)}
@graphc.offsets = private unnamed_addr constant [{count + 1} x i32] [{table}], align 4
define void @{p}_warmup() nounwind {{
  %level = call i32 @graphc.level()
{start}  ret void
}}
define void @{p}_set_threads(i32 %n) nounwind {{
{limit}  ret void
}}
define i64 @{p}_abi() nounwind {{
  ret i64 {abi}
}}
define ptr @{p}_strerror(i32 %code) nounwind {{
  %known = icmp ult i32 %code, {count}
  %index = select i1 %known, i32 %code, i32 {count}
  %wide = zext i32 %index to i64
  %at = getelementptr i32, ptr @graphc.offsets, i64 %wide
  %offset = load i32, ptr %at, align 4
  %offset.wide = zext i32 %offset to i64
  %text = getelementptr i8, ptr @graphc.messages, i64 %offset.wide
  ret ptr %text
}}
"""
