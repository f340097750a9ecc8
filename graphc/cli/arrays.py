"""Arrays in and out: .npy and .npz files, numbers on the command line, and how results print."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from graphc.cli import CommandLineError
from graphc.cli.sources import unreadable
from graphc.errors import CompileError, UsageError
from graphc.files import npz_writer, replace_file
from graphc.types import TensorType, as_dtype, bf16

Array = np.ndarray[Any, Any]
SMALL = 64  # elements that are printed in full
_NAMED = re.compile(r"(@?[A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def split_input(text: str) -> tuple[str, str]:
    """("name", "value") of name=value, ("", "file") of a file alone."""
    m = _NAMED.fullmatch(text)
    if m is not None:
        return m.group(1), m.group(2)
    if text.endswith((".npy", ".npz")):
        return "", text
    raise CommandLineError(
        f"expected an input as NAME=FILE.npy, NAME=NUMBER, FILE.npz or FILE.npy, got {text!r}"
    )


def read_value(name: str, text: str) -> Any:
    """What stands after `name=`: the array of a .npy file, a number, or a list of numbers."""
    if text.endswith(".npy"):
        return read_npy(text)
    if text.endswith(".npz"):
        raise CommandLineError(
            f"{name}={text}: an .npz names its arrays itself; give {text} without {name}="
        )
    try:
        value = float(text) if text.lower() in _SPECIAL else ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not _is_numeric(value):
        raise CommandLineError(f"{name}={text}: expected a .npy file, a number or a list of them")
    return value


_SPECIAL = ("nan", "inf", "-inf", "+inf")


def _is_numeric(value: Any) -> bool:
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, (list, tuple)):
            stack.extend(v)
        elif not isinstance(v, (bool, int, float)):
            return False
    return True


def read_npy(path: str) -> Array:
    """The array in a .npy file."""
    array = _load(path)
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path} holds several arrays; call it .npz")
    return array


def read_npz(path: str) -> dict[str, Array]:
    """The arrays in an .npz file by name."""
    archive = _load(path)
    if isinstance(archive, np.ndarray):
        raise UsageError(f"{path} holds a single array without a name; call it .npy")
    with archive:
        try:
            return {name: archive[name] for name in archive.files}
        except _DAMAGED as e:
            raise UsageError(f"{path} is not an .npz file of numbers: {_reason(e)}") from None


_DAMAGED = (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError)


def _load(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as e:
        raise unreadable(path, e) from None
    except _DAMAGED as e:
        kind = "an .npz" if path.endswith(".npz") else "a .npy"
        raise UsageError(f"{path} is not {kind} file of numbers: {_reason(e)}") from None


def _reason(e: Exception) -> str:
    """NumPy's reason; it takes whatever it does not know for a pickle."""
    text = str(e)
    if "pickled data" in text or "allow_pickle" in text:
        return "no NumPy format found, or an array of Python objects"
    return text


def as_stored(array: Any, type: TensorType) -> Any:
    """`array`, where it holds bfloat16 as files know it: two bytes without a type."""
    if type.dtype is bf16 and isinstance(array, np.ndarray) and array.dtype == np.dtype("V2"):
        return array.view(bf16.numpy)
    return array


def write_npz(path: str, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file, as a whole or not at all."""
    _write(path, npz_writer(arrays))


def write_text(path: str, text: str) -> None:
    """Write a text file, as a whole or not at all."""
    _write(path, lambda f: f.write(text.encode()))


def _write(path: str, write: Callable[[BinaryIO], object]) -> None:
    try:
        replace_file(path, write)
    except OSError as e:
        raise CompileError(f"cannot write {path}: {e.strerror or e}") from None


def describe(name: str, array: Array) -> str:
    """An array as text: in full where it is small, its ends and its range where it is not."""
    dtype = as_dtype(array.dtype)
    head = f"{name}: {dtype}[{','.join(map(str, array.shape))}]"
    body = np.array2string(
        array, threshold=SMALL, separator=", ", max_line_width=100, prefix="  "
    )
    if not array.ndim:
        return f"{head} = {body}"
    if array.size > SMALL:
        head += _range(array)
    return f"{head}\n  {body}" if array.size else head


def _range(array: Array) -> str:
    if array.dtype.kind == "b":
        return f"  ({int(array.sum())} of {array.size} true)"
    if array.dtype.kind in "iu":
        return f"  (min {array.min()}, max {array.max()}, mean {array.mean():.6g})"
    wide = array.astype(np.float64)
    values = wide[np.isfinite(wide)]
    if not values.size:
        return "  (no finite element)"
    text = f"min {np.min(values):.6g}, max {np.max(values):.6g}, mean {values.mean():.6g}"
    rest = array.size - values.size
    return f"  ({text}{f', {rest} not finite' if rest else ''})"
