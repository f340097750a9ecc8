"""Options that all tests share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import settings

# CI looks at the same examples every time; elsewhere every run looks at new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# The IR is checked after every pass, in the programs that tests start too.
os.environ.setdefault("GRAPHC_VERIFY", "1")
# They find graphc's modules compiled, which takes a second each where Python may keep nothing.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected halves of golden files with what comes out now",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def at_once() -> Callable[[int, Callable[[int], Any]], list[Any]]:
    """at_once(count, work): work(0), work(1), .. at the same time, each on a thread of its own.

    What they return; what one raises is raised.
    """

    def run(count: int, work: Callable[[int], Any]) -> list[Any]:
        begin = threading.Barrier(count)

        def one(k: int) -> Any:
            begin.wait()
            return work(k)

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    return run
