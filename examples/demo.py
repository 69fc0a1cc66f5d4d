"""How fast replay and advantages are, beside the same thing in plain NumPy.

Run it with `make demo`.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import sharpwave as sw

CAPACITY = 100_000
OBS_DIM = 17
ACT_DIM = 6
BATCH_SIZE = 256
N_STEPS = 128
N_ENVS = 64

Array = NDArray[np.float32]
Flags = NDArray[np.uint8]


class NumpyRing:
    """The replay buffer that everybody writes first: one array per field and a cursor."""

    def __init__(self, capacity: int, obs_dim: int, act_dim: int) -> None:
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.actions = np.zeros((capacity, act_dim), np.float32)
        self.rewards = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.uint8)
        self.truncated = np.zeros(capacity, np.uint8)
        self.capacity = capacity
        self.pushed = 0
        self.generator = np.random.default_rng(0)

    def push(
        self,
        obs: Array,
        action: Array,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: Array,
    ) -> None:
        """Write one transition over the oldest."""
        slot = self.pushed % self.capacity
        self.obs[slot] = obs
        self.next_obs[slot] = next_obs
        self.actions[slot] = action
        self.rewards[slot] = reward
        self.terminated[slot] = terminated
        self.truncated[slot] = truncated
        self.pushed += 1

    def sample(self, batch_size: int) -> dict[str, NDArray[np.generic]]:
        """Draw transitions uniformly, with replacement."""
        rows = self.generator.integers(min(self.pushed, self.capacity), size=batch_size)
        return {
            "obs": self.obs[rows],
            "next_obs": self.next_obs[rows],
            "actions": self.actions[rows],
            "rewards": self.rewards[rows],
            "terminated": self.terminated[rows],
            "truncated": self.truncated[rows],
        }


def gae_loop(
    rewards: Array, values: Array, dones: Array, last_values: Array, gamma: float, lam: float
) -> tuple[Array, Array]:
    """GAE of arrays [n_envs, n_steps], stepping backwards through time."""
    advantages = np.zeros_like(rewards)
    advantage = np.zeros_like(last_values)
    next_values = last_values
    for t in reversed(range(rewards.shape[1])):
        alive = 1 - dones[:, t]
        delta = rewards[:, t] + gamma * next_values * alive - values[:, t]
        advantage = delta + gamma * lam * alive * advantage
        advantages[:, t] = advantage
        next_values = values[:, t]
    return advantages, advantages + values


def seconds_per_call(call: Callable[[], object], repeats: int = 7, budget: float = 0.05) -> float:
    """The time of one call: the best of some rounds, each of about `budget` seconds."""
    start = time.perf_counter()
    call()
    calls = max(1, int(budget / max(time.perf_counter() - start, 1e-7)))
    rounds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter() - start) / calls)
    return min(rounds)


def time_text(seconds: float) -> str:
    """A duration in the unit that suits it."""
    for unit, size in (("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def replay_rows(generator: np.random.Generator) -> list[tuple[str, float, float | None]]:
    """Time pushes and draws: (what, sharpwave, NumPy or None)."""
    obs = generator.standard_normal((CAPACITY + 1, OBS_DIM), dtype=np.float32)
    actions = generator.standard_normal((CAPACITY, ACT_DIM), dtype=np.float32)
    rewards = generator.standard_normal(CAPACITY, dtype=np.float32)
    terminated = (generator.random(CAPACITY) < 0.01).astype(np.uint8)
    truncated = np.zeros(CAPACITY, np.uint8)
    one = (obs[0], actions[0], 1.0, False, False, obs[1])

    buffer = sw.ReplayBuffer(CAPACITY, OBS_DIM, ACT_DIM)
    buffer.push_batch(obs[:-1], obs[1:], actions, rewards, terminated, truncated)
    prioritized = sw.PrioritizedReplayBuffer(CAPACITY, OBS_DIM, ACT_DIM, alpha=0.6, beta=0.4)
    ring = NumpyRing(CAPACITY, OBS_DIM, ACT_DIM)
    for row in range(CAPACITY):
        flags = (bool(terminated[row]), False)
        step = (obs[row], actions[row], float(rewards[row]), *flags, obs[row + 1])
        prioritized.push(*step)
        ring.push(*step)

    def prioritized_round() -> None:
        batch = prioritized.sample(BATCH_SIZE)
        prioritized.update_priorities(batch["indices"], np.abs(batch["rewards"]) + 0.01)

    return [
        (
            "push one transition",
            seconds_per_call(lambda: buffer.push(*one)),
            seconds_per_call(lambda: ring.push(*one)),
        ),
        (
            f"sample {BATCH_SIZE} of {len(buffer):,}",
            seconds_per_call(lambda: buffer.sample(BATCH_SIZE)),
            seconds_per_call(lambda: ring.sample(BATCH_SIZE)),
        ),
        (
            f"sample {BATCH_SIZE} by priority, update priorities",
            seconds_per_call(prioritized_round),
            None,
        ),
    ]


def gae_row(generator: np.random.Generator) -> tuple[str, float, float]:
    """Time the advantages of one rollout, after a check that both give the same."""
    rewards, values = generator.standard_normal((2, N_ENVS, N_STEPS), dtype=np.float32)
    dones = (generator.random((N_ENVS, N_STEPS)) < 0.02).astype(np.float32)
    last_values = generator.standard_normal(N_ENVS, dtype=np.float32)

    def native() -> tuple[Array, Array]:
        flat = (rewards.ravel(), values.ravel(), dones.ravel(), last_values)
        return sw.compute_gae_batched_f32(*flat, N_STEPS, 0.99, 0.95)

    def loop() -> tuple[Array, Array]:
        return gae_loop(rewards, values, dones, last_values, 0.99, 0.95)

    for ours, theirs in zip(native(), loop(), strict=True):
        np.testing.assert_allclose(ours.reshape(N_ENVS, N_STEPS), theirs, rtol=1e-4, atol=1e-4)
    what = f"GAE of {N_ENVS} environments × {N_STEPS} steps"
    return what, seconds_per_call(native), seconds_per_call(loop)


def main() -> None:
    generator = np.random.default_rng(0)
    table = Table(title=f"{CAPACITY:,} transitions, obs {OBS_DIM}, action {ACT_DIM}, one thread")
    table.add_column("what")
    for heading in ("sharpwave", "NumPy", "ratio"):
        table.add_column(heading, justify="right")
    for what, ours, theirs in [*replay_rows(generator), gae_row(generator)]:
        if theirs is None:
            table.add_row(what, time_text(ours), "-", "-")
        else:
            table.add_row(what, time_text(ours), time_text(theirs), f"{theirs / ours:.1f}×")
    Console().print(table)


if __name__ == "__main__":
    main()
