"""The methods of a library's functions in its C++ header."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.codegen.library.abi import C_TYPES, Api, Entry, Names
from graphc.codegen.library.header import comment_safe, listed
from graphc.dims import Apply, Size
from graphc.types import shape_text

# What names of entries and arguments may not hide inside the class.
MEMBERS = (
    "Arena", "Count", "Error", "In", "Misfit", "Model", "Out", "Result", "Span", "Variables",
    "arena", "arena_", "bytes", "code", "explain", "finish", "floordiv", "graphc", "larger", "load",
    "misfit", "mod", "reset", "s", "save", "set_threads", "smaller", "state", "std", "variables_",
    "warmup", "wrong_library", "wrong_size",
)
_MACROS = ("max", "min")  # of windows.h, with arguments, which the parentheses keep off
_FUNCTIONS = {"floordiv": "floordiv", "mod": "mod", "max": "larger", "min": "smaller"}


class Methods:
    """The methods that a function of the library becomes: `name`, `reserve` and `run`."""

    def __init__(self, api: Api, e: Entry, name: str, reserve: str, run: str):
        self.api, self.e, self.name, self.reserve, self.run = api, e, name, reserve, run
        names = Names((*MEMBERS, name, reserve, run))
        self.args = [
            (kind, names(a.c), a) for kind, group in (("In", e.inputs), ("Out", e.outputs))
            for a in group
        ]
        self.dims = {n: names(c) for n, c in e.dims}
        self.sizes = [f"int64_t {c}" for c in self.dims.values()]
        self.params = [f"{kind}<{C_TYPES[a.type.dtype.name]}> {c}" for kind, c, a in self.args]
        self.need = f"::{e.arena_c}({', '.join(self.dims.values())})"

    def calls(self) -> list[str]:
        """The call, and one of a const model, without its arena, where that is not updated."""
        name, e = self.name, self.e
        lines = [
            "", f"  /* {comment_safe(e.unit.name)}",
            *(f"       {kind.lower():3} {c}: {comment_safe(str(a.type))}"
              for kind, c, a in self.args),
        ]
        lines[-1] += " */"
        said = f"({name})" if name in _MACROS else name
        state = ["state()"] * bool(e.state)
        given = [*(c for _, c, _ in self.args), *self.dims.values()]
        for const in (False, True)[:1 if e.state == "update" else 2]:
            lines += [
                *listed(f"  Result {said}(", [*self.params, *self.sizes],
                        f"){' const' * const} {{"),
                "    Misfit misfit;",
                *listed(f"    const int code = {self.run}(",
                        [*state, "nullptr" if const else "&arena_", *given, "misfit"], ");"),
                f'    return finish("{name}", code, misfit);',
                "  }",
            ]
        return lines

    def room(self) -> list[str]:
        """The method that makes the arena large enough."""
        negative = " || ".join(f"{c} < 0" for c in self.dims.values()) or "false"
        m = self.api.macro
        return [
            "  /* Room for calls with these sizes and smaller ones. */",
            *listed(f"  Result {self.reserve}(", self.sizes, ") {"),
            f"    const int64_t bytes = {self.need};",
            "    int code = 0;",
            "    if (bytes < 0)",
            f"      code = {negative} ? {m}_NEGATIVE_DIMENSION : {m}_SIZE_OVERFLOW;",
            "    else if (!arena_.grow(bytes))",
            f"      code = {m}_OUT_OF_MEMORY;",
            f'    return finish("{self.reserve}", code);',
            "  }",
        ]

    def shared(self) -> list[str]:
        """What all calls come to: sizes are checked, and the C function is called."""
        e = self.e
        state = f"{'const ' * (e.state == 'const')}::{self.api.prefix}_state *s"
        return [
            *listed(f"  static int {self.run}(", [
                *[state] * bool(e.state), "Arena *arena", *self.params, *self.sizes,
                "Misfit &misfit",
            ], ") noexcept {"),
            f"    const int64_t bytes = {self.need};",
            "    if (bytes >= 0) {  // else the call itself says what is wrong",
            *(f"      misfit.check({_quoted(c + shape_text(a.type.shape))}, {c}, "
              f"{_count(a.type.size, self.dims)});" for _, c, a in self.args),
            "      if (misfit.name != nullptr) return wrong_size;",
            "      if (arena != nullptr && !arena->grow(bytes)) return "
            f"{self.api.macro}_OUT_OF_MEMORY;",
            "    }",
            *listed(f"    return ::{e.c}(", [
                *["s"] * bool(e.state), *(f"{c}.data" for _, c, _ in self.args),
                *self.dims.values(), "arena == nullptr ? nullptr : arena->get()",
            ], ");"),
            "  }",
        ]


def _quoted(text: str) -> str:
    return '"' + comment_safe(text).replace("\\", "\\\\") + '"'


def _count(size: Size, dims: Mapping[str, str]) -> str:
    """A size in C++, with the arguments that its dimensions are."""
    if isinstance(size, int):
        return f"Count({size})"
    terms = []
    for atoms, factor in size.terms:
        parts = [f"Count({factor})"] * (factor != 1 or not atoms)
        for a in atoms:
            parts.append(
                f"{_FUNCTIONS[a.fn]}({_count(a.a, dims)}, {_count(a.b, dims)})"
                if isinstance(a, Apply) else f"Count({dims[a]})"
            )
        terms.append(" * ".join(parts))
    return " + ".join(terms)
