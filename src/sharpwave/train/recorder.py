"""Writes the folder of a run while it runs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
import warnings
from importlib.util import find_spec
from typing import Any, ClassVar

from sharpwave.files import read_json_lines, to_json, write_json
from sharpwave.train.callbacks import Callback
from sharpwave.train.facts import environment_facts
from sharpwave.train.interval import Interval
from sharpwave.train.loggers import CSVLogger, JSONLLogger, LoggerList
from sharpwave.train.loggers.row_file import RowFile
from sharpwave.train.run_folder import Evaluation, RunFolder


class RunRecorder(Callback):
    """Keeps a run: configuration, metrics, evaluations, checkpoints, a summary and a report.

    A run that starts at step 0 wants a folder without a checkpoint; one that goes on (after
    `from_checkpoint`, or a second `train`) appends to its own folder, where rows after its step are
    cut. The summary is renewed with every checkpoint, so a crash leaves a folder that can be read,
    reported and resumed.

    Args:
        path: The folder; made if missing.
        checkpoint_freq: Environment steps between two saves of `checkpoints/latest.safetensors`;
            it is also saved at the end.
        checkpoint_seconds: Longest time between two saves, so that slow runs lose little; longer
            where saving itself takes more than a twentieth of that.
        report: Write `report.html` at the end, and `learning_curve.png` where matplotlib is
            installed.

    Attributes:
        folder: Where everything lies.

    Raises:
        FileExistsError: When the run starts, if the folder holds another run.
        ValueError: checkpoint_freq is less than 1.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=RunRecorder("runs/first"))
    """

    goes_last: ClassVar[bool] = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint_freq: int = 25_000,
        checkpoint_seconds: float = 30.0,
        report: bool = True,
    ) -> None:
        self.folder = RunFolder(path)
        self._interval = Interval(checkpoint_freq, name="checkpoint_freq")
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = 0.0
        self._save_took = 0.0
        self._report = report
        self._loggers = LoggerList(
            [CSVLogger(self.folder.metrics_csv), JSONLLogger(self.folder.metrics_jsonl)]
        )
        self._evaluations = RowFile(self.folder.evaluations_file)
        self._recording = False
        self._best = -math.inf
        self._metrics: dict[str, Any] = {}
        self._seconds_before = 0.0
        self._began = time.perf_counter()

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Opens the folder and writes down what is about to run."""
        self._refuse_another_run(algo, step)
        self.folder.checkpoints.mkdir(parents=True, exist_ok=True)
        self._recording = True
        self._cut(step)
        self._interval.start(step)
        self._began = self._saved_at = time.perf_counter()
        write_json(self.folder.config_file, _identity(algo) | _options(algo.config))
        write_json(self.folder.environment_file, self._facts(algo, step))
        self._summarize(algo, "running")

    def on_train_batch(self, *, algo: Any, step: int, **metrics: Any) -> None:
        """Logs the update, and saves when it is time."""
        self._metrics = metrics
        self._loggers.on_train_step(step, {**metrics, "seconds": self._seconds()})
        patience = max(self._checkpoint_seconds, 20 * self._save_took)
        if self._interval.due(step) or time.perf_counter() - self._saved_at > patience:
            began = time.perf_counter()
            algo.save(self.folder.latest_checkpoint)
            self._saved_at = time.perf_counter()
            self._save_took = self._saved_at - began
            self._summarize(algo, "running")

    def due_step(self) -> int:
        """Where the next checkpoint is due."""
        return self._interval.next

    def on_eval(self, *, algo: Any, step: int, result: Any, **_: Any) -> None:
        """Keeps the evaluation, and the policy if it is the best so far."""
        row = {
            "step": step,
            "mean": result.mean,
            "std": result.std,
            "mean_length": result.mean_length,
            "returns": result.returns,
            "lengths": result.lengths,
        }
        self._evaluations.append(json.dumps(to_json(row)))
        if result.mean > self._best:
            self._best = float(result.mean)
            algo.save(self.folder.best_checkpoint)

    def on_training_end(self, *, algo: Any, error: BaseException | None = None, **_: Any) -> None:
        """Saves, sums up and reports. A run that an error ended keeps its last checkpoint."""
        if not self._recording:
            return  # the folder is another run's
        self._recording = False
        self._loggers.close()
        self._evaluations.close()
        if error is not None:
            self._summarize(algo, "failed", f"{type(error).__name__}: {error}")
        else:
            algo.save(self.folder.latest_checkpoint)
            stopped = algo.stop_reason
            self._summarize(algo, "finished" if stopped is None else "stopped", stopped)
        if self._report:
            self._write_report()

    def _refuse_another_run(self, algo: Any, step: int) -> None:
        if step == 0 and self.folder.latest_checkpoint.exists():
            raise FileExistsError(
                f"{self.folder.path} holds a run already: choose another folder, or go on from "
                f"{self.folder.latest_checkpoint}"
            )
        found = self.folder.config
        if not found:
            return
        for name, value in _identity(algo).items():
            if found.get(name) != value:
                raise FileExistsError(
                    f"{self.folder.path} holds a run whose {name} is {found.get(name)!r}, "
                    f"not {value!r}: choose another folder"
                )

    def _cut(self, step: int) -> None:
        """Forgets what an earlier attempt wrote beyond this step; a run goes on from here."""
        for torn in self.folder.path.rglob(".*.tmp"):  # a kill came while it was written
            torn.unlink()
        self._loggers.truncate_after(step)
        before = self.folder.evaluations()
        self._evaluations.cut(lambda line: json.loads(line)["step"] <= step)
        kept = self.folder.evaluations()
        self._best = max((one.mean for one in kept), default=-math.inf)
        best_before = max(before, key=lambda one: one.mean, default=None)
        if best_before is not None and best_before.step > step:
            best = self.folder.best_checkpoint
            if best.exists():
                best.rename(best.with_name(f"best_of_step_{best_before.step}.safetensors"))
        self._seconds_before = 0.0
        for row in read_json_lines(self.folder.metrics_jsonl):
            self._seconds_before = float(row.get("seconds") or self._seconds_before)

    def _facts(self, algo: Any, step: int) -> dict[str, Any]:
        """The facts of now, what computes, and at which steps the run was taken up again."""
        resumed = self.folder.environment.get("resumed_at", [])
        return {
            **environment_facts(),
            "backend": algo.backend,
            "backend_reason": algo.backend_reason,
            **({"resumed_at": [*resumed, step]} if step else {}),
        }

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began

    def _summarize(self, algo: Any, status: str, reason: str | None = None) -> None:
        seconds = self._seconds()
        evaluations = self.folder.evaluations()
        best = max(evaluations, key=lambda one: one.mean, default=None)
        summary = {
            "status": status,
            "reason": reason,
            "timesteps": algo.timesteps,
            "target_timesteps": algo.target_timesteps,
            "updates": algo.updates,
            "episodes": algo.episodes.count,
            "wall_seconds": seconds,
            "steps_per_second": algo.timesteps / seconds if seconds else 0.0,
            "timings": algo.timings,
            "metrics": self._metrics,
            "final_evaluation": _brief(evaluations[-1]) if evaluations else None,
            "best_evaluation": None if best is None else _brief(best),
        }
        write_json(self.folder.summary_file, summary)

    def _write_report(self) -> None:
        """A page that cannot be drawn must not cost the run that it is about."""
        from sharpwave.train.report import write_learning_curve, write_report

        try:
            write_report(self.folder.path)
            if find_spec("matplotlib") is not None:
                write_learning_curve(self.folder.path)
        except Exception as error:
            warnings.warn(f"no report of {self.folder.path}: {error}", stacklevel=2)


def _identity(algo: Any) -> dict[str, Any]:
    """What makes a run another one."""
    return {"algorithm": algo.name, "env": algo.env_id, "seed": algo.seed}


def _options(config: Any) -> dict[str, Any]:
    """The configuration, and which of its fields are not at their defaults."""
    fields = dataclasses.fields(config)
    changed = [field.name for field in fields if getattr(config, field.name) != _default(field)]
    return {"config": config.to_dict(), "changed": changed}


def _brief(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation without its single episodes."""
    values = dataclasses.asdict(evaluation)
    n_episodes = len(values.pop("returns"))
    return {**values, "n_episodes": n_episodes}


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
