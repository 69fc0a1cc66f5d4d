"""Environments that live on the GPU: rollouts, replay and statistics that never leave it.

    python examples/device_envs.py [steps]

The environments step tensors of their device, in the shape that simulators on a GPU have. Nothing
in the loops below waits for the device; on a GPU PyTorch is told to raise if anything does.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import sharpwave as sw

NUM_ENVS = 256
ROLLOUT = 32


class Hover:
    """Masses in one dimension that should stay near 0, pushed by their actions and by wind.

    `step` starts new episodes at once: `obs` are those of the new ones, and what an episode really
    ended with is in `info["final_obs"]`.
    """

    def __init__(self, num_envs: int, device: torch.device, max_steps: int = 64) -> None:
        self.num_envs, self.device, self.max_steps = num_envs, device, max_steps

    def reset(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Observations of new episodes, of different ages so that they do not end together."""
        self.state = self._new_state()
        self.age = torch.randint(self.max_steps, (self.num_envs,), device=self.device)
        return self._obs(), {}

    def step(
        self, actions: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards [N], terminated [N], truncated [N], and more."""
        place, speed = self.state.unbind(1)
        speed = speed + 0.1 * actions[:, 0].clamp(-1, 1) + 0.02 * torch.randn_like(speed)
        place = place + 0.1 * speed
        self.state = torch.stack([place, speed], 1)
        self.age = self.age + 1
        terminated = place.abs() > 2.0
        truncated = ~terminated & (self.age >= self.max_steps)
        final_obs = self._obs()
        ended = terminated | truncated
        self.state = torch.where(ended[:, None], self._new_state(), self.state)
        self.age = torch.where(ended, 0, self.age)
        return self._obs(), 1.0 - place.abs(), terminated, truncated, {"final_obs": final_obs}

    def _obs(self) -> dict[str, Tensor]:
        return {"policy": self.state}

    def _new_state(self) -> Tensor:
        return torch.randn(self.num_envs, 2, device=self.device) * 0.5


class Policy(nn.Module):
    """A Gaussian policy and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[N], up to a constant."""
        z: Tensor = (actions - self.actor(obs)) / self.log_std.exp()
        return (-0.5 * z**2 - self.log_std).sum(1)

    def value(self, obs: Tensor) -> Tensor:
        """[N]."""
        values: Tensor = self.critic(obs)[:, 0]
        return values

    @torch.no_grad()
    def act(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Actions [N, 1], their log-probabilities [N], and values [N]."""
        mean = self.actor(obs)
        actions = mean + self.log_std.exp() * torch.randn_like(mean)
        return actions, self.log_prob(obs, actions), self.value(obs)


@contextmanager
def never_waiting(device: torch.device) -> Iterator[None]:
    """Raise if anything inside waits for the GPU."""
    if device.type != "cuda":
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def train(n_steps: int, device: torch.device) -> dict[str, float]:
    torch.manual_seed(0)
    env = Hover(NUM_ENVS, device)
    policy = Policy().to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    tracker = sw.StatsTracker(
        NUM_ENVS, max_ep_info_buffer=NUM_ENVS, done_reason_keys=["fell", "time"]
    )
    shapes: dict[str, Any] = {"obs_shape": (2,), "action_shape": (1,), "device": device}
    rollout = sw.RolloutBuffer(ROLLOUT, NUM_ENVS, stats_tracker=tracker, gamma=0.97, **shapes)
    replay = sw.TensorReplayBuffer(4 * ROLLOUT, NUM_ENVS, **shapes)
    obs = env.reset()[0]["policy"]
    for _ in range(max(1, n_steps // (ROLLOUT * NUM_ENVS))):
        with never_waiting(device):
            for _ in range(ROLLOUT):
                actions, log_probs, values = policy.act(obs)
                next_obs, rewards, terminated, truncated, info = env.step(actions)
                final_obs, done = info["final_obs"]["policy"], terminated | truncated
                with torch.no_grad():
                    final_values = policy.value(final_obs)
                reasons = {"fell": terminated, "time": truncated}
                step = (obs, actions, rewards, done)
                rollout.add(*step, values, log_probs, truncated, final_values, done_reasons=reasons)
                replay.add(*step, final_obs, truncated)
                obs = next_obs["policy"]
            with torch.no_grad():
                rollout.compute_returns_and_advantages(policy.value(obs))
            rollout.normalize_advantages()
            for _ in range(4):
                for batch in rollout.get(ROLLOUT * NUM_ENVS // 4):
                    log_probs = policy.log_prob(batch.observations, batch.actions)
                    ratio = (log_probs - batch.log_probs).exp()
                    gain = torch.minimum(
                        ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages
                    )
                    errors = policy.value(batch.observations) - batch.returns
                    loss = errors.square().mean() - gain.mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            rollout.reset()
            drawn = replay.get(256)
        assert drawn.observations.device == obs.device
    return tracker.get_statistics()


if __name__ == "__main__":
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    for name, mean in train(steps, where).items():
        print(f"{name} on {where}: {mean:.3f}")
