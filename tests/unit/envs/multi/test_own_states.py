"""States that every agent has for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs import EnvironmentFailed, PettingZooVectorEnv, make_multi_env
from sharpwave.testing import check_multi_env
from tests.unit.envs.multi.multi_envs import Trio, assert_same_steps, play

STATE = spaces.Box(-9, 99, (2,), np.float32)
NUMBERS = {"red_0": 10, "red_1": 20, "blue": 30}


class Own(Trio):
    """The state of an agent is the time and its number; it has none once it is gone."""

    state_space: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.there: list[Any] = []

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        told = super().reset(seed, options)
        self.there = list(self.agents)
        return told

    def step(self, actions: dict[Any, Any]) -> Any:
        self.there = list(self.agents)
        return super().step(actions)

    def state(self) -> Any:
        return {x: np.array([self.time, NUMBERS[x]], np.float32) for x in self.there}


class Declared(Own):
    state_space: Any = spaces.Dict(dict.fromkeys(NUMBERS, STATE))


class Forgets(Own):
    def state(self) -> Any:
        return {x: state for x, state in super().state().items() if x != "red_1" or not self.time}


class Shrinks(Own):
    def state(self) -> Any:
        return {x: state[: 2 - (self.time > 0)] for x, state in super().state().items()}


class Gathers(Own):
    def state(self) -> Any:
        return np.zeros(2, np.float32) if self.time else super().state()


@pytest.mark.parametrize("env_class", [Own, Declared])
def test_every_agent_has_its_own(env_class: Any) -> None:
    env = PettingZooVectorEnv([env_class] * 2)
    wanted = STATE if env_class is Declared else spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.state_space == wanted
    steps = play(env, 4)
    for time, step in enumerate(steps[:4]):
        state = np.array([[time, NUMBERS[x]] for x in env.agents], np.float32)
        state[2] *= time <= 2  # blue is gone then
        for found in (step.next_state, step.state):
            assert found is not None
            np.testing.assert_array_equal(found, [state] * 2)
    last = steps[4]
    assert last.ended.all()
    assert last.next_state is not None
    assert last.state is not None
    assert last.next_state[0].tolist() == [[4, 10], [4, 20], [0, 0]]
    assert last.state[0].tolist() == [[0, 10], [0, 20], [0, 30]]  # of the next episode
    env.close()


@pytest.mark.long
def test_states_are_the_same_from_processes() -> None:
    here, there = (PettingZooVectorEnv([Own] * 2, mode=mode) for mode in ("sync", "async"))
    assert_same_steps(play(here, 6), play(there, 6))
    here.close()
    there.close()


def test_the_contract_holds() -> None:
    assert "state_has_the_form_of_its_space" in check_multi_env(Own)


@pytest.mark.parametrize(
    ("env_class", "message"),
    [
        (Forgets, r"the state must have an entry for 'red_1', got \['red_0', 'blue'\]"),
        (Shrinks, r"the state of 'red_0' must have shape \(2,\), got \(1,\)"),
        (Gathers, r"the state must be a dict by agent like state_space, got array"),
    ],
)
def test_what_is_wrong_is_named(env_class: Any, message: str) -> None:
    env = PettingZooVectorEnv([env_class])
    env.reset()
    with pytest.raises(EnvironmentFailed) as caught:
        play(env, 1)
    with pytest.raises(ValueError, match=message):
        raise caught.value.__cause__  # type: ignore[misc]


def test_a_dict_where_the_space_is_one_array_is_named() -> None:
    class Promises(Own):
        state_space: Any = STATE

    with pytest.raises(EnvironmentFailed) as caught:
        make_multi_env(Promises).reset()
    with pytest.raises(ValueError, match="the state must be one array like state_space"):
        raise caught.value.__cause__  # type: ignore[misc]


def test_states_of_other_spaces_are_refused() -> None:
    class Differs(Own):
        state_space: Any = spaces.Dict(
            {**dict.fromkeys(NUMBERS, STATE), "blue": spaces.Discrete(3)}
        )

    with pytest.raises(TypeError, match="state_space must be the same for all agents, got Dict"):
        make_multi_env(Differs)


@pytest.mark.parametrize("options", [{}, {"recurrent": "gru"}], ids=["plain", "gru"])
@pytest.mark.parametrize("share_policy", [True, False])
def test_critics_look_at_that_of_their_agent(share_policy: bool, options: dict[str, Any]) -> None:
    agent = sw.MAPPO(
        Own,
        n_envs=2,
        n_steps=8,
        hidden=(8,),
        critic_input="state",
        share_policy=share_policy,
        **options,
    )
    agent.train(32)
    for name, members in agent.env.groups.items():
        seen = agent.collector.joints[name].reshape(8, 2, len(members), 2)
        there = agent.collector.rollouts[name].valid.reshape(8, 2, len(members))
        for i, member in enumerate(members):
            assert set(seen[:, :, i, 1][there[:, :, i]]) == {float(NUMBERS[member])}
    agent.close()
