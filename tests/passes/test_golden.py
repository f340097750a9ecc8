"""Every golden: the text that comes out, its validity, idempotence, and its meaning."""

from __future__ import annotations

from pathlib import Path

import golden_files as gf
import numpy as np
import pytest

from graphc.errors import ExecutionError
from graphc.passes import PIPELINE, load_pass
from graphc.text import parse
from graphc.verify import verify

CASES = gf.cases()
# What these do may round differently; every other pass keeps the bits.
ROUNDING = ("stabilize", "matrix_chain", "fastmath", "one_sweep")


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_golden(path: Path, update_golden: bool) -> None:
    run = load_pass(path.parent.name)
    before, expected = gf.read(path)
    verify(before)
    after = run(before)
    verify(after)
    if update_golden:
        gf.write(path, after)
    else:
        assert str(after) == expected
    assert str(run(after)) == str(after), "the pass is not idempotent"
    assert str(parse(str(after))) == str(after)


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_golden_keeps_the_meaning(path: Path) -> None:
    before, _ = gf.read(path)
    after = load_pass(path.parent.name)(before)
    exact = path.parent.name not in ROUNDING and "dot" not in str(before)
    for seed in range(3):
        inputs = gf.random_inputs(before, seed, gf.sizes(before))
        try:
            wanted = gf.run(before, inputs)
        except ExecutionError as e:
            with pytest.raises(type(e)):
                gf.run(after, inputs)
            continue
        for x, y in zip(wanted, gf.run(after, inputs), strict=True):
            if exact:
                assert gf.same_bits(x, y)
            else:
                assert x.dtype == y.dtype
                scale = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max(initial=0)
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("name", sorted(set(PIPELINE)))
def test_every_pass_has_a_case_that_must_not_change(name: str) -> None:
    mine = [p for p in CASES if p.parent.name == name]
    assert any(gf.STAYS in p.read_text() for p in mine)
    assert any(gf.BECOMES in p.read_text() for p in mine)
