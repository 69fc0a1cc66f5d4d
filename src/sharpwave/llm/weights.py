"""Weights of a model in a file, for another process that samples from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints import to_tensor
from sharpwave.storage.checkpoints.container import TensorFile, naming, write_tensors
from sharpwave.storage.checkpoints.tensors import code_of
from sharpwave.storage.files import replacing

__all__ = ["assign_weights", "read_weights", "write_weights"]

NAME = "model.safetensors"
_FORMAT = "sharpwave weights"


def write_weights(folder: Path, module: nn.Module) -> None:
    """Write the weights of a module into a folder: a safetensors file that is whole or not there.

    The tensors have the names of `module.state_dict()`, tied ones the first of theirs, so whatever
    reads safetensors of such a model reads them. Every tensor has a checksum.

    Raises:
        SharpwaveIOError: The file cannot be written.
    """
    stored: dict[str, Tensor] = {}
    names: dict[Any, str] = {}
    tied: dict[str, str] = {}
    for name, tensor in module.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in names:
            tied[name] = names[place]
        else:
            names[place], stored[name] = name, tensor
    codes = {name: code_of(tensor, name) for name, tensor in stored.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / NAME) as file:
            write_tensors(file, {"format": _FORMAT, "tied": tied}, stored, codes)
    except OSError as error:
        raise SharpwaveIOError(
            error.errno, f"cannot write the weights: {error.strerror}", str(folder / NAME)
        ) from error


def read_weights(folder: Path, module: nn.Module) -> dict[str, Tensor]:
    """Weights for a module by name, all of them read and found right; the module stays as it is.

    Raises:
        SharpwaveIOError: There is no file of `write_weights`, or it is damaged.
        ValueError: It holds the weights of another model.
    """
    path = folder / NAME
    try:
        file = TensorFile(path)
    except FileNotFoundError:
        raise SharpwaveIOError(f"{path}: there are no weights here") from None
    try:
        with naming(path):
            if file.document["format"] != _FORMAT:
                raise ValueError("it holds no weights to sample with")
            stored = {name: name for name in file.entries} | file.document["tied"]
            found = {name: file.entries[first].shape for name, first in stored.items()}
        wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        if found != wanted:
            raise ValueError(f"{path} holds weights of another model: {_difference(found, wanted)}")
        read = {x: to_tensor(one.kind.array(file.read(x))) for x, one in file.entries.items()}
    finally:
        file.close()
    return {name: read[stored[name]] for name in wanted}


@torch.no_grad()
def assign_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give a module weights of `read_weights`, where its own lie."""
    for name, tensor in module.state_dict().items():
        tensor.copy_(weights[name])


def _difference(found: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]) -> str:
    """The first name at which two models differ."""
    name = min(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return f"{name} is {found.get(name, 'not there')} and should be {wanted.get(name, 'absent')}"
