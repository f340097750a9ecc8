"""The descriptor of a native library: finding it in a file, and sizes as JSON.

The format is described in codegen/README.md, "The descriptor".
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from graphc.dims import Apply, Size, dim, floordiv, maximum, minimum, mod
from graphc.errors import ArgumentError, user_loc
from graphc.types import BY_NAME, TensorType

FORMAT = "graphc-library"
VERSION = 1
MARK = f'{{"format":"{FORMAT}",'.encode()
_CHECK = b',"crc32":"'


def encode_size(x: Size) -> Any:
    """A size as JSON: a number, a dimension's name, or [operation, a, b]."""
    if isinstance(x, int):
        return x
    total: Any = None
    for atoms, factor in x.terms:
        term: Any = factor if factor != 1 or not atoms else None
        for a in atoms:
            coded = (
                [a.fn, encode_size(a.a), encode_size(a.b)] if isinstance(a, Apply) else a
            )
            term = coded if term is None else ["mul", term, coded]
        total = term if total is None else ["add", total, term]
    return total


_OPERATIONS: dict[str, Callable[[Size, Size], Size]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "floordiv": floordiv, "mod": mod,
    "max": maximum, "min": minimum,
}


def decode_size(x: Any) -> Size:
    """The inverse of `encode_size`; ValueError for anything else."""
    if isinstance(x, int) and not isinstance(x, bool):
        return x
    if isinstance(x, str):
        return dim(x)
    if isinstance(x, list) and len(x) == 3 and x[0] in _OPERATIONS:
        return _OPERATIONS[x[0]](decode_size(x[1]), decode_size(x[2]))
    raise ValueError(f"not a size: {x!r}")


def decode_type(data: Mapping[str, Any]) -> TensorType:
    """The type of an argument or a variable; ValueError for a dtype this version does not know."""
    if data["dtype"] not in BY_NAME:
        raise ValueError(f"unknown dtype {data['dtype']!r}")
    return TensorType(BY_NAME[data["dtype"]], map(decode_size, data["shape"]))


def read_descriptor(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The descriptor in a library's file (.so, .a, .wasm, ...), of any target, without loading it.

    ArgumentError where there is none, more than one, or one of a later format.
    """
    loc = user_loc()
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise ArgumentError(f"load: {path} is empty", loc)
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                at = data.find(MARK)
                if at < 0:
                    raise ArgumentError(
                        f"load: {path} is not a library that graphc wrote: it has no descriptor",
                        loc,
                    )
                if data.find(MARK, at + 1) >= 0:
                    raise ArgumentError(
                        f"load: {path} holds several libraries; link each into its own file", loc
                    )
                text = data[at:data.find(b"\0", at)]
    except OSError as e:
        raise ArgumentError(f"load: cannot read {path}: {e.strerror or e}", loc) from None
    return parse_descriptor(text, os.fspath(path))


def with_checksum(text: bytes) -> bytes:
    """The descriptor with its last key, "crc32": of all that stands before it."""
    return text[:-1] + _CHECK + f'{zlib.crc32(text[:-1]):08x}"}}'.encode()


def parse_descriptor(text: bytes, path: str) -> dict[str, Any]:
    """The descriptor as data; ArgumentError if it is damaged or this version cannot read it."""
    damaged = ArgumentError(f"load: the descriptor in {path} is damaged", user_loc())
    try:
        data = json.loads(text)
        version = data["version"]
    except (ValueError, KeyError, TypeError):
        raise damaged from None
    if version != VERSION:
        raise ArgumentError(
            f"load: {path} was written by graphc {data.get('graphc')} with a descriptor of format "
            f"{version}; this graphc reads format {VERSION}", user_loc()
        )
    if with_checksum(text.rpartition(_CHECK)[0] + b"}") != text:
        raise damaged
    out: dict[str, Any] = data
    return out
