"""Native spread gives what mpe2's gives."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sharpwave.envs.multi.native import NativeMultiAgentEnv, why_not_native
from sharpwave.envs.multi.vector import MultiStep
from sharpwave.types import Array
from tests.examples import examples

pytest.importorskip("mpe2")

SPREAD = "mpe2/simple_spread_v3"
N_ENVS = 3  # not a multiple of the width of vectors


class Twins:
    """Native environments and mpe2's in the same states."""

    def __init__(self, n_envs: int = N_ENVS, **kwargs: Any) -> None:
        from mpe2 import simple_spread_v3

        self.native = NativeMultiAgentEnv(SPREAD, n_envs, **kwargs)
        self.native.reset(seed=7)
        self.theirs: list[Any] = [simple_spread_v3.parallel_env(**kwargs) for _ in range(n_envs)]
        self.put(self.native.get_state()["variables"])

    def put(self, variables: Array, steps: int = 0) -> None:
        """Bring both into these states [variables, n], after so many steps of an episode."""
        state = self.native.get_state()
        state["variables"] = variables.astype(np.float64)
        state["steps"] = np.full(self.native.num_envs, steps)
        self.native.set_state(state)
        for env, column in zip(self.theirs, variables.T, strict=True):
            env.reset()
            env.unwrapped.steps = steps
            world = env.unwrapped.world
            positions, velocities, landmarks = column.reshape(3, -1, 2)
            for i, agent in enumerate(world.agents):
                agent.state.p_pos = positions[i].copy()
                agent.state.p_vel = velocities[i].copy()
                world.landmarks[i].state.p_pos = landmarks[i].copy()

    def step(self, actions: Array) -> None:
        """Step both, and compare every bit."""
        (name,) = self.native.groups
        stepped = self.native.step({name: actions})
        group = stepped.groups[name]
        for i, env in enumerate(self.theirs):
            discrete = actions.ndim == 2
            given = {
                agent: int(action) if discrete else action
                for agent, action in zip(self.native.agents, actions[i], strict=True)
            }
            obs, rewards, terminated, truncated, _ = env.step(given)
            np.testing.assert_array_equal(group.next_obs[i], np.stack(list(obs.values())))
            np.testing.assert_array_equal(group.rewards[i], list(rewards.values()))
            np.testing.assert_array_equal(group.terminated[i], list(terminated.values()))
            np.testing.assert_array_equal(group.truncated[i], list(truncated.values()))
            assert stepped.ended[i] == (not env.agents)
            np.testing.assert_array_equal(np.asarray(stepped.next_state)[i], env.state())


def random_actions(env: NativeMultiAgentEnv, rng: np.random.Generator) -> Array:
    shape = (env.num_envs, env.n_agents)
    if next(iter(env.action_spaces.values())).shape == (5,):
        return rng.random((*shape, 5)).astype(np.float32)
    return rng.integers(0, 5, shape)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(
    ("n", "local_ratio"),
    [
        (3, 0.5),
        *(
            pytest.param(n, ratio, marks=pytest.mark.long)
            for n, ratio in [(1, 0.5), (2, 0.0), (4, 1.0), (5, 0.3), (8, 0.5)]
        ),
    ],
)
def test_whole_episodes_are_those_of_mpe2(n: int, local_ratio: float, continuous: bool) -> None:
    twins = Twins(N=n, local_ratio=local_ratio, continuous_actions=continuous)
    rng = np.random.default_rng(n)
    variables = twins.native.get_state()["variables"]
    variables[: 2 * n] *= 0.3  # so near that agents touch each other
    twins.put(variables)
    for _ in range(25):
        twins.step(random_actions(twins.native, rng))


def test_agents_that_touch_are_thrown_apart_as_in_mpe2() -> None:
    """Every way to lie in each other: from hardly to almost wholly."""
    distances = np.geomspace(1e-3, 0.4, 12)
    twins = Twins(12, N=2)
    variables = np.zeros((12, 12))
    variables[0], variables[1] = distances * 0.6, distances * 0.8
    variables[8:] = 0.5
    twins.put(variables)
    for _ in range(3):
        twins.step(np.zeros((12, 2), np.int64))


unit = st.floats(-1.5, 1.5).map(lambda x: round(x, 6) or 0.0)
states = arrays.arrays(np.float64, (18, N_ENVS), elements=unit, unique=True)
choices = arrays.arrays(np.int64, (N_ENVS, 3), elements=st.integers(0, 4))
TWINS: dict[str, Twins] = {}


@settings(max_examples=examples(40), deadline=None)
@given(states, choices, st.integers(0, 24))
def test_one_step_from_any_state_is_that_of_mpe2(state: Array, actions: Array, steps: int) -> None:
    twins = TWINS.setdefault("discrete", Twins())
    twins.put(state, steps)
    twins.step(actions)


def test_actions_beyond_the_space_are_clipped() -> None:
    env = NativeMultiAgentEnv(SPREAD, 2, continuous_actions=True)
    wild = np.array([0.3, -7.0, 4.0, 0.25, 1e30], np.float32)
    outcomes = []
    for action in (wild, wild.clip(0, 1)):
        env.reset(seed=3)
        outcomes.append(env.step({"agent": np.broadcast_to(action, (2, 3, 5))}))
    np.testing.assert_array_equal(outcomes[0].state, outcomes[1].state)


def test_an_episode_ends_at_its_last_cycle_and_the_next_begins() -> None:
    env = NativeMultiAgentEnv(SPREAD, 2, max_cycles=3)
    env.reset(seed=0)
    actions = {"agent": np.full((2, 3), 2)}
    for cycle in range(1, 7):
        before = env.get_state()
        stepped = env.step(actions)
        group = stepped.groups["agent"]
        ends = cycle % 3 == 0
        assert group.truncated.all() == stepped.ended.all() == ends
        assert group.alive.all()
        assert not group.terminated.any()
        assert (group.next_obs is group.obs) == (not ends)
        assert [("final_info" in info) for info in stepped.infos] == [ends, ends]
        if ends:  # the last observations are those of the move, the others of a new beginning
            moved = before["variables"][:6] + 0.1 * before["variables"][6:12]
            last = np.asarray(group.next_obs)[:, :, 2:4].reshape(2, 6).T
            np.testing.assert_array_equal(last, moved.astype(np.float32))
            np.testing.assert_array_equal(np.asarray(group.obs)[:, :, :2], 0)
            assert (np.asarray(stepped.state) != stepped.next_state).any()


def test_first_positions_fill_the_square_and_speeds_are_zero() -> None:
    env = NativeMultiAgentEnv(SPREAD, 2000, N=2)
    env.reset(seed=1)
    positions, speeds, landmarks = env.get_state()["variables"].reshape(3, 4, 2000)
    for places in (positions, landmarks):
        assert np.abs(places).max() <= 1
        assert np.abs(places.mean(axis=1)).max() < 0.06
        np.testing.assert_allclose(places.var(axis=1), 1 / 3, atol=0.03)
    assert not speeds.any()
    assert np.abs(np.corrcoef(np.concatenate([positions, landmarks])) - np.eye(8)).max() < 0.1


def test_an_environment_depends_on_its_seed_alone() -> None:
    many = NativeMultiAgentEnv(SPREAD, 70)
    begun = many.reset(seed=100)
    rng = np.random.default_rng(0)
    steps = [rng.integers(0, 5, (70, 3)) for _ in range(60)]
    states = [many.step({"agent": actions}).state for actions in steps]
    one = NativeMultiAgentEnv(SPREAD, 1)
    np.testing.assert_array_equal(one.reset(seed=165).state, np.asarray(begun.state)[65:66])
    for actions, state in zip(steps, states, strict=True):
        alone = one.step({"agent": actions[65:66]}).state
        np.testing.assert_array_equal(alone, np.asarray(state)[65:66])


def played(env: NativeMultiAgentEnv, n_steps: int = 40) -> list[MultiStep]:
    rng = np.random.default_rng(5)
    return [env.step({"agent": random_actions(env, rng)}) for _ in range(n_steps)]


@pytest.mark.parametrize("copied", ["state", "pickle"])
def test_a_copy_goes_on_where_the_environment_was(copied: str) -> None:
    env = NativeMultiAgentEnv(SPREAD, 5, N=4, local_ratio=0.2, continuous_actions=True)
    env.reset(seed=1)
    played(env, 13)
    if copied == "pickle":
        other = pickle.loads(pickle.dumps(env))
    else:
        other = NativeMultiAgentEnv(SPREAD, 5, N=4, local_ratio=0.2, continuous_actions=True)
        other.set_state(copy.deepcopy(env.get_state()))
    for ours, theirs in zip(played(env), played(other), strict=True):
        np.testing.assert_array_equal(ours.state, theirs.state)
        np.testing.assert_array_equal(ours.groups["agent"].rewards, theirs.groups["agent"].rewards)


def test_a_state_of_other_environments_is_refused() -> None:
    env = NativeMultiAgentEnv(SPREAD, 5)
    env.reset(seed=0)
    before = env.get_state()
    others = {
        "must be of simple_spread_v3": NativeMultiAgentEnv(SPREAD, 5, continuous_actions=True),
        r"variables must have shape \(18, 5\)": NativeMultiAgentEnv(SPREAD, 5, N=2),
        r"variables must have shape \(18, 5\), got \(18, 4\)": NativeMultiAgentEnv(SPREAD, 4),
    }
    for message, other in others.items():
        other.reset(seed=0)
        with pytest.raises(ValueError, match=message):
            env.set_state(other.get_state())
    np.testing.assert_array_equal(env.get_state()["variables"], before["variables"])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"agents": np.zeros((2, 3), int)}, r"must be of the groups \['agent'\], got"),
        ({"agent": np.zeros((2, 2), int)}, r"must have shape \(2, 3\), got \(2, 2\)"),
        ({"agent": np.array([[0, 0, 0], [0, 5, 0]])}, "got 5 for agent 1 of environment 1"),
        ({"agent": np.array([[0, 0, -1], [0, 5, 0]])}, "got -1 for agent 2 of environment 0"),
    ],
)
def test_actions_that_do_not_fit_change_nothing(actions: Any, message: str) -> None:
    env = NativeMultiAgentEnv(SPREAD, 2)
    env.reset(seed=0)
    before = env.get_state()["variables"]
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    np.testing.assert_array_equal(env.get_state()["variables"], before)


def test_numbers_that_are_not_finite_are_refused() -> None:
    env = NativeMultiAgentEnv(SPREAD, 2, continuous_actions=True)
    env.reset(seed=0)
    actions = np.zeros((2, 3, 5))
    actions[1, 0, 4] = np.nan
    with pytest.raises(ValueError, match="must be finite, got nan for agent 0 of environment 1"):
        env.step({"agent": actions})


def test_environments_must_be_reset_before_and_open() -> None:
    env = NativeMultiAgentEnv(SPREAD, 2)
    with pytest.raises(ResetNeeded):
        env.step({"agent": np.zeros((2, 3), int)})
    env.reset(seed=0)
    env.close()
    with pytest.raises(ClosedEnvironmentError):
        env.reset(seed=0)


def test_spaces_are_those_of_mpe2() -> None:
    from mpe2 import simple_spread_v3

    several: list[dict[str, Any]] = [{"N": 2}, {"N": 5, "continuous_actions": True}]
    for kwargs in several:
        theirs = simple_spread_v3.parallel_env(**kwargs)
        env = NativeMultiAgentEnv(SPREAD, 2, **kwargs)
        assert list(env.agents) == theirs.possible_agents
        assert env.observation_spaces["agent"] == theirs.observation_space("agent_0")
        assert env.action_spaces["agent"] == theirs.action_space("agent_0")
        assert env.state_space == theirs.state_space


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("mpe2/simple_tag_v3", {}, "is not a native environment"),
        ("simple_spread_v2", {}, "is not a native environment"),
        (SPREAD, {"curriculum": True}, "no native argument 'curriculum'"),
        (SPREAD, {"terminate_on_success": True}, "no native argument 'terminate_on_success'"),
        (SPREAD, {"num_agent_neighbors": 1}, "no native argument 'num_agent_neighbors'"),
        (SPREAD, {"render_mode": "human"}, "no native argument 'render_mode'"),
        (SPREAD, {"wind": 1}, "no native argument 'wind'"),
        (SPREAD, {"N": 9}, "N of native simple_spread_v3 is from 1 to 8, got 9"),
        (SPREAD, {"max_cycles": 0}, "max_cycles"),
        (SPREAD, {"local_ratio": 1.5}, "local_ratio"),
        (SPREAD, {"local_ratio": np.float32(0.3)}, "local_ratio"),
    ],
)
def test_what_native_code_does_not_know_is_not_native(
    env_id: str, kwargs: dict[str, Any], message: str
) -> None:
    reason = why_not_native(env_id, kwargs)
    assert message in str(reason)
    with pytest.raises(ValueError, match=message):
        NativeMultiAgentEnv(env_id, 2, **kwargs)


def test_values_that_change_nothing_are_native() -> None:
    kwargs: dict[str, Any] = {"dynamic_rescaling": False, "curriculum": False, "render_mode": None}
    assert why_not_native("mpe2.simple_spread_v3", kwargs) is None
    assert NativeMultiAgentEnv(SPREAD, 2, **kwargs).n_agents == 3


def test_another_version_of_mpe2_has_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.0.3")
    assert "1.0.3 is installed" in str(why_not_native(SPREAD, {}))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.1.9")
    assert why_not_native(SPREAD, {}) is None


@pytest.mark.parametrize("continuous", [False, True])
def test_groups_are_parts_of_the_same_step(continuous: bool) -> None:
    kwargs: dict[str, Any] = {"continuous_actions": continuous, "max_cycles": 4}
    whole = NativeMultiAgentEnv(SPREAD, 2, **kwargs)
    apart = NativeMultiAgentEnv(
        SPREAD, 2, groups={"b": ["agent_2", "agent_0"], "a": ["agent_1"]}, **kwargs
    )
    each = NativeMultiAgentEnv(SPREAD, 2, groups="each", **kwargs)
    assert list(each.groups) == list(whole.agents)
    rng = np.random.default_rng(0)
    for env in (whole, apart, each):
        env.reset(seed=4)
    for _ in range(9):
        actions = random_actions(each, rng)
        one = whole.step({"agent": actions})
        two = apart.step({"a": actions[:, [1]], "b": actions[:, [2, 0]]})
        three = each.step({name: actions[:, [i]] for i, name in enumerate(whole.agents)})
        np.testing.assert_array_equal(one.next_state, two.next_state)
        for ours, theirs in zip(one.groups["agent"][:6], two.groups["b"][:6], strict=True):
            np.testing.assert_array_equal(np.asarray(ours)[:, [2, 0]], theirs)
        for ours, theirs in zip(one.groups["agent"][:6], three.groups["agent_1"][:6], strict=True):
            np.testing.assert_array_equal(np.asarray(ours)[:, [1]], theirs)
    with pytest.raises(ValueError, match=r"actions\['b'\] must have shape \(2, 2"):
        apart.step({"a": actions[:, [1]], "b": actions})
