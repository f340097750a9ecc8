"""C programs around libraries for other machines, run by qemu-user."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphc as gx


@dataclass(frozen=True)
class Machine:
    """A target, what runs its programs, and what compiles C for it: gcc's or zig's name."""

    target: str
    emulator: tuple[str, ...]
    gcc: str
    zig: str
    root: str = ""              # of gcc's C library, for programs that load shared libraries

    def missing(self) -> str:
        """Why programs for it cannot be made or run here; nothing if they can."""
        if shutil.which(self.emulator[0]) is None:
            return f"no {self.emulator[0]} (qemu-user)"
        if shutil.which(self.gcc) is None and importlib.util.find_spec("ziglang") is None:
            return f"neither {self.gcc} nor ziglang"
        return ""

    def build(self, source: Path, library: Path) -> list[str]:
        """The command that runs a program with a library that was exported as .so and .a."""
        program = source.with_suffix("")
        if shutil.which(self.gcc) is not None:
            make = [self.gcc, str(source), str(library), f"-Wl,-rpath,{library.parent}"]
            root = ["-L", self.root] * bool(self.root)
        else:  # static, and the threads that the library asks for weakly must be named
            threads = [f"-Wl,-u,pthread_{n}" for n in ("create", "join", "sigmask")]
            make = [sys.executable, "-m", "ziglang", "cc", "-target", self.zig, "-static",
                    str(source), str(library.with_suffix(".a")), *threads]
            root = []
        done = subprocess.run([*make, "-o", str(program)], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return [*self.emulator, *root, str(program)]


def _linux(name: str, arch: str, gcc: str, zig: str) -> Machine:
    return Machine(name, (f"qemu-{arch}",), f"{gcc}-gcc", zig, f"/usr/{gcc}")


MACHINES = {m.target: m for m in (
    _linux("aarch64-linux-gnu", "aarch64", "aarch64-linux-gnu", "aarch64-linux-musl"),
    _linux("riscv64-linux-gnu", "riscv64", "riscv64-linux-gnu", "riscv64-linux-musl"),
    _linux("armv7-linux-gnueabihf", "arm", "arm-linux-gnueabihf", "arm-linux-musleabihf"),
)}
LEVELS = {
    level: Machine("x86_64-linux-gnu", ("qemu-x86_64", "-cpu", cpu), "cc", "x86_64-linux-musl")
    for level, cpu in (("v2", "Nehalem"), ("v3", "Haswell"))
}

_HEAD = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "%(header)s"
static void *take(size_t n) {
  void *p = malloc(n ? n : 1);
  if (!p || fread(p, 1, n, stdin) != n) exit(3);
  return p;
}
static void give(const void *p, size_t n) { if (fwrite(p, 1, n, stdout) != n) exit(4); }
static void *room(size_t n) { return calloc(n ? n : 1, 1); }
int main(void) {
  int status;
  (void)status;
"""


def program(prefix, functions, calls, state_bytes, own_arena):
    """C text that makes the calls [(name, inputs, dimensions, outputs)] in turn."""
    lines = [_HEAD % {"header": f"lib{prefix}.h"}]
    if state_bytes:
        lines.append(f"  {prefix}_state *s = room(sizeof *s);\n  {prefix}_init(s);")
    for k, (name, inputs, dims, outputs) in enumerate(calls):
        lines.append("  {")
        f = functions[name]
        for i, a in enumerate(inputs):
            lines.append(f"    void *i{i} = take({a.nbytes});")
        for i, a in enumerate(outputs):
            lines.append(f"    void *o{i} = room({a.nbytes});")
        sizes = [f"{d}" for d in dims]
        arena = "NULL"
        if own_arena and k % 2:  # every second call brings its own
            lines.append(
                f"    void *arena = room({prefix}_{name}_arena({', '.join(sizes)}));"
            )
            arena = "arena"
        args = ["s"] * bool(f.graph.variables()) + [f"i{i}" for i in range(len(inputs))]
        args += [f"o{i}" for i in range(len(outputs))] + sizes + [arena]
        lines.append(f"    status = {prefix}_{name}({', '.join(args)});")
        lines.append('    if (status) { fprintf(stderr, "%s\\n", '
                     f'{prefix}_strerror(status)); }}')
        lines.append("    give(&status, 4);")
        lines += [f"    give(o{i}, {a.nbytes});" for i, a in enumerate(outputs)]
        lines.append("  }")
    if state_bytes:
        lines.append("  give(s, sizeof *s);")
    return "\n".join([*lines, "  return 0;", "}", ""])


def run(machine, functions, calls, folder, *, environment=None, own_arena=True, **options):
    """Make calls [(name, inputs, outputs to fill)] in one process of another machine.

    Returns the status of each call and the bytes of the state at the end.
    """
    by_name = {f.name: f for f in functions}
    prefix = "far"
    path = gx.export(functions, Path(folder) / f"lib{prefix}.so", target=machine.target,
                     kinds=["a"], **options)
    header = path.with_suffix(".h").read_text()
    state_bytes = 0
    if "sizeof(" in header:
        state_bytes = int(header.split("sizeof(")[1].split("== ")[1].split("u")[0])
    full = []
    for name, inputs, outputs in calls:
        f = by_name[name]
        bound = f._signature.bind(inputs, {})
        full.append((name, inputs, [bound[d] for d in f.graph.dims()], outputs))
    source = Path(folder) / "program.c"
    source.write_text(program(prefix, by_name, full, state_bytes, own_arena))
    command = machine.build(source, path)
    done = subprocess.run(
        command, input=b"".join(a.tobytes() for _, inputs, _ in calls for a in inputs),
        capture_output=True, check=False, env=os.environ | (environment or {}), timeout=300,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    at, statuses = 0, []
    for _, _, outputs in calls:
        statuses.append(int(np.frombuffer(done.stdout, np.int32, 1, at)[0]))
        at += 4
        for o in outputs:
            o[...] = np.frombuffer(done.stdout, o.dtype, o.size, at).reshape(o.shape)
            at += o.nbytes
    assert at + state_bytes == len(done.stdout)
    return statuses, done.stdout[at:]
