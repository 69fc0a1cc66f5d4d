"""Log-probabilities of a dataset under a reference, computed once and kept in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.examples import Examples
from sharpwave.llm.model import CausalModel
from sharpwave.llm.saved_tokenizer import describe_tokenizer, tokenizer_differences
from sharpwave.storage.checkpoints import read_checkpoint, to_tensor, write_checkpoint

__all__ = ["with_cached_reference"]

KIND = "reference log-probabilities"
AT_A_TIME = 1024
"""Examples whose tokens go to the device together."""

E = TypeVar("E", bound=Examples)


def with_cached_reference(
    examples: E,
    path: Path,
    reference: CausalModel,
    score: Callable[[TokenBatch], Tensor],
) -> E:
    """Examples with the log-probabilities of their completions under a reference.

    Args:
        examples: The dataset.
        path: Where they are kept; written where there is nothing.
        reference: What they belong to.
        score: Computes those [T] of a batch.

    Raises:
        ValueError: The file belongs to another model, tokenizer, template or dataset; the message
            says which.
        SharpwaveIOError: It holds something else, or is damaged.
    """
    own = {
        "kind": KIND,
        "model": _hash(_weights(reference)),
        "tokenizer": describe_tokenizer(reference.tokenizer),
        "data": _hash(x for row in zip(examples.prompts, examples.completions, strict=True)
                      for x in (row[0], *row[1])),
    }  # fmt: skip
    if path.exists():
        header, state = read_checkpoint(path)
        differences = list(_differences(header, own))
        if differences:
            raise ValueError(
                f"cache_reference must belong to this model, tokenizer and dataset, but in {path} "
                f"{'; '.join(differences)}: give another path, or remove the file"
            )
        found = to_tensor(state["log_probs"])
    else:
        parts = [
            examples.select(range(first, min(first + AT_A_TIME, len(examples))))
            for first in range(0, len(examples), AT_A_TIME)
        ]
        found = torch.cat([score(part.batch(reference.device)).cpu() for part in parts])
        write_checkpoint(path, own, {"log_probs": found})
    return examples.with_reference(found)


def _differences(saved: dict[str, Any], own: dict[str, Any]) -> Iterable[str]:
    if saved.get("kind") != KIND:
        yield f"there is something else than {KIND}"
        return
    if saved["model"] != own["model"]:
        yield "the weights of the reference differ"
    for difference in tokenizer_differences(saved["tokenizer"], own["tokenizer"]):
        yield f"the tokenizer {difference}"
    if saved["data"] != own["data"]:
        yield "the tokens of the dataset differ"


def _weights(reference: CausalModel) -> Iterable[Tensor]:
    """Weights of the reference: not the adapter, which learns and is switched off."""
    is_own = not any(x.requires_grad for x in reference.module.parameters())
    for parameter in reference.module.parameters():
        if is_own or not parameter.requires_grad:
            yield parameter


def _hash(tensors: Iterable[Tensor]) -> str:
    """Of shapes, types and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()
