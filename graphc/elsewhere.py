"""Names of NumPy, JAX and PyTorch that graphc does not have, each with what to write.

A name that graphc cannot offer at all stands in `refused`, with the reason.
"""

from __future__ import annotations

import sys
from typing import Any

from graphc import refused

_UNROLL = "a Python loop over the steps: h = gx.tanh(x[:, t] @ wx + h @ wh + b)"
_DECLARED = "gx.variable for each weight, and functions of Tensors such as gx.nn.linear(x, w, b)"
_ARRAYS = "functions of Tensors declare; calls of gx.function compute"
_FUNCTION = "gx.function(inputs, outputs) on what a Python function declared"
_LR = "lr=rate, where rate is a gx.input or computed from a gx.variable that counts the steps"
_NEW_KEY = "gx.random.key(seed)"

# The functions of gx.nn that others have at the top.
_NN = (
    "cross_entropy dropout elu embedding gelu layer_norm leaky_relu linear log_sigmoid log_softmax "
    "mse_loss nll_loss relu rms_norm sigmoid silu softmax softplus softsign"
)

TOP: dict[str, str] = {
    **{name: f"gx.nn.{name}" for name in _NN.split()},
    "Parameter": "gx.variable(value, name)",
    "addmm": "bias + x @ y",
    "allclose": "gx.all(gx.isclose(x, y))",
    "append": "gx.concat([x, y])",
    "apply_along_axis": "gx.vmap(fn)",
    "array": "gx.constant(value), or gx.asarray",
    "array_equal": "gx.all(x == y)",
    "as_tensor": "gx.asarray(value)",
    "atleast_3d": "gx.expand_dims(x, -1)",
    "average": "gx.sum(x * w) / gx.sum(w)",
    "batch_matmul": "x @ y, whose leading axes broadcast",
    "bmm": "x @ y, whose leading axes broadcast",
    "bool_": "gx.bool",
    "broadcast_tensors": "gx.broadcast_arrays(x, y)",
    "cat": "gx.concat(arrays, axis)",
    "cdist": "gx.sqrt(gx.sum((x[:, None] - y) ** 2, axis=-1))",
    "chunk": "gx.split(x, n, axis)",
    "clamp": "gx.clip(x, min, max)",
    "clone": "x itself: Tensors never change",
    "column_stack": "gx.stack(arrays, axis=1) of vectors",
    "compile": _FUNCTION,
    "cov": "c @ c.T / (n - 1), where c = x - gx.mean(x, axis=1, keepdims=True)",
    "copy": "x itself: Tensors never change",
    "cummax": "gx.cumulative_max(x, axis)",
    "cummin": "-gx.cumulative_max(-x, axis)",
    "detach": "gx.stop_gradient(x)",
    "diagflat": "gx.diag(gx.ravel(x))",
    "div": "gx.divide(x, y)",
    "divmod": "divmod(x, y)",
    "double": "gx.float64",
    "dstack": "gx.stack(arrays, axis=2)",
    "dynamic_slice": "gx.take(x, start + gx.arange(n), axis)",
    "dynamic_update_slice": "x.at[start + gx.arange(n)].set(value)",
    "eq": "x == y",
    "erfc": "1 - gx.erf(x)",
    "eval_shape": "the .type of a Tensor, which is known when it is declared",
    "expand": "gx.broadcast_to(x, shape)",
    "expit": "gx.nn.sigmoid(x)",
    "fix": "gx.trunc(x)",
    "gammaln": "gx.lgamma(x)",
    "fliplr": "gx.flip(x, axis=1)",
    "flipud": "gx.flip(x, axis=0)",
    "from_numpy": "gx.constant(value)",
    "gather": "gx.take_along_axis(x, indices, axis)",
    "ge": "x >= y",
    "gradient": "(x[2:] - x[:-2]) / 2, the differences inside",
    "gt": "x > y",
    "half": "gx.float16",
    "heaviside": "gx.where(x == 0, y, x > 0)",
    "index_select": "gx.take(x, indices, axis)",
    "inverse": "gx.linalg.inv",
    "iota": "gx.arange(n)",
    "is_tensor": "isinstance(x, gx.Tensor)",
    "isneginf": "x == -gx.inf",
    "isposinf": "x == gx.inf",
    "jacfwd": "gx.jacobian(y, x)",
    "jacrev": "gx.jacobian(y, x)",
    "jit": _FUNCTION,
    "kron": "gx.einsum('ij,kl->ikjl', x, y).reshape(shape)",
    "le": "x <= y",
    "lerp": "x + weight * (y - x)",
    "logistic": "gx.nn.sigmoid(x)",
    "logit": "gx.log(x) - gx.log1p(-x)",
    "lt": "x < y",
    "make_jaxpr": "print(gx.function(inputs, outputs).graph)",
    "manual_seed": f"{_NEW_KEY}: random numbers take a key",
    "masked_fill": "gx.where(mask, value, x)",
    "mm": "x @ y",
    "movedim": "gx.moveaxis(x, source, destination)",
    "mul": "gx.multiply(x, y)",
    "mv": "x @ y",
    "named_scope": "gx.name_scope(name)",
    "nanmax": "gx.max(gx.where(gx.isnan(x), -gx.inf, x))",
    "nanmean": "gx.sum(gx.where(gx.isnan(x), 0, x)) / gx.sum(~gx.isnan(x))",
    "nanmin": "gx.min(gx.where(gx.isnan(x), gx.inf, x))",
    "nansum": "gx.sum(gx.where(gx.isnan(x), 0, x))",
    "ndim": "x.ndim",
    "ne": "x != y",
    "neg": "-x",
    "no_grad": f"gx.stop_gradient(x) for what is constant to gradients; {_ARRAYS}",
    "norm": "gx.linalg.norm(x)",
    "numel": "x.size",
    "permute": "gx.permute_dims(x, axes)",
    "pmap": "gx.vmap(fn), or more threads in one gx.function",
    "polyval": "a Python loop over the coefficients: y = y * x + c",
    "ptp": "gx.max(x) - gx.min(x)",
    "rand": "gx.random.uniform(key, shape)",
    "randint": "gx.random.randint(key, shape, low, high)",
    "randn": "gx.random.normal(key, shape)",
    "range": "gx.arange(start, stop, step)",
    "relu6": "gx.clip(x, 0, 6)",
    "remat": "gx.checkpoint(fn)",
    "repeat_interleave": "gx.repeat(x, n, axis)",
    "rint": "gx.round(x)",
    "rot90": "gx.flip(x.mT, axis=-2)",
    "save": "gx.save_state(path, functions)",
    "scatter": "x.at[indices].set(value)",
    "scatter_add": "x.at[indices].add(value)",
    "select": "gx.where(mask, x, y)",
    "shape": "x.shape",
    "size": "x.size",
    "sub": "gx.subtract(x, y)",
    "swapdims": "gx.swapaxes(x, 0, 1)",
    "t": "x.T",
    "tensor_split": "gx.split(x, indices, axis)",
    "trapezoid": "gx.sum((x[1:] + x[:-1]) / 2)",
    "trapz": "gx.sum((x[1:] + x[:-1]) / 2)",
    "tri": "gx.tril(gx.ones((n, n)))",
    "unbind": "gx.unstack(x, axis)",
    "unsqueeze": "gx.expand_dims(x, axis)",
    "vdot": "gx.vecdot(gx.ravel(x), gx.ravel(y))",
    "vectorize": "gx.vmap(fn)",
    "xlogy": "gx.where(x == 0, 0, x * gx.log(y))",
}

NN: dict[str, str] = {
    "Dropout": "gx.nn.dropout(x, key, p)",
    "Embedding": "gx.nn.embedding(indices, weight)",
    "GRU": _UNROLL,
    "LSTM": _UNROLL,
    "LayerNorm": "gx.nn.layer_norm(x, weight, bias)",
    "Linear": _DECLARED,
    "Module": _DECLARED,
    "Parameter": "gx.variable(value, name)",
    "RNN": _UNROLL,
    "ReLU": "gx.nn.relu(x)",
    "Sequential": _DECLARED,
    "attention": "gx.nn.scaled_dot_product_attention(q, k, v)",
    "binary_cross_entropy": "gx.nn.binary_cross_entropy_with_logits(logits, targets)",
    "celu": "gx.where(x > 0, x, gx.expm1(gx.minimum(x, 0)))",
    "clip_grad_norm_": "gx.optim.clip_grad_norm(grads, max_norm)",
    "clip_grad_value_": "[gx.clip(g, -1, 1) for g in grads]",
    "cosine_similarity": "gx.vecdot(x, y) / (gx.linalg.norm(x, axis=-1) * "
                         "gx.linalg.norm(y, axis=-1))",
    "dot_product_attention": "gx.nn.scaled_dot_product_attention(q, k, v)",
    "glu": "x[..., :n] * gx.nn.sigmoid(x[..., n:])",
    "gru": _UNROLL,
    "hard_sigmoid": "gx.clip(x / 6 + 0.5, 0, 1)",
    "hard_swish": "x * gx.clip(x / 6 + 0.5, 0, 1)",
    "hard_tanh": "gx.clip(x, -1, 1)",
    "hardsigmoid": "gx.clip(x / 6 + 0.5, 0, 1)",
    "hardswish": "x * gx.clip(x / 6 + 0.5, 0, 1)",
    "hardtanh": "gx.clip(x, -1, 1)",
    "identity": "x",
    "init": "NumPy's random numbers as the values of gx.variable",
    "kl_div": "gx.mean(gx.exp(target) * (target - x)), of logarithms",
    "logsigmoid": "gx.nn.log_sigmoid(x)",
    "logsumexp": "gx.logsumexp(x, axis)",
    "lstm": _UNROLL,
    "mish": "x * gx.tanh(gx.nn.softplus(x))",
    "normalize": "x / gx.linalg.norm(x, axis=-1, keepdims=True)",
    "pad": "gx.pad(x, pad_width)",
    "prelu": "gx.where(x > 0, x, weight * x)",
    "relu6": "gx.clip(x, 0, 6)",
    "rnn": _UNROLL,
    "selu": "1.0507009873554805 * gx.nn.elu(x, 1.6732632423543772)",
    "smooth_l1_loss": "gx.nn.huber_loss(prediction, target, delta=beta) / beta",
    "softmin": "gx.nn.softmax(-x)",
    "squareplus": "(x + gx.sqrt(x ** 2 + 4)) / 2",
    "standardize": "gx.nn.layer_norm(x)",
    "swish": "gx.nn.silu(x)",
    "tanhshrink": "x - gx.tanh(x)",
    "utils": "gx.optim.clip_grad_norm(grads, max_norm)",
}

OPTIM: dict[str, str] = {
    "Adam": "gx.optim.adam(params, grads, lr)",
    "AdamW": "gx.optim.adamw(params, grads, lr)",
    "RMSprop": "gx.optim.rmsprop(params, grads, lr)",
    "SGD": "gx.optim.sgd(params, grads, lr)",
    "apply_updates": "gx.function(inputs, outputs, updates=pairs)",
    "clip_by_global_norm": "gx.optim.clip_grad_norm(grads, max_norm)",
    "clip_grad_norm_": "gx.optim.clip_grad_norm(grads, max_norm)",
    "cosine_decay_schedule": _LR,
    "exponential_decay": _LR,
    "lr_scheduler": _LR,
    "momentum": "gx.optim.sgd(params, grads, lr, momentum=0.9)",
    "swa_utils": "updates=[(mean, decay * mean + (1 - decay) * w)] for a variable mean",
}

RANDOM: dict[str, str] = {
    "PRNGKey": _NEW_KEY,
    "exponential": "-gx.log1p(-gx.random.uniform(key, shape))",
    "gumbel": "-gx.log(-gx.log(gx.random.uniform(key, shape, low=2**-25)))",
    "laplace": "gx.sign(u) * gx.log1p(-2 * gx.abs(u)), for u uniform from -0.5 to 0.5",
    "logistic": "gx.log(u) - gx.log1p(-u), for u = gx.random.uniform(key, shape, low=2**-25)",
    "lognormal": "gx.exp(gx.random.normal(key, shape))",
    "multivariate_normal": "mean + gx.random.normal(key, shape) @ factor.T",
    "new_key": _NEW_KEY,
    "rademacher": "2 * gx.random.bernoulli(key, 0.5, shape).astype('int64') - 1",
    "rand": "gx.random.uniform(key, shape)",
    "randn": "gx.random.normal(key, shape)",
    "random": "gx.random.uniform(key, shape)",
    "seed": _NEW_KEY,
    "standard_normal": "gx.random.normal(key, shape)",
}

# Methods; those of functions that graphc has are found by their names.
TENSOR: dict[str, str] = {
    "backward": "gx.grad(loss, params)",
    "block_until_ready": "the call of a gx.function, which returns when it is done",
    "bool": "x.astype('bool')",
    "clamp": "x.clip(min, max)",
    "contiguous": "x itself: layout is the compiler's matter",
    "conj": "x itself: no Tensor is complex",
    "cpu": "x itself",
    "cuda": "x itself: the only device is the CPU",
    "cummin": "-gx.cumulative_max(-x, axis)",
    "detach": "gx.stop_gradient(x)",
    "dim": "x.ndim",
    "double": "x.astype('float64')",
    "expand": "gx.broadcast_to(x, shape)",
    "expand_as": "gx.broadcast_to(x, y.shape)",
    "fill": "gx.full_like(x, value)",
    "float": "x.astype('float32')",
    "grad": "gx.grad(loss, x)",
    "half": "x.astype('float16')",
    "int": "x.astype('int32')",
    "long": "x.astype('int64')",
    "nbytes": "x.size * x.dtype.numpy.itemsize",
    "requires_grad": "gx.grad(loss, [x]): any float Tensor can be differentiated by",
    "requires_grad_": "gx.grad(loss, [x]): any float Tensor can be differentiated by",
    "reshape_as": "x.reshape(y.shape)",
    "to": "x.astype(dtype)",
    "type_as": "x.astype(y.dtype)",
    "view": "x.reshape(shape)",
    "view_as": "x.reshape(y.shape)",
}

_ADVICE = {"": TOP, "nn": NN, "optim": OPTIM, "random": RANDOM, "Tensor": TENSOR}


_REFUSED = {
    "": refused.REFUSED, "nn": refused.NN, "random": refused.RANDOM, "linalg": refused.LINALG,
    "fft": refused.FFT,
}


def lookup(home: str, name: str) -> Any:
    """What a module of gx (gx itself: "") answers for a name that it lacks: a function that refuses
    with the reason, or an AttributeError that says what to write.
    """
    reason = _REFUSED.get(home, {}).get(name)
    if reason is not None:
        return refused.refusal(f"{home}.{name}" if home else name, reason)
    raise missing(home, name, sys.modules[".".join(filter(None, ("graphc", home)))])


def missing(home: str, name: str, owner: object) -> AttributeError:
    """The error of a name that `owner` lacks: gx ("" as home), a module of it, or a Tensor."""
    said = f"module '{'.'.join(filter(None, ('graphc', home)))}' has no attribute {name!r}"
    advice = _ADVICE.get(home, {}).get(name)
    if home == "Tensor":
        said = f"'Tensor' object has no attribute {name!r}"
        advice = advice or _as_function(name)
        if advice is None and name in refused.REFUSED:
            return AttributeError(f"{said}, because {refused.REFUSED[name]}")
    if advice is None:  # with name and obj Python proposes what is spelled alike
        return AttributeError(said, name=name, obj=owner)
    return AttributeError(f"{said}; use {advice}")


def _as_function(name: str) -> str | None:
    """What to write for x.exp() and the like, which are functions here."""
    import graphc

    if name in _NN.split():
        return f"gx.nn.{name}(x)"
    home = getattr(vars(graphc).get(name), "__module__", "")
    return f"gx.{name}(x)" if home in _OPERATIONS else TOP.get(name)


_OPERATIONS = {
    f"graphc.{home}" for home in (
        "composed", "elementwise", "floats", "manipulation", "products", "reals", "reductions",
        "selection",
    )
}
