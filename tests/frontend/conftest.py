"""`run(t, x=array)`: the value of a declared Tensor, by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc import ir
from graphc.interpret import evaluate


def _run(t: Any, /, **arrays: Any) -> Any:
    ts = t if isinstance(t, (list, tuple)) else [t]
    values = [u._value for u in ts]
    inputs = [n.out for n in ir.reachable(values) if n.op.name == "input"]
    g = ir.collect("test", inputs, values)
    given = [np.asarray(arrays[v.node.attrs["name"]], v.type.dtype.numpy) for v in inputs]
    outputs, _ = evaluate(g, given)
    return outputs if isinstance(t, (list, tuple)) else outputs[0]


@pytest.fixture
def run() -> Any:
    return _run


def _line(exc: Any) -> str:
    """The source text of the line that an error names."""
    import linecache

    assert exc.value.loc is not None, f"no line in {exc.value}"
    return linecache.getline(exc.value.loc.file, exc.value.loc.line).strip()


@pytest.fixture
def refuses() -> Any:
    """`with refuses("text of the message"):` an error of graphc that names a line of this test."""
    import contextlib
    import re

    from graphc.errors import GraphcError

    @contextlib.contextmanager
    def check(*fragments: str, kind: type[GraphcError] = GraphcError) -> Any:
        with pytest.raises(kind) as exc:
            yield
        for fragment in fragments:
            assert fragment in str(exc.value), f"{fragment!r} is not in {exc.value}"
        assert re.search(r"\(\w+\.py:\d+\)$", str(exc.value)), str(exc.value)
        assert "/tests/frontend/" in exc.value.loc.file
        _line(exc)

    return check
