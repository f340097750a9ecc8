"""The function that Python calls, as LLVM text: from NumPy structs to the entry point and back.

    ptr @gx_call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)      METH_FASTCALL|METH_KEYWORDS

It serves the plain case: every input given in order, by position or by name, as a C-contiguous,
aligned, native-order ndarray of the declared dtype and a fitting shape, or as a number where there
are no axes (`numberarg`). It binds the dimensions, allocates the outputs, takes the arena, runs the
entry, and makes the result.
Everything else (other arguments, sizes that overflow, a status that is not success) undoes what
was begun and calls `%self`, the Python path, with the same arguments; it converts or explains.
That path runs a failed call again, which is right because a failed call changes nothing.

Imports: the C API, NumPy's, `gx_arena` (cells for the arenas kept), `gx_table` (pointers of
states and constants), `gx_names` (the inputs' names, interned), `gx_keys` (key strings of a dict),
`gx_locks` (per lock: the lock, its acquire, its release), `gx_recycler` (a `recycle.Cell`),
`gx_into` (a cell for the builtin that takes outputs), `gx_out` (the string "out").
"""

from __future__ import annotations

from graphc.binding import lone_name
from graphc.codegen.calling import pylayout as py
from graphc.codegen.calling.capi import APART, ARENA, COUNTED, DECLARE, LOCKS, NEW, OBJECTS, VECTOR
from graphc.codegen.calling.numberarg import may_be_number, take_number
from graphc.codegen.calling.outarg import slow_text
from graphc.codegen.calling.recycle import may_be_large
from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.pool.runtime import SCRATCH_BYTES
from graphc.codegen.program import Program
from graphc.codegen.sizes import CheckedSizes
from graphc.dims import Dim, evaluate, is_nonnegative
from graphc.types import TensorType

STACK_ARENA = 4096        # bytes up to which a static arena stands on the stack
RELEASE_BYTES = 32 << 10  # data from which the GIL is released
# A call that updates holds on to the GIL for longer, because while it does, looking at the
# variables' locks is enough and taking them is not needed.
RELEASE_BYTES_LOCKED = 256 << 10


class Wrapper:
    """Builds the text for one program; `shape` is none, one, list, tuple or dict.

    With `given`, the outputs are further arguments, which no other array may overlap, and the
    result is None.
    """

    def __init__(self, program: Program, shape: str, locks: int, given: bool):
        self.program, self.locks, self.given = program, locks, given
        self.shape = "none" if given else shape
        self.module = Module()
        self.emit = Emitter(self.module)
        self.dims: dict[str, str] = {}
        self.sizes = CheckedSizes(self.emit, self.dims)
        self.later: list[tuple[str, Dim]] = []  # axes that are expressions: checked once all bind
        self.made: list[str] = []               # the outputs, as they are allocated
        self.block = self.work = self.arena_bytes = ""

    def text(self) -> str:
        """The module."""
        e, p = self.emit, self.program
        for name in OBJECTS:
            self.module.define_global(name, f"@{name} = external global i8")
        self.module.declare("entry", f"declare i32 @{p.name}(ptr, ptr, ptr)")
        e.label("entry")
        slots = len(p.inputs) + len(p.outputs) + len(p.states) + len(p.constants)
        e.do(f"%argv = alloca [{max(1, slots)} x ptr], align 8")
        e.do(f"%dimv = alloca [{max(1, len(p.dims))} x i64], align 8")
        widest = max((len(o.type.shape) for o in p.outputs), default=0)
        e.do(f"%shape = alloca [{max(1, widest)} x i64], align 8")
        if self.given:
            e.do(f"%ranges = alloca [{2 * slots + 2} x i64], align 8")
        if self._arena_on_stack():
            e.do(f"%room = alloca [{STACK_ARENA if p.arena else 1} x i8], align 64")
        scalars = [i for i, q in enumerate(p.inputs) if may_be_number(q.type)]
        for i in scalars:
            e.do(f"%number.{i} = alloca i64, align 8")
            e.do(f"%number.{i}.beyond = alloca i32, align 4")
        count = len(p.inputs) + len(p.outputs) * self.given
        self._require(e(f"call i1 @gx_counted(i64 %nargs, ptr %kwnames, i64 {count})"))
        for i, q in enumerate(p.inputs):
            if i in scalars:
                self._number(i, q.type)
            else:
                self._array(i, q.type, py.C_CONTIGUOUS | py.ALIGNED)
        self._bind()
        self._outputs()
        self._table()
        self._call()
        self._result()
        self._exits()
        self.module.define(
            "gx_call",
            "define ptr @gx_call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) nounwind {\n"
            + e.text() + "\n}\n" + COUNTED + LOCKS * bool(self.locks)
            + ARENA * (not self._arena_on_stack()) + APART * self.given
            + (slow_text(self.shape, len(p.inputs), len(p.outputs)) if self._takes_out() else "")
            + NEW * any(may_be_large(o.type) for o in p.outputs) + VECTOR * (not self.given),
        )
        for name in DECLARE:
            if f"@{name}(" in self.module.functions["gx_call"]:
                self.module.declare(name, DECLARE[name])
        return self.module.text()

    # -- arguments -----------------------------------------------------------------------------

    def _require(self, *conditions: str) -> None:
        """Go on only if all conditions hold; nothing has to be undone yet."""
        self.emit.require(self.emit.all_of(conditions), "slow")

    def _number(self, i: int, type: TensorType) -> None:
        """Argument i is a number, or a 0-d array."""
        e = self.emit
        at, array = take_number(e, e.field("%args", 8 * i, "ptr"), type.dtype, f"%number.{i}")
        self._store("%argv", i, at, "ptr")
        done = e.fresh()
        e.do(f"br label %{done}")
        e.label(array)
        self._array(i, type, py.C_CONTIGUOUS | py.ALIGNED)
        e.do(f"br label %{done}")
        e.label(done)

    def _array(self, i: int, type: TensorType, wanted: int) -> None:
        """Argument i is a native array of this type, with the flags wanted."""
        e = self.emit
        o = self.emit.field("%args", 8 * i, "ptr")
        kind = self.emit.field(o, py.TYPE, "ptr")
        self._require(e(f"icmp eq ptr {kind}, @PyArray_Type"))
        descr = self.emit.field(o, py.DESCR, "ptr")
        number = self.emit.field(descr, py.TYPE_NUM, "i32")
        order = self.emit.field(descr, py.BYTEORDER, "i8")
        flags = self.emit.field(o, py.FLAGS, "i32")
        masked = e(f"and i32 {flags}, {wanted}")
        ndim = self.emit.field(o, py.NDIM, "i32")
        self._require(
            e(f"icmp eq i32 {number}, {type.dtype.numpy.num}"),
            e(f"icmp ne i8 {order}, {ord('>')}"),
            e(f"icmp eq i32 {masked}, {wanted}"),
            e(f"icmp eq i32 {ndim}, {len(type.shape)}"),
        )
        data = self.emit.field(o, py.DATA, "ptr")
        self._store("%argv", i, data, "ptr")
        if not type.shape:
            return
        shape = self.emit.field(o, py.SHAPE, "ptr")
        same = []
        for axis, size in enumerate(type.shape):
            n = self.emit.field(shape, 8 * axis, "i64")
            if isinstance(size, int):
                same.append(e(f"icmp eq i64 {n}, {size}"))
            elif (name := lone_name(size)) is None:
                self.later.append((n, size))
            elif name in self.dims:
                same.append(e(f"icmp eq i64 {n}, {self.dims[name]}"))
            else:
                self.dims[name] = n
        if same:
            self._require(*same)

    def _bind(self) -> None:
        """Write the dimensions for the entry, and check the axes that are expressions."""
        for axis, name in enumerate(self.program.dims):
            self._store("%dimv", axis, self.dims[name], "i64")
        self._check_later()

    def _check_later(self) -> None:
        """Compare axes that are expressions with what they must be."""
        same = [self.emit(f"icmp eq i64 {n}, {self.sizes.value(s)}") for n, s in self.later]
        if same:
            self._require(*same)
        self.later = []

    def _store(self, base: str, index: int, value: str, type: str) -> None:
        at = self.emit(f"getelementptr {type}, ptr {base}, i64 {index}")
        self.emit.do(f"store {type} {value}, ptr {at}")

    # -- outputs and arena ---------------------------------------------------------------------

    def _takes_out(self) -> bool:
        """Whether the function takes `out=`."""
        return self.shape != "none" and bool(self.program.outputs)

    def _arena_on_stack(self) -> bool:
        a = self.program.arena
        return isinstance(a, int) and a <= STACK_ARENA

    def _outputs(self) -> None:
        """All sizes are checked before the first allocation; that can only fail for memory."""
        e, p, s = self.emit, self.program, self.sizes
        out_bytes = [s.bytes(o.type.shape, o.type.dtype.itemsize) for o in p.outputs]
        self.arena_bytes = s.size(p.arena)
        in_bytes = [s.bytes(q.type.shape, q.type.dtype.itemsize) for q in p.inputs]
        held = sum(evaluate(t.type.bytes, {}) for t in p.states)
        total = str(held)
        # The matrix kernels' scratch, which stands at the end of an arena, says nothing of work.
        scratch = p.arena - SCRATCH_BYTES
        arena = s.value(scratch) if is_nonnegative(scratch) else self.arena_bytes
        for b in (*out_bytes, *in_bytes, arena):
            total = s.combined("add", total, b)
        self.work = total
        shapes = [[s.value(n) for n in o.type.shape] for o in p.outputs]
        bad = s.bad()
        if bad != "false":
            self._require(e(f"xor i1 {bad}, true"))
        if self.given:
            self._given(in_bytes, out_bytes)
        if self.given:
            return
        for k, (o, shape) in enumerate(zip(p.outputs, shapes, strict=True)):
            for axis, n in enumerate(shape):
                self._store("%shape", axis, n, "i64")
            what = f"i32 {len(shape)}, ptr %shape, i32 {o.type.dtype.numpy.num}"
            if not may_be_large(o.type):
                a = e(
                    f"call ptr @PyArray_New(ptr @PyArray_Type, {what}, "
                    "ptr null, ptr null, i32 0, i32 0, ptr null)"
                )
            else:
                a = e(f"call ptr @gx_new({what}, i64 {out_bytes[k]})")
            e.leave(e(f"icmp eq ptr {a}, null"), f"nomemory{k}")
            self.made.append(a)
            self._store("%argv", len(p.inputs) + k, self.emit.field(a, py.DATA, "ptr"), "ptr")

    def _given(self, in_bytes: list[str], out_bytes: list[str]) -> None:
        """Outputs that the caller brings: of the right type and size, and apart from the rest."""
        e, p = self.emit, self.program
        for k, o in enumerate(p.outputs):
            self._array(len(p.inputs) + k, o.type, py.C_CONTIGUOUS | py.ALIGNED | py.WRITEABLE)
        self._check_later()
        for i, n in enumerate((*in_bytes, *out_bytes)):
            data = self.emit.field("%argv", 8 * i, "i64")
            self._store("%ranges", 2 * i, data, "i64")
            self._store("%ranges", 2 * i + 1, e(f"add i64 {data}, {n}"), "i64")
        count = len(in_bytes) + len(out_bytes)
        if count > 1 and out_bytes:
            self._require(
                e(f"call i1 @gx_apart(ptr %ranges, i64 {len(in_bytes)}, i64 {count})")
            )

    def _table(self) -> None:
        """Pointers of states and constants behind those of inputs and outputs."""
        e, p = self.emit, self.program
        first = len(p.inputs) + len(p.outputs)
        count = len(p.states) + len(p.constants)
        if count <= 16:
            for i in range(count):
                self._store("%argv", first + i, self.emit.field("@gx_table", 8 * i, "ptr"), "ptr")
            return
        before, loop, after, at = e.block, e.fresh(), e.fresh(), "%" + e.fresh("i")
        up = "%" + e.fresh("i")
        e.do(f"br label %{loop}")
        e.label(loop)
        e.do(f"{at} = phi i64 [ 0, %{before} ], [ {up}, %{loop} ]")
        source = e(f"getelementptr ptr, ptr @gx_table, i64 {at}")
        value = e(f"load ptr, ptr {source}")
        slot = e(f"add i64 {at}, {first}")
        place = e(f"getelementptr ptr, ptr %argv, i64 {slot}")
        e.do(f"store ptr {value}, ptr {place}")
        e.do(f"{up} = add i64 {at}, 1")
        more = e(f"icmp ult i64 {up}, {count}")
        e.do(f"br i1 {more}, label %{loop}, label %{after}")
        e.label(after)

    def _arena(self) -> str:
        """Where the kernels compute: on the stack, or in an arena from an earlier call."""
        e = self.emit
        if self._arena_on_stack():
            return "%room"
        self.block = block = e(f"call ptr @gx_take_arena(i64 {self.arena_bytes})")
        e.leave(e(f"icmp eq ptr {block}, null"), "noarena")
        return e(f"getelementptr i8, ptr {block}, i64 64")

    def _give_back(self) -> None:
        """Leave the arena to a later call."""
        if not self._arena_on_stack():
            self.emit.do(f"call void @gx_give_arena(ptr {self.block})")

    # -- running -------------------------------------------------------------------------------

    def _call(self) -> None:
        """Run the entry, without the GIL where there is much to do."""
        e = self.emit
        arena = self._arena()
        call = f"call i32 @{self.program.name}(ptr %argv, ptr %dimv, ptr {arena})"
        limit = RELEASE_BYTES_LOCKED if self.locks else RELEASE_BYTES
        if self.work.isdigit():
            big = "true" if int(self.work) > limit else "false"
        else:
            big = e(f"icmp ugt i64 {self.work}, {limit}")
        status = []
        after = e.fresh()
        large, small = e.fresh(), e.fresh()
        if big not in ("true", "false"):
            e.do(f"br i1 {big}, label %{large}, label %{small}")
        if big != "true":
            if big != "false":
                e.label(small)
            if self.locks:  # only now: making outputs may run the user's finalisers
                e.require(e(f"call i1 @gx_free(i64 {self.locks})"), "locked")
            status.append((e(call), e.block))
            e.do(f"br label %{after}")
        if big != "false":
            if big != "true":
                e.label(large)
            if self.locks:
                e.require(e(f"call i1 @gx_acquire(i64 {self.locks})"), "interrupted")
            thread = e("call ptr @PyEval_SaveThread()")
            s = e(call)
            e.do(f"call void @PyEval_RestoreThread(ptr {thread})")
            if self.locks:
                e.do(f"call void @gx_release(i64 {self.locks})")
            status.append((s, e.block))
            e.do(f"br label %{after}")
        e.label(after)
        code = e("phi i32 " + ", ".join(f"[ {s}, %{b} ]" for s, b in status))
        self._give_back()
        e.leave(e(f"icmp ne i32 {code}, 0"), f"nomemory{len(self.made)}")

    def _result(self) -> None:
        """Return the outputs in the shape that is wanted."""
        e, made = self.emit, self.made
        if self.shape == "one":
            e.do(f"ret ptr {made[0]}")
            return
        if self.shape == "none":
            e.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
            e.do("ret ptr @_Py_NoneStruct")
            return
        kind = {"list": "PyList", "tuple": "PyTuple", "dict": "PyDict"}[self.shape]
        box = e(f"call ptr @{kind}_New({'' if kind == 'PyDict' else f'i64 {len(made)}'})")
        e.leave(e(f"icmp eq ptr {box}, null"), f"failed{len(made)}")
        for i, o in enumerate(made):
            if kind == "PyDict":
                key = self.emit.field("@gx_keys", 8 * i, "ptr")
                e(f"call i32 @PyDict_SetItem(ptr {box}, ptr {key}, ptr {o})")
                e.do(f"call void @Py_DecRef(ptr {o})")
            else:
                e(f"call i32 @{kind}_SetItem(ptr {box}, i64 {i}, ptr {o})")
        e.do(f"ret ptr {box}")

    def _exits(self) -> None:
        """`nomemoryK` undoes K outputs, clears the error and goes slow; `failedK` raises it."""
        e, n = self.emit, len(self.made)
        if self.locks and "label %interrupted" in e.text():
            e.label("interrupted")
            self._give_back()
            e.do(f"br label %failed{n}")
        if self.locks and "label %locked" in e.text():
            e.label("locked")
            self._give_back()
            e.do(f"br label %nomemory{n}")
        if not self._arena_on_stack():
            e.label("noarena")
            e.do(f"br label %nomemory{n}")
        for k in range(n, 0, -1):
            e.label(f"nomemory{k}")
            e.do(f"call void @Py_DecRef(ptr {self.made[k - 1]})")
            e.do(f"br label %nomemory{k - 1}")
        e.label("nomemory0")
        e.do("call void @PyErr_Clear()")
        e.do("br label %slow")
        e.label("slow")
        given = "ptr %self, ptr %args, i64 %nargs, ptr %kwnames"
        slow = "@gx_slow" if self._takes_out() else "@PyObject_Vectorcall"
        r = e(f"call ptr {slow}({given})")
        e.do(f"ret ptr {r}")
        for k in range(n, 0, -1):
            e.label(f"failed{k}")
            e.do(f"call void @Py_DecRef(ptr {self.made[k - 1]})")
            e.do(f"br label %failed{k - 1}")
        e.label("failed0")
        e.do("ret ptr null")
