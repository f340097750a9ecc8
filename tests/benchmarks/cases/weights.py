"""(c) A layer by weights that do not change, (out, in) as PyTorch and ONNX keep them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Arrays, Built, Call, Case

INPUTS, OUTPUTS = 784, 512


def layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.relu(x @ xp.swap(w) + b)


def _graphc(peer: Any, case: Case, arrays: Arrays) -> Built:
    import graphc as gx

    from ..peers.graphc_peer import GraphcNames

    x, (w, b) = gx.input("x", ("m", INPUTS)), map(gx.constant, arrays[1:])
    peer.function = gx.function(
        [x], layer(GraphcNames(), x, w, b), fastmath=peer.fastmath, name="bench"
    )
    return peer.built(peer.function, arrays[:1], False)


def _jax(peer: Any, case: Case, arrays: Arrays) -> Built:
    from ..peers.jax_peer import JaxNames

    w, b = peer.convert(arrays[1:])
    return peer.jitted(lambda x: layer(JaxNames(), x, w, b), arrays[:1])


def _torch(peer: Any, case: Case, arrays: Arrays) -> Built:
    import torch

    torch.set_grad_enabled(False)
    x, w, b = peer.convert(arrays)
    linear = torch.nn.Linear(INPUTS, OUTPUTS)
    linear.weight.copy_(w)
    linear.bias.copy_(b)
    return Built(Call(peer.wrap(torch.nn.Sequential(linear, torch.nn.ReLU()).eval()), (x,)))


def _onnx(peer: Any, case: Case, arrays: Arrays) -> Built:
    from onnx import TensorProto, helper, numpy_helper

    x, w, b = arrays
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
         helper.make_node("Relu", ["h"], ["y"])],
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", OUTPUTS])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    session = peer.session(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ))
    return Built(Call(lambda run, feed: run(None, feed)[0], (session.run, {"x": x})))


def _inputs(rows: int) -> Any:
    def make(rng: np.random.Generator) -> Arrays:
        x, w, b = (rng.normal(size=s) for s in ((rows, INPUTS), (OUTPUTS, INPUTS), (OUTPUTS,)))
        return tuple(a.astype("float32") for a in (x, w / INPUTS**0.5, b))

    return make


def cases() -> list[Case]:
    return [
        Case(
            f"c/weights/f32/{rows}x{INPUTS}x{OUTPUTS}", _inputs(rows), layer,
            (("m", INPUTS), (OUTPUTS, INPUTS), (OUTPUTS,)),
            builders={
                "graphc": _graphc, "graphc-fastmath": _graphc, "jax": _jax, "torch": _torch,
                "torch.compile": _torch, "onnxruntime": _onnx,
            },
            skip={"numexpr": "no matrix products"}, tolerance=1e-4,
        )
        for rows in (1, 8, 64)
    ]
