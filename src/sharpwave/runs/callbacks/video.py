"""Videos in the course of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.runs.callbacks.base import Callback, State, require
from sharpwave.runs.interval import Interval, positive


class VideoCallback(Callback):
    """Films the deterministic policy every `record_freq` steps.

    The film `step_{step}.mp4` is made at the first update boundary at which at least `record_freq`
    steps have passed since the last, in an environment of its own with
    `render_mode="rgb_array"`.

    Args:
        video_folder: The folder; made if missing.
        record_freq: Steps between two films.
        n_episodes: Episodes of one film.
        fps: Frames per second; None takes the environment's.
        env: Makes the environment to film, with `render_mode="rgb_array"`. None makes one
            like the training environment.

    Attributes:
        paths: The films so far.

    Raises:
        TypeError: If a count is not an integer.
        ValueError: If a count is less than 1, or, when the run starts, if the environment does not
            render.
        ImportError: When the run starts, if what renders or films is not installed.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=VideoCallback("videos", 20_000))
    """

    def __init__(
        self,
        video_folder: str | Path = "videos",
        record_freq: int = 50_000,
        n_episodes: int = 1,
        fps: int | None = None,
        *,
        env: Any = None,
    ) -> None:
        self._folder = Path(video_folder)
        self._interval = Interval(record_freq, name="record_freq")
        self._n_episodes = positive(n_episodes, name="n_episodes")
        self._fps = None if fps is None else positive(fps, name="fps")
        self._env = env
        self.paths: list[Path] = []

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Finds out whether it can film, before a run takes hours, and counts from here."""
        from sharpwave.runs.video import check_filming

        require(algo, "evaluate", type(self).__name__)
        check_filming(algo, self._env)
        self._interval.start(step)

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> None:
        """Films when it is time."""
        from sharpwave.runs.video import record_video

        if self._interval.due(step):
            path = self._folder / f"step_{step}.mp4"
            record_video(algo, path, self._n_episodes, fps=self._fps, env=self._env)
            self.paths.append(path)

    def due_step(self) -> int:
        """Step at which the next video is due."""
        return self._interval.next

    def state_dict(self) -> State:
        """The last time and the films."""
        return {"last": self._interval.last, "files": [path.name for path in self.paths]}

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""
        self._interval.last = state["last"]
        self.paths = [self._folder / Path(name).name for name in state["files"]]


VideoRecordingCallback = VideoCallback
