"""Memory that compiled functions keep between calls."""

from __future__ import annotations

import sys


def release_memory() -> int:
    """Give back what compiled functions keep for their next calls; the number of bytes.

    That is the memory of large outputs that were dropped (at most GRAPHC_RECYCLE_BYTES, 256 MiB
    unless set, 0 keeps none) and the arenas in which functions compute. Nothing in use is touched,
    and later calls take new memory. What compiling left is given back too, uncounted: some 45 MB of
    LLVM, which the next compilation finds in the file's cache (Linux).
    """
    if "graphc.codegen.calling.fastcall" not in sys.modules:
        return 0
    from graphc.codegen.calling import fastcall, recycle
    from graphc.codegen.machine import llvm
    from graphc.forks import undivided

    with undivided():
        found = recycle.release() + fastcall.release()
        llvm.release()  # last: what frees arenas may have to be compiled
        return found
