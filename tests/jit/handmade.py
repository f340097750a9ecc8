"""Hand-written programs, so that loading and calling are tested without the code generator."""

from __future__ import annotations

from graphc.codegen.program import FIRST_SITE, Param, Program, Site
from graphc.dims import Size, dim
from graphc.errors import Loc
from graphc.ir import Graph, State
from graphc.types import TensorType, f32

N = dim("n")
VECTOR = TensorType(f32, (N,))

INCREMENT = """
define i32 @increment(ptr %args, ptr %dims, ptr %arena) {
entry:
  %n = load i64, ptr %dims
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %q = getelementptr float, ptr %y, i64 %i
  %v = load float, ptr %p
  %w = fadd float %v, 1.0
  store float %w, ptr %q
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""

# count += step, then fails where step is negative; the state is written only on success.
COUNT = f"""
define i32 @count(ptr %args, ptr %dims, ptr %arena) {{
  %x = load ptr, ptr %args
  %state.at = getelementptr ptr, ptr %args, i64 1
  %state = load ptr, ptr %state.at
  %step = load float, ptr %x
  %bad = fcmp olt float %step, 0.0
  br i1 %bad, label %fail, label %go
go:
  %old = load float, ptr %state
  %new = fadd float %old, %step
  store float %new, ptr %state
  ret i32 0
fail:
  ret i32 {FIRST_SITE}
}}
"""

SITE = Site("take", "index out of range", Loc("/tmp/model.py", 7), "index")


def increment(arena: Size = 0, graph: Graph | None = None) -> Program:
    """y = x + 1 over a symbolic n."""
    graph = graph or Graph("increment", (), (), ())
    return Program(
        "increment", graph, INCREMENT, (Param("x", VECTOR),), (Param("y", VECTOR),), (), (), (),
        ("n",), arena, (), (), "",
    )


def count(state: State, graph: Graph | None = None) -> Program:
    """state += x, failing with SITE where x < 0."""
    graph = graph or Graph("count", (), (), ())
    scalar = TensorType(f32, ())
    return Program(
        "count", graph, COUNT, (Param("x", scalar),), (), (state,), (True,), (), (), 0, (SITE,),
        (), "",
    )
