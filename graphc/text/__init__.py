"""The text form of graphs (`.gir`): printed and parsed exactly.

    file      := "graph" graph
    graph     := "@" NAME "(" [param ("," param)*] ")" "{" node* return update* "}"
    param     := VALUE ":" type ["=" STRING]              the string: the input's name, if it had
                                                          to be changed to be unique
    node      := [result ("," result)* "="] OP [VALUE ("," VALUE)*] [bare] [attrs] region* where
    result    := VALUE ":" type
    bare      := "@" NAME | elements                      the attribute of variable and constant
    attrs     := "{" KEY "=" attr ("," KEY "=" attr)* "}"
    region    := KEY "=" graph                            an attribute that is a graph
    where     := ["loc" "(" STRING ":" INT ")"] ["scope" "(" STRING ")"]
    return    := "return" [[NAME "="] VALUE ("," [NAME "="] VALUE)*]
    update    := "update" "@" NAME "=" VALUE              the outermost graph only

    type      := DTYPE "[" [size ("," size)*] "]"         f32[batch,64]
    attr      := INT | "true" | "false" | "none" | STRING | FLOAT | DTYPE | type | size
               | "size" "(" size ")"                      a size with a reserved word in it
               | "(" [attr ("," attr)*] ")"               a tuple, of one too: (1)
               | "literal" "(" type "," elements ")" | "@" NAME ":" type
    elements  := element | "[" [element ("," element)*] "]" | "@" cN
    element   := INT | "true" | "false" | FLOAT           row-major; 0-d without brackets
    FLOAT     := hexadecimal, exact: -0x1.8p+1 | "inf" | "-inf" | "nan" | "nan" "(" bits ")"
    VALUE     := "%" (NAME | INT)                         a name where it has one, else a number
    NAME      := [A-Za-z_][A-Za-z0-9_.]* | STRING         odd characters are quoted, as in JSON

`size` is as in `graphc.dims`; "#" starts a comment; operands start on the line of their op. Types
are written for every result and checked against the op's rule. Constants of more than 16 elements
are written @c0, @c1, ...; they and the values of variables stand beside the text in an .npz under
"c0" and "@NAME". Without them a graph parses and verifies but does not run. Decimal floats are
read too, and rounded.

    graph @step(%x: f32[batch,64]) {
      %w: f32[64,10] = variable @w
      %0: f32[batch,10] = dot %x, %w {contract=((1),(0)), batch=((),())} loc("digits.py":9)
      return y=%0
    }

Source paths are relative to the folder of the script that declares the graph (see `printer`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphc.text.literals import MissingLiteral
from graphc.text.printer import node_text, to_text, value_names

if TYPE_CHECKING:
    from graphc.text.files import load, save
    from graphc.text.parser import parse

__all__ = ["MissingLiteral", "load", "node_text", "parse", "save", "to_text", "value_names"]
_READING = {"load": "files", "save": "files", "parse": "parser"}


def __getattr__(name: str) -> Any:
    """What reads text and files is imported when it is asked for: every start prints a graph."""
    if name not in _READING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_READING[name]}"), name)
