"""Copies of PettingZoo environments give what the environments themselves give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError

from sharpwave.envs import MultiStep, PettingZooVectorEnv
from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Mortal, Switch
from tests.unit.envs.multi.multi_envs import Trio, assert_same_steps, drawn_actions, play

mpe2 = pytest.importorskip("mpe2.all_modules")

N = 2
MASK = np.array([0, 1, 0, 1], np.int8)
MAKERS: dict[str, Any] = {
    "spread": mpe2.simple_spread_v3.parallel_env,
    "spread_aec": mpe2.simple_spread_v3.env,
    "tag": mpe2.simple_tag_v3.parallel_env,
    "speaker": mpe2.simple_speaker_listener_v4.parallel_env,
    "trio": Trio,
    "climbing": lambda: MatrixGame(CLIMBING),
    "mortal": Mortal,
    "careless": lambda: Mortal(careless=True),
    "generations": Generations,
    "switch": Switch,
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


class Oracle:
    """One environment by the book, with dicts of agents."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self.obs, _ = env.reset(seed=seed)

    def step(self, actions: dict[str, Any]) -> dict[str, Any]:
        acted = list(self.env.agents)
        obs, rewards, terminated, truncated, _ = self.env.step({x: actions[x] for x in acted})
        over = [x for x in acted if terminated[x] or truncated[x]]
        last = {
            "next_obs": {x: obs[x] for x in [*acted, *(y for y in obs if y in self.env.agents)]},
            "rewards": {x: rewards[x] for x in acted},
            "terminated": [x for x in acted if terminated[x]],
            "truncated": [x for x in acted if truncated[x]],
            "next_state": self.env.state(),
            "ended": not [x for x in self.env.agents if x not in over],
        }
        if last["ended"]:
            obs, _ = self.env.reset()
        self.obs = {x: obs[x] for x in self.env.agents}
        return {**last, "obs": self.obs, "state": self.env.state()}


def row_of(obs: Any, i: int, row: int) -> Any:
    if isinstance(obs, dict):
        return {key: leaf[i, row] for key, leaf in obs.items()}
    return obs[i, row]


def same(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict):
        return all(same(value[key], 0 if isinstance(wanted, int) else wanted[key]) for key in value)
    return bool(np.all(value == wanted))


@every
def test_every_row_is_what_the_environment_gives(make: Any) -> None:
    env = PettingZooVectorEnv([make] * N)
    if env.metadata.get("is_parallelizable") and hasattr(make(), "agent_iter"):
        make = mpe2.simple_spread_v3.parallel_env
    oracles = [Oracle(make(), 3 + i) for i in range(N)]
    rng = np.random.default_rng(0)
    step = env.reset(seed=3)
    ends = 0
    for _ in range(30):
        actions = drawn_actions(env, step, rng)
        by_agent = [
            {
                agent: actions[name][i, row].astype(env.action_spaces[name].dtype)[()]
                for name, agents in env.groups.items()
                for row, agent in enumerate(agents)
            }
            for i in range(N)
        ]
        step = env.step(actions)
        for i, oracle in enumerate(oracles):
            told = oracle.step(by_agent[i])
            ends += told["ended"]
            check_rows(env, step, i, told, oracle.env.agents)
    assert ends > 0
    env.close()


def check_rows(env: Any, step: MultiStep, i: int, told: dict[str, Any], present: Any) -> None:
    assert step.ended[i] == told["ended"]
    assert step.state is not None
    assert step.next_state is not None
    assert same(step.state[i], told["state"])
    assert same(step.next_state[i], told["next_state"])
    for name, agents in env.groups.items():
        group = step.groups[name]
        for row, agent in enumerate(agents):
            assert same(row_of(group.next_obs, i, row), told["next_obs"].get(agent, 0))
            assert same(row_of(group.obs, i, row), told["obs"].get(agent, 0))
            assert group.rewards[i, row] == told["rewards"].get(agent, 0.0)
            assert group.terminated[i, row] == (agent in told["terminated"])
            assert group.truncated[i, row] == (agent in told["truncated"])
            assert group.alive[i, row] == (agent in present)
        assert group.masks is None


@pytest.mark.long(but=["trio", "generations"])
@every
def test_processes_give_the_same_steps(make: Any) -> None:
    here, there = (PettingZooVectorEnv([make] * N, mode=mode) for mode in ("sync", "async"))
    assert here.groups == there.groups
    assert here.observation_spaces == there.observation_spaces
    assert_same_steps(play(here, 30), play(there, 30))
    here.close()
    there.close()


def test_names_spaces_and_state_come_from_the_environment() -> None:
    env = PettingZooVectorEnv([mpe2.simple_tag_v3.parallel_env] * N)
    assert env.agents == ("adversary_0", "adversary_1", "adversary_2", "agent_0")
    assert env.groups == {"adversary": env.agents[:3], "agent_0": ("agent_0",)}
    shapes = {name: space.shape for name, space in env.observation_spaces.items()}
    assert shapes == {"adversary": (16,), "agent_0": (14,)}
    assert env.state_space is not None
    assert env.state_space.shape == (62,)
    assert env.num_envs == N
    assert env.metadata["is_parallelizable"]
    env.close()


class Undeclared(Trio):
    state_space = None


def test_a_state_without_a_space_has_that_of_its_first_array() -> None:
    env = PettingZooVectorEnv([Undeclared] * 2)
    assert env.state_space == spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Stateless(Undeclared):
    def state(self) -> Any:
        raise NotImplementedError


def test_an_environment_without_state_gives_none() -> None:
    env = PettingZooVectorEnv([Stateless])
    step = env.reset()
    assert env.state_space is None
    assert step.state is None
    assert step.next_state is None


def test_groups_may_be_given_and_their_order_is_that_of_the_rows() -> None:
    groups = {"b": ["agent_1"], "a": ["agent_2", "agent_0"]}
    env = PettingZooVectorEnv([mpe2.simple_spread_v3.parallel_env], groups=groups)
    plain = PettingZooVectorEnv([mpe2.simple_spread_v3.parallel_env])
    step, wanted = env.reset(seed=3), plain.reset(seed=3)
    rows = wanted.groups["agent"].obs[0]
    np.testing.assert_array_equal(step.groups["a"].obs[0], rows[[2, 0]])
    np.testing.assert_array_equal(step.groups["b"].obs[0], rows[[1]])
    actions = np.array([[1, 2, 3]])
    step = env.step({"b": actions[:, [1]], "a": actions[:, [2, 0]]})
    wanted = plain.step({"agent": actions})
    np.testing.assert_array_equal(
        step.groups["a"].rewards[0], wanted.groups["agent"].rewards[0, [2, 0]]
    )
    assert env.agents == plain.agents


def test_seeds_go_to_environments_one_by_one_and_later_resets_go_on() -> None:
    envs = [Trio() for _ in range(3)]
    env = PettingZooVectorEnv([lambda one=one: one for one in envs])  # type: ignore[misc]
    env.reset(seed=7)
    assert [one.seeds[-1] for one in envs] == [7, 8, 9]
    play(env, 4, seed=None)
    assert [one.seeds[-1] for one in envs] == [None] * 3


def test_the_next_episode_begins_in_the_step_that_ends_one() -> None:
    env = PettingZooVectorEnv([Trio])
    steps = play(env, 5)
    assert [bool(step.ended[0]) for step in steps] == [False, False, False, False, True, False]
    last = steps[4].groups["red"]
    np.testing.assert_array_equal(last.next_obs[0], np.full((2, 3), 4.5))
    np.testing.assert_array_equal(last.obs[0], np.full((2, 3), 0.5))
    assert last.alive.all()
    assert last.terminated.all()
    assert steps[4].infos[0]["red_0"] == {}
    assert steps[4].infos[0]["final_info"]["red_0"] == {"time": 4}
    assert steps[3].infos[0]["red_0"] == {"time": 3}
    blue = steps[4].groups["blue"]
    np.testing.assert_array_equal(blue.obs["x"][0], np.zeros((1, 2)))
    assert blue.alive.all()
    assert not blue.terminated.any()


def test_observations_are_one_object_where_nothing_ends() -> None:
    steps = play(PettingZooVectorEnv([Trio] * 2), 4)
    shared = [step.groups["red"].obs is step.groups["red"].next_obs for step in steps]
    assert shared == [True, True, False, True, False]
    assert [step.state is step.next_state for step in steps] == shared


def test_arrays_that_were_returned_stay_as_they_were() -> None:
    env = PettingZooVectorEnv([Generations] * 2)
    first = play(env, 30)
    later = play(env, 30)
    assert_same_steps(first, later)


class Keeps(Trio):
    """Holds on to the actions it got."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def step(self, actions: dict[Any, Any]) -> Any:
        self.kept.append(actions["blue"]) if "blue" in actions else None
        told = super().step(actions)
        for action in actions.values():
            if isinstance(action, np.ndarray):
                action += 1  # whose memory is that of the environment alone
        return told


def test_actions_belong_to_the_environment() -> None:
    env = Keeps()
    vector = PettingZooVectorEnv([lambda: env])
    vector.reset()
    actions = {"red": np.zeros((1, 2), int), "blue": np.full((1, 1, 2), 0.25, np.float32)}
    vector.step(actions)
    assert (actions["blue"] == 0.25).all()
    vector.step({**actions, "blue": np.full((1, 1, 2), -0.5)})
    np.testing.assert_array_equal(env.kept, [[1.25, 1.25], [0.5, 0.5]])
    assert env.kept[0].dtype == np.float32


class Numbered(Mortal):
    """Agents have numbers for names, as PettingZoo allows."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [0, 1]  # type: ignore[list-item]


def test_names_that_are_not_strings_become_strings() -> None:
    env = PettingZooVectorEnv([Numbered])
    assert env.groups == {"agent": ("0", "1")}
    steps = play(env, 10)
    assert steps[1].groups["agent"].alive.tolist() == [[True, False]]
    assert sum(step.ended.sum() for step in steps) == 1


class InfoMasks(Trio):
    """Gives masks in infos: of red_0, from the second step on."""

    def __init__(self) -> None:
        super().__init__(lambda _, told: told[4]["red_0"].update(action_mask=MASK), at=1)


def test_masks_in_infos_are_taken_from_when_they_come() -> None:
    env = PettingZooVectorEnv([InfoMasks] * 2)
    steps = play(env, 2)
    masks = [step.groups["red"].masks for step in steps]
    assert masks[0] is None
    assert masks[1] is not None
    np.testing.assert_array_equal(masks[1][0], [[False, True, False, True], [True] * 4])
    assert masks[2] is not None
    assert masks[2].all()
    assert env.reset().groups["red"].masks is None
    assert all(step.groups["blue"].masks is None for step in steps)


def test_closing_closes_every_environment() -> None:
    envs = [Trio() for _ in range(3)]
    env = PettingZooVectorEnv([lambda one=one: one for one in envs])  # type: ignore[misc]
    env.close()
    assert all(one.is_closed for one in envs)
    with pytest.raises(ClosedEnvironmentError):
        env.reset()
    env.close()
