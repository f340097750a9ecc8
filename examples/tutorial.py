"""The first graph of many a tutorial: a = 2, b = 6; c = a + b, d = b + 1, e = c d.

By hand: e = (2 + 6)(6 + 1) = 56, de/da = d = 7, de/db = d + c = 15. (A well-known page prints 4
for the last: it forgets that b reaches e on two ways.)
"""

import graphc as gx

a, b = gx.input("a", ()), gx.input("b", ())
c = a + b
d = b + 1
e = c * d
da, db = gx.grad(e, [a, b])
f = gx.function([a, b], {"e": e, "de/da": da, "de/db": db}, name="tutorial")


def main():
    for name, value in f(2, 6).items():
        print(f"{name} = {value}")


if __name__ == "__main__":
    main()
