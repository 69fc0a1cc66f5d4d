"""PPO with a network of your own.

    python examples/custom_policy.py [STEPS]

A policy is any torch module with three methods: one that draws actions, one that values
observations, one that says how likely actions are now. `actor` is only for deterministic play. The
module draws from torch's global generator; the run's own stands in for it, so a seed still decides
everything.
"""

import sys

import torch
from torch import Tensor, nn

import sharpwave as sw


class SharedBody(nn.Module):
    """Actor and critic on one body, with normalized layers."""

    def __init__(self, obs_dim: int, n_actions: int, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(obs_dim, width), nn.LayerNorm(width), nn.SiLU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU(),
        )  # fmt: skip
        self.logits = nn.Linear(width, n_actions)
        self.value = nn.Linear(width, 1)
        nn.init.orthogonal_(self.logits.weight, 0.01)  # begin with a policy that prefers nothing

    def actor(self, obs: Tensor) -> Tensor:
        """Logits [B, n_actions] of observations [B, obs_dim]."""
        logits: Tensor = self.logits(self.body(obs))
        return logits

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Drawn actions [B] and their log-probabilities [B]."""
        choice = torch.distributions.Categorical(logits=self.actor(obs))
        actions = choice.sample()
        return actions, choice.log_prob(actions)

    def get_value(self, obs: Tensor) -> Tensor:
        """Values [B]."""
        values: Tensor = self.value(self.body(obs))
        return values.squeeze(-1)

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B] of actions now, and entropies [B]."""
        choice = torch.distributions.Categorical(logits=self.actor(obs))
        return choice.log_prob(actions), choice.entropy()


def main(steps: int = 30_000) -> None:
    torch.manual_seed(0)  # the weights of the module are its own affair
    policy = SharedBody(obs_dim=4, n_actions=2)
    ppo = sw.PPO.preset("CartPole-v1", policy=policy)
    ppo.train(steps, callbacks=[sw.ProgressCallback()])
    print(f"after {ppo.timesteps:,} steps: {ppo.evaluate(10)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
