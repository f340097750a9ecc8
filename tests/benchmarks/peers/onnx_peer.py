"""ONNX Runtime: the formula as an ONNX graph, run by its CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from ..case import Built, Call, Case, NotOfferedError
from ..trace import Recorder, Step, Symbol, record
from . import Library

ONNX_OPS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "neg": "Neg",
    "less": "Less", "greater": "Greater", "and": "And", "matmul": "MatMul", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "erf": "Erf",
    "abs": "Abs", "where": "Where", "maximum": "Max", "minimum": "Min", "relu": "Relu",
}
REDUCE = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}


class OnnxNames(Recorder):
    """Recorded steps, with what ONNX has ready as one step."""

    def softmax(self, x: Symbol) -> Symbol:
        return x.made("softmax", x)

    def logsumexp(self, x: Symbol) -> Symbol:
        return x.made("logsumexp", x)

    def layer_norm(self, x: Symbol, weight: Symbol, bias: Symbol) -> Symbol:
        return x.made("layer_norm", x, weight, bias)

    def relu(self, x: Symbol) -> Symbol:
        return x.made("relu", x)

    def gelu(self, x: Symbol) -> Symbol:
        return x.made("gelu", x)


class Peer(Library):
    name, module = "onnxruntime", onnxruntime

    def session(self, model: Any) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def build(self, case: Case, arrays: tuple[np.ndarray, ...]) -> Built:
        if case.wrt or case.formula is None:
            raise NotOfferedError("no gradients")
        steps, results = record(case.formula, [a.ndim for a in arrays], OnnxNames())
        session = self.session(model(steps, results, case, arrays))
        feed = {i.name: arrays[int(i.name[1:])] for i in session.get_inputs()}
        if len(results) > 1:
            return Built(Call(session.run, (None, feed)))
        return Built(Call(lambda run, feed: run(None, feed)[0], (session.run, feed)))


class Nodes:
    """The nodes and constants of a model, step by step."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = onnx.numpy_helper.from_array(value, name)
        return name

    def ints(self, value: Any) -> str:
        return self.constant(np.array(value, np.int64))

    def name(self, a: Any) -> str:
        if not isinstance(a, Step):
            return self.constant(np.array(a, self.dtype))
        return f"x{a.args[0]}" if a.op == "input" else f"v{a.index}"

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))

    def add(self, s: Step) -> None:
        """The nodes of a step."""
        args, out = [self.name(a) for a in s.args], f"v{s.index}"
        if s.op in ONNX_OPS:
            self.node(ONNX_OPS[s.op], args, out)
        elif s.op in REDUCE:
            axis = s.options["axis"]
            axes = [] if axis is None else [self.ints([axis])]
            self.node(REDUCE[s.op], [*args, *axes], out, keepdims=int(s.options["keepdims"]))
        elif s.op == "argmax":
            self.node("ArgMax", args, out, axis=s.options["axis"], keepdims=0)
        elif s.op == "softmax":
            self.node("Softmax", args, out, axis=-1)
        elif s.op == "logsumexp":
            self.node("ReduceLogSumExp", [*args, self.ints([-1])], out, keepdims=0)
        elif s.op == "layer_norm":
            self.node("LayerNormalization", args, out, axis=-1, epsilon=1e-5)
        elif s.op == "gelu":
            self.node("Gelu", args, out)
        elif s.op == "reshape":
            self.node("Reshape", [args[0], self.ints(s.options["shape"])], out)
        elif s.op == "take_along":
            axis1 = self.ints([1])
            self.node("Unsqueeze", [args[1], axis1], out + "i")
            self.node("GatherElements", [args[0], out + "i"], out + "g", axis=1)
            self.node("Squeeze", [out + "g", axis1], out)
        elif s.op == "last":
            self.node("Gather", [args[0], self.ints(0)], out, axis=-1)
        elif s.op == "swap":
            order = list(range(s.rank))
            a, b = s.options["axes"]
            order[a], order[b] = order[b], order[a]
            self.node("Transpose", args, out, perm=order)
        else:
            raise NotOfferedError(f"no {s.op}")


def model(steps: list[Step], results: list[Step], case: Case, arrays: Any) -> Any:
    """The checked ONNX model of recorded steps."""
    made = Nodes(case.dtype)
    for s in steps:
        made.add(s)
    ins = [
        helper.make_tensor_value_info(
            f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), [str(d) if isinstance(d, str) else d
            for d in dims])
        for k, (a, dims) in enumerate(zip(arrays, case.dims, strict=True))
    ]
    outs = [helper.make_empty_tensor_value_info(f"v{r.index}") for r in results]
    graph = helper.make_graph(made.nodes, "bench", ins, outs, list(made.constants.values()))
    return onnx.shape_inference.infer_shapes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ))
