"""Environments on a device do what native ones do, in torch, Triton's interpreter and on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.envs import DeviceVectorEnv, NativeVectorEnv
from sharpwave.envs.native import SPECS
from sharpwave.envs.on_device import plain
from sharpwave.primitives import backend
from sharpwave.types import Array
from tests.unit.envs.native_runs import IDS, sampled

N = 37  # not a multiple of a block
STEPS = 12 if backend.INTERPRETED else 200
ULPS = 4 * float(np.finfo(np.float32).eps)
"""Float32 may be so far apart: sines may differ in the last bit of float64."""

# How far the variables of a state go, and further: beyond several turns of an angle.
SCALES = {
    "CartPole-v1": (2.5, 6.0, 0.22, 6.0),
    "Pendulum-v1": (100.0, 8.0),
    "Acrobot-v1": (80.0, 80.0, 4 * np.pi, 9 * np.pi),
    "MountainCar-v0": (1.2, 0.07),
    "MountainCarContinuous-v0": (1.2, 0.07),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"sutton_barto_reward": True},
    "Pendulum-v1": {"g": 9.81},
    "Acrobot-v1": {},
    "MountainCar-v0": {"goal_velocity": 0.01},
    "MountainCarContinuous-v0": {"goal_velocity": 0.01},
}


class Twins:
    """N environments of native code and on a device, made alike."""

    def __init__(self, env_id: str, device: torch.device, n: int = N, **kwargs: Any) -> None:
        self.native = NativeVectorEnv(env_id, n, **kwargs)
        self.device = DeviceVectorEnv(env_id, n, device, **kwargs)

    def reset(self, seed: Any) -> None:
        obs, _ = self.native.reset(seed=seed)
        there, _ = self.device.reset(seed=seed)
        np.testing.assert_allclose(there.cpu().numpy(), obs, rtol=ULPS, atol=ULPS)

    def step(self, actions: Array) -> Array:
        """Step both, compare, and return where episodes ended."""
        obs, rewards, terminated, truncated, infos = self.native.step(actions)
        ended: Array = terminated | truncated
        sent = torch.from_numpy(actions).to(self.device.device)
        *there, told = self.device.step(sent)
        found = [tensor.cpu().numpy() for tensor in (*there, told["final_obs"])]
        np.testing.assert_array_equal(found[2], terminated)
        np.testing.assert_array_equal(found[3], truncated)
        np.testing.assert_allclose(found[0], obs, rtol=ULPS, atol=ULPS)
        np.testing.assert_allclose(found[1], rewards, rtol=ULPS, atol=ULPS)
        last = obs.copy()
        if ended.any():
            last[ended] = np.stack(infos["final_obs"][ended])
        np.testing.assert_allclose(found[4], last, rtol=ULPS, atol=ULPS)
        return ended

    def check_states(self) -> None:
        state, there = self.native.get_state(), self.device.get_state()
        assert there.keys() == state.keys()
        for name, array in state.items():
            if isinstance(array, np.ndarray) and array.dtype == np.float64:
                np.testing.assert_allclose(there[name], array, rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(there[name], array)


def wild(actions: Array) -> Array:
    """Actions that are partly outside of their space, where they are real numbers."""
    return actions * np.float32(1.7) if actions.dtype == np.float32 else actions


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_are_those_of_native_code(env_id: str, device: torch.device) -> None:
    # Ends by time are frequent, so that many first states are drawn.
    twins = Twins(env_id, device, max_episode_steps=5)
    twins.reset(11)
    ended = sum(twins.step(wild(a)).sum() for a in sampled(twins.native, STEPS))
    assert ended > N
    twins.check_states()


@pytest.mark.parametrize("env_id", IDS)
def test_long_episodes_stay_together(env_id: str, device: torch.device) -> None:
    twins = Twins(env_id, device, n=5)
    twins.reset([3, 1, 4, 1, 5])
    for actions in sampled(twins.native, STEPS):
        twins.step(actions)
    twins.check_states()


@pytest.mark.parametrize("env_id", IDS)
def test_a_step_from_any_state(env_id: str, device: torch.device) -> None:
    n = 400
    twins = Twins(env_id, device, n=n, **OPTIONS[env_id])
    twins.reset(0)
    rng = np.random.default_rng(0)
    for turn, actions in enumerate(sampled(twins.native, 3)):
        variables = rng.uniform(-1, 1, (len(SCALES[env_id]), n)) * np.array([SCALES[env_id]]).T
        if turn:  # as a car is after its first step
            variables = variables.astype(np.float32).astype(np.float64)
        state = twins.native.get_state()
        state |= {"variables": variables, "steps": rng.integers(0, SPECS[env_id]["time_limit"], n)}
        twins.native.set_state(state)
        twins.device.set_state(state)
        twins.step(wild(actions))
        twins.check_states()


@pytest.mark.parametrize("env_id", IDS)
def test_a_step_is_the_definition_in_torch(env_id: str, device: torch.device) -> None:
    """Everything it writes, the numbers of resets included."""
    env, twin = (DeviceVectorEnv(env_id, N, device, max_episode_steps=7) for _ in range(2))
    env.reset(seed=5)
    twin.reset(seed=5)
    twin._step = plain.step
    for actions in sampled(NativeVectorEnv(env_id, N), min(STEPS, 30)):
        sent = torch.from_numpy(wild(actions)).to(device)
        env.step(sent)
        twin.step(sent)
        for name, found, wanted in zip(env._memory._fields, env._memory, twin._memory, strict=True):
            torch.testing.assert_close(found, wanted, rtol=ULPS, atol=ULPS, msg=name)


@pytest.mark.parametrize("env_id", IDS)
def test_no_action_makes_no_number(env_id: str, device: torch.device) -> None:
    env = DeviceVectorEnv(env_id, 4, device, max_episode_steps=2)
    env.reset(seed=0)
    if env_id in ("Pendulum-v1", "MountainCarContinuous-v0"):
        actions = torch.tensor([[0.0], [float("nan")], [0.5], [float("nan")]])
    else:
        actions = torch.tensor([0, -1, 1, 3])
    obs, *_, truncated, _ = env.step(actions.to(device))
    assert obs.isnan().any(1).tolist() == [False, True, False, True]
    assert not truncated.any()
    obs, *_, truncated, _ = env.step(torch.zeros_like(actions).to(device))
    assert truncated.all()
    assert obs.isfinite().all()  # new episodes


def test_a_state_goes_on_bit_for_bit(device: torch.device) -> None:
    env, other = (DeviceVectorEnv("CartPole-v1", N, device) for _ in range(2))
    env.reset(seed=1)
    pushes = torch.ones(N, dtype=torch.int64, device=device)
    for _ in range(8):
        env.step(pushes)
    other.set_state(env.get_state())
    assert torch.equal(other._memory.obs, env._memory.obs)
    for _ in range(6):  # the poles fall, and new ones are drawn
        results = zip(env.step(pushes)[:4], other.step(pushes)[:4], strict=True)
        assert all(torch.equal(one, two) for one, two in results)
    assert env.get_state()["resets"].min() == 2


def test_results_keep_their_place(device: torch.device) -> None:
    env = DeviceVectorEnv("Acrobot-v1", 3, device)
    obs, _ = env.reset(seed=0)
    first = obs.clone()
    actions = torch.zeros(3, dtype=torch.int64, device=device)
    results = env.step(actions)
    again = env.step(actions)
    assert results[0] is obs
    assert all(one is two for one, two in zip(results[:4], again[:4], strict=True))
    assert not torch.equal(obs, first)
