"""The C functions that wrappers call, and locking by them, as LLVM text."""

from __future__ import annotations

from graphc.codegen.calling import pylayout as py
from graphc.codegen.calling.recycle import ARENAS
from graphc.vectorcall import GIVEN

OBJECTS = (
    "gx_arena", "gx_table", "gx_names", "gx_keys", "gx_locks", "PyArray_Type", "PyFloat_Type",
    "_Py_NoneStruct", "gx_recycler", "gx_into", "gx_out", "PyList_Type", "PyTuple_Type",
    "PyDict_Type", "PyLong_Type", *py.SCALARS.values(),
)
DECLARE = {
    "PyArray_New": "declare ptr @PyArray_New(ptr, i32, ptr, i32, ptr, ptr, i32, i32, ptr)",
    "PyDataMem_SetHandler": "declare ptr @PyDataMem_SetHandler(ptr)",
    "PyEval_SaveThread": "declare ptr @PyEval_SaveThread()",
    "PyEval_RestoreThread": "declare void @PyEval_RestoreThread(ptr)",
    "PyObject_Vectorcall": "declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)",
    "Py_IncRef": "declare void @Py_IncRef(ptr)",
    "Py_DecRef": "declare void @Py_DecRef(ptr)",
    "PyList_New": "declare ptr @PyList_New(i64)",
    "PyList_SetItem": "declare i32 @PyList_SetItem(ptr, i64, ptr)",
    "PyTuple_New": "declare ptr @PyTuple_New(i64)",
    "PyTuple_SetItem": "declare i32 @PyTuple_SetItem(ptr, i64, ptr)",
    "PyDict_New": "declare ptr @PyDict_New()",
    "PyDict_GetItem": "declare ptr @PyDict_GetItem(ptr, ptr)",
    "PyDict_Size": "declare i64 @PyDict_Size(ptr)",
    "PyDict_SetItem": "declare i32 @PyDict_SetItem(ptr, ptr, ptr)",
    "PyErr_Clear": "declare void @PyErr_Clear()",
    "PyErr_Fetch": "declare void @PyErr_Fetch(ptr, ptr, ptr)",
    "PyErr_Restore": "declare void @PyErr_Restore(ptr, ptr, ptr)",
    "PyLong_AsLongLongAndOverflow": "declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "malloc": "declare ptr @malloc(i64)",
    "free": "declare void @free(ptr)",
}

# gx_new: an array of so many bytes, from NumPy or, where it is large, from what `recycle` keeps.
NEW = """
define internal ptr @gx_new(i32 %ndim, ptr %shape, i32 %type, i64 %bytes) nounwind {
entry:
  %from = load i64, ptr @gx_recycler
  %large = icmp uge i64 %bytes, %from
  br i1 %large, label %hook, label %plain
plain:
  %a = call ptr @PyArray_New(ptr @PyArray_Type, i32 %ndim, ptr %shape, i32 %type, ptr null, \
ptr null, i32 0, i32 0, ptr null)
  ret ptr %a
hook:
  %handler.at = getelementptr i8, ptr @gx_recycler, i64 8
  %handler = load ptr, ptr %handler.at
  %theirs = call ptr @PyDataMem_SetHandler(ptr %handler)
  %unset = icmp eq ptr %theirs, null
  br i1 %unset, label %failed, label %make
make:
  %b = call ptr @PyArray_New(ptr @PyArray_Type, i32 %ndim, ptr %shape, i32 %type, ptr null, \
ptr null, i32 0, i32 0, ptr null)
  %none = icmp eq ptr %b, null
  br i1 %none, label %clear, label %restore
clear:
  call void @PyErr_Clear()
  br label %restore
restore:
  %ours = call ptr @PyDataMem_SetHandler(ptr %theirs)
  call void @Py_DecRef(ptr %theirs)
  %kept = icmp eq ptr %ours, null
  br i1 %kept, label %undo, label %restored
restored:
  call void @Py_DecRef(ptr %ours)
  ret ptr %b
undo:
  br i1 %none, label %failed, label %drop
drop:
  call void @Py_DecRef(ptr %b)
  br label %failed
failed:
  ret ptr null
}
"""

# Arenas wait in cells from one call to the next, as many as calls ran at the same time, up to
# ARENAS. gx_take_arena: one of at least so many bytes, or null; its size stands 64 bytes before
# what may be used. gx_give_arena: it waits for the next call, or is freed where all cells are full.
ARENA = f"""
define internal ptr @gx_take_arena(i64 %bytes) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %j, %empty ]
  %more = icmp ult i64 %i, {ARENAS}
  br i1 %more, label %look, label %make
look:
  %cell = getelementptr ptr, ptr @gx_arena, i64 %i
  %held = atomicrmw xchg ptr %cell, ptr null acq_rel
  %none = icmp eq ptr %held, null
  br i1 %none, label %empty, label %measure
empty:
  %j = add i64 %i, 1
  br label %each
measure:
  %size = load i64, ptr %held
  %fits = icmp uge i64 %size, %bytes
  br i1 %fits, label %have, label %drop
drop:
  call void @free(ptr %held)
  br label %make
make:
  %need = add i64 %bytes, 64
  %new = call ptr @malloc(i64 %need)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %refuse, label %sized
sized:
  store i64 %bytes, ptr %new
  br label %have
have:
  %arena = phi ptr [ %held, %measure ], [ %new, %sized ]
  ret ptr %arena
refuse:
  ret ptr null
}}
define internal void @gx_give_arena(ptr %arena) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %j, %full ]
  %more = icmp ult i64 %i, {ARENAS}
  br i1 %more, label %try, label %drop
try:
  %cell = getelementptr ptr, ptr @gx_arena, i64 %i
  %swap = cmpxchg ptr %cell, ptr null, ptr %arena acq_rel monotonic
  %kept = extractvalue {{ ptr, i1 }} %swap, 1
  br i1 %kept, label %done, label %full
full:
  %j = add i64 %i, 1
  br label %each
drop:
  call void @free(ptr %arena)
  br label %done
done:
  ret void
}}
"""

# gx_free: nobody holds any of the locks. gx_acquire: all are taken, in the order of the table, or
# none and an exception is set. Each entry is { lock, acquire, release }.
LOCKS = f"""
define internal i1 @gx_free(i64 %n) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %each ]
  %any = phi i64 [ 0, %entry ], [ %any.next, %each ]
  %at = mul i64 %i, 24
  %slot = getelementptr i8, ptr @gx_locks, i64 %at
  %lock = load ptr, ptr %slot
  %word = getelementptr i8, ptr %lock, i64 {py.RLOCK_COUNT}
  %count = load i64, ptr %word
  %any.next = or i64 %any, %count
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %each, label %done
done:
  %free = icmp eq i64 %any.next, 0
  ret i1 %free
}}
define internal i1 @gx_acquire(i64 %n) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %held ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %take, label %done
take:
  %at = mul i64 %i, 24
  %slot = getelementptr i8, ptr @gx_locks, i64 %at
  %method = getelementptr i8, ptr %slot, i64 8
  %acquire = load ptr, ptr %method
  %r = call ptr @PyObject_Vectorcall(ptr %acquire, ptr null, i64 0, ptr null)
  %bad = icmp eq ptr %r, null
  br i1 %bad, label %undo, label %held
held:
  call void @Py_DecRef(ptr %r)
  %i.next = add i64 %i, 1
  br label %each
undo:
  %type = alloca ptr, align 8
  %value = alloca ptr, align 8
  %trace = alloca ptr, align 8
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %trace)
  call void @gx_release(i64 %i)
  %t = load ptr, ptr %type
  %v = load ptr, ptr %value
  %b = load ptr, ptr %trace
  call void @PyErr_Restore(ptr %t, ptr %v, ptr %b)
  ret i1 false
done:
  ret i1 true
}}
define internal void @gx_release(i64 %n) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ %n, %entry ], [ %k, %on ]
  %any = icmp ugt i64 %i, 0
  br i1 %any, label %give, label %done
give:
  %k = sub i64 %i, 1
  %at = mul i64 %k, 24
  %slot = getelementptr i8, ptr @gx_locks, i64 %at
  %method = getelementptr i8, ptr %slot, i64 16
  %release = load ptr, ptr %method
  %r = call ptr @PyObject_Vectorcall(ptr %release, ptr null, i64 0, ptr null)
  %none = icmp eq ptr %r, null
  br i1 %none, label %on, label %drop
drop:
  call void @Py_DecRef(ptr %r)
  br label %on
on:
  br label %each
done:
  ret void
}}
"""

# gx_vector: gx_call by the vectorcall protocol, for objects of `graphc.vectorcall`; the top bit of
# the count only says that the word before the arguments may be written.
VECTOR = f"""
define ptr @gx_vector(ptr %object, ptr %args, i64 %count, ptr %kwnames) nounwind {{
  %given.at = getelementptr i8, ptr %object, i64 {GIVEN}
  %given = load ptr, ptr %given.at
  %nargs = and i64 %count, {(1 << 63) - 1}
  %r = tail call ptr @gx_call(ptr %given, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %r
}}
"""

# gx_counted: there are n arguments, and those by name are the inputs that come next, in order.
COUNTED = f"""
define internal i1 @gx_counted(i64 %nargs, ptr %kwnames, i64 %n) nounwind {{
entry:
  %plain = icmp eq ptr %kwnames, null
  br i1 %plain, label %positional, label %named
positional:
  %right = icmp eq i64 %nargs, %n
  ret i1 %right
named:
  %size.at = getelementptr i8, ptr %kwnames, i64 {py.TUPLE_SIZE}
  %size = load i64, ptr %size.at
  %items = getelementptr i8, ptr %kwnames, i64 {py.TUPLE_ITEMS}
  %total = add i64 %nargs, %size
  %complete = icmp eq i64 %total, %n
  br i1 %complete, label %each, label %no
each:
  %i = phi i64 [ 0, %named ], [ %i.next, %compare ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %compare, label %yes
compare:
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.at
  %place = add i64 %nargs, %i
  %name.at = getelementptr ptr, ptr @gx_names, i64 %place
  %name = load ptr, ptr %name.at
  %same = icmp eq ptr %item, %name
  %i.next = add i64 %i, 1
  br i1 %same, label %each, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

# gx_apart: of n ranges { begin, end }, none from the first-th on overlaps any before it.
APART = """
define internal i1 @gx_apart(ptr %ranges, i64 %first, i64 %n) nounwind {
entry:
  br label %outer
outer:
  %k = phi i64 [ %first, %entry ], [ %k.next, %passed ]
  %k.more = icmp ult i64 %k, %n
  br i1 %k.more, label %range, label %yes
range:
  %k.at = shl i64 %k, 1
  %k.begin.at = getelementptr i64, ptr %ranges, i64 %k.at
  %k.begin = load i64, ptr %k.begin.at
  %k.end.at = getelementptr i64, ptr %k.begin.at, i64 1
  %k.end = load i64, ptr %k.end.at
  br label %inner
inner:
  %j = phi i64 [ 0, %range ], [ %j.next, %apart ]
  %j.more = icmp ult i64 %j, %k
  br i1 %j.more, label %compare, label %passed
compare:
  %j.at = shl i64 %j, 1
  %j.begin.at = getelementptr i64, ptr %ranges, i64 %j.at
  %j.begin = load i64, ptr %j.begin.at
  %j.end.at = getelementptr i64, ptr %j.begin.at, i64 1
  %j.end = load i64, ptr %j.end.at
  %before = icmp ule i64 %k.end, %j.begin
  %after = icmp ule i64 %j.end, %k.begin
  %ok = or i1 %before, %after
  br i1 %ok, label %apart, label %no
apart:
  %j.next = add i64 %j, 1
  br label %inner
passed:
  %k.next = add i64 %k, 1
  br label %outer
yes:
  ret i1 true
no:
  ret i1 false
}
"""
