"""Recycled outputs: ordinary arrays, whose memory is used again only once nothing refers to it."""

import os
import pickle
import subprocess
import sys
import threading

import handmade
import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

import graphc as gx
from graphc.codegen.calling import allocator, fastcall, recycle
from graphc.codegen.machine.target import host

pytestmark = pytest.mark.skipif(not recycle.cell().handler, reason="nothing is recycled here")
N = 100_000


@pytest.fixture
def call():
    image = fastcall.compile_program(handmade.increment(), host(), "one")
    native = fastcall.Native(image, host(), slow=lambda *a: None)
    recycle.release()
    yield native.call
    recycle.release()


def ramp(k=0, n=N):
    return np.arange(k, k + n, dtype=np.float32)


def test_a_result_is_an_ordinary_array(call):
    y = call(ramp())
    assert get_handler_name(y) == "graphc" and y.base is None and y.ctypes.data % 64 == 0
    assert y.flags.owndata and y.flags.writeable and y.flags.c_contiguous and y.flags.aligned
    assert sys.getsizeof(y) > y.nbytes and pickle.loads(pickle.dumps(y)).tolist() == y.tolist()
    y[3] = 7
    for n in (N + 5, 3 * N, 10, 2 * N):  # within the block, beyond it, down to little, up again
        kept = y[:10].copy()
        y.resize(n)
        assert y.shape == (n,) and (y[:10] == kept).all() and (y[-1] == 0 or n == 10)
    y.resize(0)
    assert recycle.kept()[0] > 0


def test_dropped_memory_comes_back(call):
    y = call(ramp())
    at = y.ctypes.data
    del y
    assert recycle.kept() == (1, N * 4 + -(N * 4 + allocator.HEAD) % 4096)
    y = call(ramp(5, N - 500))  # a little less fits as well
    assert y.ctypes.data == at and recycle.kept() == (0, 0) and (y == ramp(6, N - 500)).all()
    del y
    assert call(ramp(0, N // 2)).ctypes.data != at and call(ramp(0, N + 5000)).ctypes.data != at


def test_small_results_do_not_take_part(call):
    y = call(ramp(0, allocator.FROM_BYTES // 4 - 1))
    assert get_handler_name(y) == "default_allocator"
    assert get_handler_name(call(ramp(0, allocator.FROM_BYTES // 4))) == "graphc"
    assert get_handler_name(np.empty(N)) == "default_allocator"  # other arrays are not ours


def test_whatever_refers_to_memory_keeps_it(call):
    makers = {
        "view": lambda a: a[10:20],
        "reshaped": lambda a: a.reshape(2, -1),
        "buffer": memoryview,
        "bytes": lambda a: np.frombuffer(memoryview(a).cast("B"), np.float32),
        "iterator": lambda a: a.flat,
        "pickled out of band": lambda a: [
            *filter(None, [pickle.dumps(a, 5, buffer_callback=(b := []).append) and b[0].raw()])
        ],
    }
    held = {}
    for k, (name, make) in enumerate(makers.items()):
        held[name] = make(call(ramp(k)))
    for k in range(20):
        call(ramp(1000 + k))
    for k, name in enumerate(makers):
        h = held[name]
        first = np.frombuffer(h[0], np.float32)[0] if isinstance(h, list) else np.ravel(h)[0]
        assert first == k + 1 + 10 * (name == "view"), name


def test_the_bound_holds_and_release_gives_back(call, monkeypatch):
    state = recycle._code()[1]
    monkeypatch.setattr(state, "limit", 10 * N * 4)
    ys = [call(ramp(k)) for k in range(20)]
    assert all((y == ramp(k + 1)).all() for k, y in enumerate(ys))
    last = ys[-1].ctypes.data
    while ys:
        del ys[0]  # the oldest go first, so the last stays
        blocks, size = recycle.kept()
        assert blocks <= 10 and size <= state.limit
    assert recycle.kept()[0] == 9 and call(ramp()).ctypes.data == last
    big = call(ramp(0, 11 * N))
    del big
    assert recycle.kept()[1] <= state.limit
    held = recycle.kept()[1]
    assert gx.release_memory() >= held > 0 and recycle.kept() == (0, 0)
    monkeypatch.setattr(state, "limit", recycle.LIMIT)
    ys = [call(ramp()) for _ in range(allocator.BLOCKS + 10)]
    del ys
    assert recycle.kept()[0] == allocator.BLOCKS


def test_arenas_wait_for_the_next_calls(at_once):
    """As many as ran at once; another size takes another, and `release_memory` frees them."""
    image = fastcall.compile_program(handmade.increment(handmade.N * 8), host(), "one")
    native = fastcall.Native(image, host(), slow=lambda *a: None)
    cells = native._arenas
    gx.release_memory()
    native.call(ramp())
    (first,) = filter(None, cells)
    native.call(ramp(0, N // 2))
    assert [*filter(None, cells)] == [first]
    native.call(ramp(0, 2 * N))
    assert len([*filter(None, cells)]) == 1 and gx.release_memory() >= 16 * N and not any(cells)

    def work(_):
        for k in range(20):
            assert (native.call(ramp(k, 10 * N)) == ramp(k + 1, 10 * N)).all()

    at_once(8, work)
    held = [*filter(None, cells)]
    assert len({*held}) == len(held) <= recycle.ARENAS and gx.release_memory() >= 80 * N * len(held)


def test_many_threads(call, at_once):
    def work(k):
        held = []
        for i in range(40):
            held.append((1000 * k + i, call(ramp(1000 * k + i, N + 300 * (i % 7)))))
            if len(held) > 3:
                start, y = held.pop((i * 7) % 3)
                assert (y == ramp(start + 1, y.size)).all()

    at_once(8, work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_its_own(call):
    held, dropped = call(ramp(1)), call(ramp(2))
    del dropped
    if (child := os.fork()) == 0:
        y = call(ramp(7))
        os._exit(0 if (y == ramp(8)).all() and (held == ramp(2)).all() else 1)
    y = call(ramp(9))
    assert os.waitpid(child, 0)[1] == 0
    assert (y == ramp(10)).all() and (held == ramp(2)).all()


def test_functions_whose_sizes_come_by_name_recycle_too(call, monkeypatch):
    monkeypatch.delenv("GRAPHC_VERIFY", raising=False)  # it wants every name in some input
    x = gx.input("x", ("n",))
    f = gx.function([x], gx.broadcast_to(x + 1, (gx.dim("m"), "n")))
    y = f(ramp(0, 10), m=N // 10)
    assert get_handler_name(y) == "graphc" and (y == ramp(1, 10)).all()


def test_switched_off_and_misspelt():
    code = (
        "import numpy as np, graphc as gx\n"
        "from numpy._core.multiarray import get_handler_name\n"
        "x = gx.input('x', ('n',)); f = gx.function([x], x + 1)\n"
        "y = f(np.zeros(100_000, 'f4'))\n"
        "print(get_handler_name(y), y.sum(), gx.release_memory())"
    )
    for value, want in (("0", "default_allocator 100000.0 0"), ("64k", "must be a number of bytes"),
                        ("1000", "graphc 100000.0 0")):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            env={**os.environ, "GRAPHC_RECYCLE_BYTES": value},
        )
        assert want in done.stdout + done.stderr


def test_what_cannot_be_had_is_refused():
    with pytest.raises(MemoryError):
        recycle.empty((1 << 60,), np.dtype(np.uint8))
    assert get_handler_name(np.zeros(10)) == "default_allocator"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_released_pages_go_back_to_the_system(call):
    """Even from between arrays that stay."""

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    ys = [call(ramp(0, 20 * N)) for _ in range(12)]
    before, stay = resident(), ys[5]
    del ys
    assert gx.release_memory() > 80 * N * 10
    assert before - resident() > 80 * N * 8 and (stay == ramp(1, 20 * N)).all()


def test_memory_is_released_while_others_compile():
    """Functions that come meanwhile do not disturb the walk over those that are there."""
    x = gx.input("x", (3,))
    kept = [gx.function([x], x * 2.5).compile() for _ in range(200)]
    interval, done, failed = sys.getswitchinterval(), threading.Event(), []

    def compile_on():
        while not done.is_set():
            gx.function([x], x * 2.5).compile()

    sys.setswitchinterval(1e-6)
    other = threading.Thread(target=compile_on)
    other.start()
    try:
        for _ in range(300):
            try:
                gx.release_memory()
            except RuntimeError as e:
                failed.append(e)
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(interval)
    assert not failed and kept[0](np.ones(3, "f4")).tolist() == [2.5] * 3
