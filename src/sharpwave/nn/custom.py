"""A user's own module as the policy of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.nn.actor_critic import Acted, Evaluated

__all__ = ["CustomPolicy", "as_single", "global_randomness_from"]

_REQUIRED = {
    "get_action_and_logprob": "(obs) -> (actions, log_probs)",
    "get_value": "(obs) -> values",
    "get_logprob_and_entropy": "(obs, actions) -> (log_probs, entropy)",
}


@contextmanager
def global_randomness_from(generator: torch.Generator | None) -> Iterator[None]:
    """Lets torch's global generator be `generator` inside, and puts it back after.

    What is drawn inside comes from `generator`'s stream and moves it on; the global stream goes on
    after as if nothing had been drawn. Only the device of `generator` is concerned. None does
    nothing.
    """
    if generator is None:
        yield
        return
    ambient = torch.default_generator
    if generator.device.type == "cuda":
        ambient = torch.cuda.default_generators[generator.device.index or 0]
    before = ambient.get_state()
    ambient.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(ambient.get_state())
        ambient.set_state(before)


class CustomPolicy(nn.Module):
    """Adapts a module that offers a few methods to what the algorithms use.

    The module draws its actions from torch's global generator; the algorithm's generator stands
    in for it meanwhile, so runs are reproducible and the global one is left alone.

    Args:
        module: Offers `get_action_and_logprob(obs) -> (actions, log_probs)`,
            `get_value(obs) -> values`, `get_logprob_and_entropy(obs, actions) -> (log_probs,
            entropy)`; optionally `get_action_value(obs) -> (actions, log_probs, values)`, used in
            place of two calls when acting, and `actor(obs) -> logits or means`, for deterministic
            actions. An attribute `log_std` says that actions are continuous. `log_probs`,
            `entropy` and `values` are [B].

    Raises:
        TypeError: A method is missing, or the argument is not a module.

    Example:
        >>> from sharpwave.nn import DiscretePolicy
        >>> policy = CustomPolicy(DiscretePolicy(4, 2, seed=0))
        >>> policy.act(torch.zeros(3, 4), deterministic=True).actions.shape
        torch.Size([3])
    """

    recurrent = None

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"policy must be a torch.nn.Module, got {type(module).__name__}")
        missing = [
            f"{name}{signature}"
            for name, signature in _REQUIRED.items()
            if not callable(getattr(module, name, None))
        ]
        if missing:
            raise TypeError(f"policy {type(module).__name__} must offer {', '.join(missing)}")
        self.module: Any = module

    @property
    def continuous(self) -> bool:
        """True if actions are continuous."""
        return getattr(self.module, "log_std", None) is not None

    def act(
        self,
        obs: Any,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
        masks: Tensor | None = None,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> Acted:
        """Chooses actions; see `ActorCritic.act`."""
        self._refuse(masks)
        obs = as_single(obs)
        with torch.no_grad(), global_randomness_from(generator):
            if deterministic:
                actions = self._most_likely(obs)
                log_probs, _ = self.module.get_logprob_and_entropy(obs, actions)
                values = self.module.get_value(obs)
            elif hasattr(self.module, "get_action_value"):
                actions, log_probs, values = self.module.get_action_value(obs)
            else:
                actions, log_probs = self.module.get_action_and_logprob(obs)
                values = self.module.get_value(obs)
        self._check(actions, log_probs=log_probs, values=values)
        return Acted(actions, log_probs, values, state)

    def evaluate(
        self,
        obs: Any,
        actions: Tensor,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
        masks: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> Evaluated:
        """Evaluate actions under the module as it is now; see `ActorCritic.evaluate`."""
        self._refuse(masks)
        obs = as_single(obs)
        log_probs, entropy = self.module.get_logprob_and_entropy(obs, actions)
        values = self.module.get_value(obs)
        self._check(actions, log_probs=log_probs, entropy=entropy, values=values)
        return Evaluated(log_probs, entropy, values)

    def values(
        self,
        obs: Any,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        """Values [B] of observations [B, ...], without differentiation."""
        with torch.no_grad():
            values: Tensor = self.module.get_value(as_single(obs))
        if values.ndim != 1:
            raise ValueError(f"values of policy must have shape (B,), got {tuple(values.shape)}")
        return values

    def initial_state(self, n: int) -> Tensor | None:
        """None: the module carries no state."""
        return None

    def reset_noise(self, n: int, generator: torch.Generator | None = None) -> None:
        """Does nothing: the module explores by itself."""

    def _most_likely(self, obs: Any) -> Tensor:
        actor = getattr(self.module, "actor", None)
        if actor is None:
            raise TypeError(
                f"policy {type(self.module).__name__} must offer actor(obs) for deterministic "
                "actions"
            )
        output: Tensor = actor(obs)
        return output if self.continuous else output.argmax(-1)

    def _refuse(self, masks: Tensor | None) -> None:
        if masks is not None:
            raise ValueError("masks do not reach a custom policy: apply them inside the module")

    def _check(self, actions: Tensor, **results: Tensor) -> None:
        """A [B, 1] where [B] is meant would broadcast to [B, B] further on."""
        for name, result in results.items():
            if result.shape != actions.shape[:1]:
                raise ValueError(
                    f"{name} of policy {type(self.module).__name__} must have shape "
                    f"{tuple(actions.shape[:1])}, got {tuple(result.shape)}"
                )


def as_single(obs: Any) -> Any:
    """Float64 observations as float32, which is what modules hold; anything else as it is."""
    if isinstance(obs, dict):
        return {key: as_single(leaf) for key, leaf in obs.items()}
    if isinstance(obs, tuple):
        return tuple(map(as_single, obs))
    return obs.float() if obs.dtype == torch.float64 else obs
