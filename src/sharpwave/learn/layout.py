"""Which policies have a native twin, and where their parameters lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from sharpwave.learn.features import n_features
from sharpwave.learn.init import orthogonal
from sharpwave.learn.parameters import FlatArrays

__all__ = ["PolicyLayout", "why_not_native"]

ACTIVATIONS = ("tanh", "relu")
HEAD_GAINS = (("actor", 0.01), ("critic", 1.0))
"""Gains of the last layers' first weights; those of the others are sqrt(2)."""


@dataclass(frozen=True, kw_only=True)
class PolicyLayout:
    """An actor and a critic of linear layers on the same inputs, and the form of the actions.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> layout = PolicyLayout.of(box, spaces.Discrete(2), hidden=(8,), activation="tanh")
        >>> layout.shapes["actor.0.weight"], layout.n_parameters
        ((8, 3), 91)
    """

    n_inputs: int
    """Numbers of an observation."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers, of both networks."""
    activation: str
    """`"tanh"` or `"relu"`, between the layers."""
    actions: Literal["choices", "bits", "normals"]
    """What the actor's outputs are: logits of choices, logits of bits, or means."""
    options: tuple[int, ...]
    """Options of each choice; of bits and normal variables their number."""

    @classmethod
    def of(
        cls,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int],
        activation: str,
    ) -> PolicyLayout:
        """The layout of a policy that `why_not_native` has nothing against."""
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
            hidden=tuple(hidden),
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
        for name, last in (("actor", outputs), ("critic", 1)):
            for layer, (size, next_size) in enumerate(
                pairwise((self.n_inputs, *self.hidden, last))
            ):
                shapes[f"{name}.{2 * layer}.weight"] = (next_size, size)
                shapes[f"{name}.{2 * layer}.bias"] = (next_size,)
        return shapes

    def first_parameters(
        self, generator: np.random.Generator, *, log_std_init: float = 0.0
    ) -> FlatArrays:
        """Parameters as those of a new `nn.ActorCritic`, from the same draws.

        Args:
            generator: Source of the weights.
            log_std_init: Logarithm of the first standard deviation of normal variables.
        """
        flat = FlatArrays(self.shapes)
        head_gains = {f"{name}.{2 * len(self.hidden)}.weight": gain for name, gain in HEAD_GAINS}
        for name, shape in self.shapes.items():
            if name == "log_std":
                flat[name][:] = log_std_init
            elif len(shape) == 2:
                gain = head_gains.get(name, math.sqrt(2))
                flat[name][:] = orthogonal(generator, shape, gain)
        return flat

    @property
    def n_parameters(self) -> int:
        """How many numbers they are in all."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def why_not_native(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    activation: str,
) -> str | None:
    """Why a plain policy for these spaces has no native twin; None when it has one.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> why_not_native(box, box, activation="elu")
        "the activation is 'elu', not tanh or relu"
    """
    if activation not in ACTIVATIONS:
        return f"the activation is {activation!r}, not {' or '.join(ACTIVATIONS)}"
    known = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
    if not isinstance(action_space, known):
        return f"the action space is {action_space}"
    try:
        n_features(observation_space)
    except TypeError as error:
        return str(error)
    return None
