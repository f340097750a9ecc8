"""The libraries that graphc is compared with; each is one file, imported only in its own process.

PEERS maps a name to (module of this package, class, packages that must be importable).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, ClassVar

PEERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "graphc": ("graphc_peer", "Peer", ()),
    "graphc-fastmath": ("graphc_peer", "Fastmath", ()),
    "numpy": ("numpy_peer", "Peer", ()),
    "numexpr": ("numexpr_peer", "Peer", ("numexpr",)),
    "numba": ("numba_peer", "Peer", ("numba",)),
    "numba-fastmath": ("numba_peer", "Fastmath", ("numba",)),
    "jax": ("jax_peer", "Peer", ("jax", "jaxlib")),
    "torch": ("torch_peer", "Peer", ("torch",)),
    "torch.compile": ("torch_peer", "Compiled", ("torch",)),
    "pytensor": ("pytensor_peer", "Peer", ("pytensor",)),
    "casadi": ("casadi_peer", "Peer", ("casadi",)),
    "onnxruntime": ("onnx_peer", "Peer", ("onnxruntime", "onnx")),
}
OURS = ("graphc", "graphc-fastmath")
# Peers that were told to change the order of operations: compared with graphc's fastmath only.
REORDERING = ("numba-fastmath",)


class Library:
    """A peer in its own process. `build(case, arrays)` gives a case in the library's form."""

    name: ClassVar[str]
    module: ClassVar[Any]

    def __init__(self, threads: int):
        self.threads = threads

    def version(self) -> str:
        return str(self.module.__version__)

    def convert(self, arrays: tuple[Any, ...], wrt: tuple[int, ...] = ()) -> tuple[Any, ...]:
        """Arrays as calls take them; `wrt` are differentiated to."""
        return arrays

    def numpy(self, result: Any) -> Any:
        """A result as NumPy's arrays."""
        return result


def installed() -> list[str]:
    """Names of the peers whose packages are there; nothing is imported."""
    return [
        name for name, (_, _, packages) in PEERS.items()
        if all(importlib.util.find_spec(p) is not None for p in packages)
    ]


def load(name: str, threads: int) -> Any:
    """The peer, in this process."""
    module, cls, _ = PEERS[name]
    return getattr(importlib.import_module(f".{module}", __package__), cls)(threads)
