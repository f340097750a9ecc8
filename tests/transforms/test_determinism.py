"""The same program gives the same bytes in every process, whatever the hash seed."""

import os
import subprocess
import sys

PROGRAM = """
import numpy as np
import graphc as gx
from graphc import ir

@gx.composite
def block(x, w):
    return gx.tanh(x @ w) * x

x = gx.input("x", ("batch", 3))
ws = [gx.variable(np.eye(3, dtype="float32"), f"w{i}") for i in range(4)]
h = x
for w in ws:
    h = gx.checkpoint(block)(h, w) + block(h, w)
cost = gx.sum(gx.log(gx.sum(gx.exp(h), axis=1)))
outs = [cost, *gx.grad(cost, [*ws, x, h]), gx.hvp(cost, ws[0], np.eye(3)), gx.jacobian(h, x)]
print(ir.collect("g", [x._value], [o._value for o in outs]))
"""


def test_gradients_print_the_same_in_every_process():
    texts = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=True
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert "barrier" in texts.pop()
