"""What tests of the thread pool share."""

import pytest

from graphc.codegen.machine import jit


@pytest.fixture
def thread_count():
    """The number of threads, put back."""
    before = jit.threads()
    yield
    jit.set_threads(before)
