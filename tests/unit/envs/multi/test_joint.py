"""Several agents as one that chooses for all have the numbers of the multi-agent environment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import Stepper, make_multi_env
from sharpwave.envs.multi import JointVectorEnv
from sharpwave.envs.multi.toys import Generations, Mortal
from sharpwave.envs.spaces import leaf_spaces
from tests.multi_envs import Fates

MAKERS: dict[str, Any] = {
    "mortal": lambda: make_multi_env(Mortal, 3),
    "generations": lambda: make_multi_env(Generations, 2),
    "two groups": lambda: Fates(sizes={"left": 2, "right": 1}, waits=0.3),
    "spread": lambda: make_multi_env("mpe2/simple_spread_v3", 3),
    "tag": lambda: make_multi_env("mpe2/simple_tag_v3", 2),
    "turns": lambda: make_multi_env("pettingzoo.classic.tictactoe_v3", 2),
}


def choose(env: Any, masks: Any, rng: Any) -> Any:
    """Random allowed actions [N, A]."""
    sizes = env.single_action_space.nvec
    weights = rng.random((env.num_envs, int(sizes.sum())))
    if masks is not None:
        weights[~masks] = -1.0
    parts = np.split(weights, np.cumsum(sizes)[:-1], axis=1)
    return np.stack([part.argmax(1) for part in parts], 1)


def all_of(step: Any, name: str) -> Any:
    return np.concatenate([getattr(group, name) for group in step.groups.values()], 1)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_number_is_that_of_the_environment(make: Any) -> None:
    has_state = make().state_space is not None
    env, plain = JointVectorEnv(make(), has_state=has_state, has_begins=True), make()
    stepper, rng = Stepper(env), np.random.default_rng(0)
    obs, infos = stepper.reset(seed=5)
    step = plain.reset(seed=5)
    n_agents = len(plain.agents)
    begins = np.ones((plain.num_envs, n_agents), bool)
    ends = cuts = 0
    for _ in range(60):
        alive = all_of(step, "alive")
        np.testing.assert_array_equal(obs["acts"], alive)
        np.testing.assert_array_equal(obs["begins"], begins)
        for name, group in step.groups.items():
            for (path, mine), (_, its) in zip(
                leaves(obs["agents"][name]), leaves(group.obs), strict=True
            ):
                np.testing.assert_array_equal(mine, its, path)
        if has_state:
            np.testing.assert_array_equal(obs["state"], step.state)
        assert env.single_observation_space.contains(map_leaves(lambda x: x[0], obs))
        order = [path for path, _ in leaves(leaf_spaces(env.single_observation_space))]
        assert [path for path, _ in leaves(obs)] == order
        has_masks = any(group.masks is not None for group in step.groups.values())
        assert ("action_mask" in infos) == has_masks
        actions = choose(env, infos.get("action_mask"), rng)
        split = np.split(actions, np.cumsum([len(x) for x in plain.groups.values()])[:-1], axis=1)
        step = plain.step(dict(zip(plain.groups, split, strict=True)))
        taken = stepper.step(actions)
        rewards, terminated, truncated = (
            all_of(step, name) for name in ("rewards", "terminated", "truncated")
        )
        np.testing.assert_allclose(taken.rewards, rewards.mean(1))
        np.testing.assert_array_equal(taken.infos["agent_rewards"], rewards)
        cut = step.ended & (truncated & ~terminated).any(1)
        np.testing.assert_array_equal(taken.truncated, cut)
        np.testing.assert_array_equal(taken.terminated, step.ended & ~cut)
        begins &= ~alive
        for i in np.flatnonzero(step.ended):
            for name, group in step.groups.items():
                np.testing.assert_array_equal(taken.next_obs["agents"][name][i], group.next_obs[i])
            np.testing.assert_array_equal(
                taken.next_obs["acts"][i], truncated[i] & ~terminated[i], "who is valued"
            )
            np.testing.assert_array_equal(taken.next_obs["begins"][i], begins[i])
            if has_state:
                np.testing.assert_array_equal(taken.next_obs["state"][i], step.next_state[i])
        begins |= terminated | truncated | step.ended[:, None]
        obs, infos = taken.obs, taken.infos
        ends, cuts = ends + step.ended.sum(), cuts + cut.sum()
    assert ends
    assert cuts or plain.metadata.get("name") != "simple_spread_v3"
    env.close()
    plain.close()


def test_who_does_not_act_may_do_what_it_likes() -> None:
    env = JointVectorEnv(make_multi_env("pettingzoo.classic.tictactoe_v3", 1))
    _, infos = env.reset(seed=0)
    assert infos["action_mask"].tolist() == [[True] * 18]
    *_, infos = env.step(np.array([[4, 0]]))
    assert infos["action_mask"].tolist() == [[True] * 9 + [True] * 4 + [False] + [True] * 4]
    env.close()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_one_agent_is_that_of_its_vector_environment(mode: str) -> None:
    def vectorized() -> Any:
        kind = AutoresetMode[mode.upper()]
        return gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": kind})

    joint, plain = Stepper(JointVectorEnv(make_multi_env(vectorized()))), Stepper(vectorized())
    first, _ = joint.reset(seed=0)
    expected, _ = plain.reset(seed=0)
    np.testing.assert_array_equal(first["agents"]["agent_0"][:, 0], expected)
    ends = 0
    for _ in range(40):
        ours, its = joint.step(np.ones((3, 1), int)), plain.step(np.ones(3, int))
        for name in ("rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(its, name), name)
        assert (ours.valid is None) == (its.valid is None)
        valid = slice(None) if its.valid is None else its.valid
        if its.valid is not None:
            np.testing.assert_array_equal(ours.valid, its.valid)
        for name in ("obs", "next_obs"):
            mine = getattr(ours, name)["agents"]["agent_0"][:, 0]
            np.testing.assert_array_equal(mine[valid], getattr(its, name)[valid], name)
        ends += its.terminated.sum()
    assert ends


def test_it_goes_on_within_lives() -> None:
    env, other = (JointVectorEnv(make_multi_env(Generations, 2), has_begins=True) for _ in "ab")
    env.reset(seed=1)
    other.reset(seed=1)
    for _ in range(2):
        obs, *_ = env.step(np.zeros((2, 5), int))
    other.env.set_states("state", env.env.get_states("state"))  # type: ignore[attr-defined]
    other.go_on(obs)
    for _ in range(6):
        expected, *_ = env.step(np.ones((2, 5), int))
        found, *_ = other.step(np.ones((2, 5), int))
        np.testing.assert_array_equal(found["begins"], expected["begins"])


def test_other_actions_are_refused() -> None:
    continuous = make_multi_env("mpe2/simple_spread_v3", env_kwargs={"continuous_actions": True})
    with pytest.raises(TypeError, match=r"all agents must be Discrete, got Box.* of 'agent_0'"):
        JointVectorEnv(continuous)


class OwnStates(Fates):
    """Each agent has a state of its own."""

    def _told(self, fates: Any, ended: Any) -> Any:
        told = super()._told(fates, ended)
        return replace(told, state=np.zeros((self.num_envs, 2, 4), np.float32))


def test_a_state_of_each_agent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"state must be one of all agents, \(4,\), got \(2, 4\)"):
        JointVectorEnv(OwnStates(), has_state=True).reset(seed=0)
