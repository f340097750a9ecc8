"""The command called in process, and a small program of a user's to call it on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from graphc.cli import main

# Line numbers are part of what the tests assert: `loss` stands on line 10, `picked` on line 15.
MODEL = """\
import numpy as np

import graphc as gx

x = gx.input("x", ("batch", 4))
y = gx.input("y", ("batch",), "int64")
w = gx.variable(np.arange(12, dtype="float32").reshape(4, 3) / 10, "w")

logits = x @ w
loss = gx.nn.cross_entropy(logits, y)
updates = gx.optim.sgd([w], gx.grad(loss, [w]), lr=0.5)
step = gx.function([x, y], {"loss": loss}, updates=updates, name="step")
predict = gx.function([x], gx.argmax(logits, axis=1), name="predict")
same = predict
picked = gx.take(x, y, axis=1)
pick = gx.function([x, y], [picked, x + 1], name="pick")
graph = predict.graph
print("this line is the module's own")
"""

ONE = """\
import graphc as gx

a = gx.input("a")
b = gx.input("b")
f = gx.function([a, b], (a + b) * (b + 1), name="f")
"""


class Ran(NamedTuple):
    """What a command gave."""

    status: int
    out: str
    err: str

    def fails(self, message: str, status: int = 1) -> None:
        """The last thing said is `message`, alone, and nothing went to stdout."""
        assert self.status == status, self
        assert self.err.splitlines()[-1] == f"graphc: error: {message}"
        assert self.out == ""
        assert "Traceback" not in self.err


Command = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory with model.py and one.py."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "one.py").write_text(ONE)
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("GRAPHC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / ".cache"))
    return tmp_path


@pytest.fixture
def graphc(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """`graphc("run", "one.py", "a=2")`."""

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        status = main(list(arguments))
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return command
