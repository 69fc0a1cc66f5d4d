"""Replay shared by processes."""

from sharpwave.buffers.tensors import SharedReplayBuffer

__all__ = ["SharedReplayBuffer"]
