"""`model.policy`: weights and predictions under SB3's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.compat.sb3.refusals import absent
from sharpwave.core.tree import map_leaves
from sharpwave.envs import as_batch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Policy"]


class Policy:
    """The policy of a model.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def observation_space(self) -> Any:
        """The space of one observation."""
        return self._model.observation_space

    @property
    def action_space(self) -> Any:
        """The space of one action."""
        return self._model.action_space

    @property
    def device(self) -> Any:
        """The `torch.device` of the networks."""
        return self._model.device

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the weights by SB3's names."""
        from sharpwave.compat.sb3.weights import weights_of

        return {name: weight.read() for name, weight in weights_of(self._model).items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Take over weights.

        Args:
            state_dict: Weights by SB3's names.
            strict: All of them must be there, and no others.

        Raises:
            ValueError: Names or shapes are others. Nothing has changed then.
        """
        import torch

        from sharpwave.compat.sb3.weights import weights_of

        own = weights_of(self._model)
        given = {
            name: torch.as_tensor(value)
            for name, value in state_dict.items()
            if not name.startswith(("pi_features_extractor", "vf_features_extractor"))
        }
        missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        if strict and (missing or unknown):
            raise ValueError(
                f"state_dict must have the weights of this policy: it lacks {missing or 'none'}, "
                f"and {unknown or 'none'} are unknown"
            )
        both = [name for name in own if name in given]
        for name in both:
            if tuple(given[name].shape) != own[name].shape:
                raise ValueError(
                    f"{name} must have shape {own[name].shape}, got {tuple(given[name].shape)}"
                )
        for name in both:
            own[name].write(given[name])

    def parameters(self) -> Iterator[Tensor]:
        """The weights, which share the memory of the networks."""
        from sharpwave.compat.sb3.weights import weights_of

        return (weight.view for weight in weights_of(self._model).values())

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """See `Algorithm.predict`."""
        predicted: tuple[Any, Any] = self._model.predict(
            observation, state, episode_start, deterministic
        )
        return predicted

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:
        """Observations as tensors [N, ...], and whether they were a batch."""
        import torch

        batch, _, single = as_batch(self.observation_space, observation)
        return map_leaves(lambda leaf: torch.as_tensor(leaf, device=self.device), batch), not single

    def predict_values(self, obs: Any) -> Tensor:
        """Values [N, 1] of observations [N, ...], of algorithms that learn from rollouts."""
        import torch

        learner = self._learner("values", "predict_values")
        arrays = map_leaves(np.asarray, obs)
        values = learner.array(learner.values(learner.inputs(arrays)))
        return torch.as_tensor(np.asarray(values)).reshape(-1, 1)

    def evaluate_actions(self, obs: Any, actions: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Values [N, 1], log-probabilities [N] and entropies [N], to differentiate."""
        module = self._learner("begin_rollout", "evaluate_actions").policy
        evaluated = module.evaluate(obs, actions)
        return evaluated.values.reshape(-1, 1), evaluated.log_probs, evaluated.entropy

    def _learner(self, needs: str, name: str) -> Any:
        learner = self._model.agent.learner
        if not hasattr(learner, needs):
            raise absent(f"policy of {type(self._model).__name__}", name)
        return learner

    def set_training_mode(self, mode: bool) -> None:
        """Nothing: networks know by themselves whether they learn."""

    def __getattr__(self, name: str) -> Any:
        raise absent(f"policy of {type(self._model).__name__}", name, dir(type(self)))
