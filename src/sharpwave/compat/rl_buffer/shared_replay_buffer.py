"""Replay shared by processes."""

from sharpwave.tensors.buffers import SharedReplayBuffer

__all__ = ["SharedReplayBuffer"]
