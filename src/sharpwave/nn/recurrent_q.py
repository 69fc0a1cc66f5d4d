"""Q-networks with a memory of what they saw before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.features import make_features
from sharpwave.nn.mlp import ACTIVATIONS, MLP, check_sizes, initialize_uniform
from sharpwave.nn.q_networks import Branches
from sharpwave.nn.recurrent import EpisodePieces, make_rnn, n_states, step, unroll

__all__ = ["RecurrentQNetwork"]


class RecurrentQNetwork(nn.Module):
    """Q-network whose values depend on all that it saw before (Hausknecht et al., 2015).

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_space: Discrete, MultiDiscrete or MultiBinary; see `Branches`.
        kind: "lstm" or "gru".
        size: Size of the recurrent state.
        hidden: Sizes of the hidden layers before the recurrent one.
        activation: Their activation, by name.
        generator: Source of the weights.

    Attributes:
        branches: Choices that the values stand for.

    Example:
        >>> box, generator = spaces.Box(-1.0, 1.0, (3,)), np.random.default_rng(0)
        >>> options = {"kind": "gru", "size": 8, "generator": generator}
        >>> net = RecurrentQNetwork(box, spaces.Discrete(2), **options)
        >>> values, memory = net.step(torch.zeros(5, 3), net.initial_state(5), None)
        >>> values.shape, memory.shape
        (torch.Size([5, 2]), torch.Size([5, 1, 8]))
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        kind: str,
        size: int,
        hidden: Sequence[int] = (64,),
        activation: str = "relu",
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.branches = Branches(action_space)
        self.features = make_features(observation_space, generator)
        check_sizes(self.features.size, hidden, activation)
        layers: list[nn.Module] = []
        inputs = self.features.size
        for width in hidden:
            layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
            inputs = width
        self.trunk = MLP(*layers)
        self.rnn = make_rnn(kind, inputs, size, generator, ortho_init=False)
        self.head = nn.Linear(size, self.branches.n)
        for part in (self.trunk, self.head):
            initialize_uniform(part, generator)

    def initial_state(self, rows: int) -> Tensor:
        """The memory [rows, k, size] at a beginning."""
        shape = rows, n_states(self.rnn), self.rnn.hidden_size
        return torch.zeros(shape, device=self.head.weight.device)

    def step(
        self, obs: Any, state: Tensor, starts: Tensor | None, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Values [B, n] of observations [B, ...], and the next memory.

        Args:
            obs: The observations.
            state: [B, k, size] the memory.
            starts: [B] bool, true where the memory begins anew; None where it does nowhere.
            valid: [B] bool, false where the memory stays as it is; None where it does nowhere.
        """
        x = self.trunk(self.features(obs))
        output, after = step(self.rnn, x, state.transpose(0, 1), starts, valid)
        return self.head(output), after.transpose(0, 1)

    def unroll(self, obs: Any, starts: Tensor, valid: Tensor | None = None) -> Tensor:
        """Values [T, B, n] of sequences [T, B, ...] that begin without memory.

        Args:
            obs: The observations.
            starts: [T, B] bool, true where the memory begins anew.
            valid: [T, B] bool, false where it stays as it is; None where it does nowhere.
        """
        x = self.trunk(self.features(obs))
        state = self.initial_state(x.shape[1]).transpose(0, 1)
        values: Tensor = self.head(unroll(self.rnn, x, state, EpisodePieces(starts, valid)))
        return values

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """There is none."""

    def remove_noise(self) -> None:
        """There is none."""
