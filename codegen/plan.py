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

from dataclasses import dataclass, field

from graphc import dims
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
    lives: dict[int, tuple[int, int]] = field(default_factory=dict)


def size_of(v: Value) -> Size:
    """Bytes of a value."""
    return v.type.size * v.type.dtype.itemsize


def align(size: Size) -> Size:
    """Rounded up to ALIGN bytes."""
    return dims.floordiv(size + (ALIGN - 1), ALIGN) * ALIGN


def root_of(g: Graph) -> dict[Value, Value]:
    """Views to the values whose buffers they share."""
    roots: dict[Value, Value] = {}
    for n in g.nodes:
        if n.op.name == "reshape" or n.op.kind is Kind.META:
            for k, o in enumerate(n.outs):
                a = n.args[0 if n.op.name == "reshape" else k]
                roots[o] = roots.get(a, a)
    return roots


def order_calls(g: Graph, calls: list[Call], roots: dict[Value, Value]) -> list[Call]:
    """Kernels that only updates need go last, those that can fail first among them."""
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
    return [calls[k] for k in (*early, *sorted(last, key=lambda k: (not calls[k].fallible, k)))]


def find_waves(calls: list[Call], roots: dict[Value, Value]) -> list[list[int]]:
    """Runs of consecutive kernels that could as well run at the same time."""
    waves: list[list[int]] = []
    made: set[Value] = set()
    for k, c in enumerate(calls):
        reads = {roots.get(a, a) for a in c.args}
        apart = bool(waves) and (c.alone or calls[k - 1].alone)
        if not waves or apart or not made.isdisjoint(reads) or len(waves[-1]) == MAX_WAVE:
            waves.append([])
            made = set()
        waves[-1].append(k)
        made.update(c.outs)
    return waves


def make_plan(
    g: Graph, calls: list[Call], states: tuple[State, ...], constants: list[Value],
) -> Plan:
    """Decide order and places for a fused graph."""
    roots = root_of(g)
    calls = order_calls(g, calls, roots)
    waves = find_waves(calls, roots)
    wave_of = {k: w for w, ks in enumerate(waves) for k in ks}

    def root(v: Value) -> Value:
        return roots.get(v, v)

    places: dict[Value, Place] = {}
    for k, v in enumerate(g.inputs):
        places[v] = Place("input", k)
    number = {s: k for k, s in enumerate(states)}
    for n in g.nodes:
        if n.op.name == "variable":
            places[n.out] = Place("state", number[n.attrs["state"]])
    for k, v in enumerate(constants):
        places[v] = Place("constant", k)
    made_at = {o: k for k, c in enumerate(calls) for o in c.outs}
    last_read: dict[Value, int] = {}
    readers: dict[Value, set[int]] = {}
    for k, c in enumerate(calls):
        for a in c.args:
            last_read[root(a)] = k
            readers.setdefault(root(a), set()).add(k)
    copies: list[tuple[Value, Place]] = []
    for k, v in enumerate(g.outputs):
        r = root(v)
        if r in made_at and r not in places:
            places[r] = Place("output", k)
        else:
            copies.append((r, Place("output", k)))
    state_reads: dict[int, set[int]] = {}
    for n in g.nodes:
        if n.op.name == "variable":
            state_reads.setdefault(number[n.attrs["state"]], set()).update(
                readers.get(n.out, ())
            )
    outside = {roots.get(v, v) for v in g.outputs}
    last_failing = max((k for k, c in enumerate(calls) if c.fallible), default=-1)
    commits: list[tuple[Value, int]] = []
    for s, v in g.updates:
        r, k = root(v), number[s]
        at = made_at.get(r, -1)
        call = calls[at] if at >= 0 else None
        may = call is not None and r not in places and r not in outside and (
            at >= 0 and last_failing < waves[wave_of[at]][0]
        )
        late = {q for q in state_reads.get(k, ()) if wave_of[q] >= wave_of.get(at, 0)}
        if may and call is not None and late:
            o = call.outs.index(r)
            own = [p for p, a in enumerate(call.args) if places.get(root(a)) == Place("state", k)]
            may = late == {at} and all(p in call.in_place.get(o, []) for p in own)
        if may:
            places[r] = Place("state", k)
        else:
            commits.append((r, k))
    end = len(calls)
    for r, _ in copies:
        if r in made_at:
            last_read[r] = end
    for r, _ in commits:
        if r in made_at:
            last_read[r] = end
    for k in range(end - 1, -1, -1):
        c, wave = calls[k], waves[wave_of[k]]
        for index, made in enumerate(c.outs):
            if made not in places or places[made].kind != "output":
                continue
            for operand in c.in_place.get(index, []):
                read = root(c.args[operand])
                if (read in made_at and read not in places and size_of(read) == size_of(made)
                        and last_read[read] == k and readers[read].intersection(wave) == {k}):
                    places[read] = places[made]
                    break
    return _assign(
        calls, waves, places, roots, last_read, readers, copies, commits
    )


def _assign(
    calls: list[Call], waves: list[list[int]], places: dict[Value, Place],
    roots: dict[Value, Value], last_read: dict[Value, int], readers: dict[Value, set[int]],
    copies: list[tuple[Value, Place]], commits: list[tuple[Value, int]],
) -> Plan:
    """Give every other value a slot of the arena."""
    sizes: list[Size] = []
    weights: list[int] = []
    free: list[int] = []
    holds: dict[int, Value] = {}
    slot_of: dict[Value, int] = {}
    workspaces: dict[int, int] = {}
    lines: list[str] = []

    def take(size: Size) -> int:
        weight = _weight(size)
        best = min(free, key=lambda s: (abs(weights[s] - weight), s), default=None)
        if best is not None and weights[best] >= weight // 2 and weight >= weights[best] // 8:
            free.remove(best)
            sizes[best] = dims.maximum(sizes[best], size)
            weights[best] = max(weights[best], weight)
            return best
        sizes.append(size)
        weights.append(weight)
        return len(sizes) - 1

    # a wave is one moment: what it reads or writes is all alive at once
    for wave in waves:
        for k in wave:
            c = calls[k]
            for o_index, o in enumerate(c.outs):
                if o in places:
                    continue
                for p in c.in_place.get(o_index, []):
                    a = roots.get(c.args[p], c.args[p])
                    alone = readers.get(a, set()).intersection(wave) == {k}
                    if (a in slot_of and last_read.get(a) == k and alone
                            and size_of(a) == size_of(o)):
                        slot_of[o] = slot_of.pop(a)
                        break
                else:
                    slot_of[o] = take(size_of(o))
                holds[slot_of[o]] = o
                places[o] = Place("arena", slot_of[o])
            if c.workspace != 0:
                workspaces[k] = take(c.workspace)
            lines.append(f"{c.name}: " + ", ".join(_show(places[o], o) for o in c.outs))
        free += [workspaces[k] for k in wave if k in workspaces]
        for slot, v in list(holds.items()):
            if last_read.get(v, -1) <= wave[-1]:
                free.append(slot)
                slot_of.pop(v, None)
                del holds[slot]
    shadows: dict[Value, int] = {}
    for v, _ in commits:
        if v.node.op.name == "variable" and v not in shadows:
            shadows[v] = len(sizes)
            sizes.append(size_of(v))
    scratch = None
    wanted = list(dict.fromkeys(c.scratch for c in calls if c.scratch != 0))
    if wanted:
        scratch = len(sizes)
        most: Size = 0
        for w in wanted:
            most = dims.maximum(most, w)
        sizes.append(most)
    arena = dims.total(align(s) for s in sizes) + ALIGN if sizes else 0
    text = "\n".join([
        *lines, *(f"slot {k}: {s} bytes" for k, s in enumerate(sizes)), f"arena: {arena} bytes",
    ])
    return Plan(
        calls, waves, places, roots, sizes, arena, workspaces, scratch, copies, commits,
        shadows, text,
    )


def _weight(size: Size) -> int:
    return dims.evaluate(size, dict.fromkeys(dims.names(size), REPRESENTATIVE))


def _show(p: Place, v: Value) -> str:
    return f"{v.type} in {p.kind} {p.index}"
