"""Calls of libraries for other systems, all run at once: wasm in Node, DLLs under Wine.

    calls = NodeCalls(path, loaded)
    results = agree(calls, jobs, folder)
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from library_samples import plain, same_bits

from graphc.codegen.library.archive import import_library
from graphc.codegen.library.foreign import linkers
from graphc.codegen.machine.platforms import platform

HERE = Path(__file__).parent
WINDOWS = platform("x86_64-windows-gnu")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not linkers(platform("wasm32")),
    reason="needs node, and wasm-ld, ld.lld or the ziglang wheel",
)


def windows_compiler():
    """A command that compiles C for Windows."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"]
    found = shutil.which("x86_64-w64-mingw32-gcc")
    return [found] if found else []


needs_wine = pytest.mark.skipif(
    shutil.which("wine") is None or not linkers(WINDOWS) or not windows_compiler(),
    reason="needs wine, lld-link or ld.lld or the ziglang wheel, and that or MinGW's compiler",
)


class Calls:
    """Collects calls of a library's functions; `run` gives their results.

    library: the file. loaded: a native library of the same functions, which knows how to bind
    sizes and what to compare with.
    """

    def __init__(self, library: Path, loaded):
        self.library, self.loaded = library, loaded
        self.job, self.given, self.wanted = [], [], []

    def add(self, name, arrays, dims=None, arena=True):
        """A call; `dims` where no input tells them; without `arena` the library allocates."""
        arrays = [np.asarray(a, order="C") for a in arrays]
        f = self.loaded.functions[name]
        known = f._signature.bind(arrays, dims or {})
        outs = [np.empty(s, t.dtype.numpy)
                for s, t in zip(f._results.shapes(known), f._results.types, strict=True)]
        state = self.loaded.state_bytes * self.loaded.has_state(name)
        self.job.append({
            "name": name, "arena": arena, "dims": [int(known[d]) for d in f.graph.dims()],
            "inputs": [a.nbytes for a in arrays], "outputs": [o.nbytes for o in outs],
            "state": state,
        })
        self.given.append([a.tobytes() for a in arrays])
        self.wanted.append((outs, state))

    def run(self, folder: Path):
        """(status, outputs, bytes of the state) of every call."""
        raw, at, results = self.output(folder), 0, []

        def take(n):
            nonlocal at
            at += n
            return raw[at - n:at]

        for outs, state in self.wanted:
            status, good = struct.unpack("<2q", take(16))
            got = [np.frombuffer(take(o.nbytes), o.dtype).reshape(o.shape) for o in outs]
            results.append((status, got, take(state)))
            assert good, f"{self.job[len(results) - 1]['name']}: bytes beside an argument changed"
        assert at == len(raw)
        return results

    def output(self, folder: Path) -> bytes:
        """Per call: its status and whether all was well, as int64; outputs; the state."""
        raise NotImplementedError


class NodeCalls(Calls):
    def output(self, folder):
        (folder / "job.json").write_text(json.dumps(self.job))
        (folder / "input").write_bytes(b"".join(b for g in self.given for b in g))
        done = subprocess.run(
            ["node", HERE / "wasm_calls.mjs", self.library, "job.json", "input", "output"],
            cwd=folder, capture_output=True, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return (folder / "output").read_bytes()


class WineCalls(Calls):
    level = "v4"  # the highest that the library may take

    def output(self, folder):
        def numbers(*n):
            return struct.pack(f"<{len(n)}q", *n)

        def text(s):
            raw = s.encode() + b"\0"
            raw += b"\0" * (-len(raw) % 8)
            return numbers(len(raw)) + raw

        prefix = self.loaded.prefix
        parts = [numbers(len(self.job)), text(prefix)]
        for call, given in zip(self.job, self.given, strict=True):
            sizes = [*call["inputs"], *call["outputs"], *call["dims"]]
            parts += [text(f"{prefix}_{call['name']}"), numbers(
                call["state"], call["arena"], len(call["inputs"]), len(call["outputs"]),
                len(call["dims"]), *sizes)]
            parts += [g + b"\0" * (-len(g) % 8) for g in given]
        (folder / "job.bin").write_bytes(b"".join(parts))
        shutil.copy(self.library, folder / "library.dll")
        shutil.copy(_program(folder), folder / "calls.exe")
        done = subprocess.run(
            ["wine", "calls.exe"], cwd=folder, capture_output=True, text=True, timeout=300,
            env=os.environ | {"GRAPHC_CPU": self.level, "WINEDEBUG": "-all", "DISPLAY": "",
                              "WINEDLLOVERRIDES": "mscoree,mshtml="})
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        return (folder / "output.bin").read_bytes()


@functools.cache
def _program(folder: Path) -> Path:
    """windows_calls.c, compiled and linked."""
    command = [*windows_compiler(), "-c", "-O1", "-ffreestanding", "-fno-stack-protector",
               "-mno-stack-arg-probe", "-Wall", "-Werror", HERE / "windows_calls.c"]
    subprocess.run([*command, "-o", "calls.obj"], cwd=folder, check=True)
    names = ("LoadLibraryA", "GetProcAddress", "CreateFileA", "ReadFile", "WriteFile",
             "CloseHandle", "VirtualAlloc", "ExitProcess")
    (folder / "kernel32.lib").write_bytes(import_library("kernel32.dll", names))
    command, _ = linkers(WINDOWS)[0]
    subprocess.run([*command, "/entry:start", "/subsystem:console", "/nodefaultlib",
                    "/out:made.exe", "calls.obj", "kernel32.lib"], cwd=folder, check=True)
    return folder / "made.exe"


def agree(calls, jobs, folder):
    """Runs (name, arrays, dims) there and here: equal statuses, and equal bits if they are 0.

    The results of each, None for a failed call.
    """
    loaded = calls.loaded
    for k, (name, arrays, dims) in enumerate(jobs):
        calls.add(name, arrays, dims, arena=k % 4 != 3)
    results = []
    for (name, arrays, dims), (status, got, after) in zip(jobs, calls.run(folder), strict=True):
        f = loaded.functions[name]
        arrays = [np.asarray(a, order="C") for a in arrays]
        known = f._signature.bind(arrays, dims)
        outs = [np.empty_like(a) for a in got]
        state = loaded.new_state() if loaded.has_state(name) else None
        want = loaded.raw(name, state, [a.ctypes.data for a in (*arrays, *outs)],
                          [known[d] for d in f.graph.dims()])
        assert status == want, (name, loaded.explain(status), loaded.explain(want))
        assert state is None or after == state.tobytes(), name
        for i, (a, b) in enumerate(zip(got, outs, strict=True) if not status else ()):
            assert same_bits(plain(a), plain(b)), (name, i, dims, f.graph)
        results.append(None if status else got)
    return results
