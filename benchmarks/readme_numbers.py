"""Write three numbers into README, from the results: python benchmarks/readme_numbers.py."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import learning_results
import tables
from learning_tasks import OURS, PEER

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
PLACE = re.compile(r"(?<=<!-- numbers: make bench writes them -->\n).*?(?=<!-- end -->)", re.DOTALL)
SOLVED = 475


def main() -> None:
    README.write_text(PLACE.sub(lines(), README.read_text()))


def lines() -> str:
    """The numbers as a list, each with a link to what measured it."""
    runs = learning_results.load(learning_results.FILE)
    solved = {
        contender: statistics.median(
            _seconds_until(run, SOLVED)
            for run in runs
            if run["task"] == "PPO CartPole" and run["contender"] == contender
        )
        for contender in (OURS, PEER)
    }
    step = _row("results_train.json", "SAC gradient step, 256 rows, one thread")
    batch = _row("results.json", "sample 256 of 1M")
    ours, theirs = (f"{solved[contender]:.2g} s" for contender in (OURS, PEER))
    return f"""\
- **{ours}** of one core until PPO has a return of {SOLVED} in CartPole; Stable-Baselines3 needs
  {theirs} ([learning curves](docs/learning.md)).
- **{_ratio(step)}** as many gradient steps of SAC a second as Stable-Baselines3, on one thread
  ([benchmarks](docs/benchmarks.md#learning-from-replay)).
- **{_time(batch)}** for a batch of 256 out of a million transitions; Stable-Baselines3 needs
  {_ratio(batch)} as long ([benchmarks](docs/benchmarks.md#uniform-replay)).

"""


def _seconds_until(run: dict[str, Any], score: float) -> float:
    """Seconds of a run until its first point of at least this score."""
    points = zip(run["clock"], run["curve"], strict=True)
    return next(clock for clock, (_, reached) in points if reached >= score)


def _row(file: str, operation: str) -> dict[str, Any]:
    rows = json.loads((HERE / file).read_text())["results"]
    return next(row for row in rows if row["operation"] == operation)


def _ratio(row: dict[str, Any]) -> str:
    return f"{row['contenders'][PEER]['ratio']:.2g}x"


def _time(row: dict[str, Any]) -> str:
    return tables.value_text(row["contenders"][OURS]["median"], row["unit"])


if __name__ == "__main__":
    main()
