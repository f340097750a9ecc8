"""Arrays that end, or begin, at a page that may not be touched."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(shape: tuple[int, ...], dtype: str, at_end: bool = True) -> np.ndarray:
    """Zeros; an access right after the last element (or before the first) is a fault.

    The array holds its pages, and they go with it: a process may have 65,530 mappings.
    """
    d = np.dtype(dtype)
    size = int(np.prod(shape)) * d.itemsize
    pages = max(1, -(-size // PAGE))
    room = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    for page in (0, pages + 1):
        if _libc.mprotect(start + page * PAGE, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (pages * PAGE - size if at_end else 0)
    return np.frombuffer(room, d, int(np.prod(shape)), offset).reshape(shape)
