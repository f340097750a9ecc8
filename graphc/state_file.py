"""The file of a native library's state: what `digits_save_state` writes, for C and Python alike.

    8 bytes   "GRAPHCST"
    u32       version, 2
    u32       size of the header: all before the values
    u64       layout hash of the library (DIGITS_STATE_LAYOUT)
    u64       size of the values
    JSON      [{"name": "w1", "dtype": "f32", "shape": [64, 128], "offset": 0}, ...], ASCII,
              with spaces up to the size of the header, a multiple of 64
    values    the struct as it stands in memory
    u64, u64  checksum of all before

Numbers are little-endian. The checksum is Fletcher's, with 64-bit sums over 32-bit words: for each
word (the last one filled up with zeros) s1 += word; s2 += s1. No change of one or two words keeps
both, and a loop of two additions makes them.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graphc.descriptor import decode_type
from graphc.dims import round_up
from graphc.errors import ArgumentError, user_loc
from graphc.files import replace_file
from graphc.types import Array, TensorType

MAGIC = b"GRAPHCST"
VERSION = 2
_SUMS = struct.Struct("<QQ")
CHECKSUM = _SUMS.size  # bytes of it
_FIXED = struct.Struct("<8sIIQQ")
HASH_AT = 16  # where the layout hash stands
_BLOCK = 1 << 20  # bytes summed up at a time
_ALL_ONES = (1 << 64) - 1


def file_header(layout: int, size: int, variables: Iterable[Mapping[str, Any]]) -> bytes:
    """All before the values; it is the same for all states of one layout."""
    kept = [{k: v[k] for k in ("name", "dtype", "shape", "offset")} for v in variables]
    text = json.dumps(kept, separators=(",", ":")).encode()
    whole = round_up(_FIXED.size + len(text), 64)
    fixed = _FIXED.pack(MAGIC, VERSION, whole, layout, size)
    return (fixed + text).ljust(whole, b" ")


def sums(data: Any, first: int = 0, second: int = 0) -> tuple[int, int]:
    """The checksum of bytes, or of these behind others, whole words, that have the sums given."""
    raw = np.frombuffer(data, np.uint8)
    for at in range(0, raw.size, _BLOCK):
        part = raw[at:at + _BLOCK]
        words = np.zeros(-(-part.size // 4), np.uint32)
        words.view(np.uint8)[:part.size] = part
        counts = np.arange(words.size, 0, -1, dtype=np.uint64)
        second += first * words.size + int((counts * words).sum(dtype=np.uint64))
        first += int(words.sum(dtype=np.uint64))
    return first & _ALL_ONES, second & _ALL_ONES


def is_state_file(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like one; OSError if it cannot be read."""
    with open(path, "rb") as f:
        return f.read(len(MAGIC)) == MAGIC


def read_state_file(
    path: str | os.PathLike[str],
) -> tuple[int, dict[str, tuple[TensorType, Array]]]:
    """Layout hash and variables of a file; OSError if it cannot be read, ArgumentError if it is
    no state file or not whole."""
    raw = Path(path).read_bytes()
    if raw[:len(MAGIC)] != MAGIC:
        raise ArgumentError(f"load_state: {path} is not a state file", user_loc())
    if len(raw) < _FIXED.size:
        raise _cut(path)
    _, version, whole, layout, size = _FIXED.unpack_from(raw)
    if version != VERSION:
        raise ArgumentError(
            f"load_state: {path} is a state file of version {version}; this graphc reads version "
            f"{VERSION}", user_loc()
        )
    if len(raw) != whole + size + CHECKSUM or whole < _FIXED.size:
        raise _cut(path)
    if _SUMS.pack(*sums(memoryview(raw)[:-CHECKSUM])) != raw[-CHECKSUM:]:
        raise _cut(path)
    out = {}
    try:
        for v in json.loads(raw[_FIXED.size:whole]):
            t, offset = decode_type(v), int(v["offset"])
            count = int(np.prod([int(n) for n in t.shape], dtype=np.int64))
            if not 0 <= offset <= size - count * t.dtype.itemsize:
                raise ValueError("outside")
            array = np.frombuffer(raw, t.dtype.numpy, count, whole + offset).reshape(t.shape)
            out[str(v["name"])] = (t, array)
    except (ValueError, KeyError, TypeError):
        raise _cut(path) from None
    return int(layout), out


def write_state_file(
    path: str | os.PathLike[str], layout: int, values: Array,
    variables: Iterable[Mapping[str, Any]],
) -> None:
    """Write the bytes of a state; ArgumentError leaves the old file."""
    header = file_header(layout, values.size, variables)
    end = _SUMS.pack(*sums(values, *sums(header)))
    write_file(path, lambda f: (f.write(header), f.write(values.data), f.write(end)))


def write_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Replace a file as a whole by what `write` writes; ArgumentError leaves the old one."""
    try:
        replace_file(path, write)
    except OSError as e:
        raise ArgumentError(
            f"save_state: cannot write {path}: {e.strerror}", user_loc()
        ) from None


def _cut(path: str | os.PathLike[str]) -> ArgumentError:
    return ArgumentError(f"load_state: {path} is cut short or damaged", user_loc())
