"""How an elementwise op is computed on registers of lanes (elementary functions: `vecmath/`).

    scalars          the way in: one row for each op
    casts            conversions between dtypes
    integers         division, shifts and powers that cannot trap
    floats           algebra of one float format, with unevaluated sums of two
    halves           f16 and bf16 without hardware
    rare             slow paths out of line, for lanes that need them
    philox           random bits
"""
