"""Checkpoints in the course of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from sharpwave.runs.callbacks.base import Callback, State
from sharpwave.runs.interval import Interval, positive
from sharpwave.storage.checkpoints import remove_checkpoint


class CheckpointCallback(Callback):
    """Saves a checkpoint every `save_freq` steps.

    It saves `checkpoint_{step}.safetensors` at the first update boundary at which at least
    `save_freq` steps have passed since the last one, where a resume is exact.

    Args:
        save_freq: Steps between two checkpoints.
        save_path: The folder; made if missing.
        keep: Number of checkpoints to keep: the oldest of this callback go. None keeps all.

    Attributes:
        paths: The checkpoints that are there, oldest first.

    Raises:
        TypeError: If `save_freq` or `keep` is not an integer.
        ValueError: If `save_freq` or `keep` is less than 1.

    Example:
        >>> checkpoints = CheckpointCallback(50_000, "checkpoints", keep=3)
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=checkpoints)
    """

    goes_last: ClassVar[bool] = True

    def __init__(self, save_freq: int, save_path: str | Path, keep: int | None = None) -> None:
        self._interval = Interval(save_freq, name="save_freq")
        self._keep = None if keep is None else positive(keep, name="keep")
        self._folder = Path(save_path)
        self.paths: list[Path] = []

    def on_training_start(self, *, step: int, **_: Any) -> None:
        """Counts from here."""
        self._interval.start(step)

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> None:
        """Saves when it is time."""
        if not self._interval.due(step):
            return
        path = self._folder / f"checkpoint_{step}.safetensors"
        # The checkpoint holds the state of this callback, so the list has it before it is written.
        self.paths = [*(p for p in self.paths if p != path), path]
        algo.save(path)
        while self._keep is not None and len(self.paths) > self._keep:
            remove_checkpoint(self.paths.pop(0))

    def due_step(self) -> int:
        """Step at which the next checkpoint is due."""
        return self._interval.next

    def state_dict(self) -> State:
        """The last time and the files."""
        return {"last": self._interval.last, "files": [path.name for path in self.paths]}

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""
        self._interval.last = state["last"]
        paths = (self._folder / Path(name).name for name in state["files"])
        self.paths = [path for path in paths if path.exists()]
