"""The process of a trial: `python -m sharpwave.tuning.worker`, with the trial on standard input.

It writes a JSON line for each evaluation and reads one that says if training goes on. Whatever
environments print goes elsewhere.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from sharpwave.algorithms.trainer import Trainer
from sharpwave.envs.named import WrappedEnv
from sharpwave.runs.callbacks import Callback, EvalCallback
from sharpwave.tuning.trials import Job


class Told(Callback):
    """Tells of evaluations, and stops the run where the answer is so."""

    def __init__(self, tell: Callable[[int, float], bool]) -> None:
        self._tell = tell

    def on_eval(self, *, step: int, result: Any, **_: Any) -> bool:
        """Tell of an evaluation; training goes on if the answer is so."""
        return self._tell(step, float(result.mean))


def main() -> None:
    """Carry out the trial of standard input."""
    answers = sys.stdin
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed is not for the one who reads
    job = Job(**json.loads(answers.readline()))

    def tell(step: int, value: float) -> bool:
        if not math.isfinite(value):
            raise ValueError(f"an evaluation returned {value}")
        _write(told, {"step": step, "value": value})
        answer = answers.readline()
        return bool(answer) and bool(json.loads(answer)["go"])

    try:
        train(job, tell)
    except Exception as error:  # told to the one who reads, whatever it is
        _write(told, {"failed": f"{type(error).__name__}: {error}"})
    else:
        _write(told, {"done": True})


def train(job: Job, tell: Callable[[int, float], bool]) -> None:
    """Train a configuration, and tell of each evaluation."""
    for module in job.imports:
        importlib.import_module(module)
    total = int(job.config["total_timesteps"])
    arguments: dict[str, Any] = {"env_kwargs": job.env_kwargs} if job.env_kwargs else {}
    trainer = Trainer(
        job.algorithm,
        _env(job),
        config=job.config,
        callbacks=[
            EvalCallback(
                eval_freq=max(1, total // job.evaluations), n_eval_episodes=job.eval_episodes
            ),
            Told(tell),
        ],
        **arguments,
    )
    trainer.train()


def _env(job: Job) -> Any:
    if not job.wrappers:
        return job.env
    wrappers = []
    for name in job.wrappers:
        module, _, attribute = name.partition(":")
        wrappers.append(getattr(importlib.import_module(module), attribute))
    return WrappedEnv(job.env, wrappers)


def _write(file: TextIO, message: dict[str, Any]) -> None:
    file.write(json.dumps(message) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
