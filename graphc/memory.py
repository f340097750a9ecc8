"""Memory that compiled functions keep between calls."""

from __future__ import annotations

import sys


def release_memory() -> int:
    """Give back what compiled functions keep for their next calls; the number of bytes.

    That is the memory of large outputs that were dropped (at most GRAPHC_RECYCLE_BYTES, 256 MiB
    unless set, 0 keeps none) and the arenas in which functions compute. Nothing in use is touched,
    and later calls take new memory.
    """
    if "graphc.codegen.fastcall" not in sys.modules:
        return 0
    from graphc.codegen import fastcall, recycle
    from graphc.forks import undivided

    with undivided():
        return recycle.release() + fastcall.release()
