"""What stands in a message about text that is no graph; and that no text raises anything else."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_graphs import every_op

from graphc import types
from graphc.errors import ParseError
from graphc.text import parse, to_text

TEXT = """\
graph @f(%x: f32[batch,2], %i: i64[n]) {
  %0: f32[batch,2] = exp %x
  %1: f32[2] = constant [0x1p+0, nan]
  %w: f32[2] = variable @w
  %2: f32[n,2] = gather %0, %i {axis=0, batch=0, negative=true} loc("a.py":3)
  return y=%2
  update @w = %1
}
"""

CASES = [
    ("= exp %x", "= epx %x", "line 2, column 22: expected an operation (did you mean exp?), "
     "found 'epx'"),
    ("= exp %x", "= exp %y", "line 2, column 26: %y is not defined before this place"),
    ("= exp %x", "= exp", "exp: takes 1 operand"),
    ("%0: f32[batch,2] =", "%0: f32[batch,3] =", "line 2, column 3: exp gives f32[batch,2] here, "
     "not f32[batch,3]"),
    ("%0: f32[batch,2] =", "%x: f32[batch,2] =", "line 2, column 3: %x is defined twice"),
    ("%0: f32[batch,2] =", "%0: f33[batch,2] =", "line 2, column 7: expected a dtype (one of"),
    ("%0: f32[batch,2] =", "%0: f32[batch 2] =", "line 2, column 17: expected ',' or ']' after a "
     "size, found '2'"),
    ("%0: f32[batch,2] =", "%0: f32[batch,-2] =", "line 2, column 17: expected a size "
     ">= 0, found '-2'"),
    ("%0: f32[batch,2] =", "%0 f32[batch,2] =", "line 2, column 6: expected ':' and the type of "
     "the result"),
    ("[0x1p+0, nan]", "[0x1p+0]", "line 3, column 25: f32[2] has 2 elements, got 1"),
    ("[0x1p+0, nan]", "[0x1p+0, true]", "line 3, column 34: expected a number of dtype f32, found "
     "'true'"),
    ("[0x1p+0, nan]", "[0x1p+0, 0x1.0000000001p+0]", "expected a number that f32 holds exactly"),
    ("axis=0", "axes=0", "line 5, column 33: expected an attribute of gather (axis, batch, "
     "negative), found 'axes'"),
    ("axis=0, ", "", "line 5, column 3: gather lacks its attribute 'axis'"),
    ("axis=0", "axis=0, axis=1", "attribute 'axis' comes twice"),
    ("axis=0", "axis=7", "gather: axis"),
    ("axis=0", "axis=(((", "line 5, column 41: expected an attribute: a number, a word, a string"),
    ("negative=true", "negative=\"", "line 5, column 59: expected true or false, found"),
    ('loc("a.py":3)', 'loc("a.py",3)', "line 5, column 75: expected ':' and a line number, "
     "found ','"),
    ("return", "retrun", "line 6, column 3: expected an operation (did you mean return?)"),
    ("return y=%2", "return y=%7", "line 6, column 12: %7 is not defined before this place"),
    ("update @w = %1", "update @w = %0", "line 7, column 9: @w has type f32[2], not f32[batch,2]"),
    ("}\n", "}\n}", "line 9, column 1: expected the end of the file after the graph, found '}'"),
    ("graph @f", "grph @f", "line 1, column 1: expected 'graph', found 'grph'"),
    ("%x: f32[batch,2],", "%x: f32[batch,2]", "line 1, column 27: expected ',' or ')', found '%i'"),
]


@pytest.mark.parametrize(("old", "new", "message"), CASES, ids=[c[2][:40] for c in CASES])
def test_message(old, new, message):
    assert parse(TEXT)
    with pytest.raises(ParseError) as info:
        parse(TEXT.replace(old, new, 1))
    assert message in str(info.value)


def test_the_caret_stands_under_the_place():
    with pytest.raises(ParseError) as info:
        parse(TEXT.replace("= exp %x", "= epx %x"), source="f.gir")
    assert str(info.value) == """\
f.gir: line 2, column 22: expected an operation (did you mean exp?), found 'epx'
    %0: f32[batch,2] = epx %x
                       ^"""


@pytest.mark.parametrize("text", [
    "", " ", "graph", "graph @", "graph @f(", "graph @f() {", "graph @f() { return", "\0", "{" * 3,
    "graph @f() { return %0 }", 'graph @"a\\x"() { return }', "graph @f(%0: f32[]) { return }",
    "graph @f() { %0: f32[99999999999999999999] = constant [] return }",
    f"graph @f(%x: f32[{'floordiv(' * 3000}a]) {{ return }}",
    f"graph @f() {{ %0: i64[] = constant {'9' * 5000} return }}",
    f"graph @f() {{ %0: i64[] = dim {{size={'9' * 5000}}} return }}",
    f"graph @f() {{ %0: i64[] = dim {{size={'(' * 5000} return }}",
    f"graph @f() {{ {'%0: i64[] = call body=@f() { ' * 3000} return }}",
    "graph @f() { %0: i64[] = dim {size=floordiv(n, 0)} return }",
    "graph @f() { %0: i64[] = dim {size=mod(4, 0)} return }",
    "graph @f() { %0: f32[] = constant 0x1p+99999 return }",
    "graph @f() { %0: f32[] = constant 1e99999999 return }",
    "graph @f() { %0: f32[] = constant 1e39 return }",
    "graph @f() { %0: f32[] = constant nan(0xffffffffff) return }",
    "graph @f() { %0: f32[] = constant nan(0x1) return }",
    "graph @f() { %0: i8[] = constant 128 return }",
    "graph @f() { %0: f32[] = constant @d return }",
    "graph @f() { %0: f32[²] = constant @c0 return }",
    "graph @f() { %0: f32[1] = iota {dtype=f32, shape=(\"\"), axis=0} return }",
    "graph @f() { %0: f32[1] = iota {dtype=1, shape=none, axis=inf} return }",
])
def test_texts_that_are_no_graphs(text):
    with pytest.raises(ParseError, match=r"line [0-9]+, column [0-9]+: "):
        parse(text)


def test_bfloat16_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    types._numpy_dtype.cache_clear()
    try:
        text = "graph @f(%x: bf16[2]) { %0: bf16[2] = exp %x return %0 }"
        assert to_text(parse(text)).count("bf16[2]") == 2
        with pytest.raises(ParseError, match=r"line 1, column 40: bfloat16 arrays need the ml_dty"):
            parse("graph @f() { %0: bf16[] = constant     0x1p+0 return %0 }")
    finally:
        types._numpy_dtype.cache_clear()


SAMPLE = to_text(every_op())
PIECES = st.sampled_from([
    "%", "@", "{", "}", "(", ")", "[", "]", "=", ",", ":", '"', "\\", "#", "\n", "-", "nan", "inf",
    "0x", "1e9", "true", "none", "f32", "bf16[", "size(", "literal(", "floordiv(n,0)", "loc(",
    "scope(", "body=", "return", "update", "%x", "%0", "@c0", "\0", "é", "²", "𝟙", "\ud800", "9",
])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_texts_parse_or_raise_ParseError(data):
    lines = SAMPLE.splitlines(keepends=True)
    keep = data.draw(st.integers(1, len(lines)))
    text = "".join([lines[0], *lines[-keep:]]) if data.draw(st.booleans()) else SAMPLE
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 12))
        new = data.draw(st.one_of(PIECES, st.text(max_size=4), st.just("")))
        text = text[:at] + new + text[at + cut :]
    try:
        g = parse(text)
    except ParseError:
        return
    printed = to_text(g)
    assert to_text(parse(printed)) == printed


@pytest.mark.parametrize("flag", ["True", "1", "yes", '"true"', "none"])
def test_flags_are_true_or_false(flag):
    text = (
        "graph @f(%x: f32[4], %i: i64[2]) {\n"
        f"  %0: f32[2] = gather %x, %i {{axis=0, batch=0, negative={flag}}}\n  return %0\n}}\n"
    )
    with pytest.raises(ParseError, match="line 2, column 57: expected true or false, found"):
        parse(text)


def test_missing_attributes_point_at_their_op():
    text = "graph @f(%x: f32[4]) {\n  %0: f32[] = reduce_sum %x {}\n\n  return %0\n}\n"
    with pytest.raises(ParseError, match="line 2, column 3: reduce_sum lacks its attribute 'axes'"):
        parse(text)
