"""A torch policy that acts on NumPy observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sharpwave.envs import ActionMap
from sharpwave.lazy import torch
from sharpwave.nest import map_leaves
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from sharpwave import nn
    from sharpwave.envs import VecNormalize

Flags = npt.NDArray[np.bool_]


class NormalizedPlayer(ABC):
    """What plays environments: it normalises observations and maps actions.

    Args:
        normalizer: Applied to observations that were not normalised by the environment.
        action_map: From the policy's actions to the environment's.
    """

    def __init__(self, normalizer: VecNormalize | None, action_map: ActionMap | None) -> None:
        self.normalizer = normalizer
        self.action_map = action_map

    @abstractmethod
    def act(self, obs: Nested, starts: Flags, masks: Flags | None) -> tuple[Array, Array, Array]:
        """(actions, log_probs, values) for observations [N, ...]."""

    def play(self, obs: Nested, starts: Flags, masks: Flags | None = None) -> Array:
        """Actions for the environments, from observations as they gave them."""
        assert self.action_map is not None
        if self.normalizer is not None:
            obs = self.normalizer.normalize_obs(obs)
        actions: Array = self.action_map.to_env(self.act(obs, starts, masks)[0])
        return actions


class PolicyActor(NormalizedPlayer):
    """Chooses actions with a policy, and keeps its recurrent state and exploration noise.

    Args:
        policy: An actor-critic network.
        n_envs: Number of environments it acts in.
        generator: Where samples come from.
        deterministic: Take the mode, not a sample.
        noise_every: Steps between new exploration matrices of gSDE; -1 for one per rollout.
        normalizer: Applied to observations that were not normalised by the environment.
        action_map: From the policy's actions to the environment's, for `play`.
        numpy_policy: The policy in NumPy, for few environments.
    """

    def __init__(
        self,
        policy: Any,
        n_envs: int,
        generator: torch.Generator,
        *,
        deterministic: bool = False,
        noise_every: int = -1,
        normalizer: VecNormalize | None = None,
        action_map: ActionMap | None = None,
        numpy_policy: nn.NumpyPolicy | None = None,
    ) -> None:
        super().__init__(normalizer, action_map)
        self.policy = policy
        self.n_envs = n_envs
        self.generator = generator
        self.deterministic = deterministic
        self.noise_every = noise_every
        self.device = generator.device
        self.state: torch.Tensor | None = policy.initial_state(n_envs)
        self._steps = 0
        few = numpy_policy is not None and n_envs <= numpy_policy.max_rows
        self._numpy_policy = numpy_policy if few else None

    def begin_rollout(self) -> None:
        """Draw new exploration noise."""
        self.policy.reset_noise(self.n_envs, self.generator)
        self._steps = 0

    def act(self, obs: Nested, starts: Flags, masks: Flags | None) -> tuple[Array, Array, Array]:
        """(actions, log_probs, values) for observations [N, ...]."""
        if self._numpy_policy is not None and masks is None:
            return self._numpy_policy.act(
                obs, deterministic=self.deterministic, generator=self.generator
            )
        acted = self.act_tensors(
            self._tensors(obs),
            None if self.state is None else self._tensors(starts),
            None if masks is None else self._tensors(masks),
        )
        actions, log_probs, values = (tensor.cpu().numpy() for tensor in acted)
        return actions, log_probs, values

    def act_tensors(
        self, obs: Any, starts: torch.Tensor | None, masks: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The same for tensors on the policy's device, and of such."""
        if self.noise_every > 0 and self._steps and self._steps % self.noise_every == 0:
            self.policy.reset_noise(self.n_envs, self.generator)
        self._steps += 1
        with torch.inference_mode():
            acted = self.policy.act(
                obs,
                state=self.state,
                starts=None if self.state is None else starts,
                masks=masks,
                deterministic=self.deterministic,
                generator=self.generator,
            )
            self.state = acted.state
            return acted.actions, acted.log_probs, acted.values

    def values(self, obs: Nested, rows: npt.NDArray[np.intp] | None = None) -> Array:
        """Values [N] of what comes after the last `act`, of some environments or of all."""
        if self._numpy_policy is not None:
            return self._numpy_policy.values(obs)
        with torch.inference_mode():
            state = self.state
            if state is not None and rows is not None:
                state = state[:, torch.as_tensor(rows, device=self.device)]
            values: Array = self.policy.values(self._tensors(obs), state=state).cpu().numpy()
            return values

    def value_tensors(self, obs: Any) -> torch.Tensor:
        """Values [N] of what comes after the last `act_tensors`, as tensors."""
        with torch.inference_mode():
            values: torch.Tensor = self.policy.values(obs, state=self.state)
            return values

    def _tensors(self, nest: Nested) -> Any:
        return map_leaves(lambda leaf: torch.as_tensor(leaf, device=self.device), nest)
