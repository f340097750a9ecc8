"""Elementary functions on lanes, f32 and f64, over their whole range.

    exp          exp, expm1, tanh
    log          log, log1p, log2, log10
    pow, cbrt    pow; the cube root
    powers       pow with a known exponent
    trig, arc    sin, cos, tan; asin, acos, atan, atan2
    hyper        sinh, cosh, asinh, acosh, atanh
    erf          erf, the normal distribution
    gamma        lgamma, polygamma
    rem          the remainder
    lookup       elements of a table, each lane its own
    coefficients their polynomials and tables, made by tests/benchmarks/fit_coefficients.py
"""
