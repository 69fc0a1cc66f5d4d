"""Settings of all tests."""

import os
import random
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

# Machines are shared, so no example has a deadline. Where a change is judged the examples are
# always the same ones; everywhere else every run tries new ones.
settings.register_profile("search", deadline=None)
settings.register_profile("judge", deadline=None, derandomize=True)
JUDGED = bool(os.environ.get("CI"))
settings.load_profile("judge" if JUDGED else "search")


# A shell has what it starts in the background ignore interrupts; some tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=JUDGED)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """Draw the same numbers in every run of a test: they are examples too."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files anew."""
    parser.addoption(
        "--refresh-golden", action="store_true", help="write tests/learning/golden anew"
    )


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory, where the system has such: waiting for a disk makes tests slow."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
