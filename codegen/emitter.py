"""Building LLVM text: the lines of one function, and the module they go into.

Text is built with plain strings because it is an order of magnitude faster than an object model
of LLVM, and because the result is readable as it is.
"""

from __future__ import annotations


class Module:
    """Declarations, global definitions and functions; each declared or defined once by name."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    def declare(self, name: str, line: str) -> None:
        """`declare ...` for an intrinsic or an external function."""
        self.declarations.setdefault(name, line)

    def define_global(self, name: str, line: str) -> None:
        self.globals.setdefault(name, line)

    def define(self, name: str, text: str) -> None:
        """A whole `define ... { ... }`."""
        self.functions.setdefault(name, text)

    def text(self) -> str:
        declared = [
            line for name, line in self.declarations.items() if name not in self.functions
        ]
        return "\n".join([*declared, *self.globals.values(), *self.functions.values(), TAIL])


# Loop metadata `!llvm.loop !0`: the loops are already vectorised and unrolled as wanted.
TAIL = """
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
"""


class Emitter:
    """The lines of one function body, with fresh names."""

    def __init__(self, module: Module):
        self.module = module
        self.lines: list[str] = []
        self.block = "entry"
        self._n = 0

    def __call__(self, rhs: str) -> str:
        """Append `%tN = rhs` and return `%tN`."""
        self._n += 1
        name = f"%t{self._n}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    def do(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + line)

    def fresh(self, hint: str = "L") -> str:
        """A new label or value name, without its % sign."""
        self._n += 1
        return f"{hint}{self._n}"

    def label(self, name: str) -> None:
        """Start the basic block `name` (also remembered in `self.block`, for phis)."""
        self.lines.append(f"{name}:")
        self.block = name

    def text(self) -> str:
        return "\n".join(self.lines)
