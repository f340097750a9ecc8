"""Inputs that do not fit, and calls that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def test_missing_unknown_and_repeated(graphc: Any) -> None:
    run = ("run", "one.py")
    graphc(*run, "a=1").fails("f: takes 2 inputs (a: f32[], b: f32[]), got 1: 'b' (f32[]) is "
                              "missing")
    graphc(*run, "a=1", "c=2").fails("c=2: f has no input 'c' (inputs: a, b)")
    graphc("run", "model.py:step", "xx=1").fails(
        "xx=1: step has no input 'xx'; did you mean x? (inputs: x, y)"
    )
    graphc(*run, "a=1", "a=2").fails("a=2: input 'a' is given twice")
    graphc(*run, "@w=2").fails("@w=2: f has no variable 'w' (variables: none)")
    np.save("a.npy", np.float32(1))
    graphc(*run, "a=1", "a.npy").fails("a.npy: input 'a' is given twice")
    graphc(*run, "a.npy", "a.npy", "a.npy").fails(
        "a.npy: f takes 2 inputs (a: f32[], b: f32[]), this is one more"
    )
    np.savez("ac.npz", a=np.float32(1), c=np.float32(1))
    graphc(*run, "ac.npz").fails("ac.npz: f has no input 'c' (inputs: a, b)")


@pytest.mark.parametrize("text", ["a", "1", "a.txt", "=3"])
def test_not_an_input(graphc: Any, text: str) -> None:
    graphc("run", "one.py", text).fails(
        f"expected an input as NAME=FILE.npy, NAME=NUMBER, FILE.npz or FILE.npy, got {text!r}", 2
    )
    graphc("inspect", "model.py", "--dim", "batch=3", "--dim", "batch=4").fails(
        "--dim: batch is given twice", 2
    )


@pytest.mark.parametrize("value", ["", "foo", "'s'", "[1, 'a']", "f()", "1,", "{}", "1e"])
def test_not_a_value(graphc: Any, value: str) -> None:
    ran = graphc("run", "one.py", f"a={value}", "b=1")
    if value == "1,":  # a list of one number
        ran.fails("f: input 'a': expected f32[], which has 0 axes, got shape [1] with 1 (one.py:3)")
    else:
        ran.fails(f"a={value}: expected a .npy file, a number or a list of them", 2)


def test_special_numbers(graphc: Any, folder: Path) -> None:
    assert graphc("run", "one.py", "a=inf", "b=1").out == "output: f32[] = inf\n"
    assert graphc("run", "one.py", "a=nan", "b=-2.5e0").out == "output: f32[] = nan\n"
    (folder / "ä.py").write_text(
        "import graphc as gx\nx = gx.input('äpfel', ('n',))\nf = gx.function([x], x * 2)\n"
    )
    ran = graphc("run", "ä.py", "äpfel=[nan, -inf, +Inf, 1e999, -0.5]")
    assert ran.out == "output: f32[5]\n  [ nan, -inf,  inf,  inf,  -1.]\n"
    graphc("run", "ä.py", "äpfel=[nanometre]").fails(
        "äpfel=[nanometre]: expected a .npy file, a number or a list of them", 2
    )


def test_files_that_are_no_arrays(graphc: Any, folder: Path) -> None:
    run = ("run", "one.py")
    graphc(*run, "no.npy").fails("cannot read no.npy: No such file or directory")
    graphc(*run, "no.npz").fails("cannot read no.npz: No such file or directory")
    graphc(*run, "a=no.npy").fails("cannot read no.npy: No such file or directory")
    graphc(*run, "a=no.npz").fails(
        "a=no.npz: an .npz names its arrays itself; give no.npz without a=", 2
    )
    (folder / "d.npy").mkdir()
    graphc(*run, "d.npy").fails("cannot read d.npy: Is a directory")
    (folder / "empty.npy").touch()
    (folder / "text.npz").write_text("hello")
    (folder / "cut.npz").write_bytes(b"PK\x03\x04")
    np.save("o.npy", np.array([object()]), allow_pickle=True)
    np.savez("o.npz", a=np.array([object()]))
    np.save("brace.npy", np.zeros((3, 4)))
    (folder / "brace.npy").write_bytes((folder / "brace.npy").read_bytes().replace(b"4)", b"4 "))
    np.save("huge.npy", np.zeros((3, 4)))
    (folder / "huge.npy").write_bytes(
        (folder / "huge.npy").read_bytes()
        .replace(b"(3, 4), }" + b" " * 15, b"(4000000000000000, 4), }")
    )
    for name in ("empty.npy", "text.npz", "cut.npz", "o.npy", "o.npz", "brace.npy", "huge.npy"):
        ran = graphc(*run, name)
        kind = "an .npz" if name.endswith("npz") else "a .npy"
        assert ran.status == 1 and ran.out == "" and len(ran.err.splitlines()) == 1
        assert ran.err.startswith(f"graphc: error: {name} is not {kind} file of numbers: ")
    np.savez("two.npz", a=1, b=2)
    (folder / "two.npz").rename(folder / "two.npy")
    graphc(*run, "two.npy").fails(
        "two.npy is not a .npy file of numbers: it holds several arrays: call it .npz"
    )
    np.save("one.npy", np.float32(1))
    (folder / "one.npy").rename(folder / "one.npz")
    graphc(*run, "one.npz").fails(
        "one.npz is not an .npz file of numbers: it holds one array without a name: call it .npy"
    )


def test_shapes_and_dtypes(graphc: Any) -> None:
    np.save("x.npy", np.zeros((2, 5), "float32"))
    np.save("y.npy", np.zeros(2, "int64"))
    np.save("x64.npy", np.zeros((2, 4)))
    run = ("run", "model.py:step")
    graphc(*run, "x.npy", "y.npy").fails(
        "step: input 'x': expected f32[batch,4], got shape [2,5]: axis 1 must be 4 (model.py:5)"
    )
    graphc(*run, "x=[[1,2,3,4]]", "y=y.npy").fails(
        "step: input 'y': expected i64[batch], got shape [2]: axis 0 is 2, but batch is 1 in "
        "input 'x' (model.py:6)"
    )
    graphc(*run, "x64.npy", "y.npy").fails(
        "step: input 'x' must be f32[batch,4], got an array of float64 with shape [2,4]; cast it "
        "with .astype('float32') (model.py:5)"
    )
    ran = graphc(*run, "x=[[1,2],[3]]", "y=[0,1]")
    assert ran.status == 1 and "step: input 'x' must be an array of f32[batch,4]" in ran.err
    graphc(*run, "x=[[1,2,3,4]]", "y=[0.5]").fails(
        "step: input 'y' must be i64[batch], got the list [0.5] (model.py:6)"
    )
    graphc(*run, "x=[[1,2,3,4]]", "y=[0]", "@w=[[1,2,3]]").fails(
        "step: variable '@w' must be f32[4,3], got shape [1,3]"
    )


def test_dimensions(graphc: Any) -> None:
    graphc("run", "model.py:step", "--dim", "batch=3").fails(
        "--dim batch: step has no such dimension to give, it comes from the shapes of the inputs "
        "(to give: none)"
    )
    graphc("run", "one.py", "--dim", "n=3").fails(
        "--dim n: f has no such dimension to give, it is not there (to give: none)"
    )
    graphc("inspect", "model.py", "--dim", "n=3").fails(
        "--dim n: there is no such dimension (dimensions: batch)"
    )
    for text in ("n", "n=", "n=-1", "n=x", "3=n"):
        graphc("run", "one.py", f"--dim={text}").fails(
            f"--dim: expected NAME=SIZE with a size >= 0, got {text!r}", 2
        )


def test_failures_at_run_time_name_the_users_line(graphc: Any, folder: Path) -> None:
    ran = graphc("run", "model.py:pick", "x=[[1,2,3,4]]", "y=[9]")
    assert ran.status == 1 and ran.out == ""
    assert ran.err.splitlines()[-1].startswith("graphc: error: pick: ")
    assert ran.err.endswith("(model.py:15)\n") and "gather" in ran.err
    (folder / "div.py").write_text(
        "import graphc as gx\nn = gx.input('n', (), 'int64')\n"
        "f = gx.function([n], 7 // n, name='f')\n"
    )
    assert graphc("run", "div.py", "n=2").out == "output: i64[] = 3\n"
    ran = graphc("run", "div.py", "n=0")
    assert ran.status == 1 and "div" in ran.err and ran.err.endswith("(div.py:3)\n")
    (folder / "log.py").write_text(
        "import graphc as gx\nx = gx.input('x')\n\nf = gx.function([x], gx.log(x), name='f')\n"
    )
    assert graphc("run", "log.py", "x=-1").out == "output: f32[] = nan\n"
    ran = graphc("run", "log.py", "x=-1", "--mode", "debug")
    assert ran.status == 1 and "log" in ran.err and ran.err.endswith("(log.py:4)\n")


def test_bad_command_lines(graphc: Any) -> None:
    for args, words in {
        (): "which command? compile, run, opt, dot, inspect",
        ("rum",): "no command 'rum'; did you mean run?",
        ("frobnicate",): "no command 'frobnicate'; there are compile, run, opt, dot, inspect",
        ("run", "one.py", "--mod", "jit"): "unrecognized arguments: --mod jit",
        ("run", "one.py", "--mode", "fast"):
            "argument --mode: invalid choice: 'fast' (choose from",
        ("compile", "one.py"): "the following arguments are required: -o",
        ("compile", "-o", "x.so"): "the following arguments are required: FILE",
        ("inspect",): "the following arguments are required: FILE",
        ("opt",): "expected FILE.py:NAME, FILE.py or FILE.gir, or --list-passes",
    }.items():
        ran = graphc(*args)
        assert ran.status == 2 and ran.out == "", args
        assert ran.err.splitlines()[-1].startswith(f"graphc: error: {words}"), ran.err


def test_passes_and_switches_that_there_are_not(
    graphc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = graphc("opt", "one.py", "--passes", "fold,dse")
    assert ran.status == 1 and "there is no pass 'dse'; known: inline, " in ran.err
    monkeypatch.setenv("GRAPHC_STOP_AFTER", "fuze")
    ran = graphc("opt", "one.py")
    assert ran.status == 1 and "GRAPHC_STOP_AFTER: no pass 'fuze'; the pipeline is " in ran.err
