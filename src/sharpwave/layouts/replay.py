"""Layout of the parameters of off-policy networks: Q-networks, actors and critics."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.layouts.features import n_features
from sharpwave.layouts.init import fan_in_uniform
from sharpwave.layouts.parameters import FlatArrays

__all__ = [
    "ActorLayout",
    "CriticsLayout",
    "LinearLayer",
    "QLayout",
    "ReplayLayout",
    "actor_critic_layouts",
]


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer of a torch module."""

    name: str
    """Its name there."""
    n_in: int
    """Size of the input."""
    n_out: int
    """Size of the output."""
    n_stacked: int | None = None
    """Number of networks that it is part of, in `nn.StackedMLP`."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter by name."""
        if self.n_stacked is None:
            return {
                f"{self.name}.weight": (self.n_out, self.n_in),
                f"{self.name}.bias": (self.n_out,),
            }
        return {
            f"{self.name}.weight": (self.n_stacked, self.n_in, self.n_out),
            f"{self.name}.bias": (self.n_stacked, 1, self.n_out),
        }


class ReplayLayout(ABC):
    """A network of linear layers with one activation between them."""

    n_inputs: int
    hidden: tuple[int, ...]
    activation: str

    @property
    @abstractmethod
    def layers(self) -> list[LinearLayer]:
        """The layers, in the order of the memory."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter by its name in the module, in the order of the memory."""
        return {name: shape for layer in self.layers for name, shape in layer.shapes.items()}

    @property
    def n_parameters(self) -> int:
        """Number of parameters in all."""
        return sum(map(math.prod, self.shapes.values()))

    def first_parameters(self, generator: np.random.Generator) -> FlatArrays:
        """Parameters as those of a new module, from the same draws.

        Args:
            generator: Source of the weights.
        """
        flat = FlatArrays(self.shapes)
        for layer in self.layers:
            for name, shape in layer.shapes.items():
                flat[name][:] = fan_in_uniform(generator, shape, layer.n_in)
        return flat


@dataclass(frozen=True, kw_only=True)
class QLayout(ReplayLayout):
    """`nn.QNetwork`: the values of all actions.

    Example:
        >>> layout = QLayout(n_inputs=3, hidden=(8,), activation="relu", choices=(2,), dueling=True)
        >>> list(layout.shapes)[::2]
        ['value.0.weight', 'value.2.weight', 'advantage.0.weight', 'advantage.2.weight']
    """

    n_inputs: int
    """Size of an observation."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    activation: str
    """By its name in a configuration, between the layers."""
    choices: tuple[int, ...]
    """Options of each choice that makes up an action."""
    dueling: bool = False
    """The last hidden layer is there twice, for values and advantages."""

    @classmethod
    def of(
        cls,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int],
        activation: str,
        dueling: bool,
    ) -> QLayout:
        """The layout of a network for these spaces.

        Raises:
            TypeError: Observations are images, or actions are no choices.
        """
        return cls(
            n_inputs=n_features(observation_space),
            hidden=tuple(hidden),
            activation=activation,
            choices=_choices_of(action_space),
            dueling=dueling,
        )

    @property
    def layers(self) -> list[LinearLayer]:
        """The layers, in the order of the memory."""
        n_options = sum(self.choices)
        *shared, last = self.n_inputs, *self.hidden
        if not self.dueling:
            return list(_layers("net", (*shared, last, n_options)))
        stream = (*shared[-1:], last)
        return [
            *_layers("trunk", shared),
            *_layers("value", (*stream, 1)),
            *_layers("advantage", (*stream, n_options)),
        ]


@dataclass(frozen=True, kw_only=True)
class ActorLayout(ReplayLayout):
    """`nn.SquashedActor` or `nn.DeterministicActor`."""

    n_inputs: int
    """Size of an observation."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    activation: str
    """By its name in a configuration, between the layers."""
    n_actions: int
    """Size of an action."""
    n_outputs: int
    """Size of the output: that of an action, or twice that for means and deviations."""

    @property
    def layers(self) -> list[LinearLayer]:
        """The layers, in the order of the memory."""
        return list(_layers("net", (self.n_inputs, *self.hidden, self.n_outputs)))


@dataclass(frozen=True, kw_only=True)
class CriticsLayout(ReplayLayout):
    """`nn.Critics` with one output each."""

    n_inputs: int
    """Size of an observation and an action together."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers."""
    activation: str
    """By its name in a configuration, between the layers."""
    n_critics: int
    """Number of critics."""

    @property
    def layers(self) -> list[LinearLayer]:
        """The layers, in the order of the memory."""
        return [
            LinearLayer(f"net.layers.{i}", size, next_size, self.n_critics)
            for i, (size, next_size) in enumerate(pairwise((self.n_inputs, *self.hidden, 1)))
        ]


def actor_critic_layouts(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    hidden: Sequence[int],
    critic_hidden: Sequence[int] | None = None,
    activation: str,
    n_critics: int,
    outputs_per_action: int,
) -> tuple[ActorLayout, CriticsLayout]:
    """An actor for continuous actions and its critics, as the algorithms make them.

    Without `critic_hidden` all networks have the same hidden layers.

    Raises:
        TypeError: Observations are images.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> actor, critics = actor_critic_layouts(
        ...     box, 1, hidden=(8,), activation="relu", n_critics=2, outputs_per_action=2
        ... )
        >>> actor.shapes["net.2.weight"], critics.shapes["net.layers.0.weight"]
        ((2, 8), (2, 4, 8))
    """
    n_inputs = n_features(observation_space)
    actor = ActorLayout(
        n_inputs=n_inputs,
        hidden=tuple(hidden),
        activation=activation,
        n_actions=n_actions,
        n_outputs=outputs_per_action * n_actions,
    )
    critics = CriticsLayout(
        n_inputs=n_inputs + n_actions,
        hidden=tuple(hidden if critic_hidden is None else critic_hidden),
        activation=activation,
        n_critics=n_critics,
    )
    return actor, critics


def _choices_of(action_space: spaces.Space[Any]) -> tuple[int, ...]:
    """The options of each choice that makes up an action.

    Raises:
        TypeError: Actions are no choices.
    """
    if isinstance(action_space, spaces.Discrete):
        return (int(action_space.n),)
    if isinstance(action_space, spaces.MultiDiscrete):
        return tuple(int(n) for n in action_space.nvec.reshape(-1))
    if isinstance(action_space, spaces.MultiBinary):
        return (2,) * math.prod(action_space.shape)
    raise TypeError(
        f"action_space must be Discrete, MultiDiscrete or MultiBinary, got {action_space}"
    )


def _layers(prefix: str, sizes: Sequence[int]) -> Iterator[LinearLayer]:
    for i, (size, next_size) in enumerate(pairwise(sizes)):
        yield LinearLayer(f"{prefix}.{2 * i}", size, next_size)
