"""The guide from other libraries: its blocks run in order and print what it says."""

from __future__ import annotations

import pathlib
import re

import graphc as gx

GUIDE = pathlib.Path(__file__).parents[2] / "examples" / "coming_from.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


def test_blocks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(GUIDE.read_text())
    assert len(blocks) == 5
    space = {}
    for code, said in blocks:
        exec(compile(code, "coming_from.md", "exec"), space)
        assert capsys.readouterr().out == said


def test_names_of_graphc_are_there():
    for mentioned in re.findall(r"\bgx((?:\.\w+)+)", GUIDE.read_text()):
        if mentioned in (".cat", ".nn.conv2d"):  # shown for what they answer
            continue
        found = gx
        for part in mentioned[1:].split("."):
            found = getattr(found, part)
