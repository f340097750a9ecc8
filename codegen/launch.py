"""How a nest's task is started: in chunks for several threads where it has enough to do.

For most kernels there is nothing else to do, so the entry point starts their tasks itself. Others
have a driver, a function that starts the task: those that afterwards add up what the chunks give,
and those that are parts of a larger kernel, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.grain import MAX_CHUNKS, SHARED_CYCLES
from graphc.dims import Size


class Launch(NamedTuple):
    """What decides the chunks of a task.

    task: the function's name. items, cycles: how many grid items there are, and the estimated
    cycles of one. slot: of ctx, where the number of items goes; behind it, that of a chunk. least:
    cycles of a chunk. merges: whether threads may take several chunks as one.
    """

    task: str
    items: Size
    cycles: Size
    slot: int
    least: int
    merges: bool

    @property
    def alone(self) -> bool:
        """Whether there is too little to do to be shared, at any size of the inputs."""
        items, cycles = self.items, self.cycles
        return isinstance(items, int) and isinstance(cycles, int) and (
            items * cycles < SHARED_CYCLES
        )

    def start(
        self, e: Emitter, size: Callable[[Size], str], ctx: str = "%ctx", scratch: str = "%scratch"
    ) -> str:
        """Write the call; the number of chunks. `size` gives the registers of sizes."""
        if not self.alone:
            e.module.define(f"graphc.{self._share_out}", self._define(e.module))
            return e(
                f"call i64 @graphc.{self._share_out}(ptr @{self.task}, ptr {ctx}, ptr {scratch}, "
                f"i64 {size(self.items)}, i64 {size(self.cycles)}, i64 {self.slot})"
            )
        assert isinstance(self.items, int)
        if not self.items:
            return "0"
        for k in range(2):
            at = e(f"getelementptr inbounds i64, ptr {ctx}, i64 {self.slot + k}")
            e.do(f"store i64 {self.items}, ptr {at}, align 8")
        e.do(f"call void @{self.task}(ptr {ctx}, i64 0, i64 1, ptr {scratch})")
        return "1"

    @property
    def _share_out(self) -> str:
        return f"share_out_{self.least}" + "_merging" * self.merges

    def _define(self, module: Module) -> str:
        """`i64 @graphc.share_out...(task, ctx, scratch, items, cycles of one, slot)`."""
        e = Emitter(module)
        e.label("entry")
        work = e("mul i64 %items, %cycles")
        pieces = e(f"udiv i64 {work}, {self.least}")
        few = e(f"icmp ult i64 {pieces}, {MAX_CHUNKS}")
        pieces = e(f"select i1 {few}, i64 {pieces}, i64 {MAX_CHUNKS}")
        pieces = e(f"select i1 {e(f'icmp uge i64 {work}, {SHARED_CYCLES}')}, i64 {pieces}, i64 1")

        def ceil(n: str, d: str) -> str:
            most = e(f"add i64 {n}, {d}")
            return e(f"udiv i64 {e(f'sub i64 {most}, 1')}, {d}")

        chunk = ceil("%items", pieces)
        chunk = e(f"select i1 {e(f'icmp sgt i64 {chunk}, 0')}, i64 {chunk}, i64 1")
        chunks = ceil("%items", chunk)
        for k, value in enumerate(("%items", chunk)):
            at = e(f"getelementptr inbounds i64, ptr %ctx, i64 {e(f'add i64 %slot, {k}')}")
            e.do(f"store i64 {value}, ptr {at}, align 8")
        e.do(f"br i1 {e(f'icmp sgt i64 {chunks}, 1')}, label %parallel, label %alone")
        e.label("parallel")
        pieces = e(f"sub i64 0, {chunks}") if self.merges else chunks
        e.parallel("%task", "%ctx", pieces)
        e.do(f"ret i64 {chunks}")
        e.label("alone")
        e.do(f"br i1 {e(f'icmp eq i64 {chunks}, 1')}, label %one, label %none")
        e.label("one")
        e.do(f"call void %task(ptr %ctx, i64 0, i64 {chunks}, ptr %scratch)")
        e.do("br label %none")
        e.label("none")
        e.do(f"ret i64 {chunks}")
        return (
            f"define internal i64 @graphc.{self._share_out}(ptr %task, ptr %ctx, ptr %scratch, "
            f"i64 %items, i64 %cycles, i64 %slot) nounwind {{\n{e.text()}\n}}"
        )
