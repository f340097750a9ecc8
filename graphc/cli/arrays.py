"""Arrays in and out: .npy and .npz files, numbers on the command line, and how results print."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar

import numpy as np

from graphc import files
from graphc.cli import CommandLineError
from graphc.cli.sources import unreadable
from graphc.errors import CompileError, UsageError
from graphc.types import Array, TensorType, array_text, bf16

T = TypeVar("T")
SMALL = 64  # elements that are printed in full
_NAMED = re.compile(r"(@?[^\W\d][\w.]*)=(.*)", re.DOTALL)


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
        value = ast.literal_eval(_Special().visit(ast.parse(text.strip(), mode="eval")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not _is_numeric(value):
        raise CommandLineError(f"{name}={text}: expected a .npy file, a number or a list of them")
    return value


class _Special(ast.NodeTransformer):
    """nan and inf are numbers as well, as they are printed."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        special = node.id.lower() in ("nan", "inf")
        return ast.Constant(float(node.id)) if special else node


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
    """The array in a .npy file; UsageError says why there is none."""
    return _read(files.read_npy, path, "a .npy")


def read_npz(path: str) -> dict[str, Array]:
    """The arrays in an .npz file by name; UsageError says why there are none."""
    return _read(files.read_npz, path, "an .npz")


def _read(read: Callable[[str], T], path: str, kind: str) -> T:
    try:
        return read(path)
    except OSError as e:
        raise unreadable(path, e) from None
    except ValueError as e:
        raise UsageError(f"{path} is not {kind} file of numbers: {e}") from None


def as_stored(array: Any, type: TensorType) -> Any:
    """`array`, where it holds bfloat16 as files know it: two bytes without a type."""
    if type.dtype is bf16 and isinstance(array, np.ndarray) and array.dtype == np.dtype("V2"):
        return array.view(bf16.numpy)
    return array


def write_npz(path: str, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file, as a whole or not at all."""
    _write(path, files.npz_writer(arrays))


def write_text(path: str, text: str) -> None:
    """Write a text file, as a whole or not at all."""
    _write(path, lambda f: f.write(text.encode()))


def _write(path: str, write: Callable[[BinaryIO], object]) -> None:
    try:
        files.replace_file(path, write)
    except OSError as e:
        raise CompileError(f"cannot write {path}: {e.strerror or e}") from None


def describe(name: str, array: Array) -> str:
    """An array as text: in full where it is small, its ends and its range where it is not."""
    head = f"{name}: {array_text(array)}"
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
