"""A fixture that runs declared Tensors in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import ir
from graphc.interpret import evaluate


@pytest.fixture
def run():
    """run(outputs, {input: value}): one array for a Tensor, nested lists for nested lists."""

    def run(outputs, feeds=None):
        feeds = feeds or {}
        flat = []

        def flatten(item):
            if isinstance(item, (list, tuple)):
                return [flatten(i) for i in item]
            flat.append(item._value)
            return len(flat) - 1

        shape = flatten(outputs)
        graph = ir.collect("test", [t._value for t in feeds], flat)
        arrays = [np.asarray(a, t.dtype.numpy) for t, a in feeds.items()]
        found = evaluate(graph, arrays)[0]

        def restore(item):
            return [restore(i) for i in item] if isinstance(item, list) else found[item]

        return restore(shape)

    return run
