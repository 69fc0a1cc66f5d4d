"""Callbacks: what happens beside the training of a run."""

from sharpwave.train.callbacks.base import Callback, CallbackList
from sharpwave.train.callbacks.checkpoint import CheckpointCallback
from sharpwave.train.callbacks.early_stopping import EarlyStoppingCallback, StopOnReturn
from sharpwave.train.callbacks.evaluation import EvalCallback
from sharpwave.train.callbacks.progress import ProgressBarCallback, ProgressCallback
from sharpwave.train.callbacks.timing import TimingCallback
from sharpwave.train.callbacks.video import VideoCallback, VideoRecordingCallback

__all__ = [
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EarlyStoppingCallback",
    "EvalCallback",
    "ProgressBarCallback",
    "ProgressCallback",
    "StopOnReturn",
    "TimingCallback",
    "VideoCallback",
    "VideoRecordingCallback",
]
