"""Programs around libraries for other machines, run by qemu-user.

They need no C library of the machine: its gcc serves, or clang and ld.lld of the ziglang wheel.
"""

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

_START = Path(__file__).with_name("cross_start.c")
_PLAIN = ["-std=gnu11", "-O1", "-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fno-pic"]
_ZIG = [sys.executable, "-m", "ziglang"]


@dataclass(frozen=True)
class Machine:
    """A target, what runs its programs, and what compiles C for it: gcc's or zig's name."""

    target: str
    emulator: tuple[str, ...]
    gcc: str
    zig: str
    root: str = ""              # of gcc's C library
    flags: tuple[str, ...] = ()

    def missing(self, libc: bool = False) -> str:
        """Why programs (with a C library) cannot be made or run here; nothing if they can."""
        if shutil.which(self.emulator[0]) is None:
            return f"no {self.emulator[0]} (qemu-user)"
        if shutil.which(self.gcc) is None:
            if libc:
                return f"no {self.gcc}"
            if importlib.util.find_spec("ziglang") is None:
                return f"neither {self.gcc} nor ziglang"
        return ""

    def build(self, source: Path, library: Path) -> list[str]:
        """The command that runs a program, which has cross_start.c in it, with an object."""
        program, obj = str(source.with_suffix("")), str(source.with_suffix(".o"))
        if shutil.which(self.gcc) is not None:
            _run([self.gcc, *_PLAIN, *self.flags, "-fno-tree-loop-distribute-patterns", "-static",
                  "-no-pie", "-nostdlib", str(source), str(library), "-o", program])
        else:
            _run([*_ZIG, "cc", "-target", self.zig, *_PLAIN, "-fno-sanitize=all", "-c",
                  str(source), "-o", obj])
            _run([*_ZIG, "ld.lld", "-static", obj, str(library), "-o", program])
        return [*self.emulator, program]

    def build_with_libc(self, source: Path, *libraries: Path) -> list[str]:
        """The command that runs an ordinary program, with shared libraries."""
        program = source.with_suffix("")
        folders = [f"-Wl,-rpath,{p.parent}" for p in libraries]
        _run([self.gcc, str(source), *map(str, libraries), *folders, "-ldl", "-o", str(program)])
        root = ["-L", self.root] * bool(self.root)
        return [*self.emulator, *root, str(program)]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def _linux(name: str, arch: str, gcc: str, zig: str, *flags: str) -> Machine:
    return Machine(name, (f"qemu-{arch}",), f"{gcc}-gcc", zig, f"/usr/{gcc}", flags)


MACHINES = {m.target: m for m in (
    _linux("aarch64-linux-gnu", "aarch64", "aarch64-linux-gnu", "aarch64-linux-musl"),
    _linux("riscv64-linux-gnu", "riscv64", "riscv64-linux-gnu", "riscv64-linux-musl"),
    _linux("armv7-linux-gnueabihf", "arm", "arm-linux-gnueabihf", "arm-linux-musleabihf", "-marm"),
)}
MUSL = Machine("x86_64-linux-musl", ("env",), "musl-gcc", "")  # runs here, with another libc
LEVELS = {
    level: Machine("x86_64-linux-gnu", ("qemu-x86_64", "-cpu", cpu), "cc", "x86_64-linux-musl")
    for level, cpu in (("v2", "Nehalem"), ("v3", "Haswell"))
}

ARM_LEVELS = {
    level: Machine("aarch64-linux-gnu", ("qemu-aarch64", "-cpu", cpu), "aarch64-linux-gnu-gcc",
                   "aarch64-linux-musl")
    for level, cpu in (("v8", "cortex-a57"), ("v8.2", "max"))
}


def program(functions, calls, state_bytes):
    """C text that makes the calls [(name, inputs, dimensions, outputs)] in turn."""
    lines = [f'#include "{_START}"', '#include "libfar.h"', "static void program(void) {",
             "  int status;"]
    if state_bytes:
        lines.append("  far_state *s = room(sizeof *s);\n  far_init(s);")
    for k, (name, inputs, dims, outputs) in enumerate(calls):
        sizes = [f"{d}" for d in dims]
        lines += ["  {", *(f"    void *i{i} = take({a.nbytes});" for i, a in enumerate(inputs)),
                  *(f"    void *o{i} = room({a.nbytes});" for i, a in enumerate(outputs))]
        arena = "NULL"
        if k % 2:  # every second call brings its own
            arena = f"room((size_t)far_{name}_arena({', '.join(sizes)}))"
        args = ["s"] * bool(functions[name].graph.variables())
        args += [f"i{i}" for i in range(len(inputs))] + [f"o{i}" for i in range(len(outputs))]
        lines += [f"    status = far_{name}({', '.join([*args, *sizes, arena])});",
                  "    give(&status, 4);",
                  *(f"    give(o{i}, {a.nbytes});" for i, a in enumerate(outputs)), "  }"]
    if state_bytes:
        lines.append("  give(s, sizeof *s);")
    return "\n".join([*lines, "}", ""])


def run(machine, functions, calls, folder, *, environment=None, **options):
    """Make calls [(name, inputs, outputs to fill)] in one process of another machine.

    Returns the status of each call and the bytes of the state at the end.
    """
    by_name = {f.name: f for f in functions}
    path = gx.export(functions, Path(folder) / "libfar.o", target=machine.target, **options)
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
    source.write_text(program(by_name, full, state_bytes))
    done = subprocess.run(
        machine.build(source, path),
        input=b"".join(a.tobytes() for _, inputs, _ in calls for a in inputs),
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
