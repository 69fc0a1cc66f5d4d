"""Replay on the device that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.core.tree import leaves
from sharpwave.tensors.buffers import TensorPrioritizedReplayBuffer, TensorReplayBuffer
from tests.envs import MaskedEnv, NestedEnv, ResumableCartPole, ResumablePendulum

OPTIONS: dict[str, Any] = {
    "n_envs": 2,
    "hidden": (8,),
    "batch_size": 8,
    "buffer_size": 400,
    "learning_starts": 20,
    "log_interval": 50,
}


def rows(nest: Any) -> list[tuple[Any, ...]]:
    """Rows of all leaves side by side, sorted."""
    columns = [np.asarray(leaf).reshape(len(leaf), -1) for _, leaf in leaves(nest)]
    return sorted(map(tuple, np.concatenate(columns, 1).astype(np.float64)))


@pytest.mark.long(but=["DQN-CartPole-v1"])
@pytest.mark.parametrize(
    ("cls", "env"),
    [(sw.DQN, "CartPole-v1"), (sw.SAC, "Pendulum-v1"), (sw.DQN, NestedEnv), (sw.DQN, MaskedEnv)],
)
def test_it_holds_the_steps_that_memory_holds(cls: Any, env: Any) -> None:
    options = {**OPTIONS, "learning_starts": 10_000}  # random actions alone
    options |= {"backend": "torch", "seed": 42}
    memory, device = (cls(env, buffer=where, **options) for where in ("memory", "device"))
    for algorithm in (memory, device):
        algorithm.train(120)
    assert isinstance(device.buffer, TensorReplayBuffer)
    kept = memory.buffer.gather(memory.buffer.indices())
    batch = device.buffer.gather(torch.arange(device.buffer.total_current_size))
    assert len(kept["rewards"]) == len(batch.rewards) == 120
    ours = (batch.observations, batch.actions, batch.rewards, batch.next_observations)
    flags = (batch.dones & ~batch.truncateds, batch.truncateds)
    theirs = [kept[name] for name in ("obs", "actions", "rewards", "next_obs")]
    ends = (kept["terminated"], kept["truncated"])
    assert rows((*ours, *flags)) == rows((*theirs, *ends))


def assert_same_n_steps(memory: Any, device: Any) -> None:
    """That both hold the same n-step transitions."""
    view = sw.NStep(3, 0.9)
    kept = memory.buffer.gather(memory.buffer.indices(), view=view)
    batch = device.buffer.gather(torch.arange(device.buffer.total_current_size), view=view)
    names = ("obs", "actions", "next_obs", "rewards", "discounts")
    ours = (batch.observations, batch.actions, batch.next_observations)
    mine = rows((*ours, batch.rewards, batch.discounts))
    theirs = rows(tuple(kept[name] for name in names))
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("env", ["CartPole-v1", MaskedEnv])
def test_n_steps_are_those_of_memory(env: Any) -> None:
    options = {**OPTIONS, "learning_starts": 10_000, "backend": "torch", "n_step": 3}
    options["seed"] = 42
    memory, device = (sw.DQN(env, buffer=where, **options) for where in ("memory", "device"))
    for algorithm in (memory, device):
        algorithm.train(120)
    assert_same_n_steps(memory, device)


@pytest.mark.long
def test_n_steps_do_not_go_on_in_the_episodes_of_a_resumed_run(tmp_path: Path) -> None:
    def make() -> Any:
        return gym.make("Pendulum-v1")  # which cannot go on where it was

    agent = sw.SAC(make, buffer="device", n_step=3, save_buffer=True, **OPTIONS)
    agent.train(60)
    agent.save(tmp_path / "half")
    resumed = sw.SAC.from_checkpoint(tmp_path / "half", env_id=make)
    resumed.train(60)
    assert resumed.buffer.current_size == 60
    rows_before = [28 * 2, 29 * 2, 30 * 2]
    batch = resumed.buffer.gather(rows_before, view=sw.NStep(3, 0.5))
    assert batch.discounts.tolist() == [0.25, 0.5, 0.125]
    last = resumed.buffer.gather([29 * 2, 29 * 2, 32 * 2])
    assert torch.equal(batch.next_observations, last.next_observations)


@pytest.mark.long(but=["DQN-CartPole-v1-1-False"])
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    ("cls", "env"),
    [
        (sw.DQN, "CartPole-v1"),
        (sw.DQN, MaskedEnv),
        (sw.SAC, "Pendulum-v1"),
        (sw.TD3, "Pendulum-v1"),
    ],
)
def test_algorithms_learn_from_it(cls: Any, env: Any, n_step: int, prioritized: bool) -> None:
    agent = cls(env, buffer="device", prioritized=prioritized, n_step=n_step, **OPTIONS)
    assert agent.backend == "torch"
    assert agent.backend_reason == 'buffer is "device"'
    metrics = agent.train(200)
    measured = agent.learner.update(agent.sample()).keys() - {"td_errors"}
    assert all(np.isfinite(float(metrics[name])) for name in measured)
    if prioritized:
        assert isinstance(agent.buffer, TensorPrioritizedReplayBuffer)
        assert agent.buffer.beta == pytest.approx(1.0, abs=0.02)
        priorities = agent.buffer.state_dict()["priorities"]
        assert len(set(priorities.reshape(-1).tolist())) > 10


def test_batches_lie_at_one_address() -> None:
    agent = sw.DQN("CartPole-v1", buffer="device", **OPTIONS)
    agent.train(100)
    first = agent.sampler.draw()["obs"].data_ptr()
    assert agent.sampler.draw()["obs"].data_ptr() == first


@pytest.mark.long
@pytest.mark.parametrize(("n_step", "prioritized"), [(1, False), (1, True), (3, True)])
@pytest.mark.parametrize(("cls", "env"), [(sw.DQN, ResumableCartPole), (sw.SAC, ResumablePendulum)])
def test_a_run_that_saves_it_resumes_exactly(
    cls: Any, env: Any, n_step: int, prioritized: bool, tmp_path: Path
) -> None:
    options = {**OPTIONS, "buffer": "device", "save_buffer": True, "total_timesteps": 240}
    options |= {"n_step": n_step, "seed": 42}
    whole, half = (cls(env, prioritized=prioritized, **options) for _ in range(2))
    whole.train()

    class Stop(sw.Callback):
        def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
            return bool(algo.timesteps < 120)

    half.train(callbacks=Stop())
    half.save(tmp_path / "half")
    resumed = cls.from_checkpoint(tmp_path / "half", env_id=env)
    resumed.train()
    assert resumed.timesteps == whole.timesteps == 240
    for mine, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"her_goals": 4}, 'buffer="device" needs her_goals=0'),
        ({"frame_stack": 4}, 'buffer="device" needs frame_stack=1'),
    ],
)
def test_what_it_cannot_do_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sw.DQN("CartPole-v1", buffer="device", **options)


def test_environments_that_spend_steps_on_resets() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    agent = sw.DQN(env, buffer="device", **{**OPTIONS, "n_envs": 2})
    with pytest.raises(ValueError, match="next_step"):
        agent.train(10)


def test_windows_are_those_of_the_run_and_latents_go_back(tmp_path: Path) -> None:
    class Latent(sw.DQNLearner):
        """Stores the number of its gradient steps with every step."""

        def extra_columns(self) -> dict[str, Any]:
            return {"latent": ("float16", (2,)), "classes": ("uint8", (3,))}

        def act(self, obs: Any, **options: Any) -> Any:
            extra = {
                "latent": torch.full((len(obs), 2), 5.0, dtype=torch.float16),
                "classes": torch.full((len(obs), 3), 6, dtype=torch.uint8),
            }
            return super().act(obs, **options)._replace(extra=extra)

    agent = sw.DQN("CartPole-v1", buffer="device", learner=Latent, **OPTIONS)
    agent.train(200)
    view = sw.Sequence(9, context=1, arrivals=True, cross=True)
    rows = agent.loop.store.rows
    batch = rows.sample_windows(64, view)
    is_step = ~batch["is_last"]
    assert batch["obs"].shape == (64, 10, 4)
    assert set(batch["latent"][is_step].unique().tolist()) <= {0.0, 5.0}  # zero while at random
    assert not batch["latent"][~is_step].any()
    assert (batch["rewards"] == (~batch["is_first"]).float()).all()  # 1 for every step
    assert batch["is_terminal"].any()
    rows.update(batch["indices"], latent=torch.full((64, 10, 2), 7.0))
    places = batch["indices"][is_step]  # nothing is overwritten yet
    assert (agent.buffer.gather(places).extras["latent"] == 7).all()
    agent.save(tmp_path / "agent")
