"""What the builtin does not serve itself, as LLVM text: `out=`, and everything else.

    ptr @gx_slow(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)

A call with all n inputs by position and `out=`, an object of the structure of the result, goes to
the builtin that takes outputs as arguments, once the cell @gx_into holds it. Any other call,
`out=None` among them, goes to %self, the Python path.
"""

from __future__ import annotations

from graphc.codegen import pylayout as py
from graphc.codegen.emitter import Emitter, Module


def slow_text(shape: str, inputs: int, outputs: int) -> str:
    """The function for results of this shape: "one", "list", "tuple" or "dict"."""
    e = Emitter(Module())

    def require(condition: str) -> None:
        e.require(condition, "explain")

    def field(base: str, offset: int, type: str = "ptr") -> str:
        at = e(f"getelementptr i8, ptr {base}, i64 {offset}")
        return e(f"load {type}, ptr {at}")

    total = inputs + outputs
    e.label("entry")
    e.do(f"%row = alloca [{total} x ptr], align 8")
    into = e("load ptr, ptr @gx_into")
    known, named = e(f"icmp ne ptr {into}, null"), e("icmp ne ptr %kwnames, null")
    complete = e(f"icmp eq i64 %nargs, {inputs}")
    require(e(f"and i1 {e(f'and i1 {known}, {named}')}, {complete}"))
    only = e(f"icmp eq i64 {field('%kwnames', py.TUPLE_SIZE, 'i64')}, 1")
    called = e(f"icmp eq ptr {field('%kwnames', py.TUPLE_ITEMS)}, @gx_out")
    require(e(f"and i1 {only}, {called}"))
    out = field("%args", 8 * inputs)
    if shape == "one":
        require(e(f"icmp ne ptr {out}, @_Py_NoneStruct"))
        targets = [out]
    else:
        kind = {"list": "PyList_Type", "tuple": "PyTuple_Type", "dict": "PyDict_Type"}[shape]
        require(e(f"icmp eq ptr {field(out, py.TYPE)}, @{kind}"))
        size = (
            e(f"call i64 @PyDict_Size(ptr {out})") if shape == "dict"
            else field(out, py.TUPLE_SIZE, "i64")
        )
        require(e(f"icmp eq i64 {size}, {outputs}"))
        targets = []
        items = field(out, py.LIST_ITEMS) if shape == "list" else ""
        for k in range(outputs):
            if shape == "dict":
                key = field("@gx_keys", 8 * k)
                targets.append(e(f"call ptr @PyDict_GetItem(ptr {out}, ptr {key})"))
                require(e(f"icmp ne ptr {targets[-1]}, null"))
            elif shape == "list":
                targets.append(field(items, 8 * k))
            else:
                targets.append(field(out, py.TUPLE_ITEMS + 8 * k))
    for k in range(inputs):
        e.do(f"store ptr {field('%args', 8 * k)}, ptr {e(f'getelementptr ptr, ptr %row, i64 {k}')}")
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
