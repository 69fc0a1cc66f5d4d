"""The runs of side_by_side.py: a file of one JSON line for each.

    python benchmarks/learning_results.py FILE

takes over runs that were made elsewhere: they replace those of the same tasks.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from learning_tasks import OURS, PEER, TASKS

FILE = Path(__file__).parent / "results_learning.jsonl"

Run = dict[str, Any]
Groups = dict[str, list[Run]]
"""The runs of one task, by contender."""


def append(path: Path, run: Run) -> None:
    """Write a run behind the others."""
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def save(path: Path, runs: list[Run]) -> None:
    """Write all runs anew."""
    beside = path.with_suffix(".new")
    beside.write_text("".join(json.dumps(run) + "\n" for run in sorted(runs, key=_place)))
    beside.replace(path)


def load(path: Path) -> list[Run]:
    """The runs of a file, in the order of tasks: of each piece the one that went furthest.

    A last line that was cut while it was written is passed over. Where runs of a task have
    different numbers of steps, those with the most count.
    """
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    runs = [json.loads(line) for line in lines if line.endswith("\n")]
    longest: dict[str, int] = {}
    for run in runs:
        longest[run["task"]] = max(run["steps"], longest.get(run["task"], 0))
    best: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        piece = (run["task"], run["contender"], run["seed"])
        if run["task"] in TASKS and run["steps"] == longest[run["task"]]:
            best[piece] = max(best.get(piece, run), run, key=lambda one: one["reached"])
    return sorted(best.values(), key=_place)


def by_task(runs: list[Run]) -> dict[str, Groups]:
    """The runs of every task that both sides have learned, with a curve each."""
    tasks: dict[str, Groups] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["curve"]:
            tasks[run["task"]][run["contender"]].append(run)
    return {
        name: {contender: groups[contender] for contender in (OURS, PEER)}
        for name, groups in tasks.items()
        if groups[OURS] and groups[PEER]
    }


def take_over(path: Path) -> list[str]:
    """Replace the runs of the tasks that both sides have learned in a file; these tasks."""
    taken = by_task(load(path))
    kept = [run for run in load(FILE) if run["task"] not in taken]
    new = [run for groups in taken.values() for group in groups.values() for run in group]
    save(FILE, kept + new)
    return list(taken)


def _place(run: Run) -> tuple[int, str, int]:
    return list(TASKS).index(run["task"]), run["contender"], run["seed"]


if __name__ == "__main__":
    print("\n".join(take_over(Path(sys.argv[1]))))
