"""The tensors of environments on a device, which keep their place for as long as they live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["EnvMemory", "Rules"]


class Rules(NamedTuple):
    """An environment, apart from its dynamics.

    Attributes:
        env_id: Gymnasium's id.
        n_actions: Number of actions; 0 where an action is a real number.
        time_limit: Steps of an episode.
        option: The value of the one argument that Gymnasium's constructor has.
        low: Bounds of the first state.
        high: Bounds of the first state.
    """

    env_id: str
    n_actions: int
    time_limit: int
    option: float
    low: Sequence[float]
    high: Sequence[float]


class EnvMemory(NamedTuple):
    """State of N environments and the results of their last step.

    Attributes:
        variables: [V, N] float64.
        steps: [N] int64, of the episode in flight.
        returns: [N] float64, the sum of its rewards.
        seeds: [N] int64, the bits of unsigned numbers.
        resets: [N] int64, drawn from the seed so far.
        numbers: [1 + 2 V] float64, the option and the bounds of the first state.
        obs: [N, size] float32, to act on next.
        final_obs: [N, size] float32, what the actions led to.
        rewards: [N] float32.
        terminated: [N] bool.
        truncated: [N] bool.
    """

    variables: Tensor
    steps: Tensor
    returns: Tensor
    seeds: Tensor
    resets: Tensor
    numbers: Tensor
    obs: Tensor
    final_obs: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor

    @classmethod
    def of(cls, rules: Rules, n_envs: int, obs_size: int, device: torch.device) -> EnvMemory:
        """Memory of so many environments."""

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        numbers = [rules.option, *rules.low, *rules.high]
        return cls(
            variables=zeros(len(rules.low), n_envs, dtype=torch.float64),
            steps=zeros(n_envs, dtype=torch.int64),
            returns=zeros(n_envs, dtype=torch.float64),
            seeds=zeros(n_envs, dtype=torch.int64),
            resets=zeros(n_envs, dtype=torch.int64),
            numbers=torch.tensor(numbers, dtype=torch.float64, device=device),
            obs=zeros(n_envs, obs_size, dtype=torch.float32),
            final_obs=zeros(n_envs, obs_size, dtype=torch.float32),
            rewards=zeros(n_envs, dtype=torch.float32),
            terminated=zeros(n_envs, dtype=torch.bool),
            truncated=zeros(n_envs, dtype=torch.bool),
        )

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds of the first state, [V] each."""
        low, high = self.numbers[1:].chunk(2)
        return low, high
