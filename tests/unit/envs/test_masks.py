"""Masks of the actions allowed in the observation to act on next."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sharpwave.envs import (
    PythonVectorEnv,
    Stepper,
    SubprocessVectorEnv,
    VecNormalize,
    action_masks,
)
from tests.envs import CountingEnv, numbered, vectorized

MODES = ["next_step", "same_step", "disabled"]


class MaskingEnv(CountingEnv):
    """Allows the action that its observation names: step modulo 3, and after a reset 2 too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.action_space = gym.spaces.Discrete(3)

    def mask(self) -> Any:
        mask = np.zeros(3, np.int8)
        mask[self.step_number % 3] = 1
        if self.step_number == 0:
            mask[2] = 1
        return mask


class InInfo(MaskingEnv):
    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return obs, {**info, "action_mask": self.mask()}

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        return *outcome, {**info, "action_mask": self.mask()}


class ByMethod(MaskingEnv):
    def action_masks(self) -> Any:
        return self.mask()


class ByOtherMethod(MaskingEnv):
    def action_mask(self) -> Any:
        return self.mask().tolist()


def expected(obs: Any) -> Any:
    """The masks that the observations carry."""
    masks = np.zeros((len(obs), 3), np.bool_)
    for i, (_, _, step) in enumerate(obs):
        masks[i, int(step) % 3] = True
        masks[i, 2] |= step == 0
    return masks


@pytest.mark.parametrize("kind", [InInfo, ByMethod, ByOtherMethod])
@pytest.mark.parametrize("mode", MODES)
def test_masks_belong_to_the_observation_to_act_on(mode: str, kind: Any) -> None:
    lengths: list[tuple[int, ...]] = [(1,), (3, 2), (4, 1)]
    makers: list[Any] = [lambda i=i: kind(lengths[i], i) for i in range(3)]
    env = vectorized(makers, mode)
    stepper = Stepper(env)
    obs, infos = stepper.reset(seed=0)
    for _ in range(12):
        masks = action_masks(env, infos)
        assert masks is not None
        assert masks.dtype == np.bool_
        np.testing.assert_array_equal(masks, expected(obs))
        step = stepper.step(masks.argmax(axis=1))
        obs, infos = step.obs, step.infos


@pytest.mark.long(but=["InInfo-PythonVectorEnv"])
@pytest.mark.parametrize("vector", [PythonVectorEnv, SubprocessVectorEnv])
@pytest.mark.parametrize("kind", [InInfo, ByMethod, ByOtherMethod])
def test_own_vector_environments(vector: Any, kind: Any) -> None:
    env = VecNormalize(vector(numbered(2, kind, lengths=(1, 2))), norm_obs=False)
    stepper = Stepper(env)
    obs, infos = stepper.reset(seed=0)
    for _ in range(5):
        masks = action_masks(env, infos)
        np.testing.assert_array_equal(masks, expected(obs))
        step = stepper.step(np.zeros(2, np.int64))
        obs, infos = step.obs, step.infos
    env.close()


@pytest.mark.parametrize("vector", [PythonVectorEnv, SubprocessVectorEnv])
def test_environments_without_masks_have_none(vector: Any) -> None:
    env = vector(numbered(2))
    _, infos = env.reset()
    assert action_masks(env, infos) is None
    env.step(np.zeros(2, np.int64))  # nothing broke
    env.close()


def test_the_method_of_a_vector_environment_itself() -> None:
    class Own(PythonVectorEnv):
        def action_masks(self) -> Any:
            return np.array([[True, False], [False, True]])

    env = Own(numbered(2))
    np.testing.assert_array_equal(action_masks(env, {}), [[True, False], [False, True]])


def test_an_environment_without_a_mask_allows_everything() -> None:
    env = PythonVectorEnv(numbered(2, MaskingEnv))
    infos = {
        "action_mask": np.array([[0, 1, 0], [0, 0, 0]]),
        "_action_mask": np.array([True, False]),
    }
    np.testing.assert_array_equal(action_masks(env, infos), [[False, True, False], [True] * 3])


def test_a_mask_that_allows_nothing_is_opened() -> None:
    env = PythonVectorEnv(numbered(2, MaskingEnv))
    infos = {"action_mask": np.array([[0, 0, 0], [1, 0, 0]])}
    np.testing.assert_array_equal(action_masks(env, infos), [[True] * 3, [True, False, False]])


class Spaced(CountingEnv):
    def __init__(self, action_space: Any) -> None:
        super().__init__()
        self.action_space = action_space


def test_masks_of_several_dimensions_stand_in_a_row() -> None:
    env = PythonVectorEnv([lambda: Spaced(gym.spaces.MultiDiscrete([2, 3]))])
    got = action_masks(env, {"action_mask": np.array([[0, 0, 1, 0, 1]])})
    assert got is not None
    assert got.tolist() == [[True, True, True, False, True]]


def test_masks_of_bits_say_which_may_be_set_and_may_forbid_all() -> None:
    binary = PythonVectorEnv([lambda: Spaced(gym.spaces.MultiBinary(2))] * 2)
    got = action_masks(binary, {"action_mask": np.array([[1, 0], [0, 0]])})
    assert got is not None
    assert got.tolist() == [[True, False], [False, False]]


def test_masks_of_another_shape_are_refused() -> None:
    env = PythonVectorEnv(numbered(2, MaskingEnv))
    with pytest.raises(ValueError, match=r"of environment 0 must have shape \(3,\), got \(2,\)"):
        action_masks(env, {"action_mask": np.ones((2, 2))})
    box = PythonVectorEnv([lambda: Spaced(gym.spaces.Box(0, 1, (2,)))])
    with pytest.raises(ValueError, match="discrete actions, got Box"):
        action_masks(box, {"action_mask": np.ones((1, 2))})
