"""Fail when the rooms of training test for backends, or algorithms repeat each other, too often.

Which learner computes is decided in one place, `learners/choose.py`; an algorithm's file holds what
makes the algorithm what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tools.source_measures import PACKAGE, Place, backend_tests, repetition, total

MOST_BACKEND_TESTS = 0
MOST_REPEATED = 10.0
"""In percent of the lines of algorithms."""


def check(root: Path, most_tests: int, most_repeated: float) -> list[str]:
    """Everything that is wrong under `root`, a line each."""
    return [*_check_tests(backend_tests(root), most_tests), *_check_share(root, most_repeated)]


def _check_tests(tests: list[Place], most: int) -> Iterable[str]:
    if len(tests) > most:
        yield from map(str, tests)
        yield f"{len(tests)} tests of a backend outside of learners/choose.py, at most {most}"


def _check_share(root: Path, most: float) -> Iterable[str]:
    parts = repetition(root / "algorithms")
    share = round(total(parts.values()).share, 1)
    if share > most:
        yield from (
            f"algorithms/{name}: {part.repeated} of {part.lines} lines stand elsewhere too"
            for name, part in sorted(parts.items())
            if part.repeated
        )
        yield f"{share} % of the lines of algorithms are repeated, at most {most} %"


def main() -> int:
    """Print what is wrong and return the exit status."""
    wrong = check(PACKAGE, MOST_BACKEND_TESTS, MOST_REPEATED)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
