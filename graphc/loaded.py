"""gx.load: the functions of a native library, called from Python as those that were compiled here.

    lib = gx.load("build/libdigits.so")
    lib.step(x, y)["loss"]            # updates lib.state, as variables would be
    lib.state["w1"]                   # a view; lib.state.save("digits.state")
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphc.arguments import Results, Signature, as_value
from graphc.callee import Callee
from graphc.declaration import check_count
from graphc.descriptor import decode_size, decode_type, parse_descriptor, read_descriptor
from graphc.errors import (
    ArgumentError,
    ExecutionError,
    GraphcError,
    OutOfMemoryError,
    UsageError,
    user_loc,
)
from graphc.failure import BY_KIND
from graphc.files import check_path
from graphc.forks import held, undivided
from graphc.ir import State
from graphc.state_file import read_state_file, write_state_file
from graphc.types import Array, TensorType, as_dtype

if TYPE_CHECKING:
    from graphc.codegen.calling.fastcall import Native

_MOST_THREADS = (1 << 31) - 1  # that a C int holds; libraries lower it to what they can have
DIRECT_FROM = 1  # calls by way of ctypes, before loading the code generator is worth it

_files: dict[str, tuple[int, int]] = {}  # what was opened by a path first


def load(path: str | os.PathLike[str]) -> Library:
    """Open a library that `gx.export` or `graphc compile` wrote for this machine.

    Its functions are attributes of the result, and in `.functions` by name. ArgumentError if the
    file is no such library or cannot be loaded here.

        digits = gx.load("build/libdigits.so")
        loss = digits.step(x, y)    # arrays; the state is digits.state
    """
    check_path("load", path)
    return Library(os.path.abspath(path))


def _open(path: str) -> ctypes.CDLL:
    """The library at a path, also where another one was opened there before.

    The system would take the name for the old one's; a file that has come there since is opened
    by another name. (One that was written over, and not replaced, is lost to whoever has it open.)
    """
    found = os.stat(path)
    file = found.st_dev, found.st_ino
    if _files.setdefault(path, file) == file:
        return ctypes.CDLL(path)
    with tempfile.TemporaryDirectory() as folder:
        alias = os.path.join(folder, os.path.basename(path))
        os.symlink(path, alias)
        return ctypes.CDLL(alias)


class Library:
    """A loaded library: its functions, and the state they share unless given another."""

    def __init__(self, path: str):
        found = read_descriptor(path)
        try:
            self._c = _open(path)
        except OSError as e:
            raise ArgumentError(
                f"load: this library for {found['target']} does not load here: {e}", user_loc()
            ) from None
        self.path, self._prefix = path, found["prefix"]
        raw = self._symbol("descriptor", ctypes.c_char_p)()
        self.descriptor = parse_descriptor(raw, path)
        self._explain = self._symbol("strerror", ctypes.c_char_p, ctypes.c_int)
        with _explained(path):
            state = self.descriptor["state"]
            self._layout = Layout(state) if state is not None else None
            self.state = self.new_state()
            self.functions = {
                f["name"]: LoadedFunction(self, f, self.state) for f in self.descriptor["functions"]
            }

    def __getattr__(self, name: str) -> LoadedFunction:
        functions = self.__dict__.get("functions", {})
        if name in functions:
            found: LoadedFunction = functions[name]
            return found
        raise AttributeError(
            f"{os.path.basename(self.path)} has no function {name!r}; it has "
            f"{', '.join(functions)}"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a loaded library cannot be pickled or copied; gx.load its path where it is needed, "
            "and call new_state() for another state", user_loc()
        )

    def __repr__(self) -> str:
        return f"<graphc library {self.path}: {', '.join(self.functions)}>"

    def new_state(self) -> LoadedState | None:
        """A state with the values at export; None where the library keeps none."""
        if self._layout is None:
            return None
        return LoadedState(self, self._layout)

    def set_threads(self, n: int) -> None:
        """At most n threads from now on, in all states; 1 never creates one."""
        check_count("set_threads: the number of threads", n, user_loc())
        self._symbol("set_threads", None, ctypes.c_int)(min(int(n), _MOST_THREADS))

    def warmup(self) -> None:
        """Do now what the first call would do: look at the CPU, start the threads."""
        self._symbol("warmup", None)()

    def _symbol(self, name: str, result: Any, *args: Any) -> Any:
        return self._function(f"{self._prefix}_{name}", result, *args)

    def _function(self, name: str, result: Any, *args: Any) -> Any:
        try:
            # not getattr: each caller has its own idea of the types
            fn = self._c[name]
        except AttributeError:
            raise ArgumentError(f"load: {self.path} lacks the symbol {name}", user_loc()) from None
        fn.restype, fn.argtypes = result, args
        return fn


class Layout:
    """Where each variable stands in a state."""

    def __init__(self, data: Mapping[str, Any]):
        self.bytes = int(data["bytes"])
        self.hash = str(data["layout"])
        self.variables: dict[str, tuple[TensorType, int]] = {
            v["name"]: (decode_type(v), int(v["offset"])) for v in data["variables"]
        }

    def views(self, raw: Array) -> dict[str, Array]:
        """The variables in the bytes of a state."""
        out = {}
        for name, (t, offset) in self.variables.items():
            shape = tuple(int(n) for n in t.shape)
            size = int(np.prod(shape, dtype=np.int64)) * t.dtype.itemsize
            out[name] = raw[offset:offset + size].view(t.dtype.numpy).reshape(shape)
        return out


class LoadedState(Mapping[str, Array]):
    """The variables that a library's functions read and update: name -> view of the array.

    Assignment (`state["w"] = array`) checks dtype and shape and copies in.
    """

    __slots__ = ("__weakref__", "_layout", "_library", "_raw", "_views", "lock")

    def __init__(self, library: Library, layout: Layout):
        self._library, self._layout = library, layout
        self.lock = held(threading.RLock())
        room = np.zeros(layout.bytes + 64, np.uint8)  # views may be read with aligned loads
        start = -room.ctypes.data % 64
        self._raw = room[start:start + layout.bytes]
        self._views = layout.views(self._raw)
        self.reset()

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._views:
            raise UsageError(
                f"state: there is no variable {name!r}; there are {', '.join(self._views)}",
                user_loc(),
            )
        t, _ = self._layout.variables[name]
        array = as_value(f"state: variable {name!r}", value, t)
        with self.lock:
            self._views[name][...] = array

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        variables = ", ".join(f"{n}: {t}" for n, (t, _) in self._layout.variables.items())
        return f"<state of {os.path.basename(self._library.path)}: {variables}>"

    @property
    def address(self) -> int:
        """Where the struct stands, for C functions called by other means."""
        return int(self._raw.ctypes.data)

    def reset(self) -> None:
        """Set every variable to its value at export."""
        with self.lock:
            self._library._symbol("init", None, ctypes.c_void_p)(self.address)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a state file, as `..._save_state` does in C; it is replaced as a whole."""
        with self.lock:
            values = self._raw.copy()
        variables = self._library.descriptor["state"]["variables"]
        write_state_file(path, int(self._layout.hash, 16), values, variables)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a state file of this library; if it is refused (ArgumentError) nothing changes."""
        try:
            layout, found = read_state_file(path)
        except OSError as e:
            raise ArgumentError(
                f"load_state: cannot read {path}: {e.strerror or e}", user_loc()
            ) from None
        if layout != int(self._layout.hash, 16) or found.keys() != self._views.keys():
            raise ArgumentError(
                f"load_state: {path} belongs to a library with other variables: it has "
                f"{', '.join(f'{n}: {t}' for n, (t, _) in found.items())}", user_loc()
            )
        with self.lock:
            for name, (_, array) in found.items():
                self._views[name][...] = array

    def copy(self) -> LoadedState:
        """Another state with the same values."""
        new = LoadedState(self._library, self._layout)
        with self.lock:
            new._raw[...] = self._raw
        return new


class LoadedFunction(Callee):
    """A function of a library; called like a Function."""

    def __init__(self, library: Library, data: Mapping[str, Any], state: LoadedState | None):
        name = str(data["name"])
        inputs = [(a["name"], decode_type(a)) for a in data["inputs"]]
        outputs = [decode_type(a) for a in data["outputs"]]
        self._dims = [d["name"] for d in data["dims"]]
        super().__init__(
            name, Signature(name, inputs, [None] * len(inputs), self._dims),
            Results(name, outputs, data["returns"], [a["name"] for a in data["outputs"]]),
        )
        self._library, self._data = library, data
        self._state = state if data["state"] != "none" else None
        arrays = len(inputs) + len(outputs) + (self._state is not None)
        self._calls = 0
        self._c = library._function(
            data["c"], ctypes.c_int, *[ctypes.c_void_p] * arrays,
            *[ctypes.c_int64] * len(self._dims), ctypes.c_void_p,
        )

    def __reduce__(self) -> NoReturn:
        self._library.__reduce__()

    def __repr__(self) -> str:
        said = f"{self.name}({self._signature}) -> ({self._results})"
        return f"<function {said} of {self._library.path}>"

    def with_state(self, state: LoadedState) -> LoadedFunction:
        """The same function on another state of its library."""
        if not isinstance(state, LoadedState) or state._library is not self._library:
            raise UsageError(f"{self.name}: with_state takes a state of this library", user_loc())
        return LoadedFunction(self._library, self._data, state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inputs by position or name; dimensions that no input shows, and `out=`, by name."""
        if self._calls >= DIRECT_FROM and self._native is None:
            with undivided():
                self._connect(self._bridge())
        self._calls += 1
        return self._call(*args, **kwargs)

    def _bridge(self) -> Native:
        """The library's function with a builtin made here, as compiled functions have."""
        from graphc.codegen.calling import bridge
        from graphc.codegen.program import Param

        inputs = [Param(n, t) for n, t in self._signature.inputs]
        outputs = [Param(k, t) for k, t in zip(self._results.keys, self._results.types,
                                               strict=True)]
        state = None
        if self._state is not None:
            raw = self._state._raw
            state = State("state", TensorType(as_dtype(raw.dtype), raw.shape), None)
            state.array, state.lock = raw, self._state.lock
        return bridge.native(
            self._data["c"], ctypes.cast(self._c, ctypes.c_void_p).value or 0, inputs, outputs,
            self._dims, decode_size(self._data["arena_bytes"]), state,
            updates=self._data["state"] == "update", shape=self._results.kind,
            keys=self._results.keys, slow=self._call, plain=self._run_converted,
            given=self._run_into,
        )

    def _execute(
        self, arrays: Sequence[Array], dims: Mapping[str, int],
        shapes: Sequence[tuple[int, ...]], out: Sequence[Array] | None,
    ) -> Sequence[Array]:
        """By way of ctypes."""
        made = self._targets(arrays, shapes, out)
        state = self._state
        with state.lock if state is not None else contextlib.nullcontext():
            status = self._c(
                *([state.address] if state is not None else []),
                *(a.ctypes.data for a in (*arrays, *made)), *(dims[d] for d in self._dims), None,
            )
        if status:
            raise self._failure(status)
        return made

    def _failure(self, status: int) -> GraphcError:
        from graphc.codegen.program import Status

        text = self._library._explain(status).decode("utf-8", "replace")
        for site in self._data["failures"]:
            if site["code"] == status:
                return BY_KIND.get(site["kind"], ExecutionError)(text)
        kind = OutOfMemoryError if status == Status.OUT_OF_MEMORY else ExecutionError
        return kind(f"{self.name}: {text}", user_loc())


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turns what a damaged descriptor leads to into an error that names the file."""
    try:
        yield
    except (KeyError, ValueError, TypeError) as e:
        raise ArgumentError(f"load: the descriptor in {path} is damaged: {e}", user_loc()) from None
