"""MAPPO as one writes it in torch without a library, on environments in NumPy."""

from __future__ import annotations

from typing import Any

import torch
from spread import NumpySpread
from torch import Tensor, nn

GAMMA, LAMBDA, CLIP, EPOCHS = 0.99, 0.95, 0.2, 10


def network(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out)
    )


class PlainMappo:
    """Shared actor with the agent's number, a critic of all observations, normalized returns."""

    def __init__(self, n_envs: int = 64, n_steps: int = 25, n_agents: int = 3) -> None:
        self.env = NumpySpread(n_envs, n_agents)
        self.obs = self.env.observations()
        size = self.obs.shape[-1]
        self.actor, self.critic = network(size + n_agents, 5), network(n_agents * size, 1)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=7e-4, eps=1e-5)
        self.ids = torch.eye(n_agents).expand(n_envs, -1, -1)
        self.mean = self.square = self.weight = 0.0
        self.shape = n_steps, n_envs, n_agents

    def inputs(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Of actor and critic, for obs [N, G, size]."""
        joint = obs.flatten(1)
        return torch.cat((obs, self.ids), -1), joint[:, None].expand(-1, obs.shape[1], -1)

    def moments(self) -> tuple[float, float]:
        """Mean and deviation of the returns so far."""
        if not self.weight:
            return 0.0, 1.0
        mean = self.mean / self.weight
        return mean, max(self.square / self.weight - mean * mean, 1e-2) ** 0.5

    @torch.no_grad()
    def collect(self) -> list[Tensor]:
        """Rows of one rollout, with advantages and returns."""
        mean, deviation = self.moments()
        columns: list[list[Tensor]] = [[] for _ in range(5)]
        values, rewards, ends = [], [], []
        for _ in range(self.shape[0]):
            seen, joint = self.inputs(torch.as_tensor(self.obs))
            policy = torch.distributions.Categorical(logits=self.actor(seen))
            actions = policy.sample()
            values.append(self.critic(joint)[..., 0] * deviation + mean)
            row = (seen, joint, actions, policy.log_prob(actions), values[-1])
            for column, x in zip(columns, row, strict=True):
                column.append(x)
            self.obs, paid, ended = self.env.step(actions.numpy())
            rewards.append(torch.as_tensor(paid, dtype=torch.float32))
            ends.append(ended)
        joint = self.inputs(torch.as_tensor(self.obs))[1]
        following = self.critic(joint)[..., 0] * deviation + mean
        advantages, later = torch.zeros(self.shape), torch.zeros(self.shape[1:])
        for t in reversed(range(self.shape[0])):
            goes_on = 0.0 if ends[t] else 1.0
            delta = rewards[t] + GAMMA * goes_on * following - values[t]
            advantages[t] = later = delta + GAMMA * LAMBDA * goes_on * later
            following = values[t]
        rows = [torch.stack(column).flatten(0, 2) for column in columns]
        advantages = advantages.flatten()
        return [*rows, (advantages - advantages.mean()) / advantages.std(), advantages + rows[4]]

    def iterate(self) -> None:
        """One rollout and what is learned from it."""
        seen, joint, actions, old, old_values, advantages, returns = self.collect()
        for _ in range(EPOCHS):
            share = 1e-5
            for name, x in (("mean", returns.mean()), ("square", returns.square().mean())):
                setattr(self, name, (1 - share) * getattr(self, name) + share * float(x))
            self.weight = (1 - share) * self.weight + share
            mean, deviation = self.moments()
            target, before = (returns - mean) / deviation, (old_values - mean) / deviation
            policy: Any = torch.distributions.Categorical(logits=self.actor(seen))
            ratio = (policy.log_prob(actions) - old).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
            values = self.critic(joint)[..., 0]
            near = before + (values - before).clamp(-CLIP, CLIP)
            errors = [
                nn.functional.huber_loss(x, target, reduction="none", delta=10.0)
                for x in (values, near)
            ]
            loss = torch.maximum(*errors).mean() - gain.mean() - 0.01 * policy.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, 10.0)
            self.optimizer.step()


def seeded() -> PlainMappo:
    """One whose numbers are always the same."""
    torch.manual_seed(0)
    return PlainMappo()
