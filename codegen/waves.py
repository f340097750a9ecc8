"""Waves: kernels that do not depend on each other, run one after the other or side by side.

A kernel alone may share its own work among all threads; side by side, each kernel of a wave runs on
one. The entry point decides at every call, from the estimated cycles and never from the number of
threads. Side by side pays where the wave has enough work in all, no kernel has most of it, and none
is so large that all threads had better work on it; or where much of it cannot be shared otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc import dims
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.grain import LARGE_CYCLES, LONELY_CYCLES, WAVE_CYCLES, WAVE_SHARE
from graphc.codegen.kernels import Call
from graphc.codegen.plan import Plan
from graphc.codegen.sizes import SizeCode
from graphc.dims import Size

COUNTER = "llvm.readcyclecounter"
TICKS = "graphc_ticks"  # of a timed program: ticks spent in each kernel, [kernels x i64]


class WaveRunner:
    """Writes the calls of an entry point's waves."""

    def __init__(
        self, module: Module, name: str, plan: Plan, e: Emitter, allocas: list[str],
        sizes: SizeCode, scratch: str, timed: bool,
    ):
        self.module, self.name, self.e, self.sizes, self.scratch = module, name, e, sizes, scratch
        self.timed = timed
        self.done = 0  # kernels of earlier waves
        self.places: dict[int, str] = {}  # addresses in the contexts
        if timed:
            _declare_ticks(module, len(plan.calls))
        self.slots = max((c.slots.count for c in plan.calls), default=0)
        most = max((len(w) for w in plan.waves), default=0)
        if most:
            allocas.append(f"  %ctx = alloca [{self.slots * most} x i64], align 16")

    def fill(self, values: Mapping[int, tuple[str, str]], place: int) -> str:
        """Write a kernel's context into the `place`-th array; returns its address."""
        first = place * self.slots
        for j, (t, what) in values.items():
            self.e.do(f"store {t} {what}, ptr {self._place(first + j)}, align 8")
        return self._place(first)

    def _place(self, k: int) -> str:
        """The address of a word of the contexts."""
        if k not in self.places:
            self.places[k] = self.e(f"getelementptr inbounds i64, ptr %ctx, i64 {k}")
        return self.places[k] if k else "%ctx"

    def forget(self) -> None:
        """Let what comes make its addresses anew."""
        self.places = {}

    def run(self, number: int, calls: list[Call], contexts: list[str]) -> None:
        """Run one wave."""
        e = self.e
        first, self.done = self.done, self.done + len(calls)
        together = self.pays(calls) if len(calls) > 1 else "false"
        if together == "false":
            self._one_by_one(first, calls, contexts)
            return
        for c in calls:
            if c.launch is not None:  # sizes that both branches need
                self.sizes.value(c.launch.items), self.sizes.value(c.launch.cycles)
        side, row, after = e.fresh("side"), e.fresh("row"), e.fresh("after")
        e.do(f"br i1 {together}, label %{side}, label %{row}")
        e.label(side)
        e.parallel(f"@{self.name}.w{number}", "%ctx", str(len(calls)), self.scratch)
        e.do(f"br label %{after}")
        e.label(row)
        self._one_by_one(first, calls, contexts)
        e.do(f"br label %{after}")
        e.label(after)
        self._define(number, first, calls)

    def _one_by_one(self, first: int, calls: list[Call], contexts: list[str]) -> None:
        """The calls one after the other."""
        for k, (c, ctx) in enumerate(zip(calls, contexts, strict=True), first):
            self._call(self.e, k, c, ctx, self.scratch, self.sizes)

    def _call(
        self, e: Emitter, k: int, c: Call, ctx: str, scratch: str, sizes: SizeCode
    ) -> None:
        """Call the k-th kernel of the program; a timed one adds its ticks to TICKS[k]."""
        start = e(f"call i64 @{COUNTER}()") if self.timed else ""
        if c.launch is not None:
            c.launch.start(e, sizes.value, ctx, scratch)
        else:
            e.do(f"call void @{c.name}(ptr {ctx}, ptr {scratch})")
        if self.timed:
            _add_ticks(e, k, start)

    def pays(self, calls: list[Call]) -> str:
        """An i1: whether the kernels should run side by side (a constant where sizes are known)."""
        total: Size = 0
        lonely: Size = 0
        most: Size = 0
        for c in calls:
            total = total + c.work
            if c.splits:
                most = dims.maximum(most, c.work)
            else:
                lonely = lonely + c.work
        if isinstance(total, int) and isinstance(lonely, int) and isinstance(most, int):
            even = most * WAVE_SHARE[1] <= total * WAVE_SHARE[0]
            pays = total >= WAVE_CYCLES and even and most < LARGE_CYCLES
            pays = pays or lonely >= LONELY_CYCLES
            return "true" if pays else "false"
        e = self.e
        a = e(f"icmp sge i64 {self.sizes.value(total)}, {WAVE_CYCLES}")
        b = e(f"icmp slt i64 {self.sizes.value(most)}, {LARGE_CYCLES}")
        c_ = e(f"icmp sge i64 {self.sizes.value(lonely)}, {LONELY_CYCLES}")
        part = self.sizes.value(most * WAVE_SHARE[1])
        whole = self.sizes.value(total * WAVE_SHARE[0])
        both = e(f"and i1 {e(f'and i1 {a}, {b}')}, {e(f'icmp sle i64 {part}, {whole}')}")
        return e(f"or i1 {both}, {c_}")

    def _define(self, number: int, first: int, calls: list[Call]) -> None:
        """The task that runs the kernels [begin, end) of a wave."""
        t = Emitter(self.module)
        t.label("entry")

        def body(i: str) -> None:
            at = t(f"mul nsw i64 {i}, {self.slots}")
            ctx = t(f"getelementptr inbounds i64, ptr %ctx, i64 {at}")
            done = t.fresh("done")
            labels = [t.fresh("case") for _ in calls]
            cases = " ".join(f"i64 {k}, label %{x}" for k, x in enumerate(labels))
            t.do(f"switch i64 {i}, label %{done} [ {cases} ]")
            for k, (c, x) in enumerate(zip(calls, labels, strict=True), first):
                t.label(x)
                self._call(t, k, c, ctx, "%scratch", _sizes_of(t, c, ctx))
                t.do(f"br label %{done}")
            t.label(done)

        t.for_each("%begin", "%end", body)
        t.do("ret void")
        self.module.define(
            f"{self.name}.w{number}",
            f"define internal void @{self.name}.w{number}(ptr %ctx, i64 %begin, i64 %end, "
            f"ptr %scratch) nounwind {{\n{t.text()}\n}}",
        )


def _sizes_of(e: Emitter, c: Call, ctx: str) -> SizeCode:
    """Sizes from the dimensions in a kernel's context, as far as starting it needs them."""
    found: dict[str, str] = {}
    if c.launch is not None:
        wanted = {*dims.names(c.launch.items), *dims.names(c.launch.cycles)}
        first = c.slots.params + c.slots.outputs
        for k, name in enumerate(c.slots.dims, first):
            if name in wanted:
                p = e(f"getelementptr inbounds i64, ptr {ctx}, i64 {k}")
                found[name] = e(f"load i64, ptr {p}, align 8")
    return SizeCode(e, found)


def define_timed(module: Module, name: str, inner: str) -> None:
    """The entry point `name` that calls the entry point `inner` and counts its ticks."""
    _declare_ticks(module, 1)
    e = Emitter(module)
    e.label("entry")
    start = e(f"call i64 @{COUNTER}()")
    status = e(f"call i32 @{inner}(ptr %args, ptr %dims, ptr %arena)")
    _add_ticks(e, 0, start)
    e.do(f"ret i32 {status}")
    module.define(
        name,
        f"define i32 @{name}(ptr %args, ptr %dims, ptr %arena) nounwind {{\n{e.text()}\n}}",
    )


def _declare_ticks(module: Module, kernels: int) -> None:
    module.declare(COUNTER, f"declare i64 @{COUNTER}()")
    module.define_global(
        f"@{TICKS}", f"@{TICKS} = global [{max(1, kernels)} x i64] zeroinitializer, align 8"
    )


def _add_ticks(e: Emitter, k: int, start: str) -> None:
    """Add the ticks since `start` to those of kernel k."""
    took = e(f"sub i64 {e(f'call i64 @{COUNTER}()')}, {start}")
    cell = e(f"getelementptr inbounds i64, ptr @{TICKS}, i64 {k}")
    e.do(f"%{e.fresh('old')} = atomicrmw add ptr {cell}, i64 {took} monotonic")
