"""Steps of environments as tensors on the device of a policy, wherever the environments are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sharpwave.core.finite import check_finite
from sharpwave.core.lazy import torch
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import ActionMap, Step, Stepper, TensorVectorEnv, action_masks
from sharpwave.envs.step_infos import SUCCESS, success_of
from sharpwave.errors import NonFiniteError
from sharpwave.tensors.actions import TensorActions

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.envs.tensors import TensorStep

__all__ = ["DeviceStep", "DeviceSteps", "FiniteWatch", "HostSteps", "TensorSteps"]


class DeviceStep(NamedTuple):
    """One step of every environment, as tensors on a device."""

    obs: Any
    """Observations to act on next, [N, ...]."""
    rewards: Tensor
    """[N], the rewards to learn from, maybe normalized."""
    raw_rewards: Tensor
    """[N], the rewards of the environment."""
    terminated: Tensor
    """[N] bool."""
    truncated: Tensor
    """[N] bool."""
    final_obs: Any
    """[N, ...], read where an episode was cut; None where none was, or nobody knows."""
    masks: Tensor | None
    """[N, n] bool, the actions allowed next; None where all are."""
    success: Tensor | None
    """[N] nonzero where an episode that ended reached its goal; None where nobody says."""
    actions: Any
    """[N, ...] as the environments took them."""
    infos: dict[str, Any]
    """Infos of the environments, unchanged."""
    taken: Step | None
    """The step of arrays that this one was sent from; None where the environments step tensors."""


class DeviceSteps(Protocol):
    """Environments as a `TensorCollector` steps them: tensors on a device."""

    def reset(self, seed: int | None, timesteps: int) -> tuple[Any, Tensor | None]:
        """Start new episodes: observations [N, ...] and masks."""

    def step(self, actions: Tensor, timesteps: int) -> DeviceStep:
        """Step with the policy's actions, the next after so many steps."""

    def check(self, timesteps: int) -> None:
        """Raise where something of the steps so far was not finite."""


class FiniteWatch:
    """Looks at numbers on a device, and says much later whether one of them was not finite.

    Args:
        device: Device of the numbers.
    """

    def __init__(self, device: Any) -> None:
        from sharpwave.primitives.finite.tensors import look

        self._look = look
        self._mark = torch.zeros((), dtype=torch.float64, device=device)

    def look(self, tree: Any) -> None:
        """Look at a tree of tensors."""
        self._look(self._mark, [leaf for _, leaf in leaves(tree) if leaf.is_floating_point()])

    def check(self, what: str, timesteps: int) -> None:
        """Raise where one was not; waits for the device."""
        if float(self._mark) != 0.0:
            raise NonFiniteError(
                f"{what} must give finite numbers, it gave NaN or inf by step {timesteps}"
            )


def tensor_success(infos: dict[str, Any]) -> Any:
    """[N] nonzero where an episode that ends in this step reached its goal; None if nobody says."""
    final = infos.get("final_info")
    told = final if isinstance(final, dict) else infos
    return next((told[name] for name in SUCCESS if name in told), None)


class TensorSteps:
    """Steps of an environment that lives on the device: nothing leaves it.

    Args:
        env: The environment.
        action_map: From the policy's actions to the environment's.
        device: Of the policy.

    Raises:
        ValueError: The environment is on another device.
    """

    def __init__(self, env: TensorVectorEnv, action_map: ActionMap, device: Any) -> None:
        if env.device.type != device.type:
            raise ValueError(f"device must be {env.device} like the environment's, got {device}")
        self.env = env
        self._actions = TensorActions(action_map, env.device)
        self._watch = FiniteWatch(env.device)

    def reset(self, seed: int | None, timesteps: int) -> tuple[Any, Tensor | None]:  # noqa: ARG002
        """Start new episodes: observations [N, ...] and masks."""
        obs, infos = self.env.reset_tensors(seed)
        self._watch.look(obs)
        return obs, infos.get("action_mask")

    def step(self, actions: Tensor, timesteps: int) -> DeviceStep:  # noqa: ARG002
        """Step with the policy's actions."""
        env_actions = self.to_env(actions)
        given = self.env.step_tensors(env_actions)
        return self.taken(env_actions, self.parts(given))._replace(infos=given.infos)

    def to_env(self, actions: Tensor) -> Tensor:
        """The policy's actions as the environment takes them."""
        return self._actions.to_env(actions)

    def parts(self, given: TensorStep) -> dict[str, Any]:
        """The parts of a step that collection reads; those that nobody told are missing.

        Their names are the first four of `TensorStep`, `final_obs`, `action_mask` and `success`.
        """
        told = {
            "final_obs": given.final_obs,
            "action_mask": given.infos.get("action_mask"),
            "success": tensor_success(given.infos),
        }
        found = {"obs": given.obs, "rewards": given.rewards}
        flags = {"terminated": given.terminated, "truncated": given.truncated}
        return found | flags | {name: x for name, x in told.items() if x is not None}

    def taken(self, actions: Any, parts: dict[str, Any]) -> DeviceStep:
        """The step that these parts are of, after a look at them."""
        self._watch.look((parts["obs"], parts["rewards"]))
        return DeviceStep(
            parts["obs"],
            parts["rewards"],
            parts["rewards"],
            parts["terminated"],
            parts["truncated"],
            parts.get("final_obs"),
            parts.get("action_mask"),
            parts.get("success"),
            actions,
            {},
            None,
        )

    def check(self, timesteps: int) -> None:
        """Raise where something of the steps so far was not finite; waits for the device."""
        self._watch.check("the environment", timesteps)


class HostSteps:
    """Steps of environments of arrays, sent to the device once.

    Args:
        env: A vector environment that resets itself in the step that ends an episode, or not.
        action_map: From the policy's actions to the environment's.
        device: Device of the tensors.
    """

    def __init__(self, env: Any, action_map: ActionMap, device: Any) -> None:
        self.env = env
        self.stepper = Stepper(env)
        self._action_map = action_map
        self._device = device

    def reset(self, seed: int | None, timesteps: int) -> tuple[Any, Tensor | None]:
        """Start new episodes: observations [N, ...] and masks."""
        obs, infos = self.stepper.reset(seed=seed)
        check_finite("obs", obs, timesteps)
        return self._sent(obs), self._masks(infos)

    def step(self, actions: Tensor, timesteps: int) -> DeviceStep:
        """Step with the policy's actions, which the host waits for."""
        env_actions = self._action_map.to_env(actions.cpu().numpy())
        step = self.stepper.step(env_actions)
        check_finite("rewards", step.rewards, timesteps)
        check_finite("obs", step.next_obs, timesteps)
        if step.obs is not step.next_obs:
            check_finite("obs", step.obs, timesteps)
        cut = step.obs is not step.next_obs and step.truncated.any()
        raw = step.raw_rewards
        rewards = self._sent(step.rewards)
        return DeviceStep(
            self._sent(step.obs),
            rewards,
            rewards if raw is step.rewards else self._sent(raw),
            self._sent(step.terminated),
            self._sent(step.truncated),
            self._sent(step.next_obs) if cut else None,
            self._masks(step.infos),
            self._success(step),
            env_actions,
            step.infos,
            step,
        )

    def check(self, timesteps: int) -> None:
        """Nothing: every step was checked."""

    def _success(self, step: Step) -> Tensor | None:
        ended = self.stepper.ended
        success = success_of(step.infos, ended) if np.count_nonzero(ended) else None
        return None if success is None else self._sent(np.nan_to_num(success))

    def _masks(self, infos: dict[str, Any]) -> Tensor | None:
        masks = action_masks(self.env, infos)
        return None if masks is None else self._sent(masks)

    def _sent(self, tree: Any) -> Any:
        def send(leaf: Any) -> Tensor:
            tensor = torch.from_numpy(np.ascontiguousarray(leaf))
            if tensor.is_floating_point():
                tensor = tensor.float()
            if self._device.type == "cuda":
                tensor = tensor.pin_memory()
            return tensor.to(self._device, non_blocking=True)

        return map_leaves(send, tree)
