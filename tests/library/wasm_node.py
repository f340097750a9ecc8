"""Calls of wasm libraries, run in Node all at once."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from graphc.codegen.library_foreign import linkers
from graphc.codegen.target import platform

SCRIPT = Path(__file__).with_name("wasm_calls.mjs")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not linkers(platform("wasm32")),
    reason="needs node, and wasm-ld, ld.lld or the ziglang wheel",
)


class Calls:
    """Collects calls of the functions in a library; `run` gives their results.

    functions: as `library_samples.Loaded` wants them; `loaded` is any other library of the same
    functions, which knows how to bind sizes.
    """

    def __init__(self, wasm: Path, loaded):
        self.wasm, self.loaded = wasm, loaded
        self.job, self.given, self.wanted = [], [], []

    def add(self, name, arrays, dims=None, arena=True):
        """A call; `dims` where no input tells them."""
        arrays = [np.asarray(a, order="C") for a in arrays]
        f = self.loaded.functions[name]
        known = f._signature.bind(arrays, dims or {})
        outs = [np.empty(s, t.dtype.numpy)
                for s, t in zip(f._results.shapes(known), f._results.types, strict=True)]
        self.job.append({
            "name": name, "arena": arena, "dims": [int(known[d]) for d in f.graph.dims()],
            "inputs": [a.nbytes for a in arrays], "outputs": [o.nbytes for o in outs],
        })
        self.given += [a.tobytes() for a in arrays]
        state = self.loaded.state_bytes * self.loaded.has_state(name)
        self.wanted.append((outs, state))

    def run(self, folder: Path):
        """(status, outputs, bytes of the state) of every call."""
        (folder / "job.json").write_text(json.dumps(self.job))
        (folder / "input").write_bytes(b"".join(self.given))
        done = subprocess.run(
            ["node", SCRIPT, self.wasm, "job.json", "input", "output"], cwd=folder,
            capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        raw, at, results = (folder / "output").read_bytes(), 0, []

        def take(n):
            nonlocal at
            at += n
            return raw[at - n:at]

        for outs, state in self.wanted:
            status = int(np.frombuffer(take(4), np.int32)[0])
            got = [np.frombuffer(take(o.nbytes), o.dtype).reshape(o.shape) for o in outs]
            results.append((status, got, take(state)))
        assert at == len(raw)
        return results
