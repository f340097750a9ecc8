"""Slow paths out of line: for lanes that need a slow function, behind a branch hardly ever taken.

Most arguments of a function like sin take a short path in vectors; a few (huge ones) need a long
one. `rare_lanes` calls a scalar function for those lanes only, from a second function that loops
over lanes, so a kernel carries no more than one test and one call. `unless` chooses between two
ways of computing all lanes. `outlined` makes a function of what is long for every lane, `abreast`
one for some registers side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.codegen.emission.emitter import Emitter, Module
from graphc.codegen.emission.lanes import Lanes
from graphc.codegen.emission.literals import SUFFIX

Typed = tuple[str, str]  # (scalar LLVM type, register)


def struct(types: Sequence[str]) -> str:
    """The type of a struct."""
    return "{" + ", ".join(types) + "}"


def packed(e: Emitter, values: Sequence[Typed]) -> str:
    """A struct of these, as its type and register: what functions with several results return."""
    whole, out = struct([t for t, _ in values]), "undef"
    for i, (t, x) in enumerate(values):
        out = e(f"insertvalue {whole} {out}, {t} {x}, {i}")
    return f"{whole} {out}"


def rare_lanes(
    L: Lanes, symbol: str, define: Callable[[Module, Lanes], None], cond: str,
    args: Sequence[Typed], usual: Sequence[Typed],
) -> list[str]:
    """The registers `usual`, with lanes where `cond` holds replaced by what `symbol` returns.

    symbol: a function from scalars of the types of `args` to a struct of the types of `usual`;
    `define(module, lanes of width 1)` puts it into the module, once. It is called for lanes where
    `cond` holds and for no others.
    """
    e = L.e
    define(e.module, Lanes(e, 1, L.target))
    result_type = struct([L.vec(t) for t, _ in usual])
    before, rare, done = e.block, e.fresh("rare"), e.fresh("usual")
    e.do(f"br i1 {L.any(cond)}, label %{rare}, label %{done}")
    e.label(rare)
    if L.width == 1:
        operands = ", ".join(f"{t} {x}" for t, x in args)
        got = e(f"call {result_type} @{symbol}({operands})")
    else:
        each = _each_lane(L, symbol, [t for t, _ in args], [t for t, _ in usual])
        operands = ", ".join(f"{L.vec(t)} {x}" for t, x in [("i1", cond), *args, *usual])
        got = e(f"call {result_type} @{each}({operands})")
    replaced = [e(f"extractvalue {result_type} {got}, {i}") for i in range(len(usual))]
    e.do(f"br label %{done}")
    e.label(done)
    return [
        e(f"phi {L.vec(t)} [{x}, %{before}], [{y}, %{rare}]")
        for (t, x), y in zip(usual, replaced, strict=True)
    ]


def unless(
    L: Lanes, rare: str, t: str, usual: Callable[[], str], otherwise: Callable[[], str]
) -> str:
    """What `usual` writes, or `otherwise` for all lanes if `rare` holds in some active one."""
    e = L.e
    cond = rare if L.mask is None else L.op("and", "i1", rare, L.mask)
    names = [e.fresh(hint) for hint in ("rare", "common", "done")]
    e.do(f"br i1 {L.any(cond)}, label %{names[0]}, label %{names[1]}")
    found = []
    for name, write in zip(names, (otherwise, usual), strict=False):
        e.label(name)
        value = write()
        found.append(f"[{value}, %{e.block}]")
        e.do(f"br label %{names[2]}")
    e.label(names[2])
    return e(f"phi {L.vec(t)} {', '.join(found)}")


def _each_lane(L: Lanes, symbol: str, args: Sequence[str], results: Sequence[str]) -> str:
    """The name of the function that applies `symbol` in a loop over lanes."""
    name = f"{symbol}.v{L.width}" + "".join(SUFFIX[t] for t in results[:1])
    module = L.e.module
    if name in module.functions:
        return name
    e = Emitter(module)
    n = len(args)
    params = [("i1", "%cond"), *((t, f"%a{i}") for i, t in enumerate(args)),
              *((t, f"%u{i}") for i, t in enumerate(results))]
    now, then = ([f"%{s}{i}" for i in range(len(results))] for s in ("now", "then"))
    e.do("br label %loop")
    e.label("loop")
    e.do("%lane = phi i64 [0, %entry], [%following, %next]")
    for (t, u), a, b in zip(params[1 + n:], now, then, strict=True):
        e.do(f"{a} = phi {L.vec(t)} [{u}, %entry], [{b}, %next]")
    wanted = e(f"extractelement {L.vec('i1')} %cond, i64 %lane")
    e.do(f"br i1 {wanted}, label %call, label %next")
    e.label("call")
    operands = ", ".join(
        f"{t} {e(f'extractelement {L.vec(t)} {x}, i64 %lane')}" for t, x in params[1:1 + n]
    )
    one = struct(results)
    got = e(f"call {one} @{symbol}({operands})")
    put = [
        e(f"insertelement {L.vec(t)} {a}, {t} {e(f'extractvalue {one} {got}, {i}')}, i64 %lane")
        for i, (t, a) in enumerate(zip(results, now, strict=True))
    ]
    e.do("br label %next")
    e.label("next")
    for t, a, b, p in zip(results, now, then, put, strict=True):
        e.do(f"{b} = phi {L.vec(t)} [{a}, %loop], [{p}, %call]")
    e.do("%following = add i64 %lane, 1")
    more = e(f"icmp ult i64 %following, {L.width}")
    e.do(f"br i1 {more}, label %loop, label %done")
    e.label("done")
    vectors = [L.vec(t) for t in results]
    out = packed(e, list(zip(vectors, then, strict=True)))
    signature = ", ".join(f"{L.vec(t)} {p}" for t, p in params)
    module.define(name, f"define internal {struct(vectors)} @{name}({signature}) noinline nounwind "
                        f"cold {module.attributes} {{\nentry:\n{e.text()}\n  ret {out}\n}}")
    return name


def outlined(L: Lanes, name: str, t: str, args: Sequence[str],
             body: Callable[[Lanes, Sequence[str]], str], across: bool = False) -> str:
    """Call a function of the module, defined by `body` on first use, on registers of type `t`.

    For long functions that would bloat every kernel. It sees no mask; name and width identify it.
    across: it makes one element of all lanes.
    """
    v, full = L.vec(t), f"graphc.{name}.{L.suffix(t)}"
    made = t if across else v
    if full not in L.e.module.functions:
        e = Emitter(L.e.module)
        e.label("entry")
        params = [f"%x{i}" for i in range(len(args))]
        result = body(Lanes(e, L.width, L.target), params)
        _define_long(L, full, e, [(v, p) for p in params], f"{made} {result}")
    return L.e(f"call {made} @{full}({', '.join(f'{v} {a}' for a in args)})")


def abreast(
    L: Lanes, name: str, t: str, args: Sequence[Sequence[str]],
    body: Callable[[Lanes, Sequence[str]], str],
) -> list[str]:
    """`outlined` for several registers, which `body` sees as one: args[operand][register]."""
    v, count = L.vec(t), len(args[0])
    full, made = f"graphc.{name}.{L.suffix(t)}x{count}", struct([v] * count)
    if full not in L.e.module.functions:
        e = Emitter(L.e.module)
        e.label("entry")
        wide = Lanes(e, count * L.width, L.target)
        params = [[f"%x{i}_{k}" for k in range(count)] for i in range(len(args))]
        result = body(wide, [wide.joined(t, some) for some in params])
        parts = wide.parts(t, result, L.width)
        given = [(v, p) for some in params for p in some]
        _define_long(L, full, e, given, packed(e, [(v, x) for x in parts]))
    operands = ", ".join(f"{v} {a}" for some in args for a in some)
    got = L.e(f"call {made} @{full}({operands})")
    return [L.e(f"extractvalue {made} {got}, {k}") for k in range(count)]


def _define_long(
    L: Lanes, name: str, e: Emitter, params: Sequence[Typed], result: str
) -> None:
    """Put a function of `e`'s lines into the module; `result` is a type and a register."""
    attributes = L.e.module.attributes or f'"prefer-vector-width"="{L.target.vector_bits}"'
    signature = ", ".join(f"{t} {p}" for t, p in params)
    made = result.rpartition(" ")[0]
    L.e.module.define(
        name, f"define internal {made} @{name}({signature}) noinline nounwind {attributes} {{\n"
              f"{e.text()}\n  ret {result}\n}}",
    )
