"""The pattern language and the engine that applies it."""

from __future__ import annotations

import pytest

from graphc.errors import UsageError, VerifyError
from graphc.ir import Graph
from graphc.passes.patterns import C, F, I, K, Rule, X, Y, attr, exact, heads, once, rule
from graphc.passes.rewrite import MAX_DEPTH, RuleSet, apply_rules
from graphc.text import parse

add, sub, mul, neg, exp, log = heads("add sub mul neg exp log")
transpose, concat = heads("transpose concat")

HEAD = """graph @f(%x: f32[4], %y: f32[4], %i: i32[4]) {
  %zero: f32[] = constant 0.0
  %0: f32[4] = broadcast %zero {shape=(4), axes=()}
  %minus_zero: f32[] = constant -0.0
  %1: f32[4] = broadcast %minus_zero {shape=(4), axes=()}
  %three: i32[] = constant 3
  %3: i32[4] = broadcast %three {shape=(4), axes=()}
"""


def graph(*lines: str) -> Graph:
    last = lines[-1].split(":")[0]
    return parse(HEAD + "".join(f"  {line}\n" for line in lines) + f"  return {last}\n}}\n")


def ops(g: Graph, *rules: Rule) -> list[str]:
    """What is left after the rules: the ops of live nodes, constants aside."""
    g = apply_rules(g, RuleSet(rules))
    return [n.op.name for n in g.nodes if n.op.name not in ("constant", "broadcast")]


def test_a_variable_twice_is_one_value() -> None:
    same = rule("x - x", sub(X, X) >> neg(X), exact)
    assert ops(graph("%r: f32[4] = sub %x, %x"), same) == ["neg"]
    assert ops(graph("%r: f32[4] = sub %x, %y"), same) == ["sub"]


def test_variables_may_be_of_a_kind() -> None:
    only_ints = rule("-i", neg(I) >> I, exact)
    assert ops(graph("%r: i32[4] = neg %i"), only_ints) == []
    assert ops(graph("%r: f32[4] = neg %x"), only_ints) == ["neg"]


def test_literals_know_signs_of_zero_and_kinds() -> None:
    def fires(number: object, operand: str) -> bool:
        law = rule("x + number", add(X, number) >> X, exact)
        t = "i32[4]" if operand == "%3" else "f32[4]"
        value = "%i" if operand == "%3" else "%x"
        return not ops(graph(f"%r: {t} = add {value}, {operand}"), law)

    assert fires(0.0, "%0")
    assert fires(0, "%0")
    assert fires(-0.0, "%1")
    assert not fires(-0.0, "%0")
    assert not fires(0.0, "%1")
    assert not fires(0, "%1")
    assert fires(3, "%3")
    assert not fires(3.0, "%3")  # a float literal is of floats
    assert not fires(True, "%3")


def test_constants_are_captured_and_computed_with() -> None:
    law = rule("(x + c) + k", add(add(X, C), K) >> add(X, add(C, K)), exact)
    g = graph("%a: i32[4] = add %i, %3", "%r: i32[4] = add %a, %3")
    after = apply_rules(g, RuleSet([law]))
    assert "constant 6" in str(after)
    assert ops(g, law) == ["add"]


def test_numbers_on_the_right_take_type_and_shape_from_beside() -> None:
    law = rule("-i == i * -1", neg(I) >> mul(I, -1), exact)
    after = str(apply_rules(graph("%r: i32[4] = neg %i"), RuleSet([law])))
    assert "i32[] = constant -1" in after
    assert "i32[4] = broadcast" in after


def test_attributes_are_captured_compared_and_computed() -> None:
    p, q = attr("perm"), attr("inner")
    text = """graph @f(%x: f32[2,3]) {
      %0: f32[3,2] = transpose %x {perm=(1,0)}
      %1: f32[2,3] = transpose %0 {perm=(1,0)}
      return %1
    }"""
    literal = rule("", transpose(transpose(X, perm=(1, 0)), perm=(1, 0)) >> X, exact)
    other = rule("", transpose(transpose(X, perm=(0, 1)), perm=(1, 0)) >> X, exact)
    same = rule("", transpose(transpose(X, perm=p), perm=p) >> X, exact)
    computed = rule(
        "", transpose(transpose(X, perm=q), perm=p)
        >> transpose(X, perm=lambda m: tuple(m[q][a] for a in m[p])), exact,
    )  # fmt: skip
    assert ops(parse(text), literal) == []
    assert ops(parse(text), other) == ["transpose", "transpose"]
    assert ops(parse(text), same) == []
    assert ops(parse(text), computed) == ["transpose"]


def test_once_counts_operands_and_results() -> None:
    law = rule("log(exp(x))", log(once(exp(X))) >> X, exact)
    assert ops(graph("%e: f32[4] = exp %x", "%r: f32[4] = log %e"), law) == []
    twice = graph("%e: f32[4] = exp %x", "%l: f32[4] = log %e", "%r: f32[4] = mul %l, %e")
    assert ops(twice, law) == ["exp", "log", "mul"]
    shown = graph("%e: f32[4] = exp %x", "%r: f32[4] = log %e")
    both = Graph("f", shown.inputs, shown.nodes, (*shown.outputs, shown.outputs[0].node.args[0]))
    assert ops(both, law) == ["exp", "log"]
    # the use moves along when what is used is rewritten first
    negs = rule("-(-x)", neg(neg(X)) >> X, exact)
    moved = graph(
        "%e: f32[4] = exp %x", "%a: f32[4] = neg %e", "%b: f32[4] = neg %a",
        "%l: f32[4] = log %b", "%r: f32[4] = mul %l, %b",
    )  # fmt: skip
    assert ops(moved, negs, law) == ["exp", "log", "mul"]


def test_any_operands() -> None:
    law = rule("concat", concat(..., axis=0) >> (lambda m: m.args[0]), exact,
               where=lambda m: m.args[0].type is m.type)  # fmt: skip
    assert ops(graph("%r: f32[4] = concat %x {axis=0}"), law) == []
    assert ops(graph("%r: f32[8] = concat %x, %y {axis=0}"), law) == ["concat"]


def test_the_first_rule_that_applies_wins() -> None:
    first = rule("to exp", neg(X) >> exp(X), exact, where=lambda m: m[X].node.op.name == "input")
    second = rule("to log", neg(X) >> log(X), exact)
    assert ops(graph("%a: f32[4] = neg %x", "%r: f32[4] = neg %a"), first, second) == ["exp", "log"]


def test_none_leaves_the_node() -> None:
    never = rule("never", neg(X) >> (lambda m: None), exact)
    assert ops(graph("%r: f32[4] = neg %x"), never) == ["neg"]


def test_what_a_rule_builds_is_simplified_too() -> None:
    swap = rule("x + -y", add(X, neg(Y)) >> sub(X, Y), exact)
    same = rule("x - x", sub(F, F) >> neg(F), exact)
    assert ops(graph("%n: f32[4] = neg %x", "%r: f32[4] = add %x, %n"), swap, same) == ["neg"]


def test_rules_that_feed_each_other_end() -> None:
    grow = rule("exp(x) == exp(x)", exp(X) >> (lambda m: m.emit("exp", m[X])), exact)
    assert ops(graph("%r: f32[4] = exp %x"), grow) == ["exp"]
    assert MAX_DEPTH < 100


def test_mistakes_of_a_rule() -> None:
    with pytest.raises(UsageError, match=r"there is no op 'tanhh' \(did you mean tanh\?\)"):
        heads("neg tanhh")
    with pytest.raises(UsageError, match="rule 'x': y stands on the right side only"):
        rule("x", neg(X) >> add(X, neg(Y)), exact)
    with pytest.raises(UsageError, match="rule 'x': p stands on the right side only"):
        rule("x", neg(X) >> transpose(X, perm=attr("p")), exact)
    with pytest.raises(UsageError, match="rule 'x': takes two sides, `left >> right`, got Apply"):
        rule("x", neg(X), exact)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rule 'x': the left side must be an op, got Var"):
        rule("x", X >> neg(X), exact)


def test_a_rule_of_the_wrong_type_is_named() -> None:
    wrong = rule("neg(x) == sum(x)", neg(X) >> (lambda m: m.emit("reduce_sum", m[X], axes=(0,))),
                 exact)  # fmt: skip
    with pytest.raises(VerifyError, match=r"rule 'neg\(x\) == sum\(x\)' made f32\[\] of f32\[4\]"):
        apply_rules(graph("%r: f32[4] = neg %x"), RuleSet([wrong]))
