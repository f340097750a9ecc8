"""Extending graphc with an elementwise op of your own: meaning in one row, code in a few lines.

`softsign(x) = x / (1 + |x|)`. The row says how it types, what it computes (in NumPy) and how it is
differentiated, with public operations; `emit` says how it becomes LLVM instructions. Fusion,
vectorisation, vmap and the interpreter need nothing more.
"""

import numpy as np

import graphc as gx
from graphc.codegen.elementwise.scalars import emit


def softsign_vjp(ct, y, x):
    d = 1 + gx.abs(x)
    return [ct / (d * d)]


def emit_softsign(L, args, dtypes, out, attrs):
    magnitude = emit(L, "abs", args, dtypes, out, {})
    below = emit(L, "add", [L.const(out, 1.0), magnitude], [out, out], out, {})
    return emit(L, "div", [args[0], below], [out, out], out, {})


softsign = gx.define_op(
    gx.Op("softsign", gx.Kind.ELEMENTWISE, 1, type=gx.same_float("softsign"),
          ref=lambda x: x / (1 + abs(x)), vjp=softsign_vjp),
    emit=emit_softsign,
)

x = gx.input("x", ("n",))
y = softsign(2 * x)
f = gx.function([x], [y, gx.grad(gx.sum(y), x)], name="f")


def main():
    print(f.graph)
    value, slope = f(np.array([-1.0, 0.0, 1.5], "float32"))
    print(f"value {value}, slope {slope}")
    gx.testing.check_grad(softsign, [np.array([-2.0, 0.5, 3.0])], order=2)
    print("first and second derivatives agree with differences")


if __name__ == "__main__":
    main()
