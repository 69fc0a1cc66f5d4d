"""The arguments of make_multi_env."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs import (
    EnvironmentFailed,
    PettingZooVectorEnv,
    SingleAgentVectorEnv,
    make_multi_env,
    make_vec_env,
)
from sharpwave.envs.multi import multi_env_ids
from sharpwave.envs.multi.native import NativeMultiAgentEnv
from sharpwave.envs.multi.toys import Generations, MatrixGame, Mortal, Switch
from sharpwave.envs.named import names_code
from tests.unit.envs.multi.multi_envs import assert_same_steps, play

pytest.importorskip("mpe2")


@pytest.mark.parametrize(
    ("env_id", "groups"),
    [
        ("mpe2/simple_spread_v3", {"agent": 3}),
        ("mpe2.simple_spread_v3", {"agent": 3}),
        ("mpe2/simple_tag_v3", {"adversary": 3, "agent_0": 1}),
        ("mpe2/simple_speaker_listener_v4", {"speaker_0": 1, "listener_0": 1}),
        ("pettingzoo.classic.tictactoe_v3", {"player": 2}),
        ("pettingzoo/classic/connect_four_v3", {"player": 2}),
        ("classic/rps-v2", {"player": 2}),
        ("CartPole-v1", {"agent_0": 1}),
    ],
)
def test_ids_name_environments_of_one_or_many(env_id: str, groups: dict[str, int]) -> None:
    env = make_multi_env(env_id, 2, seed=0)
    assert {name: len(agents) for name, agents in env.groups.items()} == groups
    assert env.num_envs == 2
    step = env.reset()
    for name, group in step.groups.items():
        assert group.obs.shape[:2] == (2, groups[name])
    env.close()


def test_native_code_stands_for_an_id_whose_numbers_it_gives() -> None:
    spread = "mpe2/simple_spread_v3"
    assert isinstance(make_multi_env(spread, 2), NativeMultiAgentEnv)
    assert isinstance(make_multi_env(spread, 2, mode="native"), NativeMultiAgentEnv)
    assert isinstance(make_multi_env(spread, mode="sync"), PettingZooVectorEnv)
    env = make_multi_env(spread, env_kwargs={"curriculum": True})
    assert isinstance(env, PettingZooVectorEnv)
    with pytest.raises(ValueError, match=r'mode must not be "native": .*simple_tag_v3'):
        make_multi_env("mpe2/simple_tag_v3", mode="native")


@pytest.mark.parametrize("env", [Mortal, lambda: Mortal(), Mortal()], ids=["class", "maker", "env"])
def test_environments_and_their_makers_are_taken(env: Any) -> None:
    made = make_multi_env(env, seed=3)
    assert isinstance(made, PettingZooVectorEnv)
    assert_same_steps(play(made, 9, None), play(make_multi_env(Mortal, 1, seed=3), 9, None))


def test_a_maker_of_environments_of_one_agent_is_taken() -> None:
    env = make_multi_env(lambda: gym.make("CartPole-v1"), 3)
    assert isinstance(env, SingleAgentVectorEnv)
    assert env.num_envs == 3
    vector = make_vec_env("CartPole-v1", 2)
    single = make_multi_env(vector)
    assert isinstance(single, SingleAgentVectorEnv)
    assert single.env is vector


def test_a_multi_agent_vector_environment_is_taken_as_it_is() -> None:
    env = PettingZooVectorEnv([Mortal] * 2)
    assert make_multi_env(env) is env
    assert make_multi_env(env, 2, groups={"agent": ["agent_0", "agent_1"]}) is env
    with pytest.raises(ValueError, match="n_envs must be 2 like the env's, got 3"):
        make_multi_env(env, 3)
    with pytest.raises(ValueError, match=r"groups must be .* like the env's"):
        make_multi_env(env, groups={"all": ["agent_0", "agent_1"]})


def test_a_maker_is_called_once_for_each_environment() -> None:
    made: list[Mortal] = []

    def make(horizon: int) -> Mortal:
        made.append(Mortal(horizon))
        return made[-1]

    env = make_multi_env(make, 3, env_kwargs={"horizon": 5})
    assert len(made) == 3
    assert sum(step.ended.sum() for step in play(env, 10)) == 6


def test_the_seed_is_kept_for_a_later_reset() -> None:
    first, second = (make_multi_env(Generations, 2, seed=4) for _ in range(2))
    assert_same_steps(play(first, 9, None), play(second, 9, None))
    other = make_multi_env(Generations, 2, seed=5)
    step, wanted = other.reset(), second.reset()
    assert not np.array_equal(step.state, wanted.state)  # type: ignore[arg-type]


def test_arguments_go_to_what_an_id_names() -> None:
    env = make_multi_env("mpe2/simple_tag_v3", env_kwargs={"num_adversaries": 2, "max_cycles": 7})
    assert len(env.groups["adversary"]) == 2
    assert [bool(step.ended[0]) for step in play(env, 7)] == [False] * 7 + [True]


def test_a_module_of_a_user_is_named_by_its_path(monkeypatch: Any, tmp_path: Any) -> None:
    (tmp_path / "games_of_mine").mkdir()
    (tmp_path / "games_of_mine" / "__init__.py").touch()
    text = "from sharpwave.envs.multi.toys import Switch as env"
    (tmp_path / "games_of_mine" / "bridge.py").write_text(text)
    (tmp_path / "games_of_mine" / "empty.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    env = make_multi_env("games_of_mine.bridge", 2, env_kwargs={"bridge": 1})
    assert env.state_space == make_multi_env(Switch).state_space
    with pytest.raises(EnvironmentFailed, match=r"games_of_mine\.empty has neither"):
        make_multi_env("games_of_mine.empty")
    assert isinstance(sys.modules["games_of_mine.bridge"], ModuleType)


def test_ids_that_import_a_module_of_anybody_name_code() -> None:
    known = ("mpe2/simple_spread_v3", "pettingzoo.classic.rps_v2", "CartPole-v1", "ALE/Pong-v5")
    assert not any(names_code(env_id) for env_id in known)
    assert all(names_code(env_id) for env_id in ("games_of_mine.bridge", "os.path", "a:B-v0"))


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("mpe2/simple_sprad_v3", "mpe2/simple_spread_v3"),
        ("mpe2.simple_tags_v3", "mpe2/simple_tag_v3"),
        ("simple_spread_v3", "mpe2/simple_spread_v3"),
        ("pettingzoo.classic.tictactoe_v2", "pettingzoo/classic/tictactoe_v3"),
        ("CartPol-v1", "CartPole-v1"),
    ],
)
def test_an_unknown_id_names_the_nearest(env_id: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"got {env_id!r}.* nearest are .*{nearest}"):
        make_multi_env(env_id)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env": Mortal, "n_envs": 0}, ValueError, "n_envs must be at least 1, got 0"),
        ({"env": Mortal, "n_envs": 2.5}, TypeError, "n_envs must be an integer, got 2.5"),
        ({"env": Mortal, "mode": "fast"}, ValueError, "mode must be one of"),
        ({"env": Mortal(), "n_envs": 2}, ValueError, "n_envs must be 1 for a single environment"),
        ({"env": Mortal(), "mode": "async"}, ValueError, 'mode must not be "async"'),
        (
            {"env": Mortal(), "env_kwargs": {"horizon": 3}},
            ValueError,
            "env_kwargs must not be given",
        ),
        ({"env": Mortal, "mode": "native"}, ValueError, 'mode must not be "native"'),
        ({"env": 3}, TypeError, "env must be an id, .* got builtins.int"),
        ({"env": "not.a.module"}, ValueError, "env must be the id of an environment"),
        ({"env": "CartPole-v1", "groups": {"a": ["agent_0"]}}, ValueError, "groups must be"),
        ({"env": Mortal, "groups": {"a": ["agent_0"]}}, ValueError, "every agent, got none with"),
        ({"env": dict}, TypeError, "must make a PettingZoo environment"),
        ({"env": MatrixGame}, EnvironmentFailed, "being made"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make_multi_env(**arguments)


def test_installed_environments_are_listed() -> None:
    ids = multi_env_ids()
    assert {"mpe2/simple_spread_v3", "pettingzoo/classic/tictactoe_v3"} <= set(ids)
    assert ids == sorted(ids)


@pytest.mark.long
def test_environments_in_processes_by_id() -> None:
    here, there = (make_multi_env("mpe2/simple_tag_v3", 2, mode=mode) for mode in ("sync", "async"))
    assert_same_steps(play(here, 30), play(there, 30))
    there.close()


def test_the_public_name_is_there() -> None:
    assert sw.envs.make_multi_env is make_multi_env
