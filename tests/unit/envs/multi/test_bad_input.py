"""Errors of an environment or a caller name the environment and the agent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError

from sharpwave.envs import EnvironmentFailed, PettingZooVectorEnv, make_multi_env
from sharpwave.envs.multi.toys import Mortal
from sharpwave.errors import NonFiniteError
from tests.unit.envs.multi.multi_envs import Trio, play


def told(part: int, **entries: Any) -> Callable[..., None]:
    """Spoils a part of what a step tells: 0 observations, 1 rewards, 2 and 3 ends, 4 infos."""
    return lambda _, parts: parts[part].update(entries)


def without(part: int, agent: str) -> Callable[..., None]:
    def spoil(_: Any, parts: Any) -> None:
        del parts[part][agent]

    return spoil


def with_agents(*agents: str) -> Callable[..., None]:
    def spoil(env: Any, _: Any) -> None:
        env.agents = list(agents)

    return spoil


def raises(_: Any, __: Any) -> None:
    raise ZeroDivisionError("of the environment")


def masked(*mask: int) -> Callable[..., None]:
    return told(4, red_1={"action_mask": np.array(mask, np.int8)})


BLUE = {"x": np.zeros(2, np.float32), "n": 0}
SPOILED: dict[str, tuple[Callable[..., None], int, str]] = {
    "shape": (
        told(0, red_1=np.zeros(4, np.float32)), 1,
        r"the observation of 'red_1' must have shape \(3,\), got \(4,\)",
    ),
    "dtype": (
        told(0, red_1=np.array(["a", "b", "c"])), 1,
        "the observation of 'red_1' must be of dtype float32, got <U1",
    ),
    "ragged": (told(0, red_1=[[1], [1, 2], 3]), 1, r"of 'red_1' must have shape \(3,\)"),
    "entry": (told(0, blue={"x": BLUE["x"]}), 1, "of 'blue' must have an entry 'n'"),
    "no_dict": (told(0, blue=3.0), 1, "of 'blue' must have an entry 'n'"),
    "integer": (told(0, blue={**BLUE, "n": 6}), 1, "of 'blue' must be from 0 to below 6, got 6"),
    "no_observation": (
        without(0, "red_1"), 1,
        r"observations must have an entry for 'red_1', got \['red_0', 'blue'\]",
    ),
    "no_reward": (without(1, "red_0"), 1, "rewards must have an entry for 'red_0'"),
    "no_end": (without(2, "blue"), 1, "terminations must have an entry for 'blue'"),
    "no_time": (without(3, "blue"), 1, "truncations must have an entry for 'blue'"),
    "impossible": (
        with_agents("red_0", "red_1", "blue", "green"), 1,
        r"among possible_agents \['red_0', 'red_1', 'blue'\], got 'green'",
    ),
    "impossible_observed": (told(0, green=np.zeros(3)), 1, "possible_agents .* got 'green'"),
    "impossible_at_reset": (with_agents("red_0", "green"), 0, "possible_agents .* got 'green'"),
    "nobody": (with_agents(), 0, "agents must have somebody after a reset, got nobody"),
    "unobserved_at_reset": (without(0, "blue"), 0, "observations must have an entry for 'blue'"),
    "dead_again": (
        told(2, blue=True), 3, "terminated must not be True for 'blue', which was dead already",
    ),
    "dead_late": (
        told(3, blue=True), 3, "truncated must not be True for 'blue', which was dead already",
    ),
    "revived": (
        with_agents("red_0", "red_1", "blue"), 3, "'blue' is in agents again after its end",
    ),
    "vanished": (
        with_agents("red_0"), 3, "'red_1' left agents and was neither terminated nor truncated",
    ),
    "mask_of_nothing": (masked(0, 0, 0, 0), 1, "mask of 'red_1' must allow an action"),
    "mask_shape": (masked(1, 1), 1, r"mask of 'red_1' must have shape \(4,\), got \(2,\)"),
    "raises": (raises, 3, "of the environment"),
    "raises_at_reset": (raises, 0, "of the environment"),
}  # fmt: skip


def second_of_three(spoil: Callable[..., None], at: int) -> list[Any]:
    return [Trio, partial(Trio, spoil, at), Trio]


def play_three(makers: list[Any], mode: str = "sync") -> EnvironmentFailed:
    """The error that playing raises; nothing goes on after it."""
    env = PettingZooVectorEnv(makers, mode=mode)
    with pytest.raises(EnvironmentFailed) as caught:
        play(env, 6)
    assert env.closed
    return caught.value


@pytest.mark.parametrize(("spoil", "at", "message"), SPOILED.values(), ids=SPOILED)
def test_what_an_environment_returns_wrongly_is_named(spoil: Any, at: int, message: str) -> None:
    envs: list[Trio] = []

    def make(i: int) -> Trio:
        envs.append(Trio(spoil if i == 1 else None, at))
        return envs[-1]

    failure = play_three([partial(make, i) for i in range(3)])
    assert failure.env_index == 1
    assert failure.doing.startswith("reset(" if at == 0 else "step({")
    assert isinstance(failure.__cause__, ValueError | ZeroDivisionError)
    with pytest.raises(type(failure.__cause__), match=message):
        raise failure.__cause__
    assert all(env.is_closed for env in envs)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a busy machine keeps waiting has the time that it needs."""
    monkeypatch.setattr("sharpwave.envs.processes.PATIENCE", 60.0)


@pytest.mark.long(but=["shape"])
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", ["shape", "no_observation", "dead_again", "raises"])
def test_the_same_is_named_in_processes(name: str) -> None:
    spoil, at, message = SPOILED[name]
    failure = play_three(second_of_three(spoil, at), "async")
    assert failure.env_index == 1
    assert failure.doing.startswith("step({")
    assert failure.__cause__ is not None
    with pytest.raises(type(failure.__cause__), match=message):
        raise failure.__cause__


class Exits(Trio):
    """Takes its process along."""

    def step(self, actions: Any) -> Any:
        if self.at == -1 and self.time == 2:
            os._exit(3)
        return super().step(actions)


@pytest.mark.long
@pytest.mark.usefixtures("patient")
def test_a_process_that_ends_is_noticed_and_none_is_left() -> None:
    before = set(multiprocessing.active_children())  # others may have left some
    env = PettingZooVectorEnv([Exits, partial(Exits, None, -1), Exits], mode="async")
    processes = set(multiprocessing.active_children()) - before
    with pytest.raises(EnvironmentFailed, match="it ended with exit code 3") as caught:
        play(env, 4)
    assert caught.value.env_index == 1
    assert len(processes) == 3
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


@pytest.mark.long
def test_processes_end_with_an_environment_that_is_forgotten() -> None:
    before = set(multiprocessing.active_children())
    env = PettingZooVectorEnv([Trio] * 2, mode="async")
    env.reset()
    started = set(multiprocessing.active_children()) - before
    assert len(started) == 2
    del env
    gc.collect()
    assert not any(process.is_alive() for process in started)


class Shrinks(Trio):
    """Its state is of those who are there."""

    state_space = spaces.Box(-9, 9, (3,), np.float64)

    def state(self) -> Any:
        return np.zeros(len(self.agents))


def test_a_state_that_changes_its_shape_is_named() -> None:
    failure = play_three([Shrinks] * 2)
    with pytest.raises(ValueError, match=r"the state must have shape \(3,\), got \(2,\)"):
        raise failure.__cause__  # type: ignore[misc]


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_names_environment_agent_and_step(
    reward: float, mode: str
) -> None:
    env = PettingZooVectorEnv(second_of_three(told(1, red_1=reward), 3), mode=mode)
    message = f"got {reward} for 'red_1' from environment 1 at step 3"
    with pytest.raises(NonFiniteError, match=message):
        play(env, 4)
    env.close()


def test_a_maker_that_raises_closes_what_was_made() -> None:
    first = Trio()
    with pytest.raises(EnvironmentFailed) as caught:
        PettingZooVectorEnv([lambda: first, lambda: 1 / 0])
    assert caught.value.env_index == 1
    assert caught.value.doing == "being made"
    assert first.is_closed


def test_environments_must_be_alike_and_apart() -> None:
    env = Mortal()
    with pytest.raises(ValueError, match="got the same one twice"):
        PettingZooVectorEnv([lambda: env] * 2)
    with pytest.raises(ValueError, match=r"same agents: environment 1 has .*red_0.*agent_0"):
        PettingZooVectorEnv([Mortal, Trio])


class OtherSpaces(Mortal):
    actions = spaces.Discrete(3)


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_environments_must_have_the_same_spaces(mode: str) -> None:
    with pytest.raises((ValueError, EnvironmentFailed), match="same spaces: environment 1 has"):
        PettingZooVectorEnv([Mortal, OtherSpaces], mode=mode)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ({"reds": np.zeros((2, 2), int)}, ValueError, r"groups \['red', 'blue'\], got \['reds'\]"),
        ({"red": np.zeros((2, 2), int)}, ValueError, r"groups \['red', 'blue'\], got \['red'\]"),
        (np.zeros((2, 2)), ValueError, "groups .*, got ndarray"),
        (
            {"red": np.zeros((2, 3), int), "blue": np.zeros((2, 1, 2))},
            ValueError,
            r"actions\['red'\] must have shape \(2, 2\), got \(2, 3\)",
        ),
        (
            {"red": np.zeros((2, 2)), "blue": np.zeros((2, 1, 2))},
            TypeError,
            r"actions\['red'\] must be integers, got float64",
        ),
        (
            {"red": np.zeros((2, 2), int), "blue": np.full((2, 1, 2), "a")},
            TypeError,
            r"actions\['blue'\] must be numbers, got <U1",
        ),
        *(
            (
                {"red": np.array([[0, 1], [0, bad]]), "blue": np.zeros((2, 1, 2))},
                ValueError,
                rf"actions\['red'\] must be in Discrete\(.*got {bad} for 'red_1' of environment 1",
            )
            for bad in (-1, 17)
        ),
    ],
)
def test_actions_are_checked_before_anything_is_stepped(
    actions: Any, error: Any, message: str
) -> None:
    envs = [Trio(), Trio()]
    vector = PettingZooVectorEnv([lambda one=one: one for one in envs])  # type: ignore[misc]
    vector.reset()
    with pytest.raises(error, match=message):
        vector.step(actions)
    assert [env.time for env in envs] == [0, 0]
    vector.step({"red": np.zeros((2, 2), int), "blue": np.zeros((2, 1, 2))})


class Dials(Mortal):
    """Its actions are several integers, of which some do not begin at 0."""

    actions = spaces.MultiDiscrete([3, 2], start=[-1, 4])  # type: ignore[assignment]

    def _checked(self, agent: str, actions: Any) -> int:
        return int(actions[agent][0]) % 2


def test_integers_are_in_the_range_of_their_dimension() -> None:
    vector = PettingZooVectorEnv([Dials])
    vector.reset(seed=0)
    actions = np.array([[[-1, 5], [1, 4]]])
    with pytest.raises(ValueError, match=r"got \[2, 4\] for 'agent_1' of environment 0"):
        vector.step({"agent": np.add(actions, [[[0, 0], [1, 0]]])})
    with pytest.raises(ValueError, match=r"got \[-1, 6\] for 'agent_0' of environment 0"):
        vector.step({"agent": np.add(actions, [[[0, 1], [0, 0]]])})
    step = vector.step({"agent": actions})
    assert step.groups["agent"].alive.tolist() == [[True, False]]
    vector.step({"agent": np.add(actions, [[[0, 0], [99, 99]]])})  # nobody asks the dead


class NoAgents(Trio):
    def __init__(self) -> None:
        super().__init__()
        del self.possible_agents


class TextObservations(Trio):
    def observation_space(self, agent: Any) -> Any:
        return spaces.Text(5)


class NoSpaces(Trio):
    def action_space(self, agent: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), ValueError, "makers must make at least one environment, got none"),
        (([NoAgents],), TypeError, "env must have possible_agents, NoAgents has none"),
        (([NoSpaces],), TypeError, r"action_space\('red_0'\) must be a space, got None"),
        (([TextObservations],), TypeError, r"observation_space\('red_0'\) must be a Box"),
        (([dict],), TypeError, "must make a PettingZoo environment, .* got builtins.dict"),
    ],
)
def test_what_is_no_environment_is_named(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PettingZooVectorEnv(*arguments)


def test_mode_and_groups_are_checked() -> None:
    with pytest.raises(ValueError, match=r"mode must be one of .* got 'thread'"):
        PettingZooVectorEnv([Trio], mode="thread")
    env = Trio()
    with pytest.raises(ValueError, match="every agent, got none with blue"):
        PettingZooVectorEnv([lambda: env], groups={"red": ["red_0", "red_1"]})
    assert env.is_closed


def test_missing_libraries_name_the_extra(monkeypatch: Any) -> None:
    libraries = ("mpe2", "pettingzoo")
    for name in [x for x in sys.modules if x.partition(".")[0] in libraries]:
        monkeypatch.delitem(sys.modules, name)
    for name in libraries:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    for env_id in ("mpe2/simple_tag_v3", "pettingzoo.classic.tictactoe_v3"):
        with pytest.raises(ImportError, match=r'pip install "sharpwave\[multi\]"'):
            make_multi_env(env_id)
    assert make_multi_env(Mortal).agents == ("agent_0", "agent_1")  # which needs neither


def test_libraries_of_single_environments_are_named_as_pettingzoo_does(monkeypatch: Any) -> None:
    pytest.importorskip("pettingzoo")
    for name in [x for x in sys.modules if x.startswith("pettingzoo.butterfly.pistonball")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymunk", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"not installed: .* 'pettingzoo\[butterfly\]'"):
        make_multi_env("pettingzoo.butterfly.pistonball_v6")


class Resets(Trio):
    state_space = None

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        raise ZeroDivisionError


def test_an_environment_that_raises_while_its_state_is_found_out_is_named() -> None:
    first = Trio()
    first.state_space = None
    with pytest.raises(EnvironmentFailed) as caught:
        PettingZooVectorEnv([lambda: first, Resets])
    assert caught.value.env_index == 1
    assert first.is_closed
