"""One agent in the form of many gives the numbers of the vector environment it stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import sharpwave as sw
from sharpwave.envs import (
    NativeVectorEnv,
    SingleAgentVectorEnv,
    Stepper,
    VecNormalize,
    environment_state,
    make_multi_env,
    make_vec_env,
    restore_environment_state,
)
from tests.envs import MaskedEnv, resumable, vectorized
from tests.unit.envs.multi.multi_envs import drawn_actions, play

N = 3
MODES = ("same_step", "next_step", "disabled")


def cart_poles(mode: str) -> Any:
    return gym.make_vec(
        "CartPole-v1", N, "sync", vector_kwargs={"autoreset_mode": AutoresetMode[mode.upper()]}
    )


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(lambda mode=mode: cart_poles(mode), id=mode) for mode in MODES),
        pytest.param(lambda: make_vec_env("CartPole-v1", N, seed=3), id="native"),
        pytest.param(lambda: make_vec_env("Pendulum-v1", N, seed=3), id="continuous"),
        pytest.param(lambda: VecNormalize(make_vec_env("CartPole-v1", N)), id="wrapped"),
    ],
)
def test_every_number_is_that_of_the_vector_environment(make: Any) -> None:
    env, plain = SingleAgentVectorEnv(make()), Stepper(make())
    step = env.reset(seed=5)
    obs, _ = plain.reset(seed=5)
    np.testing.assert_array_equal(step.groups["agent_0"].obs[:, 0], obs)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(60):
        acted = step.groups["agent_0"].alive[:, 0]
        actions = drawn_actions(env, step, rng)
        step, wanted = env.step(actions), plain.step(actions["agent_0"][:, 0])
        group = step.groups["agent_0"]
        ended = wanted.terminated | wanted.truncated
        np.testing.assert_array_equal(group.next_obs[:, 0], wanted.next_obs)
        np.testing.assert_array_equal(group.rewards[:, 0], wanted.rewards)
        np.testing.assert_array_equal(group.terminated[:, 0], wanted.terminated)
        np.testing.assert_array_equal(group.truncated[:, 0], wanted.truncated)
        np.testing.assert_array_equal(step.ended, ended)
        np.testing.assert_array_equal(acted, True if wanted.valid is None else wanted.valid)
        alive = group.alive[:, 0]
        np.testing.assert_array_equal(group.obs[alive, 0], wanted.obs[alive])
        assert not group.obs[~alive].any()
        ends += ended.sum()
    assert ends > 0 or "Pendulum" in str(plain.env)
    assert env.agents == ("agent_0",)
    assert step.state is None
    env.close()


def test_masks_and_infos_are_those_of_the_environment() -> None:
    env = SingleAgentVectorEnv(make_vec_env(lambda: MaskedEnv((4,)), 2))
    steps = play(env, 6)
    for step in steps:
        masks = step.groups["agent_0"].masks
        assert masks is not None
        assert masks.shape[:2] == (2, 1)
        for i, info in enumerate(step.infos):
            np.testing.assert_array_equal(info["agent_0"]["action_mask"], masks[i, 0])
            assert ("final_info" in info) == step.ended[i]
    assert steps[4].ended.all()
    assert len(steps[4].infos) == 2
    assert steps[4].infos[-1].keys() == steps[4].infos[1].keys()
    with pytest.raises(IndexError, match="below 2, got 2"):
        steps[4].infos[2]


def test_an_id_is_made_as_for_one_agent() -> None:
    env = make_multi_env("CartPole-v1", N, seed=3)
    assert isinstance(env, SingleAgentVectorEnv)
    assert isinstance(env.env, NativeVectorEnv)
    wanted, _ = make_vec_env("CartPole-v1", N, seed=3).reset()
    np.testing.assert_array_equal(env.reset().groups["agent_0"].obs[:, 0], wanted)


@pytest.mark.parametrize("mode", ["native", "same_step"])
def test_a_saved_state_goes_on_exactly(mode: str) -> None:
    def make() -> Any:
        return (
            make_vec_env("CartPole-v1", N)
            if mode == "native"
            else vectorized([resumable] * N, mode)
        )

    env, other = SingleAgentVectorEnv(make()), SingleAgentVectorEnv(make())
    play(env, 20)
    other.reset(seed=9)
    state = environment_state(env)
    assert state is not None
    restore_environment_state(other, state)
    for _ in range(30):
        actions = {"agent_0": np.ones((N, 1), np.int64)}
        one, two = env.step(actions), other.step(actions)
        np.testing.assert_array_equal(one.groups["agent_0"].obs, two.groups["agent_0"].obs)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"agent": np.zeros((N, 1), int)}, r"the group 'agent_0', got \['agent'\]"),
        ({"agent_0": np.zeros(N, int)}, r"must have shape \(3, 1\), got \(3,\)"),
    ],
)
def test_actions_that_do_not_fit_are_named(actions: Any, message: str) -> None:
    env = SingleAgentVectorEnv(make_vec_env("CartPole-v1", N))
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.step(actions)


@pytest.mark.parametrize("mode", MODES)
def test_steps_that_only_reset_are_steps_of_nobody(mode: str, tmp_path: Path) -> None:
    """They counted as environment steps, and made episodes longer by one."""
    options: dict[str, Any] = {"n_steps": 32, "batch_size": 96, "n_epochs": 1, "hidden": (4,)}
    one, alone = (
        kind(cart_poles(mode), seed=3, backend="torch", **options) for kind in (sw.MAPPO, sw.PPO)
    )
    for agent in (one, alone):
        agent.train(192)
    assert one.timesteps == alone.timesteps
    assert one.episodes.count > 3
    assert list(one.episodes.lengths) == list(one.episodes.returns)
    played = one.evaluate(5, env=cart_poles(mode))
    assert played.lengths == tuple(map(int, played.returns))
    recorded = sw.RecordTeamEpisodes(SingleAgentVectorEnv(cart_poles(mode)), tmp_path)
    recorded.reset(seed=0)
    returns = np.zeros(N)
    kept = []
    for _ in range(60):
        step = recorded.step({"agent_0": np.ones((N, 1), np.int64)})
        returns += step.groups["agent_0"].rewards[:, 0]
        kept += returns[step.ended].astype(int).tolist()
        returns[step.ended] = 0
    recorded.close()
    with sw.EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        assert buffer.episodes().lengths[: len(kept)].tolist() == kept
