"""The entry point of a program: i32 @NAME(ptr %args, ptr %dims, ptr %arena) -> status.

In this order: dimensions and sizes are checked; what is handed on as it was at entry is copied;
the kernels run, wave by wave, and an index out of range or a division by zero in them returns its
code; outputs that are inputs or variables are copied; states are written, when nothing can fail
any more.

%args points to the addresses of inputs, outputs, states and large constants, %dims to the
dimensions in the order of `Program.dims`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.codegen.addresses import Addresses
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.fpmode import can_flush, define_flushed
from graphc.codegen.kernels import Call
from graphc.codegen.machine.target import Target
from graphc.codegen.plan import Place, Plan
from graphc.codegen.program import Status
from graphc.codegen.sizes import CheckedSizes, SizeCode
from graphc.codegen.waves import WaveRunner
from graphc.dims import Size
from graphc.ir import Graph, Value
from graphc.ops.row import Kind

Check = tuple[Size, bool, int]  # what must be >= 0, or 0 where the bool is set; the code if not


class Entry:
    """Writes the entry point of graph `g` in the memory of `plan`.

    dims: the names in %dims. states: how many arguments are states. small: constants that are
    globals of the module.
    """

    def __init__(
        self, module: Module, name: str, g: Graph, dims: Sequence[str], plan: Plan, states: int,
        small: Mapping[Value, str], checks: Sequence[Check], timed: bool,
    ):
        self.module, self.name, self.g, self.plan = module, name, g, plan
        self.small, self.checks, self.timed = small, checks, timed
        self.e = e = Emitter(module)
        e.label("entry")
        self.allocas: list[str] = []
        e.lines.append(self.allocas)
        self.dims = {n: self._load("i64", "%dims", k) for k, n in enumerate(dims)}
        first = {  # argument of each kind
            "input": 0, "output": len(g.inputs), "state": len(g.inputs) + len(g.outputs),
            "constant": len(g.inputs) + len(g.outputs) + states,
        }
        self.addresses = Addresses(e, plan, first, self.allocas)

    def define(self, target: Target, fastmath: bool) -> None:
        """Add the function to the module."""
        self.sizes = self._checked_sizes()
        self.addresses.divide_arena(self.sizes)
        failing = [k for k, c in enumerate(self.plan.calls) if c.fallible]
        if failing:
            self.allocas += [
                "  %error = alloca i32, align 4", "  store i32 -1, ptr %error, align 4"
            ]
        for old, slot in self.plan.shadows.items():
            self.addresses.go_on()
            self._copy(self.addresses.of(Place("arena", slot)), old)
        self._copy_outputs(leaves=True)
        self._run_waves(failing[-1] if failing else -1)
        self._copy_outputs(leaves=False)
        self._commit()
        self.e.do("ret i32 0")
        flushed = fastmath and can_flush(target)
        name = f"{self.name}.inner" if flushed else self.name
        self.module.define(
            name,
            f"define {'internal ' * flushed}i32 @{name}(ptr %args, ptr %dims, ptr %arena) nounwind "
            f"{{\n{self.e.text()}\n}}",
        )
        if flushed:
            define_flushed(self.module, target, self.name, name)

    # --- before the kernels ----------------------------------------------------------------------

    def _checked_sizes(self) -> SizeCode:
        """Negative dimensions, overflow of sizes, and the conditions on dimensions."""
        e, sizes = self.e, CheckedSizes(self.e, self.dims)
        for n in self.dims.values():
            e.return_if(e(f"icmp slt i64 {n}, 0"), Status.NEGATIVE_DIMENSION)
        seen: dict[Size, None] = {self.plan.arena: None}
        for v in (*self.g.inputs, *(o for n in self.g.nodes for o in n.outs)):
            seen.setdefault(v.type.bytes)
        for size, _, _ in self.checks:
            seen.setdefault(size)
        for s in seen:
            sizes.value(s)
        e.return_if(sizes.bad(), Status.SIZE_OVERFLOW)
        for size, zero, code in self.checks:
            test = "ne" if zero else "slt"
            e.return_if(e(f"icmp {test} i64 {sizes.value(size)}, 0"), code)
        return sizes.checked()

    # --- kernels ---------------------------------------------------------------------------------

    def _run_waves(self, last_failing: int) -> None:
        """The calls of the kernels; the error is looked at behind the last that can fail."""
        plan, e = self.plan, self.e
        scratch = "null"
        if plan.scratch is not None:
            scratch = self.addresses.of(Place("arena", plan.scratch))
        runner = WaveRunner(
            self.module, self.name, plan, e, self.allocas, self.sizes, scratch, self.timed
        )
        for w, wave in enumerate(plan.waves):
            if self.addresses.go_on():
                runner.forget()
            filled: list[str] = []
            for k in wave:
                filled.append(runner.fill(self._context(k, plan.calls[k]), len(filled)))
            runner.run(w, [plan.calls[k] for k in wave], filled)
            if last_failing in wave:
                code = e("load i32, ptr %error, align 4")
                e.return_if(e(f"icmp ne i32 {code}, -1"), code)

    def _context(self, k: int, c: Call) -> dict[int, tuple[str, str]]:
        """(type, value) of what kernel k takes, by slot."""
        values = [("ptr", self._where(a)) for a in c.args]
        outs = [self._where(o) for o in c.outs]
        if c.slots.params > len(c.args):  # a product's own buffer, or accumulators
            if c.c_output is not None:
                own = outs[c.c_output]
            elif k in self.plan.workspaces:
                own = self.addresses.of(Place("arena", self.plan.workspaces[k]))
            else:
                own = "null"  # blocks of the product pass through scratch
            values.append(("ptr", own))
        values += [("ptr", o) for o in outs]
        values += [("i64", self.dims[n]) for n in c.slots.dims]
        if c.fallible:
            values.append(("ptr", "%error"))
        numbers = [("i64", str(n)) for n in c.slots.numbers]
        return dict(enumerate(values)) | dict(enumerate(numbers, c.slots.numbers_at))

    # --- copies ----------------------------------------------------------------------------------

    def _copy_outputs(self, leaves: bool) -> None:
        """Outputs that are inputs, variables or constants, before any state changes; or others."""
        for v, place in self.plan.copies:
            if (v.node.op.kind is Kind.LEAF) == leaves:
                self.addresses.go_on()
                self._copy(self.addresses.of(place), v)

    def _commit(self) -> None:
        """New values of variables to their states."""
        shadows = self.plan.shadows
        for v, k in self.plan.commits:
            self.addresses.go_on()
            kept = self.addresses.of(Place("arena", shadows[v])) if v in shadows else ""
            self._copy(self.addresses.of(Place("state", k)), v, kept)

    def _copy(self, to: str, v: Value, source: str = "") -> None:
        """Copy v from where it stands, or from `source`."""
        source = source or self._where(v)
        self.e.copy(to, source, self.sizes.value(v.type.bytes))

    # --- addresses -------------------------------------------------------------------------------

    def _where(self, v: Value) -> str:
        """The address of a value."""
        root = self.plan.roots.get(v, v)
        if root in self.small:
            return self.small[root]
        return self.addresses.of(self.plan.places[root])

    def _load(self, ty: str, base: str, k: int) -> str:
        p = self.e(f"getelementptr inbounds i64, ptr {base}, i64 {k}")
        return self.e(f"load {ty}, ptr {p}, align 8")
