"""The elements of a straight-line function: where each is, and how it gets where it is wanted.

Every element of every value has a number. It may be a constant, stand in memory, in a scalar
register, or in a lane of a vector register, and in several of these. Moving elements (all layout
ops) is moving numbers. `Elements` makes registers of chosen elements when they are asked for, and
estimates what that takes, in instructions.

Vectors are written 64 bytes wide for every target, and LLVM splits them where registers are
smaller; so the order of operations is the same at every CPU level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.codegen.emission.emitter import Emitter
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import literal, register_type
from graphc.codegen.machine.target import Target
from graphc.types import DType

VECTOR_BITS = 512


@dataclass(eq=False)
class Vector:
    """A register of lanes."""

    register: str
    type: str      # scalar LLVM type
    width: int


@dataclass(eq=False)
class Buffer:
    """Elements in memory: an input, a state or a large constant."""

    pointer: str
    dtype: DType
    size: int
    first: int     # the number of its first element; the others follow


@dataclass
class Elements:
    """All elements so far, and the registers that hold them."""

    e: Emitter
    target: Target
    fastmath: bool
    dtypes: list[DType] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    lanes: dict[int, tuple[Vector, int]] = field(default_factory=dict)
    scalars: dict[int, str] = field(default_factory=dict)
    memory: dict[int, Buffer] = field(default_factory=dict)
    _interned: dict[tuple[DType, bytes], int] = field(default_factory=dict)
    _vectors: dict[tuple[int, ...], Vector] = field(default_factory=dict)
    _wider: dict[tuple[Vector, int], str] = field(default_factory=dict)

    # --- making elements -----------------------------------------------------------------------

    def new(self, dtype: DType) -> int:
        """A further element."""
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    def constant(self, dtype: DType, value: Any) -> int:
        """The element with this value, the same for equal bits."""
        v = np.asarray(value, dtype.numpy)
        key = (dtype, v.tobytes())
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self.new(dtype)
            self.constants[found] = v[()]
        return found

    def buffer(self, pointer: str, dtype: DType, size: int) -> list[int]:
        """The elements of an array in memory."""
        b = Buffer(pointer, dtype, size, len(self.dtypes))
        made = [self.new(dtype) for _ in range(size)]
        self.memory.update(dict.fromkeys(made, b))
        return made

    def place(self, vector: Vector, ids: Sequence[int | None]) -> None:
        """`vector` holds these elements."""
        for lane, x in enumerate(ids):
            if x is not None:
                self.lanes[x] = (vector, lane)
        self._vectors[_key(ids, vector.width)] = vector

    def width(self, dtypes: Sequence[DType]) -> int:
        """Lanes of a vector in which elements of all these dtypes are processed together."""
        return VECTOR_BITS // max(8, *(d.compute.bits for d in dtypes))

    def writer(self, width: int, exact: bool = False) -> Lanes:
        return Lanes(self.e, width, self.target, fastmath=self.fastmath and not exact)

    # --- scalars -------------------------------------------------------------------------------

    def scalar(self, x: int) -> str:
        """The element as a scalar operand."""
        d = self.dtypes[x]
        if x in self.constants:
            return self.writer(1).const(d, self.constants[x].item())
        found = self.scalars.get(x)
        if found is None:
            if x in self.lanes:
                v, lane = self.lanes[x]
                found = self.e(f"extractelement <{v.width} x {v.type}> {v.register}, i64 {lane}")
            else:
                found = self.writer(1).load(d, self._at(self.memory[x], x))
            self.scalars[x] = found
        return found

    def _at(self, b: Buffer, x: int) -> str:
        """The address of an element of a buffer."""
        if x == b.first:
            return b.pointer
        return self.e(
            f"getelementptr inbounds i8, ptr {b.pointer}, i64 {(x - b.first) * b.dtype.itemsize}"
        )

    def scalar_cost(self, x: int) -> float:
        """What `scalar` will take."""
        known = x in self.constants or x in self.scalars or x in self.memory
        return 0 if known or self.lanes[x][1] == 0 else 1

    # --- vectors -------------------------------------------------------------------------------

    def vector(self, ids: Sequence[int | None], width: int) -> str:
        """The register of `width` lanes with these elements; lanes of None hold anything."""
        key = _key(ids, width)
        found = self._vectors.get(key)
        if found is None:
            known = [x for x in ids if x is not None]
            t = register_type(self.dtypes[known[0]])
            found = self._vectors[key] = Vector(self._gather(key, known, t, width), t, width)
            for lane, x in enumerate(ids):
                if x is not None and x not in self.lanes and len(set(known)) == len(known):
                    self.lanes[x] = (found, lane)
        return found.register

    def _gather(self, ids: tuple[int, ...], known: list[int], t: str, width: int) -> str:
        """Emit a vector of elements from wherever they are."""
        if len(set(known)) == 1:
            return self._splat(known[0], width)
        loaded = self._load(ids, width)
        if loaded:
            return loaded
        sources, single, fixed = self._sources(ids)
        current = ""
        if fixed:
            numbers = [
                literal(t, self.constants[x].item()) if x in self.constants else "poison"
                for x in ids
            ]
            current = f"<{', '.join(f'{t} {x}' for x in numbers)}>"
        for v, places in sources.items():
            if not current and all(a == b for a, b in places):
                current = self.wider(v, width)
                continue
            moved = [-1] * width
            for lane, source in places:
                moved[lane] = source
            if not current:
                current = self._shuffle(v, moved)
                continue
            mask = [lane if x >= 0 else -1 for lane, x in enumerate(ids)]
            narrow = v.width <= width
            for lane, source in places:
                mask[lane] = width + (source if narrow else lane)
            other = self.wider(v, width) if narrow else self._shuffle(v, moved)
            current = self._shuffle(Vector(current, t, width), mask, other)
        for lane in single:
            base = current or "poison"
            current = self.e(
                f"insertelement <{width} x {t}> {base}, {t} {self.scalar(ids[lane])}, i64 {lane}"
            )
        return current

    def _splat(self, x: int, width: int) -> str:
        """One element in all lanes."""
        L, d = self.writer(width), self.dtypes[x]
        if x in self.constants:
            return L.const(d, self.constants[x].item())
        if x not in self.scalars and x in self.lanes:
            v, lane = self.lanes[x]
            return self._shuffle(v, [lane] * width)
        if x not in self.scalars and x in self.memory:
            return L.load_splat(d, self._at(self.memory[x], x))
        return L.splat(d, self.scalar(x))

    def _sources(
        self, ids: tuple[int, ...]
    ) -> tuple[dict[Vector, list[tuple[int, int]]], list[int], bool]:
        """Per vector (lane, lane there); lanes to insert one by one; whether some are constant."""
        sources: dict[Vector, list[tuple[int, int]]] = {}
        single: list[int] = []
        fixed = False
        for lane, x in enumerate(ids):
            if x < 0:
                continue
            if x in self.constants:
                fixed = True
            elif x in self.lanes:
                v, source = self.lanes[x]
                sources.setdefault(v, []).append((lane, source))
            else:
                single.append(lane)
        return sources, single, fixed

    def _load(self, ids: tuple[int, ...], width: int) -> str:
        """A load, where the elements stand in memory one after the other; else nothing."""
        first, end = None, 0
        for lane, x in enumerate(ids):
            if x < 0:
                continue
            if x not in self.memory or (first is not None and x - lane != first):
                return ""
            first = x - lane if first is None else first
            end = lane + 1
        assert first is not None
        b = self.memory[first + end - 1]
        if first < b.first:
            return ""
        if first + width <= b.first + b.size and b.dtype.kind != "b":
            end = width
        if end == 1:
            return ""
        loaded = self.writer(end).load(b.dtype, self._at(b, first))
        if end == width:
            return loaded
        v = Vector(loaded, register_type(b.dtype), end)
        return self._shuffle(v, [*range(end), *[-1] * (width - end)])

    def wider(self, v: Vector, width: int) -> str:
        """The first lanes of v as a register of another width."""
        if v.width == width:
            return v.register
        if (v, width) not in self._wider:
            n = min(v.width, width)
            self._wider[v, width] = self._shuffle(v, [*range(n), *[-1] * (width - n)])
        return self._wider[v, width]

    def _shuffle(self, v: Vector, mask: Sequence[int], other: str = "poison") -> str:
        """Lanes of a vector, and of another register of that type, by number; -1 for any."""
        t = f"<{v.width} x {v.type}>"
        lanes = ", ".join("i32 poison" if m < 0 else f"i32 {m}" for m in mask)
        return self.e(f"shufflevector {t} {v.register}, {t} {other}, <{len(mask)} x i32> <{lanes}>")

    def vector_cost(self, ids: Sequence[int | None], width: int) -> float:
        """What `vector` will take."""
        key = _key(ids, width)
        if key in self._vectors:
            return 0
        known = [x for x in key if x >= 0]
        if all(x == known[0] for x in known):
            x = known[0]
            return 0 if x in self.constants else 0.5 if x in self.memory else 1
        if all(x in self.memory for x in known):
            first = next(x - lane for lane, x in enumerate(key) if x >= 0)
            if all(x < 0 or x - lane == first for lane, x in enumerate(key)):
                return 0.5
        sources, single, fixed = self._sources(key)
        cost = 1.5 * len(single) + len(sources) - (not fixed)
        if not fixed and not any(all(a == b for a, b in p) for p in sources.values()):
            cost += 1
        return max(0.0, cost)

    # --- memory --------------------------------------------------------------------------------

    def take(self, ids: Sequence[int]) -> list[tuple[int, int, str]]:
        """Registers of some elements that are to be stored: (start, count, register)."""
        out = []
        at = 0
        while at < len(ids):
            n, register = self._held(ids, at)
            if n == 1:
                n, register = self._readable(ids, at)
            out.append((at, n, register or self.scalar(ids[at])))
            at += n
        return out

    def _held(self, ids: Sequence[int], at: int) -> tuple[int, str]:
        """How many elements from `at` on stand side by side in a vector, and that part of it."""
        if ids[at] not in self.lanes:
            return 1, ""
        v, lane = self.lanes[ids[at]]
        n = 1
        while at + n < len(ids) and self.lanes.get(ids[at + n]) == (v, lane + n):
            n += 1
        if n == 1:
            return 1, ""
        whole = n == v.width
        return n, v.register if whole else self._shuffle(v, range(lane, lane + n))

    def _readable(self, ids: Sequence[int], at: int) -> tuple[int, str]:
        """The same for elements that are constants, side by side in memory, or all one."""
        first, n = ids[at], 1
        fixed, b = first in self.constants, self.memory.get(first)
        again = at + 1 < len(ids) and ids[at + 1] == first
        if not (fixed or again) and (b is None or first in self.scalars):
            return 1, ""
        most = self.width([self.dtypes[first]])
        while n < most and at + n < len(ids) and (
            ids[at + n] in self.constants if fixed
            else ids[at + n] == first if again
            else ids[at + n] == first + n and self.memory.get(first + n) is b
        ):
            n += 1
        return n, self.vector(ids[at : at + n], n) if n > 1 else ""

    def store(self, pointer: str, dtype: DType, taken: Sequence[tuple[int, int, str]]) -> None:
        """Write what `take` gave."""
        for at, n, register in taken:
            p = pointer if at == 0 else self.e(
                f"getelementptr inbounds i8, ptr {pointer}, i64 {at * dtype.itemsize}"
            )
            self.writer(n).store(dtype, register, p)


def _key(ids: Sequence[int | None], width: int) -> tuple[int, ...]:
    """Elements by lane; -1 where any will do."""
    own = tuple([-1 if x is None else x for x in ids])
    return own + (-1,) * (width - len(own))
