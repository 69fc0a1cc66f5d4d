"""Columns that a learner stores with its steps come back in the row that they belong to."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.collect import OnPolicyCollector
from sharpwave.tensors import HostSteps, TensorCollector
from sharpwave.tensors.transitions import TensorTransitionCollector
from tests.contract.learners import state_of
from tests.contract.remembering import COLUMNS, REPLAY, ROLLOUT, Listed, remembering
from tests.envs import BitFlipEnv, MaskedEnv, resumable, resumable_pendulum, vectorized
from tests.unit.envs.tensor_envs import Points
from tests.unit.tensors.test_transitions import Chosen

# From rollouts

MINIBATCHES: dict[str, Any] = {"n_epochs": 2, "batch_size": 10}
LSTM: dict[str, Any] = {"recurrent": "lstm", "recurrent_size": 4}


def next_step(make: Any, n: int) -> Any:
    return vectorized([make] * n, "next_step")


ROLLOUTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "ppo": (sw.PPO, lambda: "CartPole-v1", {}),
    "ppo minibatches": (sw.PPO, lambda: resumable, MINIBATCHES),
    "ppo lstm": (sw.PPO, lambda: resumable, {**LSTM, **MINIBATCHES, "batch_size": 32}),
    "ppo normalized": (sw.PPO, lambda: resumable, {"normalize_obs": True, **MINIBATCHES}),
    "ppo next step": (sw.PPO, lambda: next_step(resumable, 4), MINIBATCHES),
    "ppo lstm next step": (sw.PPO, lambda: next_step(resumable, 4), {**LSTM, "batch_size": 32}),
    "a2c": (sw.A2C, lambda: resumable_pendulum, {}),
    "hybrid_ppo": (sw.HybridPPO, lambda: "CartPole-v1", MINIBATCHES),
    "ppo tensors": (sw.PPO, lambda: Points(4, limit=9), MINIBATCHES),
    "ppo tensors lstm": (sw.PPO, lambda: Points(4, limit=9), {**LSTM, **MINIBATCHES}),
    "a2c tensors": (sw.A2C, lambda: Points(4, limit=9), {}),
}


@pytest.mark.long(but=["ppo"])
@pytest.mark.parametrize("case", ROLLOUTS)
def test_rollouts(case: str) -> None:
    cls, world, options = ROLLOUTS[case]
    agent = cls(world(), learner=remembering(cls), **{**ROLLOUT, **options})
    kind = TensorCollector if "tensors" in case else OnPolicyCollector
    assert agent.backend == "torch"
    assert isinstance(agent.collector, kind)
    agent.train(128)
    assert agent.learner.checked >= 128
    assert agent.learner.blank == 0


def test_rollouts_with_masks_on_a_device() -> None:
    make = partial(MaskedEnv, (3, 7, 1))
    agent: Any = sw.PPO(make, learner=remembering(sw.PPO), **{**ROLLOUT, **MINIBATCHES})
    device = torch.device("cpu")
    steps = HostSteps(agent.env, agent.action_map, device)
    agent.loop.collector = TensorCollector(
        steps, agent.actor, n_envs=4, n_steps=16, seed=0, device=device
    )
    agent.train(128)
    assert agent.learner.checked >= 128
    assert agent.loop.collect().masks is not None


def test_the_rows_of_a_rollout_are_in_order() -> None:
    agent: Any = sw.PPO("CartPole-v1", learner=remembering(sw.PPO), **{**ROLLOUT, **LSTM})
    for _ in range(2):
        batch = agent.loop.collect()
    assert batch.extra["row"].shape == (16, 4)
    assert torch.equal(batch.extra["row"].flatten(), torch.arange(64, 128))


# From replay

DEVICE: dict[str, Any] = {"buffer": "device"}
REPLAYS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "dqn": (sw.DQN, lambda: resumable, {}),
    "sac": (sw.SAC, lambda: resumable_pendulum, {}),
    "sac normalized": (sw.SAC, lambda: resumable_pendulum, {"normalize_obs": True}),
    "dqn 3 steps": (sw.DQN, lambda: resumable, {"n_step": 3}),
    "dqn priorities": (sw.DQN, lambda: resumable, {"prioritized": True}),
    "td3 3 steps priorities": (
        sw.TD3,
        lambda: resumable_pendulum,
        {"n_step": 3, "prioritized": True},
    ),
    "dqn overlap": (sw.DQN, lambda: resumable, {"overlap": True, "train_freq": 3}),
    "dqn next step": (sw.DQN, lambda: next_step(resumable, 3), {"n_step": 2}),
    "dqn goals": (sw.DQN, lambda: BitFlipEnv, {"her_goals": 4}),
    "dqn masks": (sw.DQN, lambda: partial(MaskedEnv, (3, 7, 1)), {}),
    "dqn device": (sw.DQN, lambda: resumable, DEVICE),
    "sac device 3 steps": (sw.SAC, lambda: resumable_pendulum, {**DEVICE, "n_step": 3}),
    "dqn device priorities": (sw.DQN, lambda: resumable, {**DEVICE, "prioritized": True}),
    "sac tensors": (sw.SAC, lambda: Points(3, limit=9), DEVICE),
    "dqn tensors 3 steps": (sw.DQN, lambda: Chosen(3, limit=9), {**DEVICE, "n_step": 3}),
}


@pytest.mark.long(but=["dqn", "sac"])
@pytest.mark.parametrize("case", REPLAYS)
def test_replay(case: str) -> None:
    cls, world, options = REPLAYS[case]
    agent = cls(world(), learner=remembering(cls), **{**REPLAY, **options})
    assert isinstance(agent.collector, TensorTransitionCollector) == ("tensors" in case)
    agent.train(210)
    assert agent.learner.checked > agent.learner.blank > 0


@pytest.mark.long
@pytest.mark.parametrize("prioritized", [False, True])
def test_replay_in_a_folder(prioritized: bool, memory_path: Path) -> None:
    options = {**REPLAY, "buffer": str(memory_path / "steps"), "prioritized": prioritized}
    first: Any = sw.DQN(resumable, learner=remembering(sw.DQN), **options)
    first.train(120)
    first.save(memory_path / "agent")
    first.close()
    again = sw.DQN.from_checkpoint(
        memory_path / "agent", env_id=resumable, learner=remembering(sw.DQN)
    )
    again.train(90)
    assert again.learner.checked > 90
    again.close()


GIVEN: dict[str, Any] = {
    "ordered": sw.ReplayBuffer,
    "priorities": sw.PrioritizedReplayBuffer,
    "mmap": sw.MmapReplayBuffer,
    "foreign": None,
}


def given(kind: str, path: Path | None = None) -> Any:
    """A buffer of somebody's that has the columns."""
    if kind == "foreign":
        return Listed()
    folder = {"cold_path": path} if kind == "mmap" else {}
    return GIVEN[kind].for_env(sw.make_vec_env(resumable, 3), 150, extra=COLUMNS, **folder)


@pytest.mark.long(but=["ordered"])
@pytest.mark.parametrize("kind", GIVEN)
def test_given_buffers(kind: str, memory_path: Path) -> None:
    buffer = given(kind, memory_path / "steps")
    agent: Any = sw.DQN(resumable, learner=remembering(sw.DQN), buffer=buffer, **REPLAY)
    agent.train(120)
    assert agent.learner.checked > agent.learner.blank > 0


@pytest.mark.long
def test_a_mixture_of_buffers() -> None:
    old = given("ordered")
    first: Any = sw.DQN(resumable, learner=remembering(sw.DQN), buffer=old, **REPLAY)
    first.train(120)
    mixture = sw.OfflineMixture([(old, 0.5), (given("ordered"), 0.5)])
    agent: Any = sw.DQN(resumable, learner=remembering(sw.DQN), buffer=mixture, **REPLAY)
    agent.learner.lived = list(first.learner.lived)
    agent.train(120)
    assert agent.learner.checked > 0
    plain = sw.OfflineMixture([(sw.ReplayBuffer.for_env(first.env, 150), 0.5), (old, 0.5)])
    with pytest.raises(ValueError, match=r"parts\[0\] of buffer .* 'twice' .*got none"):
        sw.DQN(resumable, learner=remembering(sw.DQN), buffer=plain, **REPLAY)


# Checkpoints

RESUMED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "ppo": (sw.PPO, lambda: resumable, {**ROLLOUT, **MINIBATCHES}),
    "dqn": (sw.DQN, lambda: resumable, {**REPLAY, "save_buffer": True}),
    "dqn overlap": (sw.DQN, lambda: resumable, {**REPLAY, "save_buffer": True, "overlap": True}),
    "sac": (sw.SAC, lambda: resumable_pendulum, {**REPLAY, "save_buffer": True, "n_step": 3}),
    "dqn priorities": (
        sw.DQN,
        lambda: resumable,
        {**REPLAY, "save_buffer": True, "prioritized": True},
    ),
    "sac tensors": (sw.SAC, lambda: Points(3, limit=9), {**REPLAY, **DEVICE, "save_buffer": True}),
}


@pytest.mark.long(but=["ppo-early"])
@pytest.mark.parametrize("steps", [24, 128], ids=["early", "late"])  # before learning_starts too
@pytest.mark.parametrize("case", RESUMED)
def test_a_run_continues_exactly(case: str, steps: int, tmp_path: Path) -> None:
    cls, world, options = RESUMED[case]
    learner = remembering(cls)
    whole, first = (cls(world(), learner=learner, **options) for _ in range(2))
    for each in (whole, first):
        each.train(steps)
    first.save(tmp_path / "half")
    second = cls.from_checkpoint(tmp_path / "half", env_id=world(), learner=learner)
    for each in (whole, second):
        each.train(96)
    assert state_of(second) == state_of(whole)
    assert torch.equal(torch.cat(second.learner.lived), torch.cat(whole.learner.lived))
    assert second.learner.checked > 0


def test_a_checkpoint_without_its_columns_is_refused(tmp_path: Path) -> None:
    plain: Any = sw.DQN(resumable, save_buffer=True, backend="torch", **REPLAY)
    plain.train(60)
    plain.save(tmp_path / "plain")
    agent = sw.DQN.from_checkpoint(
        tmp_path / "plain", env_id=resumable, learner=remembering(sw.DQN)
    )
    with pytest.raises(ValueError, match=r"plain: the buffer lacks acted, row, third, twice"):
        agent.train(60)


@pytest.mark.parametrize("options", [{}, DEVICE], ids=["memory", "device"])
def test_a_learner_without_the_columns_goes_on(options: dict[str, Any], tmp_path: Path) -> None:
    agent: Any = sw.DQN(
        resumable, learner=remembering(sw.DQN), save_buffer=True, **{**REPLAY, **options}
    )
    agent.train(60)
    agent.save(tmp_path / "agent")
    plain: Any = sw.DQN.from_checkpoint(tmp_path / "agent", env_id=resumable, backend="torch")
    plain.train(30)
    assert len(plain.buffer) >= 60 // (3 if options else 1)
    assert plain.loop.sample().extra is None


def test_a_folder_without_the_columns_is_refused(memory_path: Path) -> None:
    folder = str(memory_path / "steps")
    plain: Any = sw.DQN(resumable, buffer=folder, **REPLAY)
    plain.train(60)
    plain.close()
    agent: Any = sw.DQN(resumable, buffer=folder, learner=remembering(sw.DQN), **REPLAY)
    with pytest.raises(ValueError, match=r"another buffer .*: acted is missing, a column of"):
        agent.train(60)
