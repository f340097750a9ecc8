"""What the command line names: functions in the user's Python files, and graphs in .gir files."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any

from graphc.cli import CommandLineError
from graphc.errors import CompileError, GraphcError, Loc, UsageError, did_you_mean, is_ours
from graphc.function import Function
from graphc.ir import Graph, State

FORMS = "FILE.py:NAME, FILE.py or FILE.gir"
_LIBRARIES = tuple(
    path + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(key))
)


@dataclass(frozen=True)
class Spec:
    """A file, and the name of something in it."""

    path: str
    name: str = ""


def parse_spec(text: str) -> Spec:
    """FILE.py:NAME, FILE.py or FILE.gir; CommandLineError for anything else."""
    if text.endswith((".gir", ".py")):
        return Spec(text)
    path, _, name = text.rpartition(":")
    if path.endswith(".py"):
        if not name.isidentifier():
            raise CommandLineError(f"{text}: expected a name after {path}:, got {name!r}")
        return Spec(path, name)
    if path.endswith(".gir"):
        raise CommandLineError(f"{text}: a .gir file holds one graph; say {path}")
    raise CommandLineError(f"expected {FORMS}, got {text!r}")


class Sources:
    """Loads each file once, and puts back the import system's state at the end."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self._path = list(sys.path)
        self._names: list[str] = []
        self._folders: list[str] = []
        self._variables: dict[str, State] = {}

    def __enter__(self) -> Sources:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        sys.path[:] = self._path
        for name in self._names:
            sys.modules.pop(name, None)
        # a pass or a formula of the user's own that fails later is the user's mistake as well
        if isinstance(error, Exception) and self.modules and not isinstance(error, GraphcError):
            loc = self._own_frame(error)
            if loc is not None:
                raise _described(error, loc) from None

    def function(self, text: str) -> Function:
        """The one function that `text` means.

        In a .gir file a variable is known by its name: one that a function named before has is
        that variable, with the value it has there.
        """
        f = self._function(parse_spec(text))
        for s in f.graph.variables():
            own = f._variables.own(s)
            known = self._variables.setdefault(own.name, own)
            if text.endswith(".gir") and known.type is own.type:
                f._variables.replace(s, known)
        return f

    def _function(self, spec: Spec) -> Function:
        if spec.path.endswith(".gir"):
            return Function.from_graph(self.graph(spec.path))
        if spec.name:
            return self._named(spec)
        found = functions_in(self.module(spec.path))
        if len(found) == 1:
            return next(iter(found.values()))
        file = os.path.basename(spec.path)
        if not found:
            raise UsageError(f"{file} declares no gx.function at module level")
        lines = "".join(f"\n  {spec.path}:{name}  {f!r}" for name, f in found.items())
        raise UsageError(f"{file} declares {len(found)} functions; say which:{lines}")

    def functions(self, text: str) -> list[Function]:
        """The function that `text` means, or all that a FILE.py declares."""
        spec = parse_spec(text)
        if spec.name or not spec.path.endswith(".py"):
            return [self.function(text)]
        return list(functions_in(self.module(spec.path)).values()) or [self.function(text)]

    def graph(self, path: str) -> Graph:
        """The graph in a .gir file, verified."""
        from graphc.text import load
        from graphc.verify import verify

        try:
            graph = load(path)
        except CompileError as e:
            raise UsageError(e.message.removeprefix("load: ")) from None
        verify(graph)
        return graph

    def attribute(self, spec: Spec) -> Any:
        """What a module calls by that name; UsageError suggests what may be meant."""
        module = self.module(spec.path)
        names = vars(module)
        if spec.name in names:
            return names[spec.name]
        file = os.path.basename(spec.path)
        found = list(functions_in(module))
        own = [
            n for n, v in names.items() if not (n.startswith("__") or isinstance(v, ModuleType))
        ]
        hint = did_you_mean(spec.name, found, own)
        have = f" (functions: {', '.join(found)})" if found else " and no gx.function"
        raise UsageError(f"{file} has no {spec.name!r}{have}{f'; {hint}' if hint else ''}")

    def module(self, path: str) -> ModuleType:
        """The user's module, executed once; what it raises is reported with the user's line."""
        key = os.path.realpath(path)
        if key not in self.modules:
            self.modules[key] = self._execute(path, key)
        return self.modules[key]

    def _named(self, spec: Spec) -> Function:
        value = self.attribute(spec)
        if isinstance(value, Function):
            return value
        if isinstance(value, Graph):
            return Function.from_graph(value)
        kind = type(value).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        found = list(functions_in(self.module(spec.path)))
        hint = f"; it declares {', '.join(found)}" if found else "; make one with gx.function(...)"
        file = os.path.basename(spec.path)
        raise UsageError(f"{file}: {spec.name} is {article} {kind}, not a gx.function{hint}")

    def _execute(self, path: str, key: str) -> ModuleType:
        try:
            with open(path, "rb"):
                pass
        except OSError as e:
            raise unreadable(path, e) from None
        name = os.path.splitext(os.path.basename(path))[0]
        if name in sys.modules or not name.isidentifier():  # `random.py` hides nothing from us
            name = f"_graphc_user_{len(self.modules)}"
        spec = importlib.util.spec_from_file_location(name, key)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        folder = os.path.dirname(key)
        self._folders.append(os.path.join(folder, ""))
        sys.path.insert(0, folder)
        sys.modules[name] = module
        self._names.append(name)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for what was asked for
                spec.loader.exec_module(module)
        except GraphcError as e:
            loc = e.loc or self._own_frame(e)
            raise type(e)(e.message, loc) from None
        except SystemExit as e:
            loc = self._own_frame(e) or Loc(path, 1)
            raise UsageError(
                f"the module exits ({e.code!r}) while it is loaded; keep that under "
                'if __name__ == "__main__"', loc
            ) from None
        except SyntaxError as e:
            if e.filename and e.lineno:
                loc = Loc(e.filename, e.lineno)
                raise GraphcError(f"{type(e).__name__}: {e.msg}", loc) from None
            raise _described(e, self._own_frame(e) or Loc(path, 1)) from None
        except Exception as e:
            raise _described(e, self._own_frame(e) or Loc(path, 1)) from None
        return module

    def _own_frame(self, error: BaseException) -> Loc | None:
        """The innermost line of the user's own code in a traceback, libraries left out."""
        frames = [
            Loc(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)
            if not is_ours(f.filename) and not f.filename.startswith("<")
        ]
        own = [f for f in frames if not f.file.startswith(_LIBRARIES)]
        near = [f for f in own if f.file.startswith(tuple(self._folders))]
        chosen = near or own
        return chosen[-1] if chosen else None


def functions_in(module: ModuleType) -> dict[str, Function]:
    """The functions of a module by name, each once, in order of declaration."""
    found: dict[str, Function] = {}
    for name, value in vars(module).items():
        if isinstance(value, Function) and all(value is not f for f in found.values()):
            found[name] = value
    return found


def in_mode(f: Function, mode: str) -> Function:
    """f, run another way."""
    if f.mode == mode:
        return f
    return Function(f.graph, f._results.kind, f.options._replace(mode=mode))


def unreadable(path: str, e: OSError) -> GraphcError:
    """The error for a file that cannot be read."""
    return UsageError(f"cannot read {path}: {e.strerror or e}")


def _described(error: BaseException, loc: Loc) -> GraphcError:
    text = str(error)
    kind = type(error).__name__
    return GraphcError(f"{kind}: {text}" if text else kind, loc)
