"""Samplers whose weights stay as they are while those of their model learn."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.model import CausalModel
from sharpwave.llm.remote import RemoteSampler
from sharpwave.llm.sampler import Sampler

__all__ = ["Follower", "follower_of"]


class Follower:
    """A sampler like another one, with a copy of the weights that changes only by `take`.

    Weights that do not learn are not copied. On a GPU it works in a stream of its own, so that
    another thread can learn meanwhile.

    Args:
        sampler: The other one.
        device: Device of the copy; that of the model when None.

    Example:
        >>> model = sw.nn.Transformer(vocab_size=8)
        >>> follower = Follower(Sampler(model))
        >>> follower.take(3)
        >>> follower.generate([[1, 2]], max_new_tokens=2, keys=[0]).version
        3
    """

    def __init__(self, sampler: Sampler, device: str | None = None) -> None:
        self._source = sampler.model
        twin = _twin(sampler.model, torch.device(device or sampler.model.device))
        self._sampler = Sampler(
            twin,
            max_rows=sampler.max_rows,
            cache_tokens=sampler.cache_tokens,
            stop=(*sampler.stop, *sampler.stop_texts),
            seed=sampler.seed,
            **asdict(sampler.options),
        )
        self._stream = torch.cuda.Stream(twin.device) if twin.device.type == "cuda" else None

    @torch.no_grad()
    def take(self, version: int) -> None:
        """Copy the weights as they are now, which have this version.

        Nobody may sample meanwhile.
        """
        own = self._sampler.model.module.state_dict()
        for name, tensor in self._source.module.state_dict().items():
            if own[name].data_ptr() != tensor.data_ptr():
                own[name].copy_(tensor)
        self._sampler.version = version
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    @property
    def version(self) -> int:
        """Of the weights to sample with."""
        return self._sampler.version

    @property
    def drawn(self) -> int:
        """Prompts so far; the next one has this number."""
        return self._sampler.drawn

    @drawn.setter
    def drawn(self, drawn: int) -> None:
        self._sampler.drawn = drawn

    def generate(
        self,
        prompts: Any,
        n: int = 1,
        max_new_tokens: int = 64,
        *,
        keys: Sequence[int] | None = None,
    ) -> Completions:
        """Draw completions of prompts, which come to where the model learns."""
        stream = self._stream
        with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
            found = self._sampler.generate(prompts, n, max_new_tokens, keys=keys)
            found = found.to(self._source.device)
        if stream is not None:
            stream.synchronize()
            # What frees these tensors must wait for the stream that learns from them.
            for tensor in vars(found).values():
                if isinstance(tensor, Tensor) and tensor.is_cuda:
                    tensor.record_stream(torch.cuda.default_stream(tensor.device))
        return found


def follower_of(sampler: Any, device: str | None = None) -> Follower | RemoteSampler:
    """The follower of a sampler, which samples while its model learns.

    Raises:
        TypeError: The sampler is of a kind that cannot be followed.
        ValueError: It is a remote one that is given no weights.
    """
    if isinstance(sampler, RemoteSampler):
        if sampler.weights is None:
            raise ValueError("weights must be given to a RemoteSampler whose model learns")
        return sampler.follower()
    if type(sampler) is not Sampler:
        raise TypeError(
            f"sampler must be a Sampler or a RemoteSampler to sample ahead, got "
            f"{type(sampler).__name__}"
        )
    return Follower(sampler, device)


def _twin(model: CausalModel, device: torch.device) -> CausalModel:
    """A copy of a model that nothing trains; on the same device it shares what does not learn."""
    shared: dict[int, Any] = {}
    if device == model.device:
        shared = {id(one): one for one in model.module.parameters() if not one.requires_grad}
    module = copy.deepcopy(model.module, shared).to(device).eval()
    for parameter in module.parameters():
        if id(parameter) not in shared:
            parameter.requires_grad_(False)
    return type(model)(module, model.tokenizer)
