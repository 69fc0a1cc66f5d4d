"""Measures the CPU seconds of each test and lists those above a limit, which are marked `long`.

As a plugin it writes a JSON file: `python -m pytest -p tools.test_seconds --seconds=FILE`. A second
of a process that a test waited for counts too. What a shared fixture takes is counted where it was
set up, and listed apart. `python tools/test_seconds.py FILE` lists.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIMIT = 0.4
PHASES = ("setup", "call", "teardown")


def cpu_seconds() -> float:
    """CPU seconds of this process and of the processes it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Stopwatch:
    """Measures the phases of tests, in whichever process they run."""

    def __init__(self) -> None:
        self._last = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Begin a test."""
        self._last = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """End a phase; its seconds travel with its report."""
        report = yield
        now = cpu_seconds()
        report.user_properties.append((f"cpu_{report.when}", now - self._last))
        self._last = now
        return report


class Book:
    """Collects the seconds of all processes and writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, dict[str, float]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test took."""
        for name, value in report.user_properties:
            if name.startswith("cpu_") and isinstance(value, float):
                self._seconds[report.nodeid][name.removeprefix("cpu_")] = round(value, 4)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._seconds, indent=0, sort_keys=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--seconds", type=Path, help="write the CPU seconds of each test to a file")


def pytest_configure(config: pytest.Config) -> None:
    """Measure here, and write in the process that hears of all tests."""
    if path := config.getoption("--seconds"):
        config.pluginmanager.register(Stopwatch())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Book(path))


def listed(seconds: dict[str, dict[str, Any]], limit: float) -> list[str]:
    """A line for each test above the limit, the longest first, and one for all of them."""
    total = {test: sum(phases.values()) for test, phases in seconds.items()}
    above = sorted((test for test in total if total[test] > limit), key=lambda test: -total[test])
    lines = []
    for test in above:
        phases = " ".join(f"{seconds[test].get(phase, 0):7.2f}" for phase in PHASES)
        lines.append(f"{total[test]:7.2f} = {phases}  {test}")
    taken = sum(total[test] for test in above)
    lines.append(
        f"{len(above)} of {len(total)} tests are above {limit:g} s: "
        f"{taken:.0f} of {sum(total.values()):.0f} CPU seconds"
    )
    return lines


def main() -> int:
    """List the tests of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="written by --seconds")
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds (%(default)s)")
    arguments = parser.parse_args()
    seconds = json.loads(arguments.file.read_text())
    sys.stdout.write("\n".join(listed(seconds, arguments.limit)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
