"""Layout of the parameters of policies that have a native twin, and which policies have one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from sharpwave.layouts.features import n_features
from sharpwave.layouts.init import fan_in_uniform, orthogonal
from sharpwave.layouts.parameters import FlatArrays

__all__ = ["PolicyLayout", "why_not_native"]

HEAD_GAINS = (("actor", 0.01), ("critic", 1.0))
"""Gains of the last layers' first weights; those of the others are sqrt(2)."""


@dataclass(frozen=True, kw_only=True)
class PolicyLayout:
    """An actor and a critic of linear layers, and the form of the actions.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> layout = PolicyLayout.of(box, spaces.Discrete(2), hidden=(8,), activation="tanh")
        >>> layout.shapes["actor.0.weight"], layout.n_parameters
        ((8, 3), 91)
    """

    n_inputs: int
    """Number of inputs of the actor."""
    n_critic_inputs: int | None = None
    """Number of inputs of the critic, where they are others; None where they are the actor's."""
    hidden: tuple[int, ...]
    """Widths of the actor's hidden layers."""
    critic_hidden: tuple[int, ...]
    """Widths of the critic's."""
    activation: str
    """By its name in a configuration, between the layers."""
    actions: Literal["choices", "bits", "normals"]
    """Action distribution: categorical, Bernoulli or Gaussian, by logits, logits or means."""
    options: tuple[int, ...]
    """Number of options of each categorical choice; of bits and normal variables their number."""

    @classmethod
    def of(
        cls,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int],
        activation: str,
        critic_hidden: Sequence[int] | None = None,
        critic_space: spaces.Space[Any] | None = None,
    ) -> PolicyLayout:
        """The layout of a policy that `why_not_native` has nothing against.

        Without `critic_hidden` both networks have the same hidden layers, and without
        `critic_space` they look at the same.
        """
        kind: Literal["choices", "bits", "normals"]
        options: tuple[int, ...]
        if isinstance(action_space, spaces.Discrete):
            kind, options = "choices", (int(action_space.n),)
        elif isinstance(action_space, spaces.MultiDiscrete):
            kind, options = "choices", tuple(int(n) for n in action_space.nvec.reshape(-1))
        else:
            kind = "bits" if isinstance(action_space, spaces.MultiBinary) else "normals"
            options = (math.prod(action_space.shape or ()),)
        return cls(
            n_inputs=n_features(observation_space),
            n_critic_inputs=None if critic_space is None else n_features(critic_space),
            hidden=tuple(hidden),
            critic_hidden=tuple(hidden if critic_hidden is None else critic_hidden),
            activation=activation,
            actions=kind,
            options=options,
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter by its name in the module, in the order of the memory."""
        outputs = sum(self.options)
        shapes: dict[str, tuple[int, ...]] = {}
        if self.actions == "normals":
            shapes["log_std"] = (outputs,)
        critic_inputs = self.n_inputs if self.n_critic_inputs is None else self.n_critic_inputs
        for name, inputs, hidden, last in (
            ("actor", self.n_inputs, self.hidden, outputs),
            ("critic", critic_inputs, self.critic_hidden, 1),
        ):
            for layer, (size, next_size) in enumerate(pairwise((inputs, *hidden, last))):
                shapes[f"{name}.{2 * layer}.weight"] = (next_size, size)
                shapes[f"{name}.{2 * layer}.bias"] = (next_size,)
        return shapes

    def first_parameters(
        self,
        generator: np.random.Generator,
        *,
        log_std_init: float = 0.0,
        ortho_init: bool = True,
    ) -> FlatArrays:
        """Parameters as those of a new `nn.ActorCritic`, from the same draws.

        Args:
            generator: Source of the weights.
            log_std_init: Logarithm of the first standard deviation of normal variables.
            ortho_init: Weights are orthogonal and biases zero; otherwise both are uniform, as
                torch's layers begin.
        """
        flat = FlatArrays(self.shapes)
        depths = {"actor": len(self.hidden), "critic": len(self.critic_hidden)}
        head_gains = {f"{name}.{2 * depths[name]}.weight": gain for name, gain in HEAD_GAINS}
        fan_in = self.n_inputs
        for name, shape in self.shapes.items():
            fan_in = shape[1] if len(shape) == 2 else fan_in  # a bias comes after its weight
            if name == "log_std":
                flat[name][:] = log_std_init
            elif not ortho_init:
                flat[name][:] = fan_in_uniform(generator, shape, fan_in)
            elif len(shape) == 2:
                gain = head_gains.get(name, math.sqrt(2))
                flat[name][:] = orthogonal(generator, shape, gain)
        return flat

    @property
    def n_parameters(self) -> int:
        """Number of parameters in all."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def why_not_native(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> str | None:
    """Reason why a plain policy for these spaces has no native twin; None when it has one.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> why_not_native(box, box) is None
        True
    """
    known = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
    if not isinstance(action_space, known):
        return f"the action space is {action_space}"
    try:
        n_features(observation_space)
    except TypeError as error:
        return str(error)
    return None
