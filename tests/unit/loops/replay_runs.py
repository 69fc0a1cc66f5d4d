"""A learner that does nothing but write down what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sharpwave import nn
from sharpwave.agents import OnlineAgent
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner
from sharpwave.loops.off_policy import OffPolicyLoop
from tests.envs import CountingEnv


class SpyLearner(TorchLearner):
    """Acts by the parity of the observation, and keeps every batch.

    Attributes:
        batches: What every gradient step got, copied.
        acted: Observations that the policy acted on.
    """

    def build(self) -> None:
        first = torch.nn.Linear(1, 1)
        self.policy = self.add("policy", first, lambda flat: nn.Adam(flat, lr=0.0))
        self.batches: list[ReplayBatch] = []
        self.acted: list[Any] = []
        self._explores_with = self.explore_generator

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        generator = self.explore_generator
        if explore and generator is self._explores_with:
            self.acted.append(map_leaves(torch.clone, obs))
        _, first = next(leaves(obs))
        noise = torch.randint(0, 2, (len(first),), generator=generator)
        weight = self.policy.weight.detach().reshape(())  # changes with every gradient step
        seen = first.reshape(len(first), -1).sum(1)
        return Acted(((seen + 10 * weight).floor().long() + noise) % 2)

    def update(self, batch: ReplayBatch) -> Metrics:
        columns: dict[str, Any] = {
            name: None if value is None else map_leaves(_copied, value)
            for name, value in vars(batch).items()
        }
        self.batches.append(ReplayBatch(**columns))
        with torch.no_grad():
            self.policy.weight += 0.1 * batch.rewards.mean()
            noise = torch.rand((), generator=self.generator)
            self.policy.weight += 0.01 * noise
        self.updates += 1
        mean = batch.rewards.mean()
        return {"loss": mean, "batch_mean": mean, "td_errors": batch.rewards}


class Spy(OnlineAgent):
    """Learns nothing.

    Attributes:
        learned_at: Environment steps at each gradient step.
    """

    name = "spy"
    Config = OffPolicyConfig
    Learner = SpyLearner
    Loop = OffPolicyLoop

    def build(self) -> None:
        super().build()
        self.learned_at: list[int] = []
        update = self.learner.update

        def updated(batch: ReplayBatch) -> Metrics:
            self.learned_at.append(self.timesteps)
            metrics: Metrics = update(batch)
            return metrics

        self.learner.update = updated


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
    assert first.learned_at[-len(second.learned_at) :] == second.learned_at
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
