"""Settings of all tests."""

import math
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import examples, long_cases, seeds

examples.register_profiles()

DRAWN = not os.environ.get(seeds.VARIABLE)
SEED = seeds.session_seed()

# This process has compiled what was changed. Processes of tests would look for changes anew, one
# after the other.
for finder in sys.meta_path:
    if type(finder).__module__ == "_editable_skbc_sharpwave":
        import sharpwave._native  # noqa: F401

        os.environ.setdefault("SKBUILD_EDITABLE_SKIP", getattr(finder, "path", None) or "")

# A shell has what it starts in the background ignore interrupts; some tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files anew."""
    parser.addoption(
        "--refresh-golden", action="store_true", help="write tests/learning/golden anew"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave quick cases of long tests in the default run."""
    long_cases.unmark_quick_cases(items)


def pytest_report_header() -> str:
    """Name the seed of the session."""
    return f"{seeds.VARIABLE}={SEED} ({'drawn' if DRAWN else 'given'})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the seed with every failure, with what reproduces it."""
    report = yield
    if report.failed:
        report.sections.append(("Seed", f"{seeds.VARIABLE}={SEED} reproduces this test's numbers"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Give modules that draw while they are imported numbers of their own."""
    with seeds.generators_of(collector.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Give fixtures that several tests share numbers of their own: any test may be the first."""
    if fixturedef.scope == "function":
        return (yield)
    parameter = getattr(request, "param_index", 0)
    with seeds.generators_of(f"{fixturedef.baseid}::{fixturedef.argname}[{parameter}]"):
        return (yield)


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """Seed what a test draws without a seed of its own."""
    seeds.seed_generators(seeds.seed_of(request.node.nodeid))


@pytest.fixture(autouse=True, scope="session")
def drawn_seeds() -> Iterator[None]:
    """Let what has no seed draw it from the generators of the test."""
    with pytest.MonkeyPatch.context() as patch:
        seeds.replace_entropy(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def saves_when_due() -> Iterator[None]:
    """Let runs save whenever it is due: on a busy machine they would leave some out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sharpwave.runs.recorder.SLOW_SAVE", math.inf)
        yield


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory, where the system has such: waiting for a disk makes tests slow."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
