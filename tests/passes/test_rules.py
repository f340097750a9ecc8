"""Every exact rule, at every combination of special values, keeps every bit but NaN payloads."""

from __future__ import annotations

import golden_files as gf
import numpy as np
import pytest
from rule_cases import ALL, instances

from graphc.dims import Dim
from graphc.errors import ExecutionError
from graphc.passes.patterns import Apply, Mark, Rule, rule
from graphc.passes.rewrite import RuleSet, apply_rules
from graphc.passes.rules import EXACT, FASTMATH, STABLE
from graphc.verify import verify

# Laws of these kinds have attributes; their instances are the goldens of `simplify`.
_BY_GOLDEN = {
    "transpose", "reshape", "slice", "pad", "concat", "reverse", "update_slice", "gather", "dot",
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "constant",
}


def _repeats(p: Apply) -> bool:
    """Whether an operand is what a broadcast repeats: instances have one size."""
    return any(isinstance(a, Apply) and a.op == "broadcast" for a in p.args or ())


def _is_elementwise(r: Rule) -> bool:
    if any(_repeats(a) for a in r.left.args or () if isinstance(a, Apply)):
        return False
    return r.left.op not in _BY_GOLDEN and r.left.op != "broadcast"


LAWS = [r for r in EXACT.rules if _is_elementwise(r)]


@pytest.mark.parametrize("law", LAWS, ids=lambda r: r.law)
def test_exact_rule(law: Rule) -> None:
    found = 0
    for dtype in ALL:
        for instance in instances(law, dtype):
            found += 1
            alone = apply_rules(instance.graph, RuleSet([law]))
            every = apply_rules(instance.graph, EXACT)
            verify(alone)
            verify(every)
            inputs = instance.inputs()
            try:
                wanted = gf.run(instance.graph, inputs)
            except ExecutionError:
                inputs = instance.inputs(harmless=True)
                try:
                    wanted = gf.run(instance.graph, inputs)
                except ExecutionError:  # a constant divides by zero: so it must after
                    with pytest.raises(ExecutionError):
                        gf.run(every, inputs)
                    continue
            for after in (alone, every):
                got = gf.run(after, inputs)
                assert gf.same_bits(_zeros(law, wanted[0]), _zeros(law, got[0])), (
                    f"{law.law} changes bits at {dtype}:\n{instance.graph}\n{after}\n"
                    f"{_first_difference(inputs, wanted[0], got[0])}"
                )
    assert found, "no instance at which the rule fires"


def _zeros(law: Rule, x: np.ndarray) -> np.ndarray:
    """x; with +0.0 for -0.0 where max or min made it: the sign of their zero is unspecified."""
    extremum = law.left.op in ("maximum", "minimum") and x.dtype.kind not in "biu"
    return np.where(x == 0, np.zeros_like(x), x) if extremum else x


def _first_difference(inputs, wanted, got) -> str:
    w, g = wanted.reshape(len(inputs[0]), -1), got.reshape(len(inputs[0]), -1)
    for i in range(len(w)):
        if not gf.same_bits(w[i], g[i]):
            return f"at {[x[i] for x in inputs]}: {w[i]} became {g[i]}"
    return ""


def test_every_rule_with_attributes_has_a_golden() -> None:
    fired: list[Rule] = []
    for path in gf.cases():
        if path.parent.name == "simplify":
            apply_rules(gf.read(path)[0], EXACT, fired=fired)
    missing = [r.law for r in EXACT.rules if not _is_elementwise(r) and r not in set(fired)]
    assert not missing


def test_every_stable_and_fastmath_rule_is_marked_and_fires() -> None:
    fired: list[Rule] = []
    for path in gf.cases():
        if path.parent.name == "stabilize":
            apply_rules(gf.read(path)[0], STABLE, fired=fired)
    assert [r.law for r in STABLE.rules if r not in set(fired)] == []
    assert {r.mark for r in STABLE.rules} == {Mark.STABLE}
    assert {r.mark for r in EXACT.rules} == {Mark.EXACT}
    assert {r.mark for r in FASTMATH.rules} == {Mark.EXACT, Mark.FASTMATH}


@pytest.mark.parametrize(
    "law", [r for r in FASTMATH.rules
            if r.mark is Mark.FASTMATH and _is_elementwise(r) and not _repeats(r.left)],
    ids=lambda r: r.law,
)
def test_fastmath_rule_holds_for_ordinary_numbers(law: Rule) -> None:
    found = 0
    for dtype in ALL[:2]:
        for instance in instances(law, dtype):
            found += 1
            after = apply_rules(instance.graph, RuleSet([law]))
            x = np.random.default_rng(0).uniform(0.5, 2.0, (len(instance.variables), 100))
            inputs = [row.astype(dtype.numpy) for row in x]
            (wanted,), (got,) = gf.run(instance.graph, inputs), gf.run(after, inputs)
            ordinary = np.isfinite(wanted) & np.isfinite(got) & (np.abs(wanted) < 1e30)
            np.testing.assert_allclose(wanted[ordinary], got[ordinary], rtol=1e-3, atol=1e-6)
    assert found, "no instance at which the rule fires"


def test_scales_move_and_values_stay() -> None:
    fired: list[Rule] = []
    for path in gf.cases():
        if path.parent.name == "fastmath":
            apply_rules(gf.read(path)[0], FASTMATH, fired=fired)
    moving = [
        r for r in FASTMATH.rules
        if r.mark is Mark.FASTMATH and (not _is_elementwise(r) or _repeats(r.left))
    ]
    assert [r.law for r in moving if r not in set(fired)] == []
    path = next(p for p in gf.cases() if p.name == "scales.gir")
    before = gf.read(path)[0]
    rng = np.random.default_rng(0)
    sizes = [[7 if isinstance(n, Dim) else n for n in v.type.shape] for v in before.inputs]
    inputs = [rng.uniform(0.5, 2, shape).astype("f4") for shape in sizes]
    after = apply_rules(before, FASTMATH)
    for w, g in zip(gf.run(before, inputs), gf.run(after, inputs), strict=True):
        np.testing.assert_allclose(w, g, rtol=1e-5)


def test_laws_are_distinct() -> None:
    laws = [r.law for r in (*FASTMATH.rules, *STABLE.rules)]
    assert len(set(laws)) == len(laws)


def test_a_rule_needs_an_op_on_its_left() -> None:
    from graphc.passes.patterns import X, exact, heads

    (add,) = heads("add")
    said = r"rule 'x == x \+ 0': the left side must be an op, got Var"
    with pytest.raises(TypeError, match=said):
        rule("x == x + 0", X >> add(X, 0), exact)
    assert isinstance(add(X, 0), Apply)
