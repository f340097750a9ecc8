"""Memory planning: the order of kernels, and where every value of a program lives.

A value lives in an argument (input, output, state, constant) or in the arena. Kernels that only
serve updates run last, so that they may write states in place: a state's buffer is overwritten
when nobody reads the old value any more and nothing can fail any more; otherwise the new value
is made in the arena and copied at the end.

What an output is made of in place, and nobody reads afterwards, is made in the output's buffer.
Arena slots are shared by values whose lifetimes do not overlap. Sizes may be symbolic: then slots
are coloured with representative sizes, and a slot is as large as the max of its members' formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from graphc import dims
from graphc.codegen.delayed import LEAST_BYTES
from graphc.codegen.kernels import Call
from graphc.dims import Size
from graphc.ir import Graph, State, Value
from graphc.ops.row import Kind

ALIGN = 64
MAX_WAVE = 16        # kernels that may run side by side
REPRESENTATIVE = 64  # what a symbolic dimension counts as when slots are chosen


@dataclass(frozen=True)
class Place:
    """Where a buffer is: kind input | output | state | constant | arena, and which."""

    kind: str
    index: int


@dataclass
class Plan:
    """Where everything is, and in which order kernels run."""

    calls: list[Call]
    waves: list[list[int]]                # calls of one wave do not depend on each other
    places: dict[Value, Place]            # of root values
    roots: dict[Value, Value]             # views -> the value whose buffer they show
    slots: list[Size]                     # sizes of arena slots in bytes, one after the other
    arena: Size                           # bytes in all, slack for alignment included
    workspaces: dict[int, int]            # call number -> arena slot of its workspace
    scratch: int | None                   # arena slot of the caller's scratch block
    copies: list[tuple[Value, Place]]     # buffers to copy after the kernels
    commits: list[tuple[Value, int]]      # new values to copy into states at the very end
    shadows: dict[Value, int]             # old states that become other states -> arena slot
    text: str = ""


def align(size: Size) -> Size:
    """Rounded up to ALIGN bytes."""
    return dims.round_up(size, ALIGN)


def aligned(sizes: Sequence[Size]) -> list[Size]:
    """Each rounded up to ALIGN bytes: of many slots, few have a size of their own."""
    rounded = {size: align(size) for size in dict.fromkeys(sizes)}
    return [rounded[size] for size in sizes]


def root_of(g: Graph) -> dict[Value, Value]:
    """Views to the values whose buffers they share."""
    roots: dict[Value, Value] = {}
    for n in g.nodes:
        if n.op.name == "reshape" or n.op.kind is Kind.META:
            for k, o in enumerate(n.outs):
                a = n.args[0 if n.op.name == "reshape" else k]
                roots[o] = roots.get(a, a)
    return roots


def order_calls(
    g: Graph, calls: list[Call], roots: dict[Value, Value], over: dict[Value, Value]
) -> list[Call]:
    """Kernels that only updates need go last: those that can fail first among them, and those that
    make new states (`over`) which others of them read the old ones of in the end."""
    wanted = {roots.get(v, v) for v in g.outputs}
    core: set[int] = set()
    for k in range(len(calls) - 1, -1, -1):
        if not wanted.isdisjoint(calls[k].outs):
            core.add(k)
            wanted.update(roots.get(a, a) for a in calls[k].args)
    # what feeds another kernel that is not itself a last step runs early as well
    read_by: dict[Value, list[int]] = {}
    for k, c in enumerate(calls):
        for a in c.args:
            read_by.setdefault(roots.get(a, a), []).append(k)
    last = [
        k for k, c in enumerate(calls)
        if k not in core and not any(read_by.get(o) for o in c.outs)
    ]
    early = [k for k in range(len(calls)) if k not in set(last)]
    waits = {
        k for k in last for o in calls[k].outs
        if o in over and {*read_by.get(over[o], ())} - {k}
    }
    late = sorted(last, key=lambda k: (not calls[k].fallible, k in waits, k))
    return _checks_first([calls[k] for k in (*early, *late)], roots)


def _checks_first(calls: list[Call], roots: dict[Value, Value]) -> list[Call]:
    """What looks at positions comes as soon as these are there, and what writes over a state, and
    all that follows from it, behind everything else: then nothing can fail any more."""
    others = [c for c in calls if not c.positions]
    made_at = {o: k for k, c in enumerate(others) for o in c.outs}
    order = [(k, 0, c) for k, c in enumerate(others)]
    for c in calls:
        if c.positions:
            order.append((max(made_at.get(roots.get(v, v), -1) for v in c.positions), 1, c))
    first: list[Call] = []
    then: list[Call] = []
    written: set[Value] = set()
    for _, _, c in sorted(order, key=lambda kc: kc[:2]):
        follows = not written.isdisjoint(roots.get(a, a) for a in c.args)
        if follows or c.check is not None:
            then.append(c)
            written.update(c.outs)
        else:
            first.append(c)
    return first + then


def large_states(g: Graph, roots: dict[Value, Value]) -> dict[Value, Value]:
    """What states become -> what they were, where copying it there takes long."""
    old = {n.attrs["state"]: n.out for n in g.nodes if n.op.name == "variable"}
    return {
        roots.get(v, v): old[s] for s, v in g.updates
        if s in old and isinstance(v.type.bytes, int) and v.type.bytes >= LEAST_BYTES
    }


def find_waves(
    calls: list[Call], roots: dict[Value, Value], over: dict[Value, Value]
) -> list[list[int]]:
    """Runs of consecutive kernels that could as well run at the same time.

    What makes a new state (`over`) waits for those that read the old one, to write over it.
    """
    waves: list[list[int]] = []
    made: set[Value] = set()
    read: set[Value] = set()
    for k, c in enumerate(calls):
        reads = {roots.get(a, a) for a in c.args}
        apart = bool(waves) and (
            c.alone or calls[k - 1].alone
            # nothing may fail beside what writes over a state
            or (c.check is not None and any(calls[j].fallible for j in waves[-1]))
        )
        apart = apart or any(over[o] in read for o in c.outs if o in over)
        if not waves or apart or not made.isdisjoint(reads) or len(waves[-1]) == MAX_WAVE:
            waves.append([])
            made, read = set(), set()
        waves[-1].append(k)
        made.update(c.outs)
        read |= reads
    return waves


def make_plan(
    g: Graph, calls: list[Call], states: tuple[State, ...], constants: list[Value],
) -> Plan:
    """Decide order and places for a fused graph."""
    p = _Planner(g, calls)
    p.place_arguments(g, states, constants)
    p.place_outputs(g)
    p.place_states(g, states)
    p.use_outputs_in_place()
    return p.assign_slots()


class _Planner:
    """What is known while places are given: when values are made and read, and who writes where."""

    def __init__(self, g: Graph, calls: list[Call]):
        self.roots = root_of(g)
        over = large_states(g, self.roots)
        self.calls = order_calls(g, calls, self.roots, over)
        self.waves = find_waves(self.calls, self.roots, over)
        self.wave_of = {k: w for w, ks in enumerate(self.waves) for k in ks}
        self.places: dict[Value, Place] = {}
        self.copies: list[tuple[Value, Place]] = []
        self.commits: list[tuple[Value, int]] = []
        self.made_at = {o: k for k, c in enumerate(self.calls) for o in c.outs}
        self.last_read: dict[Value, int] = {}
        self.readers: dict[Value, set[int]] = {}
        for k, c in enumerate(self.calls):
            for a in c.args:
                self.last_read[self.root(a)] = k
                self.readers.setdefault(self.root(a), set()).add(k)

    def root(self, v: Value) -> Value:
        return self.roots.get(v, v)

    def keep(self, v: Value) -> None:
        """What is copied after the kernels lives until then."""
        if v in self.made_at:
            self.last_read[v] = len(self.calls)

    def place_arguments(
        self, g: Graph, states: tuple[State, ...], constants: list[Value]
    ) -> None:
        """Inputs, states and constants stand where the caller has them."""
        for k, v in enumerate(g.inputs):
            self.places[v] = Place("input", k)
        number = {s: k for k, s in enumerate(states)}
        for n in g.nodes:
            if n.op.name == "variable":
                self.places[n.out] = Place("state", number[n.attrs["state"]])
        for k, v in enumerate(constants):
            self.places[v] = Place("constant", k)

    def place_outputs(self, g: Graph) -> None:
        """A result is made in its output's buffer, or copied there if it has a place already."""
        for k, v in enumerate(g.outputs):
            r = self.root(v)
            if r in self.made_at and r not in self.places:
                self.places[r] = Place("output", k)
            else:
                self.copies.append((r, Place("output", k)))
                self.keep(r)

    def place_states(self, g: Graph, states: tuple[State, ...]) -> None:
        """A new state is made in the buffer of the old one, or committed at the end."""
        number = {s: k for k, s in enumerate(states)}
        state_reads: dict[int, set[int]] = {}
        for n in g.nodes:
            if n.op.name == "variable":
                state_reads.setdefault(number[n.attrs["state"]], set()).update(
                    self.readers.get(n.out, ())
                )
        outside = {self.root(v) for v in g.outputs}
        last_failing = max((k for k, c in enumerate(self.calls) if c.fallible), default=-1)
        for s, v in g.updates:
            r, k = self.root(v), number[s]
            if r not in outside and self._overwrites(r, k, state_reads.get(k, set()), last_failing):
                self.places[r] = Place("state", k)
                self._steps_in_place(r, k, state_reads.get(k, set()), last_failing)
            else:
                self.commits.append((r, k))
        for r, _ in self.commits:
            self.keep(r)

    def _overwrites(self, r: Value, state: int, reads: set[int], last_failing: int) -> bool:
        """Whether r may be written over a state's old value, which the calls `reads` read."""
        at = self.made_at.get(r)
        if at is None or r in self.places or last_failing >= self.waves[self.wave_of[at]][0]:
            return False
        late = {q for q in reads if self.wave_of[q] >= self.wave_of[at]}
        if not late:
            return True
        call = self.calls[at]
        replaced = self._replaced(call, call.outs.index(r))
        return late == {at} and all(
            a in replaced for a in map(self.root, call.args)
            if self.places.get(a) == Place("state", state)
        )

    def _steps_in_place(self, r: Value, state: int, reads: set[int], last_failing: int) -> None:
        """What a new state is made of in place, step by step, stands in its buffer, too."""
        while (k := self.made_at.get(r)) is not None:
            c, wave = self.calls[k], self.waves[self.wave_of[k]]
            replaced = self._replaced(c, 0)
            if c.check is None or not replaced:
                return
            [r] = replaced
            if not self._ends(r, k, wave) or not self._overwrites(r, state, reads, last_failing):
                return
            self.places[r] = Place("state", state)

    def use_outputs_in_place(self) -> None:
        """What an output is made of in place, and nobody else reads, is made in its buffer."""
        for k in range(len(self.calls) - 1, -1, -1):
            c, wave = self.calls[k], self.waves[self.wave_of[k]]
            for index, made in enumerate(c.outs):
                if made not in self.places or self.places[made].kind != "output":
                    continue
                for read in self._replaced(c, index):
                    if (read in self.made_at and read not in self.places
                            and read.type.bytes == made.type.bytes and self._ends(read, k, wave)):
                        self.places[read] = self.places[made]
                        break

    def _replaced(self, c: Call, index: int) -> list[Value]:
        """What an output of a call may be written over. An operand and a view of it are one buffer:
        it must do for both."""
        allowed = c.in_place.get(index, [])
        read = {self.root(a) for p, a in enumerate(c.args) if p not in allowed}
        return [a for a in (self.root(c.args[p]) for p in allowed) if a not in read]

    def _ends(self, v: Value, k: int, wave: list[int]) -> bool:
        """Whether call k is the last to read a value, and alone does in its wave."""
        return self.last_read.get(v) == k and self.readers[v].intersection(wave) == {k}

    def assign_slots(self) -> Plan:
        """Give every other value a slot of the arena."""
        calls, places, slots = self.calls, self.places, _Slots()
        holds: dict[int, Value] = {}
        ending: list[list[int]] = [[] for _ in self.waves]  # slots, when what they hold is over
        slot_of: dict[Value, int] = {}
        workspaces: dict[int, int] = {}
        lines: list[str] = []
        # a wave is one moment: what it reads or writes is all alive at once
        for w, wave in enumerate(self.waves):
            for k in wave:
                c = calls[k]
                for o_index, o in enumerate(c.outs):
                    if o in places:
                        continue
                    dying = (
                        a for a in self._replaced(c, o_index)
                        if a in slot_of and a.type.bytes == o.type.bytes and self._ends(a, k, wave)
                    )
                    reused = next(dying, None)
                    slot_of[o] = slots.take(o.type.bytes) if reused is None else slot_of.pop(reused)
                    holds[slot_of[o]] = o
                    last = self.wave_of.get(self.last_read.get(o, k), len(ending))
                    if last < len(ending):
                        ending[last].append(slot_of[o])
                    places[o] = Place("arena", slot_of[o])
                if c.workspace != 0:
                    workspaces[k] = slots.take(c.workspace)
                made = ", ".join(_show(places[o], o) for o in c.outs)
                lines.append(f"{c.name}: {made or 'nothing, it looks at positions'}")
            slots.free += [workspaces[k] for k in wave if k in workspaces]
            for slot in ending[w]:
                if slot in holds and self.last_read.get(holds[slot], -1) <= wave[-1]:
                    slots.free.append(slot)
                    slot_of.pop(holds.pop(slot), None)
        return self._with_slots(slots, workspaces, lines)

    def _with_slots(self, slots: _Slots, workspaces: dict[int, int], lines: list[str]) -> Plan:
        """The plan: behind the slots of values, those of states that move and of scratch."""
        calls = self.calls
        olds = [v for v, _ in self.commits if v.node.op.name == "variable"]
        shadows = {v: slots.add(v.type.bytes) for v in dict.fromkeys(olds)}
        scratch = None
        if wanted := list(dict.fromkeys(c.scratch for c in calls if c.scratch != 0)):
            scratch = slots.add(reduce(dims.maximum, wanted))
        sizes = slots.sizes
        arena = dims.total(aligned(sizes)) + ALIGN if sizes else 0
        text = "\n".join([
            *lines, *(f"slot {k}: {s} bytes" for k, s in enumerate(sizes)), f"arena: {arena} bytes",
        ])
        return Plan(
            calls, self.waves, self.places, self.roots, sizes, arena, workspaces, scratch,
            self.copies, self.commits, shadows, text,
        )


class _Slots:
    """The slots of an arena, and those that hold nothing at the moment."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self.free: list[int] = []
        self._weights: list[int] = []
        self._known: dict[Size, int] = {}  # programs have few sizes

    def add(self, size: Size) -> int:
        """A new slot."""
        self.sizes.append(size)
        self._weights.append(self._weight(size))
        return len(self.sizes) - 1

    def take(self, size: Size) -> int:
        """The free slot that fits best, as large as it takes, or a new one."""
        weight, weights = self._weight(size), self._weights
        best = min(self.free, key=lambda s: (abs(weights[s] - weight), s), default=None)
        if best is None or weights[best] < weight // 2 or weight < weights[best] // 8:
            return self.add(size)
        self.free.remove(best)
        self.sizes[best] = dims.maximum(self.sizes[best], size)
        weights[best] = max(weights[best], weight)
        return best

    def _weight(self, size: Size) -> int:
        """A size where every dimension is REPRESENTATIVE."""
        if size not in self._known:
            self._known[size] = dims.estimate(size, REPRESENTATIVE)
        return self._known[size]


def _show(p: Place, v: Value) -> str:
    return f"{v.type} in {p.kind} {p.index}"
