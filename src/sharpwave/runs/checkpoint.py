"""Checkpoints of runs; see `sharpwave.storage.checkpoints`."""

from __future__ import annotations

from sharpwave.storage.checkpoints import (
    as_arrays,
    read_checkpoint,
    read_header,
    to_tensor,
    write_checkpoint,
)

__all__ = ["as_arrays", "read_checkpoint", "read_header", "to_tensor", "write_checkpoint"]
