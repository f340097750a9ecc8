"""Compiled functions are called without a tuple of their arguments, and behave as before."""

import copy
import gc
import sys
import weakref

import numpy as np
import pytest

import graphc as gx
from graphc import vectorcall
from graphc.codegen.calling import pylayout
from graphc.errors import UsageError

pytestmark = pytest.mark.skipif(
    not pylayout.usable() or vectorcall.Direct is vectorcall._Plain, reason="no vectorcall here"
)
FLAG = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL


def add_one(**options):
    x = gx.input("x", ("n",))
    return gx.function([x], x + 1, **options)


def test_compiled_functions_only():
    f = add_one()
    assert not type(f).__flags__ & FLAG and not gx.Function.__flags__ & FLAG
    assert f([1, 2]).tolist() == [2, 3]
    assert type(f).__flags__ & FLAG and not gx.Function.__flags__ & FLAG
    assert isinstance(f, gx.Function) and type(f).__name__ == "Function"
    g = add_one(mode="interpret")
    assert g(np.zeros(2, "f4")).tolist() == [1, 1] and not type(g).__flags__ & FLAG
    assert copy.copy(f) is f and callable(f) and f.__call__(np.zeros(1, "f4")).tolist() == [1]


def test_every_kind_of_call():
    f, x = add_one().compile(), np.arange(3, dtype=np.float32)
    want = [1, 2, 3]
    out = np.zeros(3, np.float32)
    none, named = {}, {"x": x}
    assert f(x).tolist() == want and f(x=x).tolist() == want and f(*[x], **none).tolist() == want
    assert f(**named).tolist() == want and f([0, 1, 2]).tolist() == want
    assert f(x, out=out) is out and out.tolist() == want
    assert list(map(f, [x])).pop().tolist() == want and f(x.astype("f2")).tolist() == want
    for args, kwargs in (((), {}), ((x, x), {}), ((x,), {"y": x}), ((x,), {"x": x})):
        with pytest.raises(UsageError):
            f(*args, **kwargs)


def test_each_object_has_its_own_code():
    v = gx.variable(np.float32(1), "v")
    x = gx.input("x", ())
    f = gx.function([x], v + x, updates={v: v + x})
    g = f.with_state({"v": np.float32(10)})
    fs = [gx.function([x], x + k) for k in range(5)]
    assert f(np.float32(1)) == 2 and g(1.0) == 11 and g(1.0) == 12 and v.value == 2
    assert [float(h(1.0)) for h in fs] == [1, 2, 3, 4, 5]


def test_it_is_collected_with_its_class():
    f = add_one()
    f(np.zeros(1, "f4"))
    x = np.zeros(4, np.float32)
    before = sys.getrefcount(x)
    for _ in range(1000):
        f(x)
    assert sys.getrefcount(x) == before
    gone = weakref.ref(f)
    f.itself = f
    del f
    gc.collect()
    assert gone() is None


def test_subclasses_and_loaded_functions(tmp_path):
    class Own(gx.Function):
        """A class of the user's."""

    f = add_one(name="f")
    own = Own(f.graph, f._results.kind, f.options)
    assert own(np.zeros(2, "f4")).tolist() == [1, 1] and own([1.0]).tolist() == [2]
    lib = gx.load(gx.export(f, tmp_path / "libone.so", cpu="native"))
    for _ in range(4):
        assert lib.f(np.zeros(2, "f4")).tolist() == [1, 1]
