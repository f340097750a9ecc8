"""The exported functions of a library as LLVM text: checks, arena, choice of level, status codes.

    i32 digits_step(ptr %s, ptr %x, ptr %y, ptr %loss, i64 %batch, ptr %arena)

checks its arguments, calls the program's entry for this CPU, and makes its status the library's.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.library.abi import SLACK, Entry, Field
from graphc.codegen.library.levels import NUMBERS
from graphc.codegen.library.small import is_small, usual_call
from graphc.codegen.program import FIRST_SITE, Program, Status
from graphc.codegen.sizes import CheckedSizes
from graphc.ir import Literal, State

# Ranges are (begin, bytes) pairs; the first `writable` of them may overlap none of the others.
# Addresses are compared as distances, which cannot overflow: |a - b| < bytes of the lower one.
OVERLAP_TEXT = """
define internal i1 @graphc.overlap(ptr %ranges, i64 %writable, i64 %all) nounwind {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %outer.end ]
  %more.i = icmp ult i64 %i, %writable
  br i1 %more.i, label %row, label %fine
row:
  %i2 = shl i64 %i, 1
  %pi = getelementptr i64, ptr %ranges, i64 %i2
  %bi = load i64, ptr %pi
  %pni = getelementptr i64, ptr %pi, i64 1
  %ni = load i64, ptr %pni
  %i.next = add i64 %i, 1
  br label %inner
inner:
  %j = phi i64 [ %i.next, %row ], [ %j.next, %step ]
  %more.j = icmp ult i64 %j, %all
  br i1 %more.j, label %test, label %outer.end
test:
  %j2 = shl i64 %j, 1
  %pj = getelementptr i64, ptr %ranges, i64 %j2
  %bj = load i64, ptr %pj
  %pnj = getelementptr i64, ptr %pj, i64 1
  %nj = load i64, ptr %pnj
  %some.i = icmp sgt i64 %ni, 0
  %some.j = icmp sgt i64 %nj, 0
  %some = and i1 %some.i, %some.j
  %i.first = icmp ule i64 %bi, %bj
  %up = sub i64 %bj, %bi
  %down = sub i64 %bi, %bj
  %up.in = icmp ult i64 %up, %ni
  %down.in = icmp ult i64 %down, %nj
  %in = select i1 %i.first, i1 %up.in, i1 %down.in
  %bad = and i1 %some, %in
  br i1 %bad, label %overlap, label %step
step:
  %j.next = add i64 %j, 1
  br label %inner
outer.end:
  br label %outer
overlap:
  ret i1 true
fine:
  ret i1 false
}
"""


class EntryText:
    """Builds the two functions of one entry.

    entries: level -> symbol of the program's entry.
    data: variables that are constants here, and large constants -> pointer expressions.
    """

    def __init__(
        self, entry: Entry, fields: Mapping[State, Field], state_bytes: int,
        entries: Mapping[str, str], data: Mapping[State | Literal, str],
    ):
        self.entry, self.fields, self.state_bytes = entry, fields, state_bytes
        self.entries, self.data = entries, data
        self.module = Module()
        self.emit = Emitter(self.module)
        self.regs = {n: f"%dim.{c}" for n, c in entry.dims}

    def text(self) -> str:
        """Declarations and functions, without metadata."""
        self._arena_function()
        self._call_function()
        self._in_function()
        m = self.module
        return "\n".join([*m.declarations.values(), *m.functions.values()])

    # -- the size of the arena -----------------------------------------------------------------

    def _arena_function(self) -> None:
        """`NAME_arena`: the bytes, or -1."""
        e = self.emit = Emitter(self.module)
        sizes = CheckedSizes(e, self.regs)
        e.label("entry")
        self._check_dims(-1)
        n = sizes.size(self.entry.arena)
        e.return_if(sizes.bad(), -1, "i64")
        e.do(f"ret i64 {n}")
        params = ", ".join(f"i64 {r}" for r in self.regs.values())
        name = self.entry.arena_c
        self.module.define(name, f"define i64 @{name}({params}) nounwind {{\n{e.text()}\n}}")

    def _check_dims(self, code: int) -> None:
        """Return a code for a negative dimension."""
        for r in self.regs.values():
            negative = self.emit(f"icmp slt i64 {r}, 0")
            self.emit.return_if(negative, code, "i64" if code < 0 else "i32")

    # -- the call ------------------------------------------------------------------------------

    def _call_function(self) -> None:
        """The function itself: checks, arena, and the program for this CPU."""
        entry = self.entry
        e = self.emit = Emitter(self.module)
        sizes = CheckedSizes(e, self.regs)
        arrays = [*entry.inputs, *entry.outputs]
        pointers = [f"%arg.{k}" for k in range(len(arrays))]
        inputs = len(entry.inputs)
        e.label("entry")
        ranges = len(arrays) + 2
        programs = [p for _, p in entry.unit.programs]
        slots = max(len(arrays) + len(p.states) + len(p.constants) for p in programs)
        e.do(f"%ranges = alloca [{2 * ranges} x i64], align 16")
        e.do(f"%args = alloca [{max(1, slots)} x i64], align 16")
        e.do(f"%dims = alloca [{max(1, len(entry.dims))} x i64], align 16")
        self._check_dims(Status.NEGATIVE_DIMENSION)
        bytes_ = [sizes.value(a.type.bytes) for a in arrays]
        promised = sizes.value(entry.arena)
        work = sizes.value(entry.work)
        e.return_if(sizes.bad(), Status.SIZE_OVERFLOW)
        self._check_null(pointers[:inputs], bytes_[:inputs])
        missing, present, arena_bytes = self._missing(pointers[inputs:], bytes_[inputs:], work)
        self._check_overlap(pointers, [*bytes_[:inputs], *present], promised)
        e.do("%level = call i32 @graphc.level()")
        lowest = NUMBERS[entry.unit.programs[0][0]]
        if lowest > 1:
            e.return_if(e(f"icmp slt i32 %level, {lowest}"), Status.UNSUPPORTED_CPU)
        arena, own = self._arena(arena_bytes)
        made = self._substitutes(pointers[inputs:], bytes_[inputs:], missing, arena, work)
        status = self.dispatch([*pointers[:inputs], *made], arena)
        if own:
            give, after = e.fresh("free"), e.fresh("after")
            e.do(f"br i1 {own}, label %{give}, label %{after}")
            e.label(give)
            self.module.declare("free", "declare void @free(ptr)")
            e.do(f"call void @free(ptr {arena})")
            e.do(f"br label %{after}")
            e.label(after)
        e.do(f"ret i32 {self.status(status)}")
        body, head, name = e.text(), f"({', '.join(self.params())}) nounwind", entry.c
        if is_small(entry):
            name = f"{entry.c}.rest"
            usual = usual_call(self, [int(n) for n in bytes_], int(promised), name)
            self.module.define(entry.c, f"define i32 @{entry.c}{head} {{\n{usual}\n}}")
            self.module.define(name, f"define internal i32 @{name}{head} noinline {{\n{body}\n}}")
        else:
            self.module.define(name, f"define i32 @{name}{head} {{\n{body}\n}}")

    def status(self, code: str) -> str:
        """The library's code for a program's."""
        entry, e = self.entry, self.emit
        if entry.first_code == FIRST_SITE or not entry.unit.programs[0][1].sites:
            return code
        site = e(f"icmp sge i32 {code}, {FIRST_SITE}")
        moved = e(f"add i32 {code}, {entry.first_code - FIRST_SITE}")
        return e(f"select i1 {site}, i32 {moved}, i32 {code}")

    def params(self) -> list[str]:
        """The parameters of a call."""
        count = len(self.entry.inputs) + len(self.entry.outputs)
        params = ["ptr %s"] * bool(self.entry.state) + [f"ptr %arg.{k}" for k in range(count)]
        return [*params, *(f"i64 {r}" for r in self.regs.values()), "ptr %arena"]

    def _in_function(self) -> None:
        """The call behind a comparison of the arena's size with what is promised to do."""
        entry, params = self.entry, self.params()
        e = self.emit = Emitter(self.module)
        e.label("entry")
        dims = ", ".join(f"i64 {r}" for r in self.regs.values())
        given = e("icmp ne ptr %arena, null")
        less = e(f"icmp slt i64 %bytes, {e(f'call i64 @{entry.arena_c}({dims})')}")
        e.return_if(e(f"and i1 {given}, {less}"), Status.ARENA_TOO_SMALL)
        status = e(f"tail call i32 @{entry.c}({', '.join(params)})")
        e.do(f"ret i32 {status}")
        self.module.define(
            entry.in_c,
            f"define i32 @{entry.in_c}({', '.join([*params, 'i64 %bytes'])}) nounwind {{\n"
            f"{e.text()}\n}}",
        )

    def _check_null(self, pointers: list[str], sizes: list[str]) -> None:
        """An array that has elements must be somewhere."""
        e = self.emit
        checked = list(zip(pointers, sizes, strict=True))
        if self.entry.state and self.state_bytes:
            checked.append(("%s", "1"))

        def missing(p: str, size: str) -> str:
            null = e(f"icmp eq ptr {p}, null")
            return null if size.isdigit() else e(
                f"and i1 {null}, {e(f'icmp sgt i64 {size}, 0')}"
            )

        nulls = (missing(p, size) for p, size in checked if size != "0")
        e.return_if(e.any_of(nulls), Status.NULL_ARGUMENT)

    def _missing(self, pointers: list[str], sizes: list[str], work: str) -> tuple[
        list[str], list[str], str
    ]:
        """Which outputs are NULL, the sizes of the others, the bytes of arena that this takes."""
        e = self.emit
        missing = [e(f"icmp eq ptr {p}, null") for p in pointers]
        present, total, some = [], work, "false"
        for null, size in zip(missing, sizes, strict=True):
            room = e(f"select i1 {null}, i64 {size}, i64 0")
            total = e(f"add i64 {total}, {room}")
            present.append(e(f"sub i64 {size}, {room}"))
            used = e(f"icmp ne i64 {room}, 0")
            some = used if some == "false" else e(f"or i1 {some}, {used}")
        if missing:
            slack = e(f"select i1 {some}, i64 {SLACK}, i64 0")
            total = e(f"add i64 {total}, {slack}")
        return missing, present, total

    def _substitutes(
        self, pointers: list[str], sizes: list[str], missing: list[str], arena: str, work: str
    ) -> list[str]:
        """The outputs, with room in the arena in the place of NULL."""
        e = self.emit
        out = list(pointers)
        width = [a.type.dtype.itemsize for a in self.entry.outputs]
        at = ""
        for k in sorted(range(len(pointers)), key=lambda k: -width[k]):
            if not at:
                start = e(f"ptrtoint ptr {arena} to i64")
                up = e(f"add i64 {e(f'add i64 {start}, {work}')}, {SLACK - 1}")
                at = e(f"and i64 {up}, {-SLACK}")
            room = e(f"inttoptr i64 {at} to ptr")
            out[k] = e(f"select i1 {missing[k]}, ptr {room}, ptr {pointers[k]}")
            at = e(f"add i64 {at}, {e(f'select i1 {missing[k]}, i64 {sizes[k]}, i64 0')}")
        return out

    def _check_overlap(self, pointers: list[str], sizes: list[str], arena_bytes: str) -> None:
        """Outputs, state and arena apart from each other and from inputs."""
        e, entry = self.emit, self.entry
        k = len(entry.inputs)
        pairs = list(zip(pointers, sizes, strict=True))
        written, read = pairs[k:], pairs[:k]
        if entry.state:
            (written if entry.state == "update" else read).append(("%s", str(self.state_bytes)))
        if arena_bytes != "0":
            none = e("icmp eq ptr %arena, null")
            written.append(("%arena", e(f"select i1 {none}, i64 0, i64 {arena_bytes}")))
        if not written or len(written) + len(read) < 2:
            return
        for n, (p, size) in enumerate([*written, *read]):
            self._store("%ranges", 2 * n, "i64", e(f"ptrtoint ptr {p} to i64"))
            self._store("%ranges", 2 * n + 1, "i64", size)
        bad = e(
            f"call i1 @graphc.overlap(ptr %ranges, i64 {len(written)}, "
            f"i64 {len(written) + len(read)})"
        )
        e.return_if(bad, Status.OVERLAP)

    def _arena(self, size: str) -> tuple[str, str]:
        """The arena, and whether it is ours to free ("" if never)."""
        if size == "0":
            return "null", ""
        e = self.emit
        own = e(f"and i1 {e('icmp eq ptr %arena, null')}, {e(f'icmp ne i64 {size}, 0')}")
        before, make, ready = e.block, e.fresh("make"), e.fresh("ready")
        e.do(f"br i1 {own}, label %{make}, label %{ready}")
        e.label(make)
        self.module.declare("malloc", "declare ptr @malloc(i64)")
        made = e(f"call ptr @malloc(i64 {size})")
        e.return_if(e(f"icmp eq ptr {made}, null"), Status.OUT_OF_MEMORY)
        last = e.block
        e.do(f"br label %{ready}")
        e.label(ready)
        return e(f"phi ptr [ %arena, %{before} ], [ {made}, %{last} ]"), own

    def dispatch(self, pointers: list[str], arena: str) -> str:
        """Call the program of the highest level that this CPU has."""
        e = self.emit
        for k, p in enumerate(pointers):
            self._store("%args", k, "ptr", p)
        results: list[tuple[str, str]] = []
        done = e.fresh("done")
        programs = self.entry.unit.programs
        levels = list(reversed([
            (level, p) for k, (level, p) in enumerate(programs)
            if k == 0 or self.entries[level] != self.entries[programs[k - 1][0]]
        ]))
        for k, (level, program) in enumerate(levels):
            following = ""
            if k + 1 < len(levels):
                this, following = e.fresh(level), e.fresh("below")
                have = e(f"icmp sge i32 %level, {NUMBERS[level]}")
                e.do(f"br i1 {have}, label %{this}, label %{following}")
                e.label(this)
            self._bind(program, len(pointers))
            r = e(f"call i32 @{self.entries[level]}(ptr %args, ptr %dims, ptr {arena})")
            results.append((r, e.block))
            e.do(f"br label %{done}")
            if following:
                e.label(following)
        e.label(done)
        return e("phi i32 " + ", ".join(f"[ {r}, %{b} ]" for r, b in results))

    def _bind(self, program: Program, at: int) -> None:
        """States, constants and dimensions, in the program's own order."""
        e = self.emit
        for s in program.states:
            own = self.entry.unit.owners.get(s, s)
            if own in self.fields:
                p = e(f"getelementptr i8, ptr %s, i64 {self.fields[own].offset}")
            else:
                p = self.data[own]
            self._store("%args", at, "ptr", p)
            at += 1
        for c in program.constants:
            self._store("%args", at, "ptr", self.data[c])
            at += 1
        for k, n in enumerate(program.dims):
            self._store("%dims", k, "i64", self.regs[n])

    def _store(self, base: str, k: int, ty: str, value: str) -> None:
        p = self.emit(f"getelementptr inbounds i64, ptr {base}, i64 {k}")
        self.emit.do(f"store {ty} {value}, ptr {p}, align 8")
