"""Files written as a whole, and .npz files.

A file is written under another name first, then renamed, so that none is ever half there; it is
as private as the one whose place it takes. What is no regular file (a device, a pipe) cannot be
replaced and is written as it is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from graphc.errors import UsageError, user_loc


def check_path(function: str, path: Any) -> None:
    """UsageError if `path` names no file: an integer would be taken for an open one."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"{function}: the path must be a string or a path, got {path!r}", user_loc()
        )


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Make `path` what `write` writes; OSError leaves what was there."""
    replace_files([(path, write)])


def replace_files(
    files: list[tuple[str | os.PathLike[str], Callable[[BinaryIO], object]]],
) -> None:
    """`replace_file` for several; none is renamed before all are written."""
    written: list[tuple[str, str]] = []
    try:
        for path, write in files:
            final = os.fspath(path)
            if os.path.exists(final) and not os.path.isfile(final) and not os.path.isdir(final):
                write(whole := io.BytesIO())  # it may not seek
                with open(final, "wb") as f:
                    f.write(whole.getvalue())
                continue
            folder, name = os.path.split(final)
            partial = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}.part")
            written.append((partial, final))
            mode = os.stat(final).st_mode & 0o777 if os.path.isfile(final) else None
            with open(partial, "xb", opener=functools.partial(_opened, mode)) as f:
                if mode is not None:
                    with contextlib.suppress(OSError):  # of file systems that know no modes
                        os.chmod(partial, mode)
                write(f)
                f.flush()
                os.fsync(f.fileno())
        for partial, final in written:
            os.replace(partial, final)
    finally:
        for partial, _ in written:
            with contextlib.suppress(OSError):
                os.unlink(partial)


def _opened(mode: int | None, path: str, flags: int) -> int:
    """A new file that nobody may read who may not read it later."""
    return os.open(path, flags, 0o666 if mode is None else mode)


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz file by name; OSError if it cannot be read, ValueError if it is none.

    NumPy takes whatever it does not know for a pickle and advises to read it as one, and reads a
    single array without a name: neither is an .npz, and the message says so in our own words.
    """
    with _reading():
        archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ValueError("it holds one array without a name: call it .npy")
    with archive, _reading():
        # by the members' whole names: NumPy takes "a.npy" for the array "a" where there is one
        return {name.removesuffix(".npy"): archive[name] for name in archive.zip.namelist()}


def read_npy(path: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
    """The array of a .npy file; OSError if it cannot be read, ValueError if it is none."""
    with _reading():
        array = np.load(path, allow_pickle=False)
    if isinstance(array, np.ndarray):
        return array
    array.close()
    raise ValueError("it holds several arrays: call it .npz")


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """ValueError for whatever NumPy meets in a file that is cut, damaged or none of its own.

    Besides ValueError that is KeyError, tokenize.TokenError, zlib.error, zipfile's BadZipFile and
    RuntimeError, MemoryError for a shape that is not true, and more.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as e:
        text = str(e)
        if "pickled data" in text or "allow_pickle" in text:
            text = "no NumPy format found, or an array of Python objects"
        raise ValueError(text or type(e).__name__) from None


def npz_writer(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Callable[[BinaryIO], None]:
    """Writes an .npz file without dates, so that the same arrays are the same bytes."""

    def write(f: BinaryIO) -> None:
        with zipfile.ZipFile(f, "w") as z:
            for name, array in arrays.items():
                with z.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return write
