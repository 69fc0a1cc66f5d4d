"""Environments keep their contract, and each way to break it is found by the rule it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs import NativeVectorEnv
from sharpwave.testing import ENV_RULES, ContractError, check_env
from tests.envs import MaskedEnv, resumable, vectorized
from tests.unit.testing.broken_envs import BROKEN, Declared, Disabled, Masked, NextStep, Walk

ALWAYS = set(ENV_RULES) - {
    "termination_and_truncation_are_told_apart",
    "same_step_gives_the_true_last_observation",
    "next_step_resets_in_the_step_after_an_end",
    "disabled_resets_only_what_is_asked",
    "action_masks_fit_the_action_space",
    "a_saved_state_goes_on_exactly",
}
OF_MODE = {
    "same_step": "same_step_gives_the_true_last_observation",
    "next_step": "next_step_resets_in_the_step_after_an_end",
    "disabled": "disabled_resets_only_what_is_asked",
}
MODES = pytest.mark.parametrize("mode", OF_MODE)
IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]


class NoisyWalk(gym.Env[Any, Any]):
    """Nested observations, continuous actions, and a state to go on from."""

    observation_space = gym.spaces.Dict(
        {
            "image": gym.spaces.Box(0, 255, (2, 2), np.uint8),
            "rest": gym.spaces.Tuple(
                (gym.spaces.Discrete(50), gym.spaces.Box(-9, 9, (), np.float64))
            ),
        }
    )
    action_space = gym.spaces.Box(-1, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {"first": 1}

    def observation(self) -> Any:
        image = self.np_random.integers(0, 256, (2, 2), np.uint8)
        return {"image": image, "rest": (self.steps, np.array(self.np_random.uniform(-9, 9)))}

    def step(self, action: Any) -> Any:
        self.steps += 1
        ended, late = self.np_random.random() < 0.1, self.steps >= 20
        return self.observation(), float(np.sum(action)), ended, late, {"speed": 1.0}

    def get_state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class MaskedCount(MaskedEnv):
    """Begins anew with every seed."""

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> Any:
        if seed is not None:
            self.episode = -1
        return super().reset(seed=seed, **kwargs)


@pytest.mark.long(but=["CartPole-v1-same_step"])
@MODES
@pytest.mark.parametrize("env_id", IDS)
def test_native_environments_keep_all_rules(env_id: str, mode: str) -> None:
    kept = set(check_env(lambda: NativeVectorEnv(env_id, 3, autoreset_mode=mode)))
    assert ALWAYS | {OF_MODE[mode], "a_saved_state_goes_on_exactly"} <= kept


@pytest.mark.long(but=["CartPole-v1"])
@pytest.mark.parametrize("env_id", IDS)
def test_native_environments_on_a_device_keep_all_rules(env_id: str) -> None:
    kept = set(check_env(lambda: sw.make_vec_env(env_id, 3, device="cpu")))
    assert ALWAYS | {OF_MODE["same_step"], "a_saved_state_goes_on_exactly"} <= kept


@pytest.mark.long(but=["same_step"])
@MODES
def test_gymnasiums_environments_keep_all_rules(mode: str) -> None:
    kept = set(check_env(lambda: vectorized([resumable] * 3, mode), n_steps=80))
    assert ALWAYS | {OF_MODE[mode], "a_saved_state_goes_on_exactly"} <= kept


@pytest.mark.long
@pytest.mark.parametrize("make", [resumable, NoisyWalk])
def test_environments_in_this_process_keep_all_rules(make: Callable[[], Any]) -> None:
    kept = set(check_env(make))
    assert ALWAYS | {OF_MODE["same_step"], "a_saved_state_goes_on_exactly"} <= kept


@pytest.mark.long
@pytest.mark.parametrize("make", [resumable, NoisyWalk])
def test_environments_in_processes_keep_all_rules(make: Callable[[], Any]) -> None:
    env = sw.make_vec_env(make, 2, mode="async")
    kept = set(check_env(env))
    env.close()
    assert ALWAYS | {OF_MODE["same_step"], "a_saved_state_goes_on_exactly"} <= kept


def test_wrapped_environments_keep_all_rules() -> None:
    env = sw.VecNormalize(sw.make_vec_env("CartPole-v1", 2))
    env.training = False  # as in evaluation: the same steps look the same
    assert set(check_env(env, n_steps=100)) >= ALWAYS


@pytest.mark.long(but=["Walk-more0"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (Walk, {OF_MODE["same_step"]}),
        (NextStep, {OF_MODE["next_step"]}),
        (Disabled, {OF_MODE["disabled"]}),
        (Masked, {OF_MODE["same_step"], "action_masks_fit_the_action_space"}),
    ],
)
def test_environments_of_a_user_keep_all_rules(kind: type, more: set[str]) -> None:
    told = {"termination_and_truncation_are_told_apart", "a_saved_state_goes_on_exactly"}
    assert set(check_env(kind)) == ALWAYS | told | more


@pytest.mark.long
def test_arrays_may_be_overwritten_where_that_is_declared() -> None:
    declared = {"returned_arrays_are_not_overwritten"}
    assert set(check_env(Walk)) - set(check_env(Declared)) == declared


@pytest.mark.long
def test_an_id_an_environment_and_a_maker_are_taken() -> None:
    env = gym.make("CartPole-v1")
    rule = "rewards_are_finite"
    for source in ("CartPole-v1", env, partial(gym.make, "CartPole-v1"), Walk()):
        assert check_env(source, rules=rule) == (rule,)
    env.reset()  # it is still open


@pytest.mark.long
def test_masks_in_infos_are_followed() -> None:
    kept = check_env(lambda: MaskedCount((4, 6)), n_steps=40)
    assert "action_masks_fit_the_action_space" in kept


@pytest.mark.long(but=["Raises"])
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_environment_is_found_by_its_rule(kind: type) -> None:
    with pytest.raises(ContractError) as caught:
        check_env(kind)
    rule = BROKEN[kind]
    assert rule in caught.value.broken
    assert str(caught.value).startswith(f"{kind.__name__} breaks ")
    assert f"- {rule}: " in str(caught.value)


def test_every_rule_finds_something() -> None:
    assert set(BROKEN.values()) == set(ENV_RULES)
