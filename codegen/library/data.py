"""The constant data of a library: one block of bytes, and the code of `init`.

LLVM leaves room for the block, which begins with a mark; the bytes are put there once the object
file is made. So hundreds of megabytes take seconds, for every target and without an assembler.
`.ll` and `.s` files, which must stand alone, hold the block as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from graphc.codegen.library.abi import Field
from graphc.dims import round_up
from graphc.errors import CompileError
from graphc.ir import Literal, State

ALIGN = 64
_MARK = 64  # bytes
_RUN = 256  # blocks of zeros of so many bytes are cleared instead of copied


class Data:
    """Arrays, each stored once, at 64-byte offsets of the block @graphc.data."""

    def __init__(self) -> None:
        self.size = 0
        self._chunks: list[tuple[int, Any]] = []    # (offset, bytes-like)
        self._known: dict[bytes, int] = {}

    def add(self, array: np.ndarray[Any, Any] | bytes) -> str:
        """A pointer expression to the array's bytes."""
        raw: Any = array if isinstance(array, bytes) else _bytes(array)
        if not len(raw):
            return "@graphc.data" if self.size else "null"
        digest = hashlib.sha256(raw).digest()
        if digest not in self._known:
            offset = round_up(self.size, ALIGN)
            self._known[digest] = offset
            self._chunks.append((offset, raw))
            self.size = offset + len(raw)
        return f"getelementptr (i8, ptr @graphc.data, i64 {self._known[digest]})"

    def placeholder(self) -> str:
        """Module text with room for the block, which begins with a mark.

        The room is called externally initialised, so that LLVM takes nothing for known about it.
        """
        if not self.size:
            return ""
        mark, rest = self._mark(), max(0, self.size - _MARK)
        return (
            f"@graphc.data = internal externally_initialized constant "
            f"<{{ [{_MARK} x i8], [{rest} x i8] }}> <{{ [{_MARK} x i8] "
            f'c"{_escape(mark)}", [{rest} x i8] zeroinitializer }}>, align {ALIGN}\n'
        )

    def fill(self, obj: bytes) -> list[Any]:
        """An object file with the block in its place, as parts to write one after another."""
        if not self.size:
            return [obj]
        mark = self._mark()
        at = obj.find(mark)
        if at < 0 or obj.find(mark, at + 1) >= 0:
            raise CompileError("export: the place of the data was not found in the object file")
        parts: list[Any] = [memoryview(obj)[:at]]
        end = 0
        for offset, raw in self._chunks:
            parts += [bytes(offset - end), raw]
            end = offset + len(raw)
        room = max(self.size, _MARK)
        return [*parts, bytes(room - end), memoryview(obj)[at + room:]]

    def _mark(self) -> bytes:
        """Bytes that stand nowhere else in the object: they depend on all data."""
        return hashlib.sha512(b"graphc" + b"".join(self._known)).digest()

    def inline(self) -> str:
        """Module text that holds the block itself."""
        if not self.size:
            return ""
        whole = bytearray(self.size)
        for offset, raw in self._chunks:
            whole[offset:offset + len(raw)] = memoryview(raw)  # which an array is not taken for
        return (
            f"@graphc.data = internal constant [{self.size} x i8] "
            f'c"{_escape(bytes(whole))}", align {ALIGN}\n'
        )


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


_TEXT = [chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in range(256)]


def _escape(raw: bytes) -> str:
    return "".join(_TEXT[b] for b in raw)


def string_constant(symbol: str, raw: bytes) -> str:
    """A private constant of these bytes."""
    return (
        f'{symbol} = private unnamed_addr constant [{len(raw)} x i8] c"{_escape(raw)}", align 1'
    )


def add_values(
    data: Data, states: Iterable[State], values: dict[State, Any], literals: Iterable[Literal]
) -> dict[State | Literal, str]:
    """Pointers to the variables and constants that a library holds as data."""
    out: dict[State | Literal, str] = {}
    for s in states:
        out[s] = data.add(values[s])
    for c in literals:
        out[c] = data.add(c.array)
    return out


def init_text(
    name: str, fields: tuple[Field, ...], state_bytes: int, values: dict[State, Any], data: Data
) -> str:
    """`void NAME(ptr %s)`: copies the values at export; long runs of zeros are cleared instead."""
    image = np.zeros(state_bytes, np.uint8)
    for f in fields:
        if f.bytes:
            image[f.offset:f.offset + f.bytes] = _bytes(values[f.state])
    lines = [
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        f"define void @{name}(ptr %s) nounwind {{",
        "  %none = icmp eq ptr %s, null",
        "  br i1 %none, label %done, label %fill",
        "fill:",
    ]
    for k, (begin, end, zero) in enumerate(_segments(image)):
        lines.append(f"  %p{k} = getelementptr i8, ptr %s, i64 {begin}")
        if zero:
            lines.append(
                f"  call void @llvm.memset.p0.i64(ptr %p{k}, i8 0, i64 {end - begin}, i1 false)"
            )
        else:
            source = data.add(image[begin:end].tobytes())
            lines.append(
                f"  call void @llvm.memcpy.p0.p0.i64(ptr %p{k}, ptr {source}, "
                f"i64 {end - begin}, i1 false)"
            )
    return "\n".join([*lines, "  br label %done", "done:", "  ret void", "}"])


def _segments(image: np.ndarray[Any, Any]) -> list[tuple[int, int, bool]]:
    """(begin, end, all zeros) parts that cover the image, found in blocks of _RUN bytes."""
    padded = np.zeros(round_up(image.size, _RUN), np.uint8)
    padded[:image.size] = image
    words = padded.view(np.uint64).reshape(-1, _RUN // 8)
    zero: np.ndarray[Any, Any] = words.max(axis=1, initial=0) == 0
    starts = [0, *(np.flatnonzero(zero[1:] != zero[:-1]) + 1).tolist()] if zero.size else []
    ends = [*starts[1:], zero.size]
    return [
        (b * _RUN, min(e * _RUN, image.size), bool(zero[b]))
        for b, e in zip(starts, ends, strict=False)
    ]
