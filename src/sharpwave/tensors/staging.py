"""Batches on their way to a device, and their normalization there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from sharpwave.envs import VecNormalize

__all__ = ["Staging", "TensorNormalizer"]

_ALIGNMENT = 256


class Staging:
    """Brings batches to a device in one copy each, without waiting for it.

    A batch is put together in page-locked memory, from where it is copied while the next one is
    put together in another piece. On the device all batches lie at one address, where a CUDA graph
    finds them: a batch is gone when the next one is sent.

    Args:
        example: A batch, whose dtypes and shapes all batches have.
        device: The target device.

    Example:
        >>> staging = Staging({"obs": np.zeros((2, 3), np.float32)}, torch.device("cpu"))
        >>> staging.memory()["obs"][:] = 1.0
        >>> staging.send()["obs"].sum()
        tensor(6.)
    """

    def __init__(self, example: Nested, device: torch.device) -> None:
        places, size = _places(example)
        is_cuda = device.type == "cuda"
        there = torch.empty(size, dtype=torch.uint8, device=device)
        self._blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(2)]
        self._memories = [
            map_leaves(partial(_array_at, block.numpy()), places, example) for block in self._blocks
        ]
        self._there = there
        self._tensors = map_leaves(partial(_tensor_at, there), places, example)
        self._copied = [torch.cuda.Event() for _ in self._blocks] if is_cuda else None
        self._turn = 0

    def memory(self) -> Nested:
        """The arrays to write the next batch to."""
        if self._copied is not None:
            self._copied[self._turn].synchronize()
        return self._memories[self._turn]

    def send(self) -> Nested:
        """The batch that was written to `memory`, as tensors on the device."""
        self._there.copy_(self._blocks[self._turn], non_blocking=True)
        if self._copied is not None:
            self._copied[self._turn].record()
        self._turn = 1 - self._turn
        return self._tensors

    def bring(self, batch: Nested) -> Nested:
        """A batch that lies elsewhere, as tensors on the device."""
        map_leaves(np.copyto, self.memory(), batch)
        return self.send()


def _places(example: Nested) -> tuple[Nested, int]:
    """Offset of each leaf in a block of memory, and the size of the block."""
    size = 0

    def place(array: Array) -> int:
        nonlocal size
        begin = size
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return begin

    return map_leaves(place, example), size


def _array_at(block: Array, begin: int, like: Array) -> Array:
    part: Any = block[begin : begin + like.nbytes].view(like.dtype)
    array: Array = part.reshape(like.shape)
    return array


def _tensor_at(block: torch.Tensor, begin: int, like: Array) -> torch.Tensor:
    dtype = torch.from_numpy(np.empty(0, like.dtype)).dtype
    return block[begin : begin + like.nbytes].view(dtype).reshape(like.shape)


class TensorNormalizer:
    """Does to tensors what a `VecNormalize` does to observations and rewards.

    Steps that are stored raw and normalized when they are drawn always agree with the present
    statistics.

    Args:
        normalizer: Whose statistics to apply.
        device: Device of the tensors.
        n_step: Rewards that are summed, each of which may be as large as the bound of one.
    """

    def __init__(self, normalizer: VecNormalize, device: torch.device, n_step: int = 1) -> None:
        self._normalizer = normalizer
        self._clip_rewards = normalizer.clip_reward * n_step
        self._reward_scale = torch.ones((), device=device)
        self._moments: Nested = None
        if normalizer.get_obs_rms() is not None:
            self._moments = map_leaves(
                lambda stats: stats and _Moments(stats, device), normalizer.get_obs_rms()
            )
        self.refresh()

    def refresh(self) -> None:
        """Take the statistics as they are now."""
        normalizer = self._normalizer
        if self._moments is not None:
            map_leaves(lambda own: own and own.refresh(normalizer.epsilon), self._moments)
        if normalizer.norm_reward:
            self._reward_scale.fill_(1.0 / normalizer.reward_std)

    def obs(self, obs: Nested) -> Nested:
        """Observations [B, ...]."""
        if self._moments is None:
            return obs
        return map_leaves(self._normalized, self._moments, obs)

    def _normalized(self, own: _Moments | None, leaf: torch.Tensor) -> torch.Tensor:
        if own is None:
            return leaf
        clip = self._normalizer.clip_obs
        return (leaf.float() - own.mean).mul_(own.scale).clamp_(-clip, clip)

    def rewards(self, rewards: torch.Tensor) -> torch.Tensor:
        """Rewards [B]."""
        if not self._normalizer.norm_reward:
            return rewards
        return (rewards * self._reward_scale).clamp_(-self._clip_rewards, self._clip_rewards)


class _Moments:
    """Mean and inverse deviation of one leaf, at an address that stays."""

    def __init__(self, stats: Any, device: torch.device) -> None:
        self._stats = stats
        self.mean = torch.zeros(stats.shape, device=device)
        self.scale = torch.ones(stats.shape, device=device)

    def refresh(self, epsilon: float) -> None:
        scale = 1.0 / np.sqrt(self._stats.var + epsilon)
        for tensor, values in ((self.mean, self._stats.mean), (self.scale, scale)):
            tensor.copy_(torch.from_numpy(np.asarray(values, np.float32)), non_blocking=True)
