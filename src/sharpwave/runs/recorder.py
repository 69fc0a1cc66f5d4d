"""Writes the folder of a run while it runs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from sharpwave.core.notice import notice
from sharpwave.pages.headline import Headline
from sharpwave.pages.samples import picked
from sharpwave.pages.units import ENVIRONMENT_STEPS, singular
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.dreams import DreamFile
from sharpwave.runs.episode_file import EpisodeFile
from sharpwave.runs.facts import environment_facts
from sharpwave.runs.interval import Interval
from sharpwave.runs.loggers import CSVLogger, JSONLLogger, LoggerList
from sharpwave.runs.loggers.row_file import RowFile
from sharpwave.storage.checkpoints import rename_checkpoint
from sharpwave.storage.files import to_json, write_json
from sharpwave.storage.run_folder import (
    FORMAT,
    Evaluation,
    RunFolder,
    claim_numbered,
    step_of,
)

NAMES = {"env_id": "env"}
"""Facts that have another name in files."""

COMPUTES = {"backend": "backend", "backend_reason": "backend_reason", "device": "device_name"}
"""Backend and device of a run: names in files, and attributes of the agent."""

SLOW_SAVE = 0.1
"""Seconds of a save from which on its share of the time counts."""


class RunRecorder(Callback):
    """Keeps a run: configuration, metrics, episodes, evaluations, checkpoints, a summary, a report.

    Of what a language model writes it keeps the best, the median and the worst of every update,
    and of a world model what it predicts at the start, in the middle and at the end.

    A run that starts at step 0 gets a folder of its own: `path`, or `path-2` and so on where that
    holds a run already, or files of yours by the names that a run writes. One that goes on (after
    `from_checkpoint`, or a second `train`) appends to its own folder, where rows after its step are
    cut. The summary is renewed with every checkpoint, so a crash leaves a folder that can be read,
    reported and resumed.

    Args:
        path: The folder; made if missing.
        resume: A run that starts at step 0 goes on in the folder of one that has not got further.
        checkpoint_freq: Steps between two saves of `checkpoints/latest.safetensors`; None leaves
            it to what a step is: 25,000 of environments and gradients, 25 updates of language
            models. It is also saved at the end.
        checkpoint_seconds: Longest time between two saves, so that slow runs lose little; longer
            where saving itself takes more than a twentieth of that.
        report: Write `report.html` at the end, and `learning_curve.png` where matplotlib is
            installed.

    Attributes:
        folder: The folder of the run.

    Raises:
        FileExistsError: When a run goes on, if the folder holds another run or something else.
        ValueError: checkpoint_freq is less than 1.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=RunRecorder("runs/first"))
    """

    goes_last: ClassVar[bool] = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint_freq: int | None = None,
        checkpoint_seconds: float = 30.0,
        report: bool = True,
        resume: bool = False,
    ) -> None:
        self.folder = RunFolder(path)
        self._resume = resume
        self._interval = Interval(checkpoint_freq, name="checkpoint_freq", reports=25)
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = 0.0
        self._save_took = 0.0
        self._report = report
        self._prepared = False
        self._name_files()
        self._recording = False
        self._best = -math.inf
        self._metrics: dict[str, Any] = {}
        self._seconds_before = 0.0
        self._began = time.perf_counter()

    def _name_files(self) -> None:
        folder = self.folder
        self._loggers = LoggerList(
            [CSVLogger(folder.metrics_csv), JSONLLogger(folder.metrics_jsonl)]
        )
        self._episodes = EpisodeFile(folder.episodes_file)
        self._evaluations = RowFile(folder.evaluations_file)
        self._samples = RowFile(folder.samples_file)
        self._dreams = DreamFile(folder.dreams_file)

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Opens the folder and writes down what is about to run."""
        self.prepare(algo)
        self.folder.checkpoints.mkdir(parents=True, exist_ok=True)
        self._recording = True
        self._cut(step)
        self._episodes.begin(algo.loop)
        self._interval.start(step, algo.log_every)
        self._began = self._saved_at = time.perf_counter()
        told = {"format": FORMAT, **_identity(algo), **_words(algo)}
        write_json(self.folder.config_file, {**told, **_options(algo.config)})
        write_json(self.folder.environment_file, self._facts(algo, step))
        self._summarize(algo, "running")

    def on_train_batch(self, *, algo: Any, step: int, **metrics: Any) -> None:
        """Logs the update, and saves when it is time."""
        self._metrics = metrics
        self._loggers.on_train_step(step, {**metrics, "seconds": self._seconds()})
        self._episodes.write(algo.loop, self._seconds())
        self._dreams.look(algo, step)
        patience = max(self._checkpoint_seconds, 20 * self._save_took)
        waited = time.perf_counter() - self._saved_at
        # What takes long is not done so often that the run would do little else.
        is_time = self._interval.due(step) and (
            self._save_took < SLOW_SAVE or waited > 20 * self._save_took
        )
        if is_time or waited > patience:
            began = time.perf_counter()
            self._save_latest(algo)
            self._saved_at = time.perf_counter()
            self._save_took = self._saved_at - began
            self._summarize(algo, "running")

    def _save_latest(self, algo: Any) -> None:
        """Save what the run goes on from: with its replay buffer, which others do without."""
        algo.loop.keeps_replay = True
        try:
            algo.save(self.folder.latest_checkpoint)
        finally:
            algo.loop.keeps_replay = False

    def due_step(self) -> int:
        """Step at which the next checkpoint is due."""
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
        for name in ("success_rate", "samples", "agents"):  # an own `evaluate` may not say
            value = getattr(result, name, None)
            if value not in (None, {}):
                row[name] = value
        self._evaluations.append(json.dumps(to_json(row)))
        self._episodes.write(algo.loop, self._seconds())
        if result.mean >= self._best:  # of equal ones the latest has learned most
            self._best = float(result.mean)
            algo.save(self.folder.best_checkpoint)

    def on_samples(self, *, step: int, rows: Any, **_: Any) -> None:
        """Keeps the best, the median and the worst completion."""
        lines = [{"step": step, "rank": rank, **row} for rank, row in picked(rows).items()]
        if lines:
            self._samples.append("\n".join(json.dumps(to_json(line)) for line in lines))

    def on_training_end(
        self,
        *,
        algo: Any,
        step: int,
        metrics: dict[str, Any],
        recorded: dict[str, float],
        error: BaseException | None = None,
        **_: Any,
    ) -> None:
        """Saves, sums up and reports. A run that an error ended keeps its last checkpoint."""
        if not self._recording:
            return  # the folder is another run's
        self._recording = False
        if recorded:
            self._metrics = metrics
            self._loggers.on_train_step(step, {**metrics, "seconds": self._seconds()})
        self._episodes.write(algo.loop, self._seconds())
        if error is None:
            self._dreams.look(algo, step, is_end=True)
        for file in (self._loggers, self._episodes, self._evaluations, self._samples, self._dreams):
            file.close()
        if error is not None:
            self._summarize(algo, "failed", f"{type(error).__name__}: {error}")
        else:
            self._save_latest(algo)
            stopped = algo.stop_reason
            self._summarize(algo, "finished" if stopped is None else "stopped", stopped)
        if self._report:
            self._write_report()

    def prepare(self, algo: Any) -> None:
        """Make sure that the folder is this run's, once, before anything is written.

        Raises:
            FileExistsError: The run goes on, and the folder is another's.
        """
        if self._prepared:
            return
        asked = self.folder
        if algo.timesteps == 0:
            if not self._may_begin(algo):
                self.folder = claim_numbered(asked.path)
                self._name_files()
        elif not self.folder.is_ours:
            self.folder.claim()
        else:
            self._refuse_another_run(algo)
        self._prepared = True
        if self.folder is not asked and self.folder.path != asked.path:
            notice(f"{asked.path} is taken: this run is in {self.folder.path}")

    def _may_begin(self, algo: Any) -> bool:
        """Return whether the folder is that of this run, which has no steps yet."""
        if not self.folder.is_ours:
            return False
        nothing = not self.folder.latest_checkpoint.exists()
        if self._resume and nothing:
            return not self._differences(algo, but=("seed",))
        summary = self.folder.summary
        is_over = summary.get("status", "running") != "running"
        nothing = nothing or summary.get("timesteps") == 0
        return is_over and nothing and not self._differences(algo)

    def _differences(self, algo: Any, but: tuple[str, ...] = ()) -> list[str]:
        found = self.folder.config
        return [
            f"{name} is {found[name]!r}, not {value!r}"
            for name, value in _identity(algo).items()
            if name not in but and name in found and found[name] != value
        ]

    def _refuse_another_run(self, algo: Any) -> None:
        for difference in self._differences(algo):
            raise FileExistsError(
                f"{self.folder.path} holds a run whose {difference}: choose another folder"
            )

    def _cut(self, step: int) -> None:
        """Forgets what an earlier attempt wrote beyond this step; a run goes on from here."""
        for torn in self.folder.torn():
            torn.unlink()
        self._loggers.truncate_after(step)
        self._samples.cut(lambda line: step_of(line) <= step)
        self._dreams.begin(step)
        before = self.folder.evaluations()
        self._evaluations.cut(lambda line: step_of(line) <= step)
        kept = self.folder.evaluations()
        self._best = max((one.mean for one in kept), default=-math.inf)
        best_before = _best_of(before)
        if best_before is not None and best_before.step > step:
            best = self.folder.best_checkpoint
            if best.exists():
                aside = best.with_name(f"best_of_step_{best_before.step}.safetensors")
                rename_checkpoint(best, aside)
        self._seconds_before = 0.0
        seconds = self.folder.metrics().get("seconds", np.zeros(0))
        self._seconds_before = float(np.nanmax(seconds)) if np.isfinite(seconds).any() else 0.0

    def _facts(self, algo: Any, step: int) -> dict[str, Any]:
        """The facts of now, what computes, and at which steps the run was taken up again."""
        found = self.folder.environment.get("resumed_at")
        resumed = found if isinstance(found, list) else []
        return {
            **environment_facts(),
            **{name: getattr(algo, of) for name, of in COMPUTES.items() if hasattr(algo, of)},
            **({"resumed_at": [*resumed, step]} if step else {}),
        }

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began

    def _summarize(self, algo: Any, status: str, reason: str | None = None) -> None:
        seconds = self._seconds()
        evaluations = self.folder.evaluations()
        best = _best_of(evaluations)
        summary = {
            "status": status,
            "reason": reason,
            "seed": algo.config.seed,
            "timesteps": algo.timesteps,
            "target_timesteps": algo.target_timesteps,
            "updates": algo.updates,
            "episodes": int(algo.progress_metrics().get("episodes", 0)),
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
        from sharpwave.pages.report import write_learning_curve, write_report

        try:
            write_report(self.folder.path)
            if find_spec("matplotlib") is not None:
                write_learning_curve(self.folder.path)
        except Exception as error:
            warnings.warn(f"no report of {self.folder.path}: {error}", stacklevel=2)


def _identity(algo: Any) -> dict[str, Any]:
    """Facts that identify a run: algorithm, environment and seed."""
    facts = {NAMES.get(name, name): value for name, value in algo.facts().items()}
    return {"algorithm": algo.name, **facts, "seed": algo.config.seed}


def _words(algo: Any) -> dict[str, Any]:
    """The subject, the unit of steps and the headline metric of a run, for its files."""
    unit: str = algo.unit
    headline: Headline | None = algo.headline
    return {
        "subject": algo.subject,
        "unit": unit,
        "step_unit": "step" if unit == ENVIRONMENT_STEPS else singular(unit),
        "headline": None if headline is None else dataclasses.asdict(headline),
    }


def _options(config: Any) -> dict[str, Any]:
    """The configuration, and which of its fields are not at their defaults."""
    fields = dataclasses.fields(config)
    changed = [field.name for field in fields if getattr(config, field.name) != _default(field)]
    return {"config": config.to_dict(), "changed": changed}


def _best_of(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """The best evaluation, of equal ones the latest."""
    return max(evaluations, key=lambda one: (one.mean, one.step), default=None)


def _brief(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation without its single episodes."""
    values = dataclasses.asdict(evaluation)
    n_episodes = len(values.pop("returns"))
    if values["success_rate"] is None:
        del values["success_rate"]
    if not values["agents"]:
        del values["agents"]
    return {**values, "n_episodes": n_episodes}


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
