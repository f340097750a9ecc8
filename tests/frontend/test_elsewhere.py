"""Names of NumPy, JAX and PyTorch that are not here: errors say what to write, and that works."""

from __future__ import annotations

import pkgutil
import re

import numpy as np
import pytest

import graphc as gx
from graphc import elsewhere, refused
from graphc.elsewhere import NN, OPTIM, RANDOM, TENSOR, TOP

TABLES = {"": TOP, "nn": NN, "optim": OPTIM, "random": RANDOM}
ADVICE = [(home, name) for home, table in TABLES.items() for name in table]


def place(home):
    return getattr(gx, home) if home else gx


def names():
    """What the advice speaks of."""
    x = gx.input("x", (3, 4))
    y = x * 2
    w = gx.variable(np.ones(4, "f4"), "w")
    loss = gx.sum(x * w)
    return {
        "gx": gx, "x": x, "y": y, "w": w, "value": 1.0, "name": "named",
        "arrays": [x, y], "axis": 0, "n": 3, "min": 0, "max": 1, "mask": x > 0, "shape": (3, 4),
        "key": gx.random.key(0), "low": 0, "high": 5, "seed": 1, "indices": np.array([[0], [1]]),
        "start": 0, "stop": 5, "step": 1, "fn": gx.sum, "axes": (1, 0), "source": 0,
        "destination": 1, "dtype": "float64", "path": None, "inputs": [x], "outputs": loss,
        "pairs": [(w, w * 2)], "grads": [gx.grad(loss, w)], "params": [w], "max_norm": 1.0,
        "lr": 0.1, "print": str,
        "loss": loss, "p": 0.5, "weight": w, "bias": w, "logits": x, "targets": y, "beta": 0.5,
        "prediction": x, "target": y, "pad_width": 1, "q": x, "k": y, "v": y, "mean": w,
        "factor": np.eye(4, dtype="f4"),
    }


@pytest.mark.parametrize("home,name", ADVICE)
def test_advice_is_given_and_works(home, name):
    advice = TABLES[home][name]
    with pytest.raises(AttributeError) as exc:
        getattr(place(home), name)
    assert str(exc.value).endswith(f"has no attribute {name!r}; use {advice}")
    for mentioned in re.findall(r"\bgx((?:\.\w+)+)", advice):
        found = gx
        for part in mentioned[1:].split("."):
            found = getattr(found, part)
    try:
        expression = compile(advice, "advice", "eval")
    except SyntaxError:
        return  # with words around
    env = names() | {
        "Embedding": {"indices": np.array([0, 1]), "weight": np.ones((3, 2), "f4")},
        "addmm": {"y": gx.input("z", (4, 4))}, "mm": {"y": gx.input("z", (4, 2))},
        "mv": {"y": gx.input("z", (4,))},
        "kron": {"shape": (9, 16)}, "scatter": {"indices": 1}, "scatter_add": {"indices": 1},
        "index_select": {"indices": np.array([1, 2])}, "tensor_split": {"indices": [1, 2]},
        "dynamic_update_slice": {"x": gx.input("z", (4,)), "start": 1},
        "chunk": {"n": 3}, "glu": {"n": 2},
    }.get(name, {})
    if name != "save":  # a file
        assert eval(expression, env) is not None


def test_top_level_names_of_nn_are_all_there():
    assert set(gx.nn.__all__) - set(dir(gx)) - set(TOP) <= {
        "binary_cross_entropy_with_logits", "huber", "huber_loss", "l1_loss", "mse",
        "scaled_dot_product_attention",
    }
    modules = {m.name for m in pkgutil.iter_modules(gx.__path__)}  # attributes once imported
    assert not set(TOP) & (set(dir(gx)) | modules) and not set(NN) & set(gx.nn.__all__)


def test_methods():
    x = gx.input("x", ("n", 4))
    said = {
        "exp": "use gx.exp(x)", "relu": "use gx.nn.relu(x)", "view": "use x.reshape(shape)",
        "unsqueeze": "use gx.expand_dims(x, axis)", "backward": "use gx.grad(loss, params)",
        "topk": "because the sort primitive does not exist yet",
        "masked_fill": "use gx.where(mask, value, x)",
    }
    for name, advice in said.items():
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}")) as exc:
            getattr(x, name)
        assert advice in str(exc.value)
    for name in TENSOR:
        assert not hasattr(x, name)
    with pytest.raises(TypeError, match=r"^Tensor\.sum\(\) got an unexpected keyword"):
        x.sum(dim=1)


def test_misspelt_names_have_proposals():
    with pytest.raises(AttributeError) as exc:
        gx.concatenat  # noqa: B018
    assert (exc.value.name, exc.value.obj) == ("concatenat", gx)
    assert "concatenate" in dir(gx) and "convert" not in dir(gx)
    for home in ("linalg", "nn", "optim", "random"):
        assert dir(place(home)) == sorted(place(home).__all__)


@pytest.mark.parametrize("home", ["nn", "random"])
def test_refusals_of_modules(home, refuses):
    for name, reason in elsewhere._REFUSED[home].items():
        assert name not in place(home).__all__
        with refuses(f"{home}.{name}: not available, because {reason}"):
            getattr(place(home), name)(1, 2)
    assert not {*refused.REFUSED} & {*TOP}


@pytest.mark.parametrize("made", (gx.tensor, gx.Tensor))
def test_tensors_are_not_made_by_their_name(made):
    """torch.tensor and torch.Tensor; graphc.tensor is a module."""
    with pytest.raises(gx.GraphcError, match=r"[Tt]ensor: .*; use gx.constant"):
        made([1.0, 2.0])
