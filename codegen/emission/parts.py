"""Part of a vector in memory, where the machine has no masks for elements of that size.

LLVM makes a branch for each lane of a masked load or store of bytes by AVX2. Where there are many,
and those that count stand side by side, as in most masks, these are copied to or from a place on
the stack, and the whole vector is moved there. On a Zen 3 x * 2 of 300 rows of named size takes of
40 bytes 24.0 us and 7.0, of 100 61.8 and 9.0, of 1000 68 and 16; of half as many lanes, of 16 bits,
9.8 and 7.1, but sums of such rows 6.3 and 13, and of eight lanes everything takes twice as long.
"""

from __future__ import annotations

from typing import NamedTuple

from graphc.codegen.emission.emitter import Emitter, Module

LANES = 32  # from which one copy takes less than their branches


class Span(NamedTuple):
    """The lanes from first to end, i64 between 0 and the number of lanes; none if end <= first."""

    first: str
    end: str


def load(e: Emitter, width: int, t: str, itemsize: int, ptr: str, span: Span) -> str:
    """The elements of a span of lanes at `ptr`, zeros in other lanes."""
    v = f"<{width} x {t}>"
    name = f"graphc_load_part.v{width}{t}"
    if name not in e.module.functions:
        _define(e.module, name, f"{v} @{name}(ptr %at, i64 %first, i64 %end)", v, itemsize)
    return e(f"call {v} @{name}(ptr {ptr}, i64 {span.first}, i64 {span.end})")


def store(
    e: Emitter, width: int, t: str, itemsize: int, value: str, ptr: str, span: Span
) -> None:
    """Write the elements of a span of lanes to where they belong of a vector at `ptr`."""
    v = f"<{width} x {t}>"
    name = f"graphc_store_part.v{width}{t}"
    if name not in e.module.functions:
        head = f"void @{name}({v} %value, ptr %at, i64 %first, i64 %end)"
        _define(e.module, name, head, v, itemsize)
    e.do(f"call void @{name}({v} {value}, ptr {ptr}, i64 {span.first}, i64 {span.end})")


def _define(module: Module, name: str, head: str, v: str, itemsize: int) -> None:
    """One of these functions, which is called: a loop's own code would be twice as long by it."""
    loads = head.startswith("<")
    e = Emitter(module)
    whole = e(f"alloca {v}, align 64")
    e.do(f"store {v} {'zeroinitializer' if loads else '%value'}, ptr {whole}, align 64")
    some = e("icmp slt i64 %first, %end")
    part, done = e.fresh("part"), e.fresh("done")
    e.do(f"br i1 {some}, label %{part}, label %{done}")
    e.label(part)
    skipped = e(f"mul nsw i64 %first, {itemsize}")
    size = e(f"mul nsw i64 {e('sub nsw i64 %end, %first')}, {itemsize}")
    inside, outside = (e(f"getelementptr i8, ptr {p}, i64 {skipped}") for p in (whole, "%at"))
    e.copy(*((inside, outside) if loads else (outside, inside)), size)
    e.do(f"br label %{done}")
    e.label(done)
    e.do(f"ret {v} {e(f'load {v}, ptr {whole}, align 64')}" if loads else "ret void")
    module.define(name, f"define internal {head} noinline nounwind {{\nentry:\n{e.text()}\n}}")
