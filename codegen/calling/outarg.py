"""What the builtin does not serve itself, as LLVM text: `out=`, and everything else.

    ptr @gx_slow(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)

A call with all n inputs by position and `out=`, an object of the structure of the result, goes to
the builtin that takes outputs as arguments, once the cell @gx_into holds it. Any other call,
`out=None` among them, goes to %self, the Python path.
"""

from __future__ import annotations

from graphc.codegen.calling import pylayout as py
from graphc.codegen.emission.emitter import Emitter, Module


def slow_text(shape: str, inputs: int, outputs: int) -> str:
    """The function for results of this shape: "one", "list", "tuple" or "dict"."""
    e = Emitter(Module())
    total = inputs + outputs
    e.label("entry")
    e.do(f"%row = alloca [{total} x ptr], align 8")
    into = e("load ptr, ptr @gx_into")
    known, named = e(f"icmp ne ptr {into}, null"), e("icmp ne ptr %kwnames, null")
    complete = e(f"icmp eq i64 %nargs, {inputs}")
    e.require(e(f"and i1 {e(f'and i1 {known}, {named}')}, {complete}"), "explain")
    only = e(f"icmp eq i64 {e.field('%kwnames', py.TUPLE_SIZE, 'i64')}, 1")
    called = e(f"icmp eq ptr {e.field('%kwnames', py.TUPLE_ITEMS)}, @gx_out")
    e.require(e(f"and i1 {only}, {called}"), "explain")
    out = e.field("%args", 8 * inputs)
    targets = _targets(e, out, shape, outputs)
    for k in range(inputs):
        array = e.field("%args", 8 * k)
        e.do(f"store ptr {array}, ptr {e(f'getelementptr ptr, ptr %row, i64 {k}')}")
    for k, target in enumerate(targets, inputs):
        e.do(f"store ptr {target}, ptr {e(f'getelementptr ptr, ptr %row, i64 {k}')}")
        e.do(f"call void @Py_IncRef(ptr {target})")  # the container may change meanwhile
    done = e(f"call ptr @PyObject_Vectorcall(ptr {into}, ptr %row, i64 {total}, ptr null)")
    for target in targets:
        e.do(f"call void @Py_DecRef(ptr {target})")
    failed = e(f"icmp eq ptr {done}, null")
    e.do(f"br i1 {failed}, label %fail, label %written")
    e.label("written")
    e.do(f"call void @Py_DecRef(ptr {done})")
    e.do(f"call void @Py_IncRef(ptr {out})")
    e.do(f"ret ptr {out}")
    e.label("fail")
    e.do("ret ptr null")
    e.label("explain")
    given = "ptr %self, ptr %args, i64 %nargs, ptr %kwnames"
    e.do(f"ret ptr {e(f'call ptr @PyObject_Vectorcall({given})')}")
    return f"define internal ptr @gx_slow({given}) nounwind {{\n{e.text()}\n}}\n"


def _targets(e: Emitter, out: str, shape: str, outputs: int) -> list[str]:
    """The objects in `out`; to `explain` if it has not the structure of the result."""
    if shape == "one":
        e.require(e(f"icmp ne ptr {out}, @_Py_NoneStruct"), "explain")
        return [out]
    kind = {"list": "PyList_Type", "tuple": "PyTuple_Type", "dict": "PyDict_Type"}[shape]
    e.require(e(f"icmp eq ptr {e.field(out, py.TYPE)}, @{kind}"), "explain")
    size = (
        e(f"call i64 @PyDict_Size(ptr {out})") if shape == "dict"
        else e.field(out, py.TUPLE_SIZE, "i64")
    )
    e.require(e(f"icmp eq i64 {size}, {outputs}"), "explain")
    if shape == "tuple":
        return [e.field(out, py.TUPLE_ITEMS + 8 * k) for k in range(outputs)]
    if shape == "list":
        items = e.field(out, py.LIST_ITEMS)
        return [e.field(items, 8 * k) for k in range(outputs)]
    found = []
    for k in range(outputs):
        key = e.field("@gx_keys", 8 * k)
        found.append(e(f"call ptr @PyDict_GetItem(ptr {out}, ptr {key})"))
        e.require(e(f"icmp ne ptr {found[-1]}, null"), "explain")
    return found
