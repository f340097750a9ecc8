"""A function under construction: loops, conditions and address arithmetic over an Emitter."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.machine.target import Target


def attributes(target: Target) -> str:
    """Function attributes: full-width registers, no traps to preserve."""
    bits = target.vector_bits
    return (
        f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" '
        '"no-trapping-math"="true"'
    )


class Loop:
    """A running loop: its index, and the step, which the body may set."""

    def __init__(self, index: str, step: str):
        self.index, self.step = index, step


class Function(Emitter):
    """An internal function; integers are i64 registers or decimal literals, pointers opaque.

    Only `tuned` ones go through LLVM's tuning of loops and addresses (its code generator's, there
    is no other). The rest compile in a third of the time, and run within a few percent as fast.
    """

    def __init__(
        self, module: Module, name: str, params: str, target: Target, *, tuned: bool = False
    ):
        super().__init__(module)
        self.name, self.params, self.target, self.tuned = name, params, target, tuned
        self.label("entry")

    def finish(self, result: str = "void") -> None:
        """Add it to the module; `result` is a type and a register, where it returns something."""
        self.do(f"ret {result}")
        kind = ("" if self.tuned else "noinline optnone ") + attributes(self.target)
        self.module.define(
            self.name,
            f"define internal {result.split()[0]} @{self.name}({self.params}) {kind} {{\n"
            f"{self.text()}\n}}",
        )

    # --- integers --------------------------------------------------------------------------

    def add(self, a: str, b: str) -> str:
        if "0" in (a, b):
            return b if a == "0" else a
        return self(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return a if b == "0" else self(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        b = str(b)
        if "0" in (a, b):
            return "0"
        if "1" in (a, b):
            return b if a == "1" else a
        return self(f"mul i64 {a}, {b}")

    def udiv(self, a: str, b: str | int) -> str:
        return a if str(b) == "1" else self(f"udiv i64 {a}, {b}")

    def ceildiv(self, a: str, b: str | int) -> str:
        """ceil(a / b) for positive b."""
        return a if str(b) == "1" else self.udiv(self.sub(self.add(a, str(b)), "1"), b)

    def round_up(self, a: str, to: int) -> str:
        return self.mul(self.ceildiv(a, to), to)

    def cmp(self, predicate: str, a: str, b: str) -> str:
        return self(f"icmp {predicate} i64 {a}, {b}")

    def min(self, a: str, b: str) -> str:
        return self.select(self.cmp("slt", a, b), a, b)

    def max(self, a: str, b: str) -> str:
        return self.select(self.cmp("sgt", a, b), a, b)

    def select(self, cond: str, a: str, b: str, t: str = "i64") -> str:
        if cond in ("true", "false"):
            return a if cond == "true" else b
        return self(f"select i1 {cond}, {t} {a}, {t} {b}")

    def negated(self, cond: str) -> str:
        if cond in ("true", "false"):
            return "false" if cond == "true" else "true"
        return self(f"xor i1 {cond}, true")

    def at(self, ptr: str, offset: str | int) -> str:
        """ptr + offset bytes."""
        return ptr if str(offset) == "0" else self(f"getelementptr i8, ptr {ptr}, i64 {offset}")

    def opaque(self, x: str, type: str = "i64") -> str:
        """x in a register of its own, of which LLVM does not know how it came about.

        Otherwise LLVM's strength reduction derives the addresses in a loop from one another, by
        additions that take slots of the multiply-add units, and it needs a seventh of the time
        that LLVM takes for a product.
        """
        return self(f'call {type} asm "", "=r,0"({type} {x})')

    # --- control ---------------------------------------------------------------------------

    def aligned(self, ptr: str) -> str:
        """Where the next line of 64 bytes begins."""
        address = self(f"ptrtoint ptr {ptr} to i64")
        return self.at(ptr, self(f"and i64 {self.sub('0', address)}, 63"))

    def store_fields(
        self, record: str, values: Mapping[str, str], pointers: Container[str]
    ) -> None:
        """Write a task's record: a word for each value, in order."""
        for i, (field, value) in enumerate(values.items()):
            kind = "ptr" if field in pointers else "i64"
            self.do(f"store {kind} {value}, ptr {self.at(record, 8 * i)}, align 8")

    def load_fields(
        self, record: str, fields: Iterable[str], pointers: Container[str]
    ) -> dict[str, str]:
        """Read what `store_fields` wrote."""
        return {
            field: self(f"load {'ptr' if field in pointers else 'i64'}, "
                        f"ptr {self.at(record, 8 * i)}, align 8")
            for i, field in enumerate(fields)
        }

    def branch(self, to: str) -> None:
        """End the block with a jump and start the block `to`."""
        self.do(f"br label %{to}")
        self.label(to)

    @contextmanager
    def when(self, cond: str) -> Iterator[None]:
        """What is emitted inside runs only if `cond`."""
        then, after = self.fresh("then"), self.fresh("after")
        self.do(f"br i1 {cond}, label %{then}, label %{after}")
        self.label(then)
        yield
        self.branch(after)

    @contextmanager
    def either(self, cond: str) -> Iterator[tuple[str, str]]:
        """`with f.either(c) as (other, end)`: emit, `f.otherwise(other, end)`, emit."""
        then, other, end = self.fresh("then"), self.fresh("else"), self.fresh("after")
        self.do(f"br i1 {cond}, label %{then}, label %{other}")
        self.label(then)
        yield other, end
        self.branch(end)

    def otherwise(self, other: str, end: str) -> None:
        self.do(f"br label %{end}")
        self.label(other)

    @contextmanager
    def each(self, start: str, stop: str, step: str | int = 1) -> Iterator[Loop]:
        """`for index in range(start, stop, step)`, none if start >= stop."""
        head, end = self.fresh("loop"), self.fresh("end")
        before = self.block
        self.do(f"br i1 {self.cmp('slt', start, stop)}, label %{head}, label %{end}")
        self.label(head)
        this = Loop(f"%{head}i", str(step))
        at = len(self.lines)
        self.lines.append("")
        counted, this.index = this.index, self.opaque(this.index)
        yield this
        following = self(f"add i64 {this.index}, {this.step}")
        self.lines[at] = (
            f"  {counted} = phi i64 [{start}, %{before}], [{following}, %{self.block}]"
        )
        again = self.cmp("slt", following, stop)
        self.do(f"br i1 {again}, label %{head}, label %{end}, !llvm.loop !0")
        self.label(end)
