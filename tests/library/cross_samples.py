"""Functions of many ops and dtypes, and inputs for them, to compare machines with."""

import numpy as np

import graphc as gx

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -3.5, 1e30, np.inf, -np.inf, np.nan, 1e-40, 65504,
                    3e9, -3e9, 1e19, 255.5, 2.5])


def arguments(dtype):
    return gx.input("x", ("n", 7), dtype), gx.input("y", ("n", 7), dtype)


def casts(x, to):
    return {f"to_{d}": gx.astype(x, d) for d in to}


def float_function(dtype):
    """Float ops, none of which fails on any input."""
    x, y = arguments(dtype)
    outs = {name: getattr(gx, name)(x) for name in (
        "exp", "log", "tanh", "sin", "floor", "ceil", "round", "sqrt", "erf", "sign")}
    outs |= {"pow": x ** y, "rem": x % y, "quotient": x / y, "mul": x * y, "max": gx.maximum(x, y),
             "sum": gx.sum(x, axis=1), "mean": gx.mean(x), "dot": x @ y.T,
             "which": gx.argmax(x, axis=1)}
    other = "float32" if dtype == "float64" else "float64"
    outs |= casts(x, (other, "uint8", "int32", "uint32", "int64", "uint64", "bool"))
    return gx.function([x, y], outs, name=f"ops_{dtype}")


def half_function(dtype):
    """Ops on f16 or bf16."""
    x, y = arguments(dtype)
    outs = {"exp": gx.exp(x), "quotient": x / y, "sum": gx.sum(x, axis=1), "round": gx.round(x)}
    other = "bfloat16" if dtype == "float16" else "float16"
    outs |= casts(x, (other, "float32", "float64", "int64"))
    outs |= {"back": gx.astype(gx.astype(y, "float64") * 1.1, dtype)}
    return gx.function([x, y], outs, name=f"ops_{dtype}")


def integer_function(dtype):
    """Integer ops; y must be from 1 on."""
    x, y = arguments(dtype)
    outs = {"quotient": x // y, "rem": x % y, "left": x << y, "right": x >> y, "pow": x ** y,
            "sum": gx.sum(x), "dot": x @ y.T, "run": gx.cumulative_sum(x, axis=0)}
    outs |= casts(x, ("float16", "bfloat16", "float32", "float64", "int32", "bool"))
    return gx.function([x, y], outs, name=f"ops_{dtype}")


def op_functions():
    """All of these."""
    return [float_function("float32"), float_function("float64"), half_function("float16"),
            half_function("bfloat16"), *map(integer_function, ("int8", "int64", "uint64"))]


def inputs(f, n, seed=0):
    """Arrays for a function, of n rows: special values and ordinary ones."""
    rng = np.random.default_rng(seed)
    out = []
    for v in f.graph.inputs:
        shape = [s if isinstance(s, int) else n for s in v.type.shape]
        d = v.type.dtype.numpy
        if v.type.dtype.is_float:
            usual = rng.normal(size=shape) * 10
            a = np.where(rng.random(shape) < 0.5, rng.choice(SPECIAL, shape), usual)
        elif v.node.attrs["name"] == "y":
            a = rng.integers(1, 10, shape)
        else:
            limits = np.iinfo(d)
            small = rng.integers(0, 100, shape).astype(d)
            large = rng.integers(limits.min, limits.max, shape, d, endpoint=True)
            a = np.where(rng.random(shape) < 0.5, small, large)
        with np.errstate(all="ignore"):
            out.append(np.ascontiguousarray(a.astype(d)))
    return out
