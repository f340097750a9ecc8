"""Compiling the matrix product and calling it on arrays, with a choice of `graphc_parallel`."""

from __future__ import annotations

import ctypes
from functools import cache

from guarded import guarded

from graphc.codegen.emission.emitter import Module
from graphc.codegen.machine import jit, llvm
from graphc.codegen.machine.target import Target, host, x86
from graphc.codegen.matmul.block import EVERY, Ways
from graphc.codegen.matmul.product import product, product_scratch
from graphc.codegen.matmul.tiling import tiling
from graphc.codegen.pool.runtime import SCRATCH_BYTES
from graphc.types import as_dtype

# How the chunks of a region are run; a real pool does something between these.
ALONE = "call void %task(ptr %ctx, i64 0, i64 %n, ptr %scratch)\n  ret void"
BACKWARDS = """br label %head
head:
  %i = phi i64 [%n, %entry], [%j, %body]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %body, label %done
body:
  %j = sub i64 %i, 1
  call void %task(ptr %ctx, i64 %j, i64 %i, ptr %scratch)
  br label %head
done:
  ret void"""
EPILOGUE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, *[ctypes.c_int64] * 5, ctypes.c_void_p, ctypes.c_void_p
)
_kept: list[jit.Code] = []


def text(
    dtype: str, target: Target, parallel: str = ALONE, columns: int | None = None,
    depth: int | None = None, symmetric: bool = False, ways: Ways = EVERY,
) -> str:
    module = Module()
    if columns is not None:  # few columns have partial tiles, which serve any
        ways = ways._replace(partial=tiling(target, as_dtype(dtype).compute).masked)
    name = product(
        module, target, as_dtype(dtype), columns=columns, depth=depth, ways=ways,
        symmetric=symmetric,
    )
    module.define("graphc_parallel", (
        "define internal void @graphc_parallel(ptr %task, ptr %ctx, i64 %whole, ptr %scratch) {\n"
        f"entry:\n  %n = sub i64 0, %whole\n  {parallel}\n}}"
    ))
    ints, ptr = "i64 %{}", "ptr %{}"
    names = [
        "batch", "m", "n", "k", "a*", "a_batch", "a_row", "a_col", "b*", "b_batch", "b_row",
        "b_col", "c*", "c_batch", "c_row", "epilogue*", "ctx*", "scratch*",
    ]
    params = ", ".join((ptr if n[-1] == "*" else ints).format(n.rstrip("*")) for n in names)
    module.define("entry", (
        f"define void @entry({params}) {{\n  call void @{name}({params})\n  ret void\n}}"
    ))
    return module.text()


def address(source: str, target: Target, name: str) -> int:
    """Compile LLVM text in this process; the address of a function in it."""
    _kept.append(jit.load([llvm.compile_object(source, target, use_cache=False)], exports=[name]))
    return _kept[-1][name]


@cache
def compiled(
    dtype: str, level: str, parallel: str = ALONE, columns: int | None = None, core: str = "",
    depth: int | None = None, symmetric: bool = False, ways: Ways = EVERY,
):
    """The product as a ctypes function: addresses and element strides, all as integers."""
    target = x86(level, host().triple)._replace(core=core)
    source = text(dtype, target, parallel, columns, depth, symmetric, ways)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 18)(address(source, target, "entry"))


_scratch = guarded((SCRATCH_BYTES + 64,), "uint8")
_END = _scratch.ctypes.data + _scratch.size  # what is beyond may not be touched


def arguments(a, b, c, epilogue: int = 0, ctx: int = 0, offset: int = 0) -> list[int]:
    """For C = A @ B on arrays of three axes (batch, rows, columns), C with unit column stride."""
    size = a.itemsize
    sa, sb, sc = ([s // size for s in x.strides] for x in (a, b, c))
    assert c.size == 0 or c.shape[2] == 1 or sc[2] == 1
    need = product_scratch(as_dtype(a.dtype), c.shape[0] * c.shape[1], *b.shape[:0:-1])
    return [
        c.shape[0], c.shape[1], c.shape[2], a.shape[2],
        a.ctypes.data, *sa, b.ctypes.data, *sb, c.ctypes.data, *sc[:2],
        epilogue, ctx, _END - need - offset,
    ]


def call(f, a, b, c, **options: int) -> None:
    f(*arguments(a, b, c, **options))


def pool(threads: int) -> str:
    """`graphc_parallel` of the process's thread pool, with at most so many threads."""
    return (
        f"%pool = inttoptr i64 {jit.parallel_address(threads)} to ptr\n"
        "  call void %pool(ptr %task, ptr %ctx, i64 %whole, ptr %scratch)\n  ret void"
    )
