"""Checkpoints: written whole or not at all, read without running code.

A checkpoint is a safetensors file. Its tensors lie in the file under dotted names; everything else
is JSON in the file's metadata, with the name of a tensor where one stood. Every tensor and the
header have a checksum, so that damage is noticed. A large checkpoint has its tensors in parts:
safetensors files beside the one that is asked for, which then is their index.
"""

from __future__ import annotations

from sharpwave.storage.checkpoints.parts import (
    list_parts,
    remove_checkpoint,
    rename_checkpoint,
    torn_parts,
)
from sharpwave.storage.checkpoints.reader import CheckpointReader, read_checkpoint, read_header
from sharpwave.storage.checkpoints.tensors import RawTensor, as_arrays, to_tensor
from sharpwave.storage.checkpoints.writer import write_checkpoint

__all__ = [
    "CheckpointReader",
    "RawTensor",
    "as_arrays",
    "list_parts",
    "read_checkpoint",
    "read_header",
    "remove_checkpoint",
    "rename_checkpoint",
    "to_tensor",
    "torn_parts",
    "write_checkpoint",
]
