"""Value, gradient and Hessian of f = x^2 + y^3 - sin(x y) at (2, 3); gradients of gradients.

By hand: df/dx = 2x - y cos(xy), df/dy = 3y^2 - x cos(xy), and with s = sin(xy), c = cos(xy)
the Hessian [[2 + y^2 s, x y s - c], [x y s - c, 6y + x^2 s]].
"""

import graphc as gx

x, y = gx.input("x", (), "float64"), gx.input("y", (), "float64")
f = x**2 + y**3 - gx.sin(x * y)
gradient = gx.grad(f, [x, y])
hessian = gx.hessian(f, [x, y])
again = [gx.grad(g, [x, y]) for g in gradient]  # the same, asked for one by one
evaluate = gx.function(
    [x, y],
    {"f": f, "gradient": gx.stack(gradient),
     "hessian": gx.stack([gx.stack(row) for row in hessian]),
     "again": gx.stack([gx.stack(row) for row in again])},
    name="evaluate",
)


def main():
    out = evaluate(2, 3)
    print(f"f = {out['f']:.6f}\ngradient = {out['gradient']}\nhessian =\n{out['hessian']}")


if __name__ == "__main__":
    main()
