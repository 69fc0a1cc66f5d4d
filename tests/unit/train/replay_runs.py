"""A learner that does nothing but write down what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sharpwave import nn
from sharpwave.nest import leaves, map_leaves
from sharpwave.train.off_policy import OffPolicy, OffPolicyConfig
from sharpwave.train.replay import ReplayBatch
from tests.envs import CountingEnv


class Spy(OffPolicy):
    """Acts by the parity of the observation, and keeps every batch.

    Attributes:
        batches: What every gradient step got, copied.
        acted: Observations that the policy acted on.
        learnt_at: Environment steps at each gradient step.
    """

    name = "spy"
    Config = OffPolicyConfig
    metrics = ("loss", "batch_mean")

    def build_networks(self) -> None:
        self.policy = torch.nn.Linear(1, 1)
        flat = nn.FlatParameters(self.policy, self.device)
        self.register("policy", self.policy, nn.Adam(flat, lr=0.0))
        self.batches: list[ReplayBatch] = []
        self.acted: list[Any] = []
        self.learnt_at: list[int] = []

    def act(
        self, policy: Any, obs: Any, masks: Any, *, explore: bool, generator: torch.Generator
    ) -> torch.Tensor:
        if explore and generator is self.explore_generator:
            self.acted.append(map_leaves(torch.clone, obs))
        _, first = next(leaves(obs))
        noise = torch.randint(0, 2, (len(first),), generator=generator)
        weight = policy.weight.detach().reshape(())  # changes with every gradient step
        seen = first.reshape(len(first), -1).sum(1)
        chosen: torch.Tensor = ((seen + 10 * weight).floor().long() + noise) % 2
        return chosen

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        columns: dict[str, Any] = {
            name: None if value is None else map_leaves(_copied, value)
            for name, value in vars(batch).items()
        }
        self.batches.append(ReplayBatch(**columns))
        self.learnt_at.append(self.timesteps)
        with torch.no_grad():
            self.policy.weight += 0.1 * batch.rewards.mean()
            noise = torch.rand((), generator=self.generator)
            self.policy.weight += 0.01 * noise
        batch.td_errors = batch.rewards
        return torch.stack((batch.rewards.mean(), batch.rewards.mean()))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else np.array(value)


def spy(env: Any = CountingEnv, **options: Any) -> Spy:
    """A spy with little to do."""
    defaults: dict[str, Any] = {
        "buffer_size": 500,
        "batch_size": 4,
        "learning_starts": 10,
        "log_interval": 20,
        "seed": 5,
    }
    return Spy(env, **{**defaults, **options})


def assert_same_run(first: Spy, second: Spy) -> None:
    """The same steps, the same batches, the same actions, bit for bit."""
    assert first.timesteps == second.timesteps
    assert first.gradient_steps == second.gradient_steps
    assert first.learnt_at[-len(second.learnt_at) :] == second.learnt_at
    n = len(second.batches)
    for mine, other in zip(first.batches[-n:] if n else [], second.batches, strict=True):
        for name in ("obs", "actions", "rewards", "next_obs", "discounts"):
            map_leaves(
                lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0),
                getattr(mine, name),
                getattr(other, name),
            )
        if mine.weights is not None and other.weights is not None:
            assert torch.equal(mine.weights, other.weights)
    assert torch.equal(first.policy.weight, second.policy.weight)
    for mine, other in zip(reversed(first.acted), reversed(second.acted), strict=False):
        map_leaves(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), mine, other)
    assert list(first.episodes.returns) == list(second.episodes.returns)
