"""The IR before and after in a pass's docstring is what the pass does."""

from __future__ import annotations

import importlib
import re
import textwrap

import pytest

from graphc.passes import PIPELINE
from graphc.text import parse
from graphc.verify import verify

_BESIDE = {"fuse", "straighten"}  # these show before and after side by side, not as whole graphs
_GRAPH = re.compile(r"^    graph @.*?^    }$", flags=re.S | re.M)


@pytest.mark.parametrize("name", sorted(set(PIPELINE) - _BESIDE))
def test_docstring(name: str) -> None:
    module = importlib.import_module(f"graphc.passes.{name}")
    before, after = (textwrap.dedent(text) for text in _GRAPH.findall(module.__doc__))
    graph = parse(before)
    verify(graph)
    assert str(module.run(graph)) == str(parse(after))  # decimal floats print as hexadecimal
