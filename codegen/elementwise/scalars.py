"""How every elementwise op is emitted: one row each, beside its meaning in `graphc.ops`.

A row takes (lanes, operand registers, operand dtypes, result dtype, attributes) and returns the
result register. f16 and bf16 are computed as float; a row whose result need not be representable
in them says `rounded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.codegen.elementwise import casts, integers
from graphc.codegen.elementwise.floats import Floats
from graphc.codegen.elementwise.rare import outlined
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import register_type
from graphc.codegen.nests.costs import FUNCTIONS
from graphc.codegen.vecmath import arc, cbrt, erf, exp, gamma, hyper, log, pow, rem, trig
from graphc.errors import CompileError
from graphc.types import DType

Attrs = Mapping[str, Any]
Row = Callable[[Lanes, Sequence[str], Sequence[DType], DType, Attrs], str]

FAST = " reassoc arcp contract"  # what fastmath permits; infinities and NaN keep their meaning
EMIT: dict[str, Row] = {}


def emit(
    L: Lanes, op: str, args: Sequence[str], arg_dtypes: Sequence[DType], out: DType, attrs: Attrs,
) -> str:
    """Emit elementwise `op` on registers; returns the result register."""
    row = EMIT.get(op)
    if row is None:
        raise CompileError(f"there is no code for an op {op!r}: not among {', '.join(EMIT)}")
    if L.e.module.sparing and op in FUNCTIONS and out.is_float and all(
        a.startswith("%") for a in args  # pow has code of its own for many a constant
    ):
        return outlined(
            L, ".".join([op, out.name, *(f"{k}{x}" for k, x in attrs.items())]),
            register_type(out), args, lambda lanes, given: row(lanes, given, arg_dtypes, out, attrs)
        )
    register = row(L, args, arg_dtypes, out, attrs)
    if not isinstance(register, str):
        raise CompileError(
            f"{op}: its emit function must return the register of the result, got {register!r}"
        )
    return register


def rounded(row: Row) -> Row:
    """The row with its result rounded to f16 or bf16."""

    def emit_rounded(
        L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, attrs: Attrs,
    ) -> str:
        return casts.round_to(L, out, row(L, args, ds, out, attrs))

    return emit_rounded


def _arithmetic(floats: str, ints: str) -> Row:
    def row(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
        t = register_type(out)
        if not out.is_float:
            return L.op(ints, t, *args)
        return L.op(floats + FAST * L.fastmath, t, *args)

    return rounded(row)


def _logic(name: str) -> Row:
    return lambda L, args, ds, out, _: L.op(name, register_type(out), *args)


def _comparison(floats: str, signed: str, unsigned: str) -> Row:
    def row(L: Lanes, args: Sequence[str], ds: Sequence[DType], _: DType, __: Attrs) -> str:
        d = ds[0]
        predicate = floats if d.is_float else signed if d.kind == "i" else unsigned
        return L.cmp(predicate, register_type(d), *args)

    return row


def _extremum(floats: str, signed: str, unsigned: str) -> Row:
    """a where `a better b`, else b; a NaN wins, the first if both are."""

    def row(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
        (a, b), t = args, register_type(out)
        if out.kind == "b":
            return L.op("or" if unsigned == "ugt" else "and", "i1", a, b)
        predicate = floats if out.is_float else signed if out.kind == "i" else unsigned
        better = L.select(L.cmp(predicate, t, a, b), t, a, b)
        return L.select(L.cmp("uno", t, a, a), t, a, better) if out.is_float else better

    return row


def _rounding(name: str) -> Row:
    """floor, ceil, roundeven; integers are themselves."""

    def row(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
        return L.intrinsic(name, register_type(out), args[0]) if out.is_float else args[0]

    return row


def _neg(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    t = register_type(out)
    return L.op("fneg", t, args[0]) if out.is_float else L.op("sub", t, L.k(t, 0), args[0])


def _abs(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    t, x = register_type(out), args[0]
    if out.is_float:
        return L.intrinsic("fabs", t, x)
    if out.kind == "u":
        return x
    return L.select(L.cmp("slt", t, x, L.k(t, 0)), t, L.op("sub", t, L.k(t, 0), x), x)


def _sign(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    """-1, 0 or 1; +0 for -0; NaN for NaN."""
    t, x = register_type(out), args[0]
    zero, one = L.k(t, 0), L.k(t, 1)
    if out.kind == "u":
        return L.select(L.cmp("ne", t, x, zero), t, one, zero)
    above, below = ("ogt", "olt") if out.is_float else ("sgt", "slt")
    down = L.select(L.cmp(below, t, x, zero), t, L.k(t, -1), zero)
    sign = L.select(L.cmp(above, t, x, zero), t, one, down)
    return L.select(L.cmp("uno", t, x, x), t, x, sign) if out.is_float else sign


def _sqrt(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return L.intrinsic("sqrt", register_type(out), args[0])


def _rsqrt(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    """1 / sqrt(x), each step rounded."""
    t = register_type(out)
    return L.op("fdiv", t, L.k(t, 1), L.intrinsic("sqrt", t, args[0]))


def _is_finite(L: Lanes, args: Sequence[str], ds: Sequence[DType], _: DType, __: Attrs) -> str:
    if not ds[0].is_float:
        return L.k("i1", True)
    t = register_type(ds[0])
    return L.cmp("one", t, L.intrinsic("fabs", t, args[0]), L.k(t, float("inf")))


def _not(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    t = register_type(out)
    return L.op("xor", t, args[0], L.k(t, True if t == "i1" else -1))


def _div(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    t = register_type(out)
    if out.is_float:
        return L.op("fdiv" + FAST * L.fastmath, t, *args)
    return integers.quotient(L, t, out.kind == "i", *args)


def _math(function: Callable[..., str]) -> Row:
    """A function of vecmath, taking the algebra of the format and one register per operand."""

    def row(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
        return function(Floats(L, register_type(out)), *args)

    return rounded(row)


def _rem(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, attrs: Attrs) -> str:
    if out.is_float:
        return _math(rem.rem)(L, args, ds, out, attrs)
    return integers.remainder(L, register_type(out), out.kind == "i", *args)


def _pow(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, attrs: Attrs) -> str:
    if out.is_float:
        return _math(pow.pow)(L, args, ds, out, attrs)
    return integers.power(L, register_type(out), out.kind == "i", *args)


def _exp(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, attrs: Attrs) -> str:
    """`modest`: as `nests.intervals` says of the operand."""
    return exp.exp(Floats(L, register_type(out)), args[0], attrs.get("modest", False))


def _polygamma(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, at: Attrs) -> str:
    return gamma.polygamma(Floats(L, register_type(out)), args[0], at["n"])


def _shift_left(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return integers.shift_left(L, register_type(out), *args)


def _shift_right(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return integers.shift_right(L, register_type(out), out.kind == "i", *args)


def _select(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return L.select(args[0], register_type(out), args[1], args[2])


def _cast(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return casts.cast(L, args[0], ds[0], out)


def _bitcast(L: Lanes, args: Sequence[str], ds: Sequence[DType], out: DType, _: Attrs) -> str:
    return casts.bitcast(L, args[0], ds[0], out)


EMIT.update({
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "exp": rounded(_exp),
    "expm1": _math(exp.expm1),
    "log": _math(log.log),
    "log1p": _math(log.log1p),
    "log2": _math(log.log2),
    "log10": _math(log.log10),
    "sinh": _math(hyper.sinh),
    "cosh": _math(hyper.cosh),
    "tanh": _math(exp.tanh),
    "asinh": _math(hyper.asinh),
    "acosh": _math(hyper.acosh),
    "atanh": _math(hyper.atanh),
    "sin": _math(trig.sin),
    "cos": _math(trig.cos),
    "tan": _math(trig.tan),
    "asin": _math(arc.asin),
    "acos": _math(arc.acos),
    "atan": _math(arc.atan),
    "atan2": _math(arc.atan2),
    "erf": _math(erf.erf),
    "normal_cdf": _math(erf.normal_cdf),
    "lgamma": _math(gamma.lgamma),
    "polygamma": rounded(_polygamma),
    "sqrt": rounded(_sqrt),
    "rsqrt": rounded(_rsqrt),
    "cbrt": _math(cbrt.cbrt),
    "is_finite": _is_finite,
    "not": _not,
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": rounded(_div),
    "rem": _rem,
    "pow": _pow,
    "maximum": _extremum("ogt", "sgt", "ugt"),
    "minimum": _extremum("olt", "slt", "ult"),
    "and": _logic("and"),
    "or": _logic("or"),
    "xor": _logic("xor"),
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "equal": _comparison("oeq", "eq", "eq"),
    "less": _comparison("olt", "slt", "ult"),
    "less_equal": _comparison("ole", "sle", "ule"),
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
})
