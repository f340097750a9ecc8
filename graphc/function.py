"""Function: a declared graph made callable. The driver of passes, code generation and calling.

A Function declares its Graph at once and compiles at its first call. From then on its class is a
subclass made for it, whose `__call__` is a builtin (see `callee`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from graphc import conditions, declaration, inspection
from graphc.arguments import Results, Signature
from graphc.callee import Callee
from graphc.declaration import Options as Options
from graphc.errors import GraphcError, Loc, UsageError, user_loc
from graphc.failure import failure
from graphc.forks import undivided
from graphc.interpret import evaluate
from graphc.ir import Graph, State, collect
from graphc.types import Array
from graphc.variables import Variables

if TYPE_CHECKING:
    from graphc.codegen.machine.image import Image
    from graphc.codegen.machine.overlap import Overlap
    from graphc.codegen.profile import Profile
    from graphc.codegen.program import Kernel, Program


def function(
    inputs: Any, outputs: Any, *, updates: Any = None, name: str | None = None, mode: str = "jit",
    pipeline: Sequence[Any] | None = None, fastmath: bool = False, stabilise: bool = True,
    threads: int | None = None,
) -> Function:
    """A callable that computes `outputs`, and the `updates` of variables, from `inputs`.

        step = gx.function([x, y], {"loss": loss}, updates=gx.optim.sgd([w], [gx.grad(loss, w)]))
        value = step(xs, ys)["loss"]    # compiles at the first call, for every size

    inputs: a list of Tensors made by `gx.input`; calls pass them by position or by name.
    outputs: one Tensor (calls give an ndarray), a list, a tuple or a dict of them (calls give the
        same), or None where only updates matter.
    updates: {variable: new value} or pairs; all read the values from before the call.
    mode: "jit" native code; "interpret" NumPy; "debug" NumPy, stopping at the first NaN or
        infinity that an op makes of finite operands.
    pipeline: the passes to run; `graphc.passes.PIPELINE` unless given.
    fastmath: allow rewrites that change results in the last bits, and subnormal numbers as zero.
    stabilise: allow the rewrites that make results more accurate (log-sum-exp and its like).
    threads: at most so many threads; 1 never leaves the caller's.

    UsageError for what is no input or Tensor and for an input that is missing, ShapeError for an
    update of another type. Calls raise ShapeError and DTypeError for arrays that do not fit.
    """
    loc = user_loc()
    declaration.check_mode(mode, loc)
    _check_pipeline(pipeline, loc)
    if threads is not None:
        declaration.check_count("function: threads", threads, loc)
    d = declaration.declare(inputs, outputs, updates, name, loc)
    graph = collect(d.name, d.inputs, d.outputs, d.updates, d.keys if d.kind == "dict" else None)
    declaration.check_variables(graph, loc)
    return Function(graph, d.kind, Options(mode, pipeline, fastmath, stabilise, threads))


def _check_pipeline(pipeline: Any, loc: Loc | None) -> None:
    """UsageError if `pipeline` is no list of passes that there are."""
    if pipeline is None:
        return
    if not isinstance(pipeline, (list, tuple)):
        raise UsageError(
            "function: pipeline must be a list of passes, such as (*gx.PIPELINE, my_pass), got "
            f"{pipeline!r}", loc
        )
    from graphc.passes.manager import load_passes

    try:
        load_passes(pipeline)
    except UsageError as e:
        raise UsageError(f"function: {e.message}", loc) from None


class Function(Callee):
    """What `gx.function` returns. Call it; everything else here is for looking inside."""

    def __init__(self, graph: Graph, kind: str, options: Options):
        params = [(str(v.node.attrs["name"]), v.type) for v in graph.inputs]
        locs = [v.node.loc for v in graph.inputs]
        types = [v.type for v in graph.outputs]
        super().__init__(
            graph.name, Signature(graph.name, params, locs, graph.dims()),
            Results(graph.name, types, kind, graph.output_names),
        )
        self.graph = graph
        self.mode = options.mode
        self.options = options
        self.compilations = 0
        self._variables = Variables(graph)
        self._optimized: Graph | None = None
        self._program: Program | None = None
        self._image: Image | None = None
        self._lock = threading.RLock()

    @classmethod
    def from_graph(cls, graph: Graph, *, mode: str = "jit") -> Function:
        """A function of a graph as it is, read from a file or made by passes, at any stage.

        Named outputs are returned as a dict, a single one alone, others as a list. Where the graph
        has kernels, no pass runs again. Raises UsageError for names that do not tell apart.
        """
        loc = user_loc()
        if not isinstance(graph, Graph):
            raise UsageError(f"from_graph: takes a graph, got {type(graph).__name__}", loc)
        declaration.check_mode(mode, loc)
        declaration.check_inputs(graph, loc)
        declaration.check_variables(graph, loc)
        kind = "dict" if graph.outputs and all(graph.output_names) else "list"
        if not graph.outputs:
            kind = "none"
        elif len(graph.outputs) == 1 and kind == "list":
            kind = "one"
        fused = any(n.op.name == "fused" for n in graph.nodes)
        return cls(graph, kind, Options(mode, () if fused else None))

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self.name}: a compiled function cannot be pickled; use f.graph.save(path) and "
            "gx.Function.from_graph(gx.Graph.load(path))", user_loc()
        )

    def __deepcopy__(self, memo: Any) -> Function:
        return self  # as Tensors do: it holds machine code and the states of its variables

    def __copy__(self) -> Function:
        return self

    def __repr__(self) -> str:
        state = f" [{self.mode}]"
        if self.mode == "jit":
            state = "" if self._native else " [not compiled]"
        return f"<graphc.Function {self.name}({self._signature}) -> ({self._results}){state}>"

    # -- stages ----------------------------------------------------------------------------------

    @property
    def optimized(self) -> Graph:
        """The graph after the passes."""
        with undivided(), self._lock:
            if self._optimized is None:
                from graphc.passes import run_pipeline

                o = self.options
                self._optimized = run_pipeline(
                    self.graph, o.pipeline, fastmath=o.fastmath, stabilise=o.stabilise
                )
            return self._optimized

    @property
    def program(self) -> Program:
        """The generated code: LLVM text, memory plan, kernels, places that can fail."""
        with undivided(), self._lock:
            if self._program is None and self._image is not None:
                self._program = self._image.program
            return self._generate() if self._program is None else self._program

    def _generate(self, overlap: Overlap | None = None) -> Program:
        """Generate the code; what of it takes long, LLVM compiles meanwhile."""
        from graphc.codegen.machine.target import host
        from graphc.passes.bodies import collector_paused

        optimized = self.optimized
        if overlap is not None:
            from graphc.codegen import templates

            templates.begin(optimized, host(), overlap)
        from graphc.codegen import compile_graph  # while LLVM is at work

        with collector_paused():
            self._program = compile_graph(
                optimized, host(), fastmath=self.options.fastmath, name=self.name,
                declared=self.graph, overlap=overlap,
            )
        self.compilations += 1
        inspection.dump(self)
        return self._program

    def compile(self) -> Function:
        """Compile now, not at the first call."""
        if self.mode != "jit":
            return self
        with undivided(), self._lock:
            if self._native is None:
                from graphc.codegen.calling import fastcall
                from graphc.codegen.machine.target import host

                image = self._image or self._build()
                states = [self._variables.own(s) for s in image.states]
                declaration.check_values(self.name, states)
                self._connect(fastcall.Native(
                    image, host(), slow=self._call, plain=self._run_converted,
                    given=self._run_into, keys=self._results.keys, states=states,
                    locks=self._variables.locks(), threads=self.options.threads,
                ))
        return self

    def _build(self) -> Image:
        """The program and its objects: found where an earlier process left them, or made now."""
        from graphc.codegen.machine import program_cache
        from graphc.codegen.machine.target import host

        o, target, key = self.options, host(), None
        kind, locks = self._results.kind, len(self._variables.locks())
        if self._program is None:
            key = program_cache.key(
                self.graph, target, o.pipeline, o.fastmath, o.stabilise, kind, locks
            )
        image = program_cache.load(key, self.graph) if key is not None else None
        if image is not None:
            self.compilations += 1
        else:
            from graphc.codegen.calling import fastcall
            from graphc.codegen.machine.overlap import Overlap

            with Overlap(target, len(self.graph.nodes)) as overlap:
                program = self._program or self._generate(overlap)
                image = fastcall.compile_program(program, target, kind, locks, overlap)
            if key is not None:
                program_cache.store(key, self.graph, image)
        self._image = image
        return image

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inputs by position or name; dimensions that no input shows, and `out=`, by name.

        Arrays of other dtypes convert where that is safe, Python numbers and lists by their kind;
        everything else is refused with the reason. The results are new arrays, or those of `out=`,
        which has the structure of the result. A call that fails changes no variable.
        """
        if self.mode == "jit" and self._native is None:
            self.compile()
            return self(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _execute(
        self, arrays: Sequence[Array], dims: Mapping[str, int],
        shapes: Sequence[tuple[int, ...]], out: Sequence[Array] | None,
    ) -> Sequence[Array]:
        if self.mode != "jit":
            return self._interpret(arrays, dims)
        native = self._native
        assert native is not None
        made = self._targets(arrays, shapes, out, native.empty)
        with self._variables.locked():
            status = native.run(arrays, made, dims)
        if status:
            raise failure(
                self.program, status, dims, self.graph,
                lambda: self._evaluate(self.graph, arrays, dims),
            )
        return made

    def _interpret(self, arrays: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        debug = self.mode == "debug"
        graph = self.graph if debug else self.optimized
        if not debug:
            conditions.check(self.graph, dims)  # those too that passes have removed
        with self._variables.locked():
            outputs, updates = self._evaluate(graph, arrays, dims, debug)
            for state, value in updates.items():
                array = self._variables.own(state).array
                assert array is not None
                array[...] = value
        return outputs

    def _evaluate(
        self, graph: Graph, arrays: Sequence[Array], dims: Mapping[str, int], debug: bool = False
    ) -> tuple[list[Array], dict[State, Array]]:
        extra = {d: dims[d] for d in self._signature.dims}
        states = self._variables.replaced()
        return evaluate(graph, arrays, states=states, dims=extra, debug=debug)

    def watch(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """The values that Tensors inside have in this call, by the interpreter; state unchanged.

        `tensors` is one Tensor, a list or a dict; the result has the same structure. They must
        depend on this function's inputs only.
        """
        return inspection.watch(self, tensors, args, kwargs)

    # -- state -----------------------------------------------------------------------------------

    def with_state(self, values: Mapping[Any, Any] | None = None) -> Function:
        """The same function on a private copy of its variables, with their present values.

        `values` replaces some of them: {variable or its name: array}. Nothing is compiled again.
        """
        new = Function(self.graph, self._results.kind, self.options)
        new._optimized, new._program = self._optimized, self._program
        new._image = self._image
        new.compilations = self.compilations
        new._variables = self._variables.copy(values)
        return new

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the variables' present values, by name."""
        return self._variables.values()

    # -- looking inside --------------------------------------------------------------------------

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The native loop nests."""
        return self.program.kernels

    def llvm_ir(self) -> str:
        """The generated LLVM text."""
        return self.program.llvm

    def assembly(self) -> str:
        """The machine code for this CPU, as assembly."""
        with undivided():
            from graphc.codegen.machine import llvm
            from graphc.codegen.machine.target import host

            return llvm.assembly(self.program.llvm, host())

    def memory_plan(self) -> str:
        """What stands where in the arena, and its size as a formula in the dimensions."""
        return self.program.plan

    def profile(self, *args: Any, runs: int = 20, **kwargs: Any) -> Profile:
        """Time per kernel for these arguments; on copies of the variables, which stay as they are.

        The first run, uncounted, warms up. Prints as a table.
        """
        with undivided():
            return inspection.profile(self, args, kwargs, runs)

    def to_dot(self) -> str:
        """The declared graph in Graphviz's language."""
        from graphc.view import to_dot

        return str(to_dot(self.graph))

    def _repr_svg_(self) -> str | None:
        """An SVG for notebooks, where Graphviz is installed."""
        from graphc.view import to_svg

        try:
            return str(to_svg(self.graph))
        except GraphcError:
            return None

    def _repr_html_(self) -> str:
        """The declared graph as text, for notebooks without Graphviz."""
        import html

        return f"<pre>{html.escape(str(self.graph))}</pre>"
