"""What FILE.py:NAME and FILE.gir may be, and what is said where they are something else."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from graphc.ops import OPS


def test_module_is_executed_once(graphc: Any, folder: Path) -> None:
    (folder / "count.py").write_text(
        "import graphc as gx\nprint('executed')\nx = gx.input('x', ('n',))\n"
        "f = gx.function([x], x + 1, name='f')\ng = gx.function([x], x + 2, name='g')\n"
    )
    ran = graphc("inspect", "count.py:f", "./count.py:g", "count.py")
    assert ran.status == 0 and ran.err == "executed\n" and "executed" not in ran.out


def test_module_imports_its_neighbours_and_leaves_no_trace(graphc: Any, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "neighbour_of_main.py").write_text("SIZE = 3\n")
    (folder / "sub" / "json.py").write_text(  # called like a module that is loaded already
        "import sys\nimport graphc as gx\nimport neighbour_of_main as n\n"
        "assert __name__ != '__main__'\n"
        "x = gx.input('x', (n.SIZE,))\nf = gx.function([x], x, name='f')\n"
    )
    path, json = list(sys.path), sys.modules.get("json")
    assert graphc("run", "sub/json.py:f", "x=[1, 2, 3]").out == "output: f32[3]\n  [1., 2., 3.]\n"
    assert sys.path == path and sys.modules.get("json") is json


def test_a_graph_object_runs_too(graphc: Any) -> None:
    assert graphc("run", "model.py:graph", "x=[[0,0,0,1]]").out == "output: i64[1]\n  [2]\n"


@pytest.mark.parametrize("text", ["model.txt", "step", ".", "model", ""])
def test_not_a_source(graphc: Any, text: str) -> None:
    graphc("inspect", text).fails(f"expected FILE.py:NAME, FILE.py or FILE.gir, got {text!r}", 2)


def test_malformed_sources(graphc: Any) -> None:
    graphc("run", "model.py:").fails("model.py:: expected a name after model.py:, got ''", 2)
    graphc("run", "model.py:a-b").fails("model.py:a-b: expected a name after model.py:, got 'a-b'",
                                        2)
    graphc("run", "f.gir:f").fails("f.gir:f: a .gir file holds one graph; say f.gir", 2)
    graphc("run").fails("expected FILE.py:NAME, FILE.py or FILE.gir", 2)


@pytest.mark.parametrize("name", ["no.py:f", "no.py", "no.gir", "no/where.gir"])
def test_missing_file(graphc: Any, name: str) -> None:
    path = name.removesuffix(":f")
    graphc("inspect", name).fails(f"cannot read {path}: No such file or directory")


@pytest.mark.parametrize("suffix", [".py", ".gir"])
def test_directory(graphc: Any, folder: Path, suffix: str) -> None:
    (folder / f"d{suffix}").mkdir()
    graphc("inspect", f"d{suffix}").fails(f"cannot read d{suffix}: Is a directory")


@pytest.mark.parametrize("suffix", [".py", ".gir"])
def test_unreadable(
    graphc: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    real = open  # chmod would not do: root reads everything

    def guarded(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file).endswith(f"secret{suffix}"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)
        return real(file, *args, **kwargs)

    (folder / f"secret{suffix}").touch()
    monkeypatch.setattr("builtins.open", guarded)
    graphc("inspect", f"secret{suffix}").fails(f"cannot read secret{suffix}: Permission denied")


def test_missing_name(graphc: Any) -> None:
    graphc("run", "model.py:stop").fails(
        "model.py has no 'stop' (functions: step, predict, pick); did you mean step?"
    )
    graphc("run", "model.py:zzzz").fails("model.py has no 'zzzz' (functions: step, predict, pick)")
    graphc("run", "model.py:logit").fails(
        "model.py has no 'logit' (functions: step, predict, pick); did you mean logits?"
    )


def test_not_a_function(graphc: Any, folder: Path) -> None:
    graphc("run", "model.py:loss").fails(
        "model.py: loss is a Tensor, not a gx.function; it declares step, predict, pick"
    )
    (folder / "empty.py").write_text("size = 1\n")
    graphc("run", "empty.py:size").fails(
        "empty.py: size is an int, not a gx.function; make one with gx.function(...)"
    )
    graphc("run", "empty.py:sizes").fails(
        "empty.py has no 'sizes' and no gx.function; did you mean size?"
    )
    graphc("run", "empty.py").fails("empty.py declares no gx.function at module level")


def test_which_function(graphc: Any) -> None:
    ran = graphc("run", "model.py")
    assert ran.status == 1 and ran.out == ""
    lines = ran.err.splitlines()[1:]
    assert lines[0] == "graphc: error: model.py declares 3 functions; say which:"
    assert [line.split()[0] for line in lines[1:]] == [
        "model.py:step", "model.py:predict", "model.py:pick",
    ]
    assert "predict(x: f32[batch,4]) -> (i64[batch])" in lines[2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import graphc\n\nfoo()\n", "NameError: name 'foo' is not defined (bad.py:3)"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module' "
                                    "(bad.py:1)"),
        ("x = 1\ny = (\n", "SyntaxError: '(' was never closed (bad.py:2)"),
        ("raise ValueError\n", "ValueError (bad.py:1)"),
        ("import helper\nhelper.fail()\n", "KeyError: 'k' (helper.py:2)"),
        ("import numpy as np\n\nnp.zeros(3).reshape(2)\n",
         "ValueError: cannot reshape array of size 3 into shape (2,) (bad.py:3)"),
        ("import json\n\n\njson.loads('{')\n",
         "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 "
         "(char 1) (bad.py:4)"),
        ("import graphc as gx\nx = gx.input('x', (2, 3))\nx @ x\n",
         "matmul: inner dimensions must match, got f32[2,3] @ f32[2,3] (bad.py:3)"),
        ("import sys\nsys.exit(3)\n",
         "the module exits (3) while it is loaded; keep that under if __name__ == \"__main__\" "
         "(bad.py:2)"),
        ("x = '\\x00'\n\x00\n", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_mistakes_in_the_module(graphc: Any, folder: Path, source: str, message: str) -> None:
    (folder / "helper.py").write_text("def fail():\n    return {}['k']\n")
    (folder / "bad.py").write_text(source)
    try:
        ran = graphc("inspect", "bad.py:f")
    finally:
        sys.modules.pop("helper", None)
    if "null bytes" in message:
        assert ran.status == 1 and "null bytes" in ran.err and "Traceback" not in ran.err
    else:
        ran.fails(message)


def test_mistakes_in_a_pass_of_the_users_own(graphc: Any, folder: Path) -> None:
    (folder / "mine.py").write_text("def broken(g):\n    return g.nodez\n\nn = 3\n")
    graphc("opt", "one.py", "--passes", "mine.py:broken").fails(
        "AttributeError: 'Graph' object has no attribute 'nodez' (mine.py:2)"
    )
    graphc("opt", "one.py", "--passes", "mine.py:n").fails(
        "mine.py:n: a pass is a function Graph -> Graph, got 3"
    )


GIR = "graph @f(%x: f32[n]) {\n  %0: f32[n] = exp %x\n  return %0\n}\n"


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("exp", "expp", "line 2, column 16", "expected an operation (did you mean exp?)"),
        ("return %0", "return %1", "line 3, column 10", "%1 is not defined"),
        ("f32[n] = exp", "f64[n] = exp", "line 2", "exp gives f32[n] here, not f64[n]"),
        ("}\n", "", "line 4", "'}'"),
        ("graph", "", "line 1, column", "expected 'graph'"),
    ],
)
def test_bad_gir(
    graphc: Any, folder: Path, old: str, new: str, where: str, what: str
) -> None:
    (folder / "f.gir").write_text(GIR)
    assert graphc("run", "f.gir", "x=[0]").out == "output: f32[1]\n  [1.]\n"
    (folder / "f.gir").write_text(GIR.replace(old, new, 1))
    ran = graphc("run", "f.gir", "x=[0]")
    assert ran.status == 1 and ran.out == ""
    assert ran.err.startswith("graphc: error: f.gir: " + where), ran.err
    assert what in ran.err and "Traceback" not in ran.err


def test_gir_that_is_no_text(graphc: Any, folder: Path) -> None:
    (folder / "f.gir").write_bytes(b"graph\n\xff\xfe")
    graphc("run", "f.gir").fails("f.gir: line 2: expected text in UTF-8")


def test_gir_without_or_with_a_damaged_npz(graphc: Any, folder: Path) -> None:
    graphc("opt", "model.py:predict", "-o", "p.gir")
    (folder / "p.npz").write_bytes(b"no zip")
    ran = graphc("run", "p.gir", "x=[[0,0,0,1]]")
    assert ran.status == 1
    assert ran.err.startswith("graphc: error: p.npz: expected an .npz of NumPy arrays")
    (folder / "p.npz").unlink()
    graphc("run", "p.gir", "x=[[0,0,0,1]]").fails(
        "predict: variable @w has no value: the graph was read without its .npz file"
    )
    assert graphc("run", "p.gir", "x=[[0,0,0,1]]", "@w=[[0,0,0]]").status == 1
    zeros = str([[0, 1, 0]] * 4)
    assert graphc("run", "p.gir", "x=[[0,0,0,1]]", f"@w={zeros}").out == "output: i64[1]\n  [1]\n"
    assert "arena bytes" in graphc("inspect", "p.gir").out


def test_gir_without_its_large_constants(graphc: Any, folder: Path) -> None:
    (folder / "big.py").write_text(
        "import numpy as np\nimport graphc as gx\nx = gx.input('x', (40,))\n"
        "f = gx.function([x], x * gx.constant(np.arange(40, dtype='float32')), name='f')\n"
    )
    assert graphc("opt", "big.py", "--passes", "", "-o", "big.gir").status == 0
    (folder / "big.npz").unlink()
    reason = "constant @c0 (f32[40]) has no value: the graph was read without its .npz file"
    ran = graphc("inspect", "big.gir")
    assert ran.status == 0 and "  operations    2: 1 constant, 1 mul\n" in ran.out
    graphc("run", "big.gir", f"x={[1] * 40}").fails(reason)


def test_two_inputs_of_one_name(graphc: Any, folder: Path) -> None:
    (folder / "f.gir").write_text(
        'graph @f(%x: f32[], %y: f32[] = "x") {\n  %0: f32[] = add %x, %y\n  return %0\n}\n'
    )
    graphc("run", "f.gir").fails("f: two inputs are both called 'x'")


def test_load_defines_the_operations_of_a_graph(graphc: Any, folder: Path) -> None:
    (folder / "ops_of_mine.py").write_text(
        "import numpy as np\nimport graphc as gx\n"
        "triple = gx.define_op(gx.Op('triple_of_cli', gx.Kind.ELEMENTWISE, 1, "
        "type=gx.same_float('triple_of_cli'), ref=lambda x: x * 3, differentiable=False))\n"
    )
    (folder / "t.gir").write_text(GIR.replace("exp", "triple_of_cli"))
    run = ("run", "t.gir", "x=[2]", "--mode", "interpret")
    ran = graphc(*run)
    assert ran.status == 1 and "expected an operation" in ran.err
    assert graphc(*run, "--load", "ops_of_mine.py").out == "output: f32[1]\n  [6.]\n"
    graphc(*run, "--load", "no.py").fails("cannot read no.py: No such file or directory")
    OPS.pop("triple_of_cli")
    graphc("run", "t.gir", "x=[2]", "--load", "ops_of_mine.py").fails(
        "triple_of_cli: there is no native code for it, define_op got no emit=; run it with "
        "mode='interpret'"
    )
    OPS.pop("triple_of_cli")
