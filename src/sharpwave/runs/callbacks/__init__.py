"""Callbacks: what happens beside the training of a run."""

from sharpwave.runs.callbacks.base import Callback, CallbackList
from sharpwave.runs.callbacks.checkpoint import CheckpointCallback
from sharpwave.runs.callbacks.early_stopping import EarlyStoppingCallback, StopOnReturn
from sharpwave.runs.callbacks.evaluation import EvalCallback
from sharpwave.runs.callbacks.progress import ProgressBarCallback, ProgressCallback
from sharpwave.runs.callbacks.ray_evaluation import RayEvalCallback
from sharpwave.runs.callbacks.timing import TimingCallback
from sharpwave.runs.callbacks.video import VideoCallback, VideoRecordingCallback

__all__ = [
    "Callback",
    "CallbackList",
    "CheckpointCallback",
    "EarlyStoppingCallback",
    "EvalCallback",
    "ProgressBarCallback",
    "ProgressCallback",
    "RayEvalCallback",
    "StopOnReturn",
    "TimingCallback",
    "VideoCallback",
    "VideoRecordingCallback",
]
