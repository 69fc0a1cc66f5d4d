"""Vector environments from ids, environments, makers and vector environments."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import sharpwave as sw
from sharpwave.envs import (
    EnvironmentFailed,
    NativeVectorEnv,
    PythonVectorEnv,
    SubprocessVectorEnv,
    make_vec_env,
)
from sharpwave.envs.native import SPECS
from tests.envs import CountingEnv, FailingEnv, numbered


def test_an_id() -> None:
    env = make_vec_env("CartPole-v1", 3, mode="sync", env_kwargs={"max_episode_steps": 5})
    assert isinstance(env, PythonVectorEnv)
    assert env.num_envs == 3
    assert env.spec is not None
    assert env.spec.id == "CartPole-v1"
    assert env.spec.max_episode_steps == 5
    assert make_vec_env("CartPole-v1").num_envs == 1


def test_an_id_with_the_module_that_registers_it() -> None:
    env = make_vec_env("gymnasium.envs.classic_control:CartPole-v1", 2)
    assert env.num_envs == 2


def test_an_environment() -> None:
    inner = CountingEnv()
    env = make_vec_env(inner)
    assert isinstance(env, PythonVectorEnv)
    assert env.envs == [inner]
    assert make_vec_env(inner, 1).num_envs == 1
    with pytest.raises(ValueError, match="n_envs must be 1 for a single environment, got 2"):
        make_vec_env(inner, 2)


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_a_maker(mode: str) -> None:
    env = make_vec_env(CountingEnv, 2, mode=mode, env_kwargs={"lengths": (7,)})
    assert isinstance(env, PythonVectorEnv)
    assert env.get_attr("lengths") == ((7,), (7,))
    assert make_vec_env(lambda: gym.make("Pendulum-v1"), 2).num_envs == 2


def test_a_vector_environment_is_taken_as_it_is() -> None:
    given = SyncVectorEnv(numbered(2))
    assert make_vec_env(given) is given
    assert make_vec_env(given, 2) is given
    with pytest.raises(ValueError, match="n_envs must be 2 like the env's, got 3"):
        make_vec_env(given, 3)
    for arguments in ({"mode": "async"}, {"env_kwargs": {"lengths": (1,)}}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            make_vec_env(given, **arguments)


@pytest.mark.long
def test_processes() -> None:
    env = make_vec_env("CartPole-v1", 2, mode="async", seed=1)
    assert isinstance(env, SubprocessVectorEnv)
    here = make_vec_env("CartPole-v1", 2, mode="sync", seed=1)
    np.testing.assert_array_equal(env.reset()[0], here.reset()[0])
    env.close()
    assert env.closed


class TestNative:
    @pytest.mark.parametrize("env_id", sorted(SPECS))
    @pytest.mark.parametrize("mode", ["auto", "native"])
    def test_native_code_is_taken_where_there_is_any(self, env_id: str, mode: str) -> None:
        env = make_vec_env(env_id, 3, mode=mode, env_kwargs={"max_episode_steps": 5})
        assert isinstance(env, NativeVectorEnv)
        assert env.num_envs == 3
        assert env.spec is not None
        assert env.spec.id == env_id
        assert env.spec.max_episode_steps == 5
        assert make_vec_env(env_id, mode=mode).num_envs == 1
        assert isinstance(make_vec_env(f"sharpwave/{env_id}", 2, mode=mode), NativeVectorEnv)

    def test_an_argument_of_gymnasiums_environment_is_kept(self) -> None:
        env = make_vec_env("Pendulum-v1", 2, env_kwargs={"g": 0.0, "render_mode": None}, seed=0)
        assert isinstance(env, NativeVectorEnv)
        other = make_vec_env("Pendulum-v1", 2, mode="sync", env_kwargs={"g": 0.0}, seed=0)
        state = env.get_state()
        state["variables"] = np.ones((2, 2))
        env.set_state(state)
        for one in other.envs:  # type: ignore[attr-defined]
            one.unwrapped.state = np.ones(2)
        actions = np.ones((2, 1), np.float32)
        np.testing.assert_array_equal(env.step(actions)[0], other.step(actions)[0])

    @pytest.mark.parametrize(
        ("env", "env_kwargs", "reason"),
        [
            ("CartPole-v1", {"render_mode": "rgb_array"}, "no native argument 'render_mode'"),
            ("CartPole-v1", {"disable_env_checker": True}, "no native argument 'disable_env"),
            ("CartPole-v0", {}, "'CartPole-v0' is not a native environment"),
            ("Blackjack-v1", {}, "not a native"),
            (lambda: gym.make("CartPole-v1"), {}, "is not a native environment"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*The environment CartPole-v0 is out of date")
    def test_what_it_does_not_know_is_left_to_python(
        self, env: Any, env_kwargs: dict[str, Any], reason: str
    ) -> None:
        if "disable_env_checker" not in env_kwargs:
            made = make_vec_env(env, 2, env_kwargs=env_kwargs)
            assert isinstance(made, PythonVectorEnv)
        with pytest.raises(ValueError, match=reason):
            make_vec_env(env, 2, mode="native", env_kwargs=env_kwargs)

    def test_an_environment_that_is_made_is_not_native(self) -> None:
        with pytest.raises(ValueError, match=r"native.*already made"):
            make_vec_env(CountingEnv(), mode="native")
        assert isinstance(make_vec_env(NativeVectorEnv("CartPole-v1", 2)), NativeVectorEnv)

    def test_an_id_that_someone_registered_anew_is_theirs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = gym.envs.registration.EnvSpec("CartPole-v1", entry_point="tests.envs:CountingEnv")
        monkeypatch.setitem(gym.registry, "CartPole-v1", other)
        env = make_vec_env("CartPole-v1", 2)
        assert isinstance(env, PythonVectorEnv)
        assert isinstance(env.envs[0].unwrapped, CountingEnv)
        with pytest.raises(ValueError, match="registered as something else"):
            make_vec_env("CartPole-v1", mode="native")


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_a_seed_decides_what_a_later_reset_without_one_gives(mode: str) -> None:
    first, second = (make_vec_env("CartPole-v1", 2, seed=3, mode=mode) for _ in range(2))
    np.testing.assert_array_equal(first.reset()[0], second.reset()[0])
    np.testing.assert_array_equal(first.action_space.sample(), second.action_space.sample())
    other = make_vec_env("CartPole-v1", 2, seed=4, mode=mode)
    assert not np.array_equal(first.reset()[0], other.reset()[0])
    obs, _ = first.reset(seed=3)
    for i in range(2):
        alone = make_vec_env("CartPole-v1", mode=mode)
        np.testing.assert_array_equal(obs[i], alone.reset(seed=3 + i)[0][0])


def test_python_environments_get_gymnasiums_seeds() -> None:
    obs, _ = make_vec_env("CartPole-v1", 2, mode="sync").reset(seed=3)
    for i in range(2):
        np.testing.assert_array_equal(obs[i], gym.make("CartPole-v1").reset(seed=3 + i)[0])


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Pendlum", "Pendulum-v1"),
        ("nowhere/CartPole-v1", "CartPole-v1"),
    ],
)
def test_an_unknown_id_gets_the_nearest(env_id: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"got '{env_id}'; the nearest are .*{nearest}"):
        make_vec_env(env_id)


def test_an_id_like_no_other() -> None:
    with pytest.raises(ValueError, match=r"got 'q'$"):
        make_vec_env("q")
    with pytest.raises(ValueError, match="registered environment, got 'no_module:Env-v0'"):
        make_vec_env("no_module:Env-v0")


@pytest.mark.parametrize("env_id", ["mpe2/simple_spread_v3", "classic/tictactoe-v3"])
def test_algorithms_for_several_agents_are_named(env_id: str) -> None:
    with pytest.raises(ValueError, match=f"one agent, got '{env_id}': MAPPO, IPPO, VDN and QMIX"):
        make_vec_env(env_id)
    with pytest.raises(ValueError, match="env must have one agent"):
        sw.PPO(env_id)


@pytest.mark.parametrize("env", [None, 3, [CountingEnv], np.zeros(3)])
def test_something_else_is_refused(env: Any) -> None:
    with pytest.raises(TypeError, match=r"env must be an id, a gymnasium\.Env, a callable"):
        make_vec_env(env)


@pytest.mark.parametrize("made", [None, 3, CountingEnv, SyncVectorEnv])
def test_makers_of_something_else_are_refused(made: Any) -> None:
    value = SyncVectorEnv(numbered(1)) if made is SyncVectorEnv else made
    with pytest.raises(TypeError, match=r"env must make a gymnasium\.Env, got"):
        make_vec_env(lambda: value, 2)


def test_environments_without_spaces_are_refused() -> None:
    class Spaceless(gym.Env[Any, Any]):
        pass

    with pytest.raises(TypeError, match="env must have an observation_space, Spaceless has none"):
        make_vec_env(Spaceless)


def test_a_maker_of_the_same_environment_is_refused() -> None:
    env = CountingEnv()
    with pytest.raises(ValueError, match="new environment each time"):
        make_vec_env(lambda: env, 2)


def test_makers_of_different_spaces_are_refused() -> None:
    made: list[CountingEnv] = []

    def maker() -> CountingEnv:
        made.append(CountingEnv())
        made[-1].action_space = gym.spaces.Discrete(len(made))
        return made[-1]

    with pytest.raises(ValueError, match="same action_space: environment 1 has Discrete"):
        make_vec_env(maker, 2)
    assert all(env.is_closed for env in made)


def test_a_maker_that_raises_is_named_and_the_others_are_closed() -> None:
    made: list[CountingEnv] = []

    def maker() -> CountingEnv:
        if len(made) == 2:
            raise FileNotFoundError("no such world")
        made.append(CountingEnv())
        return made[-1]

    with pytest.raises(EnvironmentFailed, match="environment 2 failed in being made") as caught:
        make_vec_env(maker, 3)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert all(env.is_closed for env in made)


def test_wrong_arguments_of_an_id_are_told() -> None:
    with pytest.raises(EnvironmentFailed, match="color"):
        make_vec_env("CartPole-v1", env_kwargs={"color": "red"})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_reset_that_raises_is_named(mode: str) -> None:
    with pytest.raises(EnvironmentFailed, match="the level is missing"):
        make_vec_env(partial(FailingEnv, fail_reset=0), 2, mode=mode, seed=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_envs": 0}, ValueError, "n_envs must be at least 1, got 0"),
        ({"n_envs": 1.5}, TypeError, "n_envs must be an integer, got 1.5"),
        ({"n_envs": True}, TypeError, "n_envs must be an integer, got True"),
        ({"mode": "fast"}, ValueError, r"mode must be one of .*, got 'fast'"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make_vec_env("CartPole-v1", **arguments)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_unsupported_spaces_are_refused(mode: str) -> None:
    class Talking(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Dict({"says": gym.spaces.Text(5)})

    with pytest.raises(TypeError, match=r"observation_space\['says'\] must be .*, got Text"):
        make_vec_env(Talking, mode=mode)


@pytest.mark.long
def test_nothing_imports_gymnasium_before_it_is_needed() -> None:
    program = (
        "import sys, sharpwave, sharpwave.envs, sharpwave.envs.autoreset, sharpwave.core.tree;"
        "print('gymnasium' in sys.modules, 'torch' in sys.modules);"
        "from sharpwave.envs import make_vec_env, VecNormalize, environment_state, ActionMap;"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "False"]


def test_an_unknown_name_of_the_module_is_told() -> None:
    import sharpwave.envs

    with pytest.raises(AttributeError, match="no attribute 'make_vek_env'"):
        sharpwave.envs.make_vek_env  # noqa: B018
