"""The example of passes/README.md, stage by stage; --update-golden rewrites what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphc.passes import PIPELINE, load_pass
from graphc.text import load, to_text

README = Path(load_pass("dce").__code__.co_filename).with_name("README.md")
_STAGE = re.compile(r"^(\*\*(\d\d-[\w.]+)\*\*:[^\n]*\n)(?:\n```\n(.*?)\n```\n)?", re.M | re.S)


def test_example(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, update_golden: bool
) -> None:
    text = README.read_text()
    (code,) = re.findall(r"```python\n(import graphc as gx\n.*?)```", text, re.S)
    monkeypatch.setenv("GRAPHC_DUMP", f"all:{tmp_path}")
    space: dict[str, object] = {}
    exec(compile(code, "example.py", "exec"), space)
    space["f"].compile()  # type: ignore[attr-defined]

    def shown(file: str) -> str:
        path = tmp_path / "lse" / file
        out = to_text(load(path), locs=False) if path.suffix == ".gir" else path.read_text()
        return out.strip()

    if update_golden:
        README.write_text(
            _STAGE.sub(lambda m: f"{m.group(1)}\n```\n{shown(m.group(2))}\n```\n", text)
        )
        return
    stages = _STAGE.findall(text)
    assert len(stages) == 7
    for _, file, block in stages:
        assert block == shown(file), f"{file} has changed; --update-golden rewrites the README"


def test_every_pass_stands_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", README.read_text(), re.M)
    assert rows == list(dict.fromkeys(PIPELINE))
