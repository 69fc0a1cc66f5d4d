"""The native environments, stepped on a device."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave.envs.native import SPECS, option_of, spec_of
from sharpwave.envs.native_reset import NativeReset
from sharpwave.envs.native_state import checked_arrays
from sharpwave.envs.on_device import plain
from sharpwave.envs.on_device.dynamics import DYNAMICS
from sharpwave.envs.on_device.memory import EnvMemory, Rules
from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.envs.on_device import triton as jit

__all__ = ["DeviceVectorEnv"]


class DeviceVectorEnv:
    """Many CartPole-v1, Pendulum-v1, Acrobot-v1, MountainCar-v0 or MountainCarContinuous-v0.

    They are those of `NativeVectorEnv`: states in float64, the same equations in the same order of
    operations, the same first states from the same seed, so that the same actions give the same
    float32 observations, but where a sine differs in the last bit of float64 and that decides a
    rounding. A state may be taken over from there, and the other way round.

    On CUDA a step is one Triton kernel, where Triton is installed; everywhere else it is torch.
    It resets in the step that ends an episode. Actions are not checked, which would wait for the
    device: what is no action makes the observations of its environment NaN until the time limit.

    Observations, rewards and ends are the same tensors in every step and are written over by the
    next one. The first step compiles the kernel; from then on a step may be captured in a CUDA
    graph, whose replays draw new first states.

    Args:
        env_id: One of the ids above.
        num_envs: Number of environments.
        device: Device of all tensors.
        max_episode_steps: Time limit of an episode; None for Gymnasium's.
        **options: Options of Gymnasium's constructor: `sutton_barto_reward` of CartPole-v1, `g` of
            Pendulum-v1, `goal_velocity` of the two cars.

    Attributes:
        capturable: True: a step allocates nothing that lasts, and never waits for the device.

    Raises:
        ValueError: The id is another, or an argument is out of range.
        TypeError: An option is unknown to the environment.

    Example:
        >>> env = DeviceVectorEnv("CartPole-v1", 64, "cpu")
        >>> obs, infos = env.reset(seed=0)
        >>> pushes = torch.ones(64, dtype=torch.int64)
        >>> obs, rewards, terminated, truncated, infos = env.step(pushes)
        >>> obs.shape, rewards[:3].tolist()
        (torch.Size([64, 4]), [1.0, 1.0, 1.0])
    """

    capturable = True
    metadata: Mapping[str, Any] = {"render_modes": []}
    render_mode = None

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        device: torch.device | str = "cuda",
        *,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        if env_id not in DYNAMICS:
            raise ValueError(f"env_id must be one of {', '.join(DYNAMICS)}, got {env_id!r}")
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        spec = SPECS[env_id]
        limit = spec["time_limit"] if max_episode_steps is None else max_episode_steps
        if limit < 1:
            raise ValueError(f"max_episode_steps must be at least 1, got {limit}")
        self.num_envs = int(num_envs)
        self.device = torch.empty(0, device=device).device  # with its number
        theirs = gym.make(env_id, disable_env_checker=True, **options)
        self.single_observation_space: Any = theirs.observation_space
        self.single_action_space: Any = theirs.action_space
        self.spec = spec_of(env_id, max_episode_steps, options)
        self._is_discrete = isinstance(self.single_action_space, spaces.Discrete)
        self._rules = Rules(
            env_id=env_id,
            n_actions=int(getattr(self.single_action_space, "n", 0)),
            time_limit=int(limit),
            option=option_of(env_id, options),
            low=spec["low"],
            high=spec["high"],
        )
        self._memory = EnvMemory.of(self._rules, self.num_envs, spec["obs_size"], self.device)
        self._reset_of = NativeReset(env_id, spec, self.num_envs)
        self._is_ready = False
        self._step = jit.step if uses_triton(self._memory.obs) else plain.step

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Start new episodes everywhere.

        Args:
            seed: Environment i gets seed + i; or one seed for each, None to let its stream go on.

        Returns:
            Observations [N, ...] and empty infos.

        Raises:
            ValueError: A seed does not fit.
            TypeError: A seed is no integer.
        """
        if seed is None and not self._is_ready:
            seed = secrets.randbits(63)
        memory, rules = self._memory, self._rules
        _, seeds, is_seeded, *_ = self._reset_of.arguments(seed, None)
        if seeds is not None and is_seeded is not None:
            anew = self._sent(is_seeded)
            memory.seeds.copy_(torch.where(anew, self._sent(seeds), memory.seeds))
            memory.resets.masked_fill_(anew, 0)
        memory.variables.copy_(plain.starts(rules, memory.seeds, memory.resets, memory.bounds))
        memory.resets.add_(1)
        memory.steps.zero_()
        memory.returns.zero_()
        memory.obs.copy_(plain.observed(rules, memory.variables))
        self._is_ready = True
        return memory.obs, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Step all environments.

        Args:
            actions: [N] integers, or [N, 1] floats, which are clipped to the action space.

        Returns:
            Observations [N, ...] to act on next, rewards [N] float32, terminated [N], truncated
            [N], and in infos `final_obs`, what the actions led to.

        Raises:
            RuntimeError: The environments were not reset before.
            TypeError: `actions` is no tensor of such numbers.
            ValueError: Its shape or device is another.
        """
        if not self._is_ready:
            raise RuntimeError("reset must be called before step")
        memory = self._memory
        self._step(self._rules, memory, self._checked(actions))
        infos = {"final_obs": memory.final_obs}
        return memory.obs, memory.rewards, memory.terminated, memory.truncated, infos

    def _checked(self, actions: Any) -> Tensor:
        """Actions [N] as the kernel takes them."""
        kind = "integers" if self._is_discrete else "floats"
        if not isinstance(actions, Tensor) or actions.is_floating_point() == self._is_discrete:
            got = actions.dtype if isinstance(actions, Tensor) else type(actions).__name__
            raise TypeError(f"actions must be a tensor of {kind}, got {got}")
        shape = (self.num_envs, *self.single_action_space.shape)
        if actions.shape != shape:
            raise ValueError(f"actions must have shape {shape}, got {tuple(actions.shape)}")
        if actions.device != self.device:
            raise ValueError(f"actions must be on {self.device}, got {actions.device}")
        dtype = torch.int64 if self._is_discrete else torch.float32
        return actions.to(dtype).reshape(-1).contiguous()

    def get_state(self) -> dict[str, Any]:
        """Everything that decides what happens next, as arrays: that of `NativeVectorEnv`."""
        memory = self._memory
        names = ("variables", "steps", "returns", "seeds", "resets")
        arrays = {name: getattr(memory, name).cpu().numpy().copy() for name in names}
        return {
            **arrays,
            "seeds": arrays["seeds"].view(np.uint64),
            "resets": arrays["resets"].view(np.uint64),
            "ended": np.zeros(self.num_envs, np.bool_),
            "is_ready": self._is_ready,
            "id": self._rules.env_id,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` of such environments was, here or in native code.

        Raises:
            ValueError: It is not the state of such environments. Nothing changed.
        """
        n_variables = len(self._rules.low)
        arrays = checked_arrays(state, self._rules.env_id, self.num_envs, n_variables)
        variables, steps, returns, seeds, resets, ended = arrays
        if ended.any():
            raise ValueError("ended must be False where ends are reset in the same step")
        memory = self._memory
        memory.variables.copy_(torch.from_numpy(variables))
        memory.steps.copy_(torch.from_numpy(steps))
        memory.returns.copy_(torch.from_numpy(returns))
        memory.seeds.copy_(torch.from_numpy(seeds.view(np.int64)))
        memory.resets.copy_(torch.from_numpy(resets.view(np.int64)))
        memory.obs.copy_(plain.observed(self._rules, memory.variables))
        self._is_ready = True

    def render(self) -> None:
        """Nothing: native environments of the same state draw."""

    def close(self) -> None:
        """Nothing to close."""

    def _sent(self, array: Any) -> Tensor:
        signed = array.view(np.int64) if array.dtype == np.uint64 else array
        return torch.from_numpy(signed).to(self.device)
