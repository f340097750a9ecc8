"""Graph -> machine code. `compile_graph` is the way in; `README.md` tells the way of the data."""

from graphc.codegen.compile import compile_graph

__all__ = ["compile_graph"]
