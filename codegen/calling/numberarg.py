"""Inputs without axes that come as numbers, as LLVM text: Python's and NumPy's, not in an array.

A Python float, int or np.float64 is converted into a word of the stack; a NumPy scalar of the very
dtype is read where it stands. What does not fit goes the Python path, which explains.
"""

from __future__ import annotations

from graphc.codegen.calling import pylayout as py
from graphc.codegen.emission.emitter import Emitter
from graphc.types import DType, TensorType, f16, f32

EXACT = 1 << 53  # up to which integers are floats of 64 bits, so that they are rounded once


def may_be_number(type: TensorType) -> bool:
    """Whether an input of this type may be a number that is no array."""
    return not type.shape and type.dtype.name in py.SCALARS


def take_number(e: Emitter, o: str, dtype: DType, room: str) -> tuple[str, str]:
    """Where the number `o` stands, or is put (`room`, a word), and the block for what is none.

    What follows is for numbers, in a block that the caller is to leave. A Python int out of range
    goes to the block "slow".
    """
    kind = e.field(o, py.TYPE, "ptr")
    found: list[tuple[str, str]] = []
    done = e.fresh("number")

    def among(*types: str) -> str:
        """Go on for objects of these types; the block for all others."""
        others = e.fresh()
        e.require(e.any_of(e(f"icmp eq ptr {kind}, @{t}") for t in types), others)
        return others

    def take(at: str, others: str) -> None:
        """The number stands at this address."""
        found.append((at, e.block))
        e.do(f"br label %{done}")
        e.label(others)

    if dtype.is_float and dtype is not f16:
        others = among("PyFloat_Type", py.SCALARS["f64"])
        _put_float(e, e.field(o, py.FLOAT_VALUE, "double"), dtype, room)
        take(room, others)
    if dtype.kind != "b" and dtype is not f16:
        others = among("PyLong_Type")
        _put_int(e, o, dtype, room)
        take(room, others)
    others = among(py.SCALARS[dtype.name])
    take(e(f"getelementptr i8, ptr {o}, i64 {py.SCALAR_VALUE}"), others)
    array = e.fresh("array")
    e.do(f"br label %{array}")
    e.label(done)
    return e("phi ptr " + ", ".join(f"[ {at}, %{block} ]" for at, block in found)), array


def _put_float(e: Emitter, value: str, dtype: DType, room: str) -> None:
    """Store a double as a float of this dtype."""
    if dtype is f32:
        value = e(f"fptrunc double {value} to float")
    e.do(f"store {'float' if dtype is f32 else 'double'} {value}, ptr {room}")


def _put_int(e: Emitter, o: str, dtype: DType, room: str) -> None:
    """Store a Python int, if it is in range, and among those that a double holds for a float."""
    beyond = f"{room}.beyond"
    value = e(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {o}, ptr {beyond})")
    e.require(e(f"icmp eq i32 {e(f'load i32, ptr {beyond}')}, 0"), "slow")
    low = -EXACT if dtype.is_float else 0 if dtype.kind == "u" else -(1 << dtype.bits - 1)
    high = EXACT if dtype.is_float else (1 << dtype.bits - (dtype.kind == "i")) - 1
    if dtype.bits < 64 or dtype.kind != "i":
        e.require(e(f"icmp sge i64 {value}, {low}"), "slow")
    if high < (1 << 63) - 1:
        e.require(e(f"icmp sle i64 {value}, {high}"), "slow")
    if dtype.is_float:
        _put_float(e, e(f"sitofp i64 {value} to double"), dtype, room)
        return
    if dtype.bits < 64:
        value = e(f"trunc i64 {value} to i{dtype.bits}")
    e.do(f"store i{dtype.bits} {value}, ptr {room}")
