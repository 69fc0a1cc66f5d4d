"""Programs written for rl-buffer run with their import lines changed, on every device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.contract.tensor_cases import needs_cuda

REPLAY = """
import torch
from rl_buffer.replay_buffer import ReplayBuffer
from rl_buffer.stats_tracker import StatsTracker

# 1. Environment and buffer configuration
NUM_ENVS = 4
BUFFER_SIZE = 1000
BATCH_SIZE = 64
OBS_SHAPE = (16,)
ACTION_SHAPE = (4,)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# 2. Initialize StatsTracker and ReplayBuffer
stats_tracker = StatsTracker(num_envs=NUM_ENVS)
replay_buffer = ReplayBuffer(
    buffer_size=BUFFER_SIZE,
    num_envs=NUM_ENVS,
    obs_shape=OBS_SHAPE,
    action_shape=ACTION_SHAPE,
    stats_tracker=stats_tracker,
    device=DEVICE
)

print(f"--- Populating ReplayBuffer on {DEVICE} ---")

# 3. Simulate a data collection loop
for step in range(BUFFER_SIZE):
    # Generate dummy data
    obs = torch.randn(NUM_ENVS, *OBS_SHAPE)
    action = torch.randn(NUM_ENVS, *ACTION_SHAPE)
    reward = torch.randn(NUM_ENVS)
    # Simulate an environment terminating roughly every 100 steps
    done = torch.rand(NUM_ENVS) < 0.01
    truncated = torch.zeros(NUM_ENVS, dtype=torch.float32)
    next_obs = torch.randn(NUM_ENVS, *OBS_SHAPE)

    replay_buffer.add(obs, action, reward, done, next_obs, truncated)

print(f"Buffer populated. Current size: {len(replay_buffer)}")

# 4. Sample a batch from the buffer
if len(replay_buffer) > BATCH_SIZE:
    print(f"\\n--- Sampling a batch of size {BATCH_SIZE} ---")
    batch = replay_buffer.get(batch_size=BATCH_SIZE)
    print(f"Sampled observations shape: {batch.observations.shape}")
    print(f"Sampled actions shape: {batch.actions.shape}")
    print(f"Sampled rewards shape: {batch.rewards.shape}")

# 5. View statistics
print("\\n--- Episode Statistics ---")
stats = stats_tracker.get_statistics()
for key, value in stats.items():
    print(f"{key}: {value:.4f}")
"""

ROLLOUT = """
import torch
from rl_buffer.rollout_buffer import RolloutBuffer
from rl_buffer.stats_tracker import StatsTracker

# 1. Environment and buffer configuration
NUM_ENVS = 4
BUFFER_SIZE = 256  # Often called n_steps in on-policy settings
BATCH_SIZE = 64
N_EPOCHS = 4
OBS_SHAPE = (16,)
ACTION_SHAPE = (1,)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# 2. Initialize StatsTracker and RolloutBuffer
stats_tracker = StatsTracker(num_envs=NUM_ENVS)
rollout_buffer = RolloutBuffer(
    buffer_size=BUFFER_SIZE,
    num_envs=NUM_ENVS,
    obs_shape=OBS_SHAPE,
    action_shape=ACTION_SHAPE,
    stats_tracker=stats_tracker,
    device=DEVICE
)

print(f"--- Collecting one rollout of {BUFFER_SIZE} steps on {DEVICE} ---")

# 3. Simulate data collection (one full rollout)
for _ in range(BUFFER_SIZE):
    # Generate dummy data (including value and log_prob)
    obs = torch.randn(NUM_ENVS, *OBS_SHAPE)
    action = torch.randn(NUM_ENVS, *ACTION_SHAPE)
    reward = torch.randn(NUM_ENVS)
    done = torch.zeros(NUM_ENVS, dtype=torch.bool)
    value = torch.randn(NUM_ENVS)
    log_prob = torch.randn(NUM_ENVS)

    rollout_buffer.add(obs, action, reward, done, value, log_prob)

print("Rollout collection complete.")

# 4. Compute Advantages and Returns
# Simulate getting the value estimate for the last state
last_values = torch.randn(NUM_ENVS)
last_dones = torch.zeros(NUM_ENVS, dtype=torch.bool)
rollout_buffer.compute_returns_and_advantages(last_values, last_dones)

print("\\n--- Simulating training loop for PPO ---")
# 5. Use the generator for multi-epoch training
for epoch in range(N_EPOCHS):
    batch_count = 0
    # The get() method returns a generator
    for batch in rollout_buffer.get(batch_size=BATCH_SIZE):
        # Your training step would go here...
        # train_on_batch(batch)
        batch_count += 1

    print(f"Epoch {epoch + 1}: Trained on {batch_count} mini-batches.")

# 6. View statistics
print("\\n--- Episode Statistics ---")
stats = stats_tracker.get_statistics()
if not stats:
    print("No complete episodes during this short rollout.")
else:
    for key, value in stats.items():
        print(f"{key}: {value:.4f}")
"""

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])


def run(program: str, device: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda")
    torch.manual_seed(0)
    changed = program.replace("from rl_buffer.", "from sharpwave.compat.rl_buffer.")
    namespace: dict[str, Any] = {}
    exec(compile(changed, "program", "exec"), namespace)
    return namespace


@on_each_device
def test_the_replay_program_runs(
    device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(REPLAY, device, monkeypatch)
    said = capsys.readouterr().out
    assert "Current size: 1000" in said
    assert "Sampled observations shape: torch.Size([64, 16])" in said
    assert "Rollout/rewards: " in said
    assert "Rollout/lengths: " in said
    assert ran["batch"].rewards.device.type == device
    assert ran["replay_buffer"].store_device.type == device
    assert 20 < ran["stats"]["Rollout/lengths"] < 300


@on_each_device
def test_the_rollout_program_runs(
    device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(ROLLOUT, device, monkeypatch)
    said = capsys.readouterr().out
    assert said.count("Trained on 16 mini-batches.") == 4
    assert "No complete episodes during this short rollout." in said
    batch = ran["batch"]
    assert batch.observations.shape == (64, 16)
    assert batch.advantages.device.type == device
    assert torch.allclose(batch.returns, batch.advantages + batch.values, atol=1e-5)
