"""The builtin that Python calls: what it serves itself, what it hands on, and its bookkeeping."""

import gc
import sys
import threading
import weakref

import handmade
import numpy as np
import pytest

import graphc as gx
from graphc.codegen.calling import fastcall, pylayout
from graphc.codegen.compile import compile_graph
from graphc.codegen.machine import jit, linker
from graphc.codegen.machine.target import host
from graphc.dims import dim
from graphc.errors import CompileError
from graphc.ir import State
from graphc.types import DTYPES, TensorType, bf16, f32

pytestmark = pytest.mark.skipif(not pylayout.usable(), reason="no native call path here")
SLOW = object()


def load(program, shape="one", slow=lambda *a, **k: SLOW, **more):
    image = fastcall.compile_program(program, host(), shape, len(more.get("locks", ())))
    return fastcall.Native(image, host(), slow=slow, **more)


@pytest.mark.parametrize("arena", [0, 64 * handmade.N, 100_000])
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 100_000])
def test_values(arena, n):
    x = np.arange(n, dtype=np.float32)
    y = load(handmade.increment(arena)).call(x)
    assert y.dtype == np.float32 and y.flags.owndata
    np.testing.assert_array_equal(y, x + 1)


def test_structures():
    x = np.zeros(3, np.float32)
    for shape, want in (("list", list), ("tuple", tuple)):
        got = load(handmade.increment(), shape).call(x)
        assert type(got) is want and len(got) == 1 and got[0].tolist() == [1, 1, 1]
    got = load(handmade.increment(), "dict", keys=["y"]).call(x)
    assert list(got) == ["y"] and got["y"].tolist() == [1, 1, 1]


def test_what_it_hands_on():
    call = load(handmade.increment()).call
    x = np.zeros((4, 4), np.float32)
    class Sub(np.ndarray):
        pass

    unaligned = np.zeros(17, np.uint8)[1:].view(np.float32)
    for args, kwargs in (
        ((), {}), ((x[0], x[0]), {}), ((x[0],), {"x": x[0]}), ((x[0],), {"out": x[1]}),
        ((), {"z": x[0]}),
        ((x,), {}), ((x[:, 0],), {}), ((x[0].astype(">f4"),), {}), ((x[0].astype("f8"),), {}),
        ((x[0].view(Sub),), {}), ((unaligned,), {}), (([1.0],), {}), ((1.0,), {}), ((None,), {}),
    ):
        assert call(*args, **kwargs) is SLOW, (args, kwargs)


def test_arguments_reach_the_slow_path():
    call = load(handmade.increment(), slow=lambda *a, **k: (a, k)).call
    assert call(1, 2, a=3, b=4) == ((1, 2), {"a": 3, "b": 4})


def test_errors_of_the_slow_path_come_through():
    def slow(*args):
        raise KeyError("why")

    with pytest.raises(KeyError, match="why"):
        load(handmade.increment(), slow=slow).call()


def test_size_overflow_goes_to_the_slow_path():
    huge = handmade.N * handmade.N * 2**60
    assert load(handmade.increment(huge)).call(np.zeros(1 << 10, np.float32)) is SLOW


def test_no_memory_goes_to_the_slow_path():
    assert load(handmade.increment(handmade.N * 2**60)).call(np.zeros(1, np.float32)) is SLOW


def test_compound_sizes():
    """y = x + 1 where a second input must have 2 n + m // 3 elements."""
    from graphc.codegen.program import Param

    n, m = dim("n"), dim("m")
    program = handmade.increment()
    text = program.llvm.replace("ptr %args, i64 1", "ptr %args, i64 3")
    vector = program.inputs[0]
    program = program._replace(
        llvm=text, dims=("n", "m"),
        inputs=(
            vector,
            Param("z", TensorType(f32, (2 * n + m // 3,))),
            Param("w", TensorType(f32, (m,))),
        ),
    )
    call = load(program).call
    x = np.zeros(5, np.float32)
    for size, w in ((10, 0), (10, 2), (11, 3), (13, 9)):
        got = call(x, np.zeros(size, np.float32), np.zeros(w, np.float32))
        assert got.tolist() == [1] * 5
    assert call(x, np.zeros(10, np.float32), np.zeros(3, np.float32)) is SLOW


def counter(value=0.0, **more):
    state = State("total", TensorType(f32, ()), np.array(value, np.float32))
    return state, load(handmade.count(state), "none", locks=[state.lock], **more)


def test_state_and_failure():
    state, native = counter()
    assert native.call(np.array(2, np.float32)) is None
    assert native.call(np.array(-1, np.float32)) is SLOW
    assert native.call(np.array(3, np.float32)) is None
    assert state.array == 5


def test_numbers_that_a_state_takes():
    state, native = counter()
    assert native.call(1.5) is None and native.call(-1.0) is SLOW
    assert native.call(2) is None and native.call(True) is SLOW
    assert native.call(np.float64(1)) is None and native.call(np.zeros(1, np.float32)) is SLOW
    assert native.call(np.float32(0.25)) is None and native.call(np.float16(1)) is SLOW
    assert state.array == 4.75


@pytest.mark.parametrize("dtype", [d.long for d in DTYPES if d is not bf16])
def test_numbers_for_inputs_without_axes(dtype):
    """Whatever the builtin takes for a number means what NumPy makes of it."""
    a = gx.input("a", (), dtype)
    native = load(compile_graph(gx.function([a], gx.stack([a, a])).graph, host()))
    of = np.dtype(dtype)
    if dtype == "bool":
        good, bad = [np.True_, np.False_], [True, 1, 0.0, np.int8(1)]
    elif of.kind in "iu":
        low, high = np.iinfo(of).min, np.iinfo(of).max
        high = min(high, 2**63 - 1)  # of 64 bits without a sign the upper half goes the slow way
        good = [low, high, 1, of.type(low), of.type(high), of.type(7)]
        bad = [low - 1, high + 1, -(2**70), 2**70, True, 1.0, np.float64(1), np.bool_(1)]
    else:
        good, bad = [of.type(0.1), of.type("nan"), of.type("-0.0")], [True, np.int8(1), "1"]
        if dtype == "float16":
            bad += [0.1, 1]
        else:
            good += [0.1, np.float64(0.1), -0.0, 1e300, 3, -(2**53), 2**53, 2**24 + 1, 2**31 + 129]
            bad += [2**53 + 1, -(2**53) - 1, 2**64]
    for number in good:
        with np.errstate(over="ignore"):
            want = np.asarray(number).astype(of)
        np.testing.assert_array_equal(native.call(number), [want, want])
        assert np.all(np.signbit(native.call(number)) == np.signbit(want)) or of.kind != "f"
    for number in bad:
        assert native.call(number) is SLOW, number


def test_many_numbers():
    """What holds a number bears no name of what else the builtin is made of."""
    for count in (8, 31):
        xs = [gx.input(f"x{k}", (), "float64" if k % 2 else "int64") for k in range(count)]
        native = load(compile_graph(gx.function(xs, gx.sum(gx.stack(xs))).graph, host()))
        assert native.call(*range(count)) == sum(range(count))


def test_a_held_lock_goes_to_the_slow_path():
    state, native = counter()
    one = np.array(1, np.float32)
    seen = []
    with state.lock:
        t = threading.Thread(target=lambda: seen.append(native.call(one)))
        t.start()
        t.join()
    assert seen == [SLOW] and state.array == 0


def test_reference_counts_stay():
    x = np.zeros(3, np.float32)
    for shape in ("one", "list", "tuple", "dict"):
        call = load(handmade.increment(), shape, keys=["y"]).call
        call(x)
        before = sys.getrefcount(x), sys.getrefcount(None), sys.getrefcount("y")
        for _ in range(1000):
            call(x)
            call(x, x)
        after = sys.getrefcount(x), sys.getrefcount(None), sys.getrefcount("y")
        assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))


def test_memory_does_not_grow():
    import resource

    call = load(handmade.increment(handmade.N * 4)).call
    x = np.zeros(1 << 18, np.float32)
    for _ in range(20):
        call(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(300):
        call(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_collected_with_its_cycle():
    class Owner:
        def slow(self, *args):
            return SLOW

    owner = Owner()
    owner.native = load(handmade.increment(100_000), slow=owner.slow)
    owner.native.call(np.zeros(3, np.float32))
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_finalisers_may_still_call_what_is_collected_with_them():
    """Code stays until the collection is over, even while finalisers load more code."""
    x = np.arange(3, dtype=np.float32)
    seen = []

    class Owner:
        def __del__(self):
            seen.append(load(handmade.increment()).call(x) - 1)
            seen.append(self.native.call(x) - 1)

    for _ in range(20):
        owner, other = Owner(), Owner()
        owner.other, other.other = other, owner
        owner.native = other.native = load(handmade.increment(100_000))
        del owner, other
    gc.collect()
    assert len(seen) == 80 and all((y == x).all() for y in seen)


@pytest.mark.skipif(not linker.usable(), reason="LLVM links here")
def test_what_a_finaliser_keeps_stays_callable(monkeypatch):
    x, n = np.arange(3, dtype=np.float32), gx.input("x", ("n",))
    kept, unmapped = [], []

    class Owner:
        def __del__(self):
            kept.append(self.f)

    monkeypatch.setattr(linker._libc(), "munmap", lambda at, size: unmapped.append((at, size)))
    owner = Owner()
    owner.self, owner.f = owner, gx.function([n], n + 1).compile()
    del owner
    for k in range(3):
        gc.collect()
        gx.function([n], n + k).compile()
    (f,) = kept
    code = f._native.address(f.name)
    assert not any(at <= code < at + size for at, size in unmapped)
    assert (f(x) == x + 1).all() and unmapped


def test_what_code_keeps_goes_with_it():
    """Weights take memory until their function is dropped, and no longer."""
    objects = fastcall.compile_program(handmade.increment(), host()).objects
    gone = []
    for cyclic in (False, True):
        weights = np.zeros(1 << 20, np.float32)
        gone.append(weakref.ref(weights))
        owner = [jit.load(objects, exports=["increment"], keep=[weights])]
        if cyclic:
            owner.append(owner)
        del weights, owner
        assert (gone[-1]() is None) is not cyclic
    gc.collect()
    assert gone[-1]() is None


def test_sixteen_threads(at_once):
    call = load(handmade.increment(handmade.N * 4)).call

    def work(k):
        x = np.full(20_000 + k, k, np.float32)
        for _ in range(50):
            assert (call(x) == k + 1).all()

    at_once(16, work)


def test_without_the_native_path(monkeypatch):
    monkeypatch.setattr(pylayout, "usable", lambda: False)
    native = load(handmade.increment(64 * handmade.N))
    assert native.call is None
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    assert native.run([x], [y], {"n": 5}) == 0
    np.testing.assert_array_equal(y, x + 1)


def test_bad_text_is_a_compile_error():
    with pytest.raises(CompileError, match="LLVM rejects"):
        fastcall.compile_program(handmade.increment()._replace(llvm="define nonsense"), host())


def test_missing_symbol_is_a_compile_error():
    text = (
        "declare float @no_such_function(float)\n"
        "define i32 @increment(ptr %a, ptr %b, ptr %c) {\n"
        "  %x = call float @no_such_function(float 1.0)\n"
        "  %y = fptosi float %x to i32\n  ret i32 %y\n}\n"
    )
    with pytest.raises(CompileError, match="does not link"):
        load(handmade.increment()._replace(llvm=text))
