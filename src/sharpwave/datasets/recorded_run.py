"""A training run of which every episode is kept, and every policy that was the best so far."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.registry import algorithm_class
from sharpwave.buffers import MmapReplayBuffer
from sharpwave.config.presets import find_preset
from sharpwave.datasets.playing import Progress
from sharpwave.envs import make_vec_env
from sharpwave.episodes.record_vector import RecordVectorEpisodes
from sharpwave.runs.callbacks import Callback, CallbackList, EvalCallback
from sharpwave.storage.files import read_json, write_json
from sharpwave.storage.run_folder import RunFolder

__all__ = ["Improvement", "Improvements", "RecordedRun", "TrainingStopped", "read_improvements"]

FILE = "improvements.json"


@dataclass(frozen=True)
class Improvement:
    """A policy that evaluated better than all before it."""

    step: int
    """Environment steps before it."""
    mean: float
    """The mean return of its evaluation."""
    n_episodes: int
    """Episodes that training had recorded by then."""

    def path(self, folder: Path) -> Path:
        """Its checkpoint."""
        return folder / f"step_{self.step}.safetensors"


class Improvements(Callback):
    """Saves a checkpoint whenever an evaluation is the best so far.

    The first policy that reached some return is always among them, whatever the return: nobody
    needs to know beforehand which one will be asked for.

    Args:
        folder: Folder of the checkpoints and `improvements.json`.
        episodes: Recorder of the training, to count its episodes.
    """

    def __init__(self, folder: str | os.PathLike[str], episodes: Any) -> None:
        self._folder = Path(folder)
        self._episodes = episodes
        self._found: list[Improvement] = []

    def on_training_start(self, *, step: int, **_: Any) -> None:
        """Goes on after those that an earlier attempt found up to this step."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = [one for one in read_improvements(self._folder) if one.step <= step]

    def on_eval(self, *, algo: Any, step: int, result: Any, **_: Any) -> None:
        """Keeps the policy if it is the best."""
        best = self._found[-1].mean if self._found else -math.inf
        if result.mean > best:
            found = Improvement(step, float(result.mean), self._episodes.num_episodes)
            algo.save(found.path(self._folder))
            self._found.append(found)
            rows = [asdict(one) for one in self._found]
            write_json(self._folder / FILE, {"improvements": rows})


def read_improvements(folder: str | os.PathLike[str]) -> list[Improvement]:
    """The policies that `Improvements` found, worst first."""
    rows = read_json(Path(folder) / FILE).get("improvements", [])
    return [Improvement(**row) for row in rows]


PLAYING_BUFFER = {"buffer": "memory", "buffer_size": 1000}
"""A policy that only plays needs no replay."""


class TrainingStopped(RuntimeError):  # noqa: N818 - nothing went wrong
    """A run was stopped before its end; the same call goes on with it.

    Attributes:
        reason: Reason of the stop, such as "SIGINT".
    """

    def __init__(self, message: str, reason: str | None) -> None:
        super().__init__(message)
        self.reason = reason


class RecordedRun:
    """The run of an algorithm in a folder, begun or to be begun.

    Args:
        env_id: A Gymnasium id.
        folder: Where the run folder goes, with the episodes of training in `episodes`, the
            policies in `policies`, and the replay buffer in `replay` until the run is complete.
        algorithm: Name of the algorithm.
        seed: Random seed of the run.
        total_timesteps: Its length; what the preset of the environment or the configuration of the
            algorithm says when None.
        options: Options of the algorithm, over those of the preset.
    """

    def __init__(
        self,
        env_id: str,
        folder: str | os.PathLike[str],
        algorithm: str = "sac",
        *,
        seed: int = 0,
        total_timesteps: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.env_id = env_id
        self.run = RunFolder(folder)
        self.episodes = self.run.path / "episodes"
        self.policies = self.run.path / "policies"
        found = algorithm_class(algorithm)
        if not issubclass(found, OnlineAgent):
            raise TypeError(f"algorithm must learn in an environment, which {algorithm} does not")
        self.algorithm: type[OnlineAgent] = found
        settings = {**(find_preset(algorithm, env_id) or {}), **(options or {}), "seed": seed}
        if total_timesteps is not None:
            settings["total_timesteps"] = total_timesteps
        if self._has_replay:
            settings.setdefault("buffer", str(self.run.path / "replay"))
        self.config = self.algorithm.Config.from_dict(settings)

    @property
    def _has_replay(self) -> bool:
        return "buffer" in {field.name for field in fields(self.algorithm.Config)}

    @property
    def is_complete(self) -> bool:
        """True if all its steps were taken."""
        steps = self.run.summary.get("timesteps", 0)
        return bool(steps >= self.config.total_timesteps) and bool(self.improvements)

    @property
    def improvements(self) -> list[Improvement]:
        """The policies that were the best so far, worst first."""
        return read_improvements(self.policies)

    def train(
        self,
        *,
        eval_freq: int = 10_000,
        n_eval_episodes: int = 10,
        callbacks: Callback | Iterable[Callback] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Begin the run, or go on with it, until it is complete.

        Args:
            eval_freq: Environment steps between two evaluations, of which the better ones keep
                their policy.
            n_eval_episodes: Episodes of an evaluation.
            callbacks: Called during the run.
            progress: Told what is done, the steps so far, and how many it will be.

        Raises:
            FileExistsError: The folder holds something else by the names of a run's files.
            TrainingStopped: A signal or a callback stopped it. It can be gone on with.
        """
        if self.is_complete:
            return
        if not self.run.is_ours:
            self.run.claim()
        with ExitStack() as stack:
            env = RecordVectorEpisodes(
                make_vec_env(self.env_id, self.config.n_envs, mode=self.config.env_mode),
                self.episodes,
            )
            stack.callback(env.close)
            called = [
                EvalCallback(eval_freq=eval_freq, n_eval_episodes=n_eval_episodes),
                Improvements(self.policies, env.buffer),
                *([] if progress is None else [_Told(progress)]),
                *CallbackList(callbacks),
            ]
            agent = self._agent(env, called)
            stack.callback(self._leave_replay, agent)
            agent.train(self.config.total_timesteps, run_dir=self.run.path, resume=True)
        if not self.is_complete:
            raise TrainingStopped(
                f"the training of {self.run.path} was stopped at {agent.timesteps:,} of "
                f"{self.config.total_timesteps:,} steps ({agent.stop_reason}); "
                "the same call goes on with it",
                agent.stop_reason,
            )

    def _agent(self, env: Any, callbacks: list[Callback]) -> OnlineAgent:
        latest = self.run.latest_checkpoint
        if not latest.is_file():
            return self.algorithm(env, config=self.config, callbacks=callbacks)
        # The folder may have been moved since.
        options = {"buffer": self.config.to_dict()["buffer"]} if self._has_replay else {}
        return self.algorithm.from_checkpoint(latest, env, callbacks=callbacks, **options)

    def _leave_replay(self, agent: Any) -> None:
        """Give up a replay buffer on disk, which a run that goes on opens again."""
        if self._has_replay and isinstance(agent.buffer, MmapReplayBuffer):
            agent.buffer.close(delete=self.is_complete)

    def player_of(self, improvement: Improvement) -> OnlineAgent:
        """The agent as it was then, to play with."""
        options = PLAYING_BUFFER if self._has_replay else {}
        path = improvement.path(self.policies)
        return self.algorithm.from_checkpoint(path, self.env_id, n_envs=1, **options)


class _Told(Callback):
    """Tells how far a run is."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> None:
        self._progress(f"training {algo.name}", step, algo.target_timesteps)
