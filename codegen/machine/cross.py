"""Code generation for a machine that is not this one, in a process of its own.

LLVM ends the process when a target cannot do what it is told ("Cannot select"). So the text goes
to a child, which answers with the object file or the assembly, and its death is a CompileError.
This file is also what the child runs; it needs nothing but llvmlite.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.codegen.machine.target import Target

# The child finds the same packages as its parent, and nothing in the current directory.
_START = """
import sys, runpy
sys.path[:] = sys.argv[2:]
runpy.run_path(sys.argv[1], run_name="__main__")
"""

_REFUSED = "graphc: "  # what the child itself says, and then ends with 1


def machine(triple: str, cpu: str, features: str, abi: str, optimisation: int) -> Any:
    """LLVM's code generator; RuntimeError where there is none."""
    import llvmlite.binding as llvm

    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=optimisation, codemodel="small", abiname=abi,
        reloc="static" if triple.startswith("wasm") else "pic",
    )


def parse(text: str, for_machine: Any) -> Any:
    """A module's text, checked; RuntimeError says what LLVM rejects."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = for_machine.triple
    module.data_layout = str(for_machine.target_data)
    module.verify()
    return module


def generate(text: str, target: Target, optimisation: int, assembly: bool = False) -> bytes:
    """The object file of a module's text, or its assembly, made by a child process."""
    from graphc.errors import CompileError

    code, made, said = _ask(text, target, optimisation, assembly)
    if code == 0:
        return made
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    error = [line for line in lines if line.startswith(("LLVM ERROR", _REFUSED))]
    reason = (error[:1] or lines[-1:] or [f"exit code {code}"])[0].removeprefix(_REFUSED)
    where = _culprit(text, said, target, optimisation) if code != 1 else ""
    raise CompileError(
        f"{target.triple}: no code could be generated{where and f' for {where}'}: {reason[:300]}"
    )


def _ask(
    text: str, target: Target, optimisation: int, assembly: bool = False
) -> tuple[int, bytes, str]:
    """The child's exit code, what it made, and what it said."""
    import subprocess  # eight milliseconds that most processes need not spend

    from graphc.errors import CompileError

    order = {
        "triple": target.triple, "cpu": target.cpu, "features": target.features,
        "abi": target.abi, "optimisation": optimisation,
    }
    message = json.dumps([order, assembly]).encode() + b"\n" + text.encode()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _START, __file__, *sys.path], input=message,
            capture_output=True, check=False,
        )
    except OSError as e:
        raise CompileError(
            f"{target.triple}: the process that generates its code did not start: {e.strerror}"
        ) from None
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def _culprit(text: str, said: str, target: Target, optimisation: int) -> str:
    """The function that LLVM died of: as it says, or the one without which it lives."""
    told = re.search(r"In function: (\S+)", said)
    if told:
        return told[1]

    body = re.compile(r"^(define [^\n]*@([\w.$-]+)\([^\n]*\{)\n.*?^\}", re.M | re.S)

    def dies(kept: list[str]) -> bool:
        some = body.sub(lambda m: m[0] if m[2] in kept else f"{m[1]}\n  unreachable\n}}", text)
        return _ask(some, target, optimisation)[0] not in (0, 1)

    names = [m[2] for m in body.finditer(text)]
    while len(names) > 1:
        half = names[:len(names) // 2]
        names = half if dies(half) else names[len(half):]
    return names[0] if names and dies(names) else ""


def _child() -> int:
    """What the child process does: read an order and a text, write the object or the assembly."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    order, assembly = json.loads(sys.stdin.buffer.readline())
    try:
        made = machine(**order)
        module = parse(sys.stdin.buffer.read().decode(), made)
    except RuntimeError as e:
        print(f"{_REFUSED}{' '.join(str(e).split())}", file=sys.stderr)
        return 1
    out = made.emit_assembly(module).encode() if assembly else made.emit_object(module)
    sys.stdout.buffer.write(out)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_child())
