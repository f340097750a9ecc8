"""Names, strings, floats and array elements in text, each exact both ways."""

from __future__ import annotations

import json
import re

import numpy as np

from graphc.errors import ExecutionError
from graphc.ir import Literal
from graphc.types import Array, DType, TensorType

INLINE = 16  # constants of more elements stand in the .npz

# Words that mean something else than a size where an attribute is expected.
RESERVED = frozenset({"true", "false", "none", "inf", "nan", "size", "literal"})

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
STRING = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
ELEMENT = re.compile(
    r"-?(?:0x[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?p[+-]?[0-9]+|inf|nan(?:\(0x[0-9a-f]+\))?"
    r"|[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)(?![A-Za-z0-9_.])|true\b|false\b"
)
_CANONICAL_NAN = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8 << 48}


class MissingLiteral(Literal):
    """A large constant whose .npz was not there: it has a type and a name but no values."""

    __slots__ = ("name",)

    def __init__(self, name: str, type: TensorType):
        self.name, self.type, self.source = name, type, None
        self._key = (type, name, id(self))

    @property
    def array(self) -> Array:  # type: ignore[override]
        raise ExecutionError(
            f"constant @{self.name} ({self.type}) has no value: the graph was read without its "
            ".npz file"
        )

    def __repr__(self) -> str:
        return f"MissingLiteral(@{self.name}: {self.type})"


def name_text(name: str) -> str:
    """A name, quoted where it has odd characters."""
    return name if _PLAIN.fullmatch(name) else string_text(name)


def string_text(s: str) -> str:
    return json.dumps(s)


def string_value(text: str) -> str:
    """The inverse of string_text; ValueError for escapes that do not exist."""
    return str(json.loads(text))


def float_text(x: float) -> str:
    """Hexadecimal without trailing zeros; every bit but a NaN's payload."""
    if x != x:
        return "nan"
    if x in (float("inf"), float("-inf")):
        return "inf" if x > 0 else "-inf"
    mantissa, exponent = x.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def elements_text(literal: Literal) -> str:
    """The elements of a small constant, every bit of them."""
    a, dtype = literal.array, literal.type.dtype
    if dtype.is_float:
        bits = a.view(f"u{dtype.itemsize}").reshape(-1).tolist()
        canonical = _CANONICAL_NAN[dtype.name]
        with np.errstate(invalid="ignore"):
            wide = a.reshape(-1).astype(np.float64).tolist()
        words = [
            float_text(x) if x == x or b == canonical else f"nan({b:#x})"
            for x, b in zip(wide, bits, strict=True)
        ]
    else:
        words = [str(x).lower() for x in a.reshape(-1).tolist()]
    return words[0] if not a.ndim else f"[{', '.join(words)}]"


def element_value(word: str, dtype: DType) -> tuple[float | int, int | None]:
    """An element's value, and its bits if it is a NaN; ValueError says what was expected."""
    if dtype.kind == "b":
        if word not in ("true", "false"):
            raise ValueError("true or false")
        return word == "true", None
    if dtype.is_int:
        low = -(1 << dtype.bits - 1) if dtype.kind == "i" else 0
        high = low + (1 << dtype.bits) - 1
        if not word.lstrip("-").isdigit() or not low <= int(word) <= high:
            raise ValueError(f"an integer from {low} to {high}")
        return int(word), None
    if word in ("true", "false"):
        raise ValueError(f"a number of dtype {dtype}")
    if "nan" in word:
        return _nan(word, dtype)
    value = float_value(word)
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.array(value).astype(dtype.numpy))
    if rounded != value and ("0x" in word or abs(rounded) == float("inf")):
        raise ValueError(f"a number that {dtype} holds{' exactly' if '0x' in word else ''}")
    return value, None


def _nan(word: str, dtype: DType) -> tuple[float, int]:
    bits = _CANONICAL_NAN[dtype.name]
    if "(" in word:
        bits = int(word[word.index("(") + 1 : -1], 16)
        if word[0] == "-" or bits >> dtype.bits:
            raise ValueError(f"the bits of a NaN of dtype {dtype}")
        with np.errstate(invalid="ignore"):  # a signalling NaN is one, too
            if not np.isnan(np.array(bits, f"u{dtype.itemsize}").view(dtype.numpy)):
                raise ValueError(f"the bits of a NaN of dtype {dtype}")
    elif word[0] == "-":
        raise ValueError("nan without a sign; nan(0x...) gives its bits")
    return float("nan"), bits


def float_value(word: str) -> float:
    """A hexadecimal or decimal float; ValueError where it is neither or too large."""
    try:
        value = float.fromhex(word) if "0x" in word else float(word)
    except OverflowError:
        value = float("inf")
    if abs(value) == float("inf") and "inf" not in word:
        raise ValueError("a number that f64 holds")
    return value


def literal_of(words: list[tuple[float | int, int | None]], type: TensorType) -> Literal:
    """The constant of these elements."""
    dtype = type.dtype
    array = np.array([value for value, _ in words])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        a = np.empty(len(words), dtype.numpy)
        if dtype.is_int:  # through Python ints: u64 and i64 have no common NumPy dtype
            a[...] = np.array([int(value) for value, _ in words], object)
        elif len(words):
            a[...] = array.astype(dtype.numpy)
    for i, (_, bits) in enumerate(words):
        if bits is not None:
            a.view(f"u{dtype.itemsize}")[i] = bits
    return Literal(a.reshape(tuple(int(str(s)) for s in type.shape)))
