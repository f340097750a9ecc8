"""Random graphs: every pass preserves meaning, is idempotent, and what it gives round-trips."""

from __future__ import annotations

import golden_files as gf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs, special_inputs

from graphc.errors import ExecutionError, ShapeError
from graphc.ir import Graph
from graphc.passes import PIPELINE, load_pass, run_pipeline
from graphc.text import parse
from graphc.verify import verify

# These may round differently. (dots are of integers here, so matrix_chain may not.)
ROUNDING = ("stabilize", "fastmath")
EXACT = tuple(p for p in dict.fromkeys(PIPELINE) if p not in ROUNDING)

COMMON = settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def check(before: Graph, after: Graph, seed: int, exact: bool = True) -> None:
    verify(after)
    assert str(parse(str(after))) == str(after)
    for n in (0, 1, 3):
        inputs = special_inputs(before, seed, n)
        try:
            wanted = gf.run(before, inputs)
        except (ExecutionError, ShapeError):
            continue  # a dead failure may go, a live one is another test
        got = gf.run(after, inputs)
        for w, g in zip(wanted, got, strict=True):
            assert w.shape == g.shape
            assert w.dtype == g.dtype
            assert not exact or gf.same_bits(w, g), f"{before}\nbecame\n{after}"


@pytest.mark.parametrize("name", dict.fromkeys((*PIPELINE, "recompute")))
@given(g=graphs(), seed=st.integers(0, 100))
@COMMON
def test_pass(name: str, g: Graph, seed: int) -> None:
    run = load_pass(name)
    after = run(g)
    check(g, after, seed, exact=name not in ROUNDING)
    assert str(run(after)) == str(after), "not idempotent"


@given(g=graphs(), seed=st.integers(0, 100))
@COMMON
def test_exact_passes_together(g: Graph, seed: int) -> None:
    after = run_pipeline(g, (*EXACT[:-1], *EXACT))
    check(g, after, seed)


@given(g=graphs(), seed=st.integers(0, 100))
@COMMON
def test_rules_reach_a_fixpoint_with_folding(g: Graph, seed: int) -> None:
    names = ("inline", "simplify", "strip", "fold", "simplify", "cse", "dce")
    after = run_pipeline(g, (*names, *names))
    check(g, after, seed)
    assert str(run_pipeline(after, names)) == str(after), "a third round changes something"
