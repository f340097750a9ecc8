"""Where an entry point finds buffers, and how its calls are cut into stretches.

A loop that a user unrolls is some thousand kernels, and what LLVM takes for a function grows with
the square of what lives in it from end to end. So a long entry point is a row of basic blocks, each
of which makes the addresses that it needs: `arena + 512`, or a load from %args, or from %bases,
where arrays of symbolic size leave the places behind them.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.plan import Place, Plan, aligned
from graphc.codegen.sizes import SizeCode

STRETCH = 200  # lines; with 100 or 400 LLVM takes as long


class Addresses:
    """The addresses of a plan's places.

    first: the argument that the first place of each kind is. allocas: the lines of the function
    that make room on the stack.
    """

    def __init__(self, e: Emitter, plan: Plan, first: Mapping[str, int], allocas: list[str]):
        self.e, self.plan, self.first, self.allocas = e, plan, first, allocas
        self.is_long = sum(c.slots.count for c in plan.calls) > STRETCH
        self.slots: list[tuple[int, int]] = []  # of each: the base before it, the bytes from there
        self.bases: dict[int, str] = {}         # in the arena: the first slot, others behind slots
        self.made: dict[Place, str] = {}        # of symbolic size; both of them in this stretch
        self.begun = len(e.lines)

    def divide_arena(self, sizes: SizeCode) -> None:
        """Find the places of the plan's slots, the first one at a cache line."""
        if self.plan.arena == 0:
            return
        e, base, at = self.e, 0, 0
        whole = e("ptrtoint ptr %arena to i64")
        up = e(f"add i64 {whole}, 63")
        self.bases[0] = e(f"inttoptr i64 {e(f'and i64 {up}, -64')} to ptr")
        for size in aligned(self.plan.slots):
            self.slots.append((base, at))
            if isinstance(size, int):
                at += size
                continue
            behind = e(f"getelementptr i8, ptr {self._in_arena(base, at)}, i64 {sizes.value(size)}")
            base, at = base + 1, 0
            self.bases[base] = behind
        if self.is_long:
            self.allocas.append(f"  %bases = alloca [{len(self.bases)} x ptr], align 8")
            for k, register in self.bases.items():
                e.do(f"store ptr {register}, ptr {self._at('%bases', k)}, align 8")

    def go_on(self) -> bool:
        """Begin a new stretch if this one is long; whether it does."""
        if not self.is_long or len(self.e.lines) - self.begun < STRETCH:
            return False
        self.e.enter("stretch")
        self.begun = len(self.e.lines)
        self.made, self.bases = {}, {}
        return True

    def of(self, p: Place) -> str:
        """The address of a place, made once in a stretch."""
        if p not in self.made:
            if p.kind == "arena":
                self.made[p] = self._in_arena(*self.slots[p.index])
            else:
                self.made[p] = self._load(self._at("%args", self.first[p.kind] + p.index))
        return self.made[p]

    def _in_arena(self, base: int, at: int) -> str:
        """The address some bytes behind a base."""
        if base not in self.bases:
            self.bases[base] = self._load(self._at("%bases", base))
        begin = self.bases[base]
        return self.e(f"getelementptr i8, ptr {begin}, i64 {at}") if at else begin

    def _at(self, table: str, k: int) -> str:
        return self.e(f"getelementptr inbounds i64, ptr {table}, i64 {k}")

    def _load(self, at: str) -> str:
        return self.e(f"load ptr, ptr {at}, align 8")
