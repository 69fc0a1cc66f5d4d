"""The learning runs that were made with a preset, for `sharpwave list presets`."""

from __future__ import annotations

import json
from typing import Any

from learning_results import Groups
from learning_statistics import estimate, last_return
from learning_tasks import OURS, TASKS, Task

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.config.preset_facts import RESULTS
from sharpwave.config.presets import find_preset

NAMES = {"QRDQN": "qr_dqn"}
ASIDE = {"seed", "threads", "total_timesteps"}
"""Options in which a run may differ from the preset; its steps are said."""


def write(tasks: dict[str, Groups]) -> None:
    """Write the file of the package."""
    lines = ",\n".join(json.dumps(row) for row in rows(tasks))
    RESULTS.write_text(f"[\n{lines}\n]\n")


def rows(tasks: dict[str, Groups]) -> list[dict[str, Any]]:
    """A row for each task with the settings of a preset, of the runs that came to their end."""
    found = []
    for name, groups in tasks.items():
        task = TASKS[name]
        # Runs of another length were made when the task had other settings.
        runs = [run for run in groups[OURS] if run["reached"] >= run["steps"] == task.steps]
        algorithm = NAMES.get(task.algorithm, task.algorithm.lower())
        if not runs or not _has_settings(task, algorithm):
            continue
        scores = estimate([last_return(run["curve"]) for run in runs])
        found.append(
            {
                "algorithm": algorithm,
                "env": task.env,
                "seeds": len(runs),
                "steps": runs[0]["steps"],
                **{key: round(value, 1) for key, value in scores._asdict().items()},
                "date": max(run["machine"].partition(":")[0] for run in runs),
            }
        )
    return found


def _has_settings(task: Task, algorithm: str) -> bool:
    preset = find_preset(algorithm, task.env)
    if preset is None:
        return False
    config: Any = algorithm_class(algorithm).Config
    of_task = config.from_dict(task.our_settings()).to_dict()
    of_preset = config.from_dict(preset).to_dict()
    return all(of_task[name] == of_preset[name] for name in of_task.keys() - ASIDE)
