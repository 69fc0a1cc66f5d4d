"""Callbacks with the constructors of rlox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.runs import callbacks
from sharpwave.runs.callbacks import (
    Callback,
    CallbackList,
    EarlyStoppingCallback,
    ProgressBarCallback,
    TimingCallback,
)

__all__ = [
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EarlyStoppingCallback",
    "EvalCallback",
    "ProgressBarCallback",
    "TimingCallback",
    "VideoRecordingCallback",
]


class EvalCallback(callbacks.EvalCallback):
    """`sharpwave.EvalCallback` with rlox's order of arguments and defaults."""

    def __init__(
        self,
        eval_env: Any = None,
        eval_freq: int = 10_000,
        n_eval_episodes: int = 5,
        best_model_path: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        super().__init__(
            eval_env, eval_freq, n_eval_episodes, best_model_path, verbose=int(verbose)
        )


class CheckpointCallback(callbacks.CheckpointCallback):
    """`sharpwave.CheckpointCallback` with rlox's defaults; `verbose` changes nothing."""

    def __init__(
        self,
        save_freq: int = 10_000,
        save_path: str | Path = "checkpoints",
        verbose: bool = True,  # noqa: ARG002
    ) -> None:
        super().__init__(save_freq, save_path)


class VideoRecordingCallback(callbacks.VideoCallback):
    """`sharpwave.VideoCallback` with rlox's arguments; `verbose` changes nothing."""

    def __init__(
        self,
        video_folder: str | Path = "videos",
        record_freq: int = 50_000,
        n_episodes: int = 1,
        verbose: bool = True,  # noqa: ARG002
    ) -> None:
        super().__init__(video_folder, record_freq, n_episodes)
