"""What a library says about itself: one JSON text, for programs that load it at run time.

    const char *digits_descriptor(void);

The format is described in codegen/README.md, "The descriptor". It is ASCII, begins with MARK, and
ends with a zero byte, so it can also be found in the file of a library that cannot be loaded.
"""

from __future__ import annotations

import json
from typing import Any

from graphc.codegen.library.abi import Api, Arg, Entry, Field
from graphc.codegen.library.data import string_constant
from graphc.descriptor import FORMAT, VERSION, encode_size, with_checksum
from graphc.state_file import CHECKSUM, file_header
from graphc.types import TensorType


def descriptor(api: Api, triple: str, version: str) -> dict[str, Any]:
    """The descriptor as JSON data."""
    state = None
    if api.fields:
        state = {
            "bytes": api.state_bytes,
            "file_bytes": file_size(api),
            "layout": f"{api.state_hash:016x}",
            "variables": [field_data(f) for f in api.fields],
        }
    return {
        "format": FORMAT,
        "version": VERSION,
        "graphc": version,
        "prefix": api.prefix,
        "abi": f"{api.abi_hash:016x}",
        "target": triple,
        "levels": list(api.levels),
        "device": "cpu",
        "state": state,
        "functions": [_entry(e) for e in api.entries],
    }


def field_data(f: Field) -> dict[str, Any]:
    """A variable of the state."""
    return {"name": f.state.name, "c": f.c, **_type(f.state.type), "offset": f.offset}


def state_header(api: Api) -> bytes:
    """All of a state file before the values."""
    return file_header(api.state_hash, api.state_bytes, map(field_data, api.fields))


def file_size(api: Api) -> int:
    """Bytes of a state file."""
    return len(state_header(api)) + api.state_bytes + CHECKSUM


def descriptor_text(api: Api, triple: str, version: str) -> str:
    """The text as a constant, and the function that returns it."""
    raw = json.dumps(descriptor(api, triple, version), separators=(",", ":")).encode()
    return f"""
{string_constant("@graphc.descriptor", with_checksum(raw) + bytes(1))}
define ptr @{api.prefix}_descriptor() nounwind {{
  ret ptr @graphc.descriptor
}}
"""


def _entry(e: Entry) -> dict[str, Any]:
    sites = e.unit.programs[0][1].sites
    return {
        "name": e.unit.name,
        "c": e.c,
        "in": e.in_c,
        "state": {"": "none", "const": "read"}.get(e.state, e.state),
        "inputs": [_arg(a) for a in e.inputs],
        "outputs": [_arg(a) for a in e.outputs],
        "returns": e.unit.returns,
        "dims": [{"name": n, "c": c} for n, c in e.dims],
        "arena": e.arena_c,
        "arena_bytes": encode_size(e.arena),
        "failures": [{"code": e.first_code + k, "kind": s.kind} for k, s in enumerate(sites)],
    }


def _arg(a: Arg) -> dict[str, Any]:
    return {"name": a.name, "c": a.c, **_type(a.type)}


def _type(t: TensorType) -> dict[str, Any]:
    return {"dtype": t.dtype.name, "shape": [encode_size(s) for s in t.shape]}
