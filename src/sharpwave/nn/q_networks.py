"""Q-networks: values of all discrete actions in one pass, with noisy layers if asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import linear

from sharpwave.layouts.init import fan_in_uniform
from sharpwave.nn.features import Features, make_features
from sharpwave.nn.mlp import ACTIVATIONS, MLP, check_sizes, initialize_uniform

__all__ = ["Branches", "NoisyLinear", "QNetwork"]


class NoisyLinear(nn.Module):
    r"""A linear layer with factorized Gaussian noise on its weights (Fortunato et al., 2018).

    $$y = (W + \Sigma \odot f(\epsilon) f(\epsilon')^T)\, x + b + \sigma \odot f(\epsilon),
    \qquad f(x) = \mathrm{sign}(x) \sqrt{|x|}$$

    with $\epsilon$ and $\epsilon'$ normal, one number for each output and each input. How strong
    the noise is, is learned. It stays until the next `reset_noise` or `remove_noise`; there is none
    at first.

    Args:
        in_features: Size of the input.
        out_features: Size of the output.
        generator: Source of the weights, which are uniform as torch's layers begin.
        sigma: Strength of the noise at first, over the square root of `in_features`.

    Attributes:
        weight: [out, in] W.
        bias: [out] b.
        weight_sigma: [out, in] Σ.
        bias_sigma: [out] σ.

    Example:
        >>> layer = NoisyLinear(3, 2, np.random.default_rng(0))
        >>> x = torch.ones(1, 3)
        >>> quiet = layer(x)
        >>> layer.reset_noise(torch.Generator().manual_seed(0))
        >>> bool((layer(x) != quiet).all())
        True
    """

    _noise: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generator: np.random.Generator,
        sigma: float = 0.5,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        shape = (out_features, in_features)
        start = sigma / math.sqrt(in_features)
        self.weight = _parameter(fan_in_uniform(generator, shape, in_features))
        self.bias = _parameter(fan_in_uniform(generator, shape[:1], in_features))
        self.weight_sigma = nn.Parameter(torch.full(shape, start))
        self.bias_sigma = nn.Parameter(torch.full(shape[:1], start))
        self.register_buffer("_noise", torch.zeros(in_features + out_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        # A copy, so that new noise may come before the backward pass.
        noise = self._noise.clone()
        of_inputs, of_outputs = noise.split((self.in_features, self.out_features))
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(of_outputs, of_inputs))
        return linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, of_outputs))

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """Draws new noise.

        Args:
            generator: Source of the draws; None is torch's global one.
        """
        normal = torch.empty_like(self._noise).normal_(generator=generator)
        torch.copysign(normal.abs().sqrt_(), normal, out=self._noise)

    def remove_noise(self) -> None:
        """Leaves the weights as they are without noise."""
        self._noise.zero_()


def _parameter(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values))


class Branches:
    r"""The choices that make up an action, and their values side by side.

    A Discrete action is one choice, a MultiDiscrete action one for each dimension, a MultiBinary
    action one of 0 and 1 for each bit. With $k$ choices the value of an action is the mean of the
    values of what it chooses,

    $$Q(s, a) = \frac 1 k \sum_d Q_d(s, a_d),$$

    so the best action is the best of each choice, however many actions there are
    (Seyde et al., 2023, arXiv:2210.12566).

    Args:
        action_space: Discrete, MultiDiscrete or MultiBinary.

    Attributes:
        sizes: Number of options of each choice.
        starts: [k] where the options of each choice begin.
        n: Number of values, `sum(sizes)`.
        n_masks: Length of a mask: `n`, for MultiBinary the number of bits.
        action_shape: Shape of one action; () for Discrete.

    Raises:
        TypeError: The space is of another kind.

    Example:
        >>> branches = Branches(spaces.MultiDiscrete([2, 3]))
        >>> values = torch.tensor([[1.0, 2.0, 5.0, 4.0, 3.0]])
        >>> best = branches.greedy(values)
        >>> best.tolist(), branches.mean_of(values, best).tolist()
        ([[1, 0]], [3.5])
    """

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self._bits = isinstance(action_space, spaces.MultiBinary)
        self.action_shape: tuple[int, ...]
        if isinstance(action_space, spaces.Discrete):
            self.sizes: tuple[int, ...] = (int(action_space.n),)
            self.action_shape = ()
        elif isinstance(action_space, spaces.MultiDiscrete):
            self.sizes = tuple(int(n) for n in action_space.nvec.reshape(-1))
            self.action_shape = (len(self.sizes),)
        elif isinstance(action_space, spaces.MultiBinary):
            self.sizes = (2,) * math.prod(action_space.shape)
            self.action_shape = (len(self.sizes),)
        else:
            raise TypeError(
                f"action_space must be Discrete, MultiDiscrete or MultiBinary, got {action_space}"
            )
        self.n = sum(self.sizes)
        self.n_masks = len(self.sizes) if self._bits else self.n
        self.starts = torch.tensor([0, *accumulate(self.sizes[:-1])])

    def greedy(self, values: Tensor, masks: Tensor | None = None) -> Tensor:
        """The best action of each row.

        Args:
            values: [B, n].
            masks: [B, n_masks] bool, False where an option is forbidden.

        Returns:
            [B, *action_shape] int64.
        """
        if masks is not None:
            values = values.masked_fill(~self.options(masks), -math.inf)
        if not self.action_shape:
            return values.argmax(1)
        return torch.stack([part.argmax(1) for part in values.split(self.sizes, 1)], 1)

    def chosen(self, output: Tensor, actions: Tensor) -> Tensor:
        """Outputs of a network for the options that actions chose.

        Args:
            output: [B, n, ...].
            actions: [B, *action_shape].

        Returns:
            [B, k, ...] with k choices.
        """
        if self.starts.device != output.device:
            self.starts = self.starts.to(output.device)
        index = actions.reshape(len(actions), -1).long()
        if self.action_shape:
            index = index + self.starts
        for size in output.shape[2:]:
            index = index.unsqueeze(-1).expand(*index.shape, size)
        return output.gather(1, index)

    def mean_of(self, output: Tensor, actions: Tensor) -> Tensor:
        """The mean of `chosen` over the choices: [B, ...]."""
        chosen = self.chosen(output, actions)
        return chosen.mean(1) if self.action_shape else chosen.squeeze(1)

    def options(self, masks: Tensor) -> Tensor:
        """Options [B, n] that action masks [B, n_masks] allow; 0 is always allowed for bits."""
        return torch.stack((torch.ones_like(masks), masks), -1).flatten(1) if self._bits else masks


class QNetwork(nn.Module):
    r"""Q-network: values of all actions in one pass.

    With `dueling` (Wang et al., 2016) the last hidden layer is there twice, once for the value of
    the observation and once for what actions have over it:

    $$Q(s, a) = V(s) + A(s, a) - \frac 1 n \sum_{a'} A(s, a').$$

    With `noisy` (Fortunato et al., 2018) all layers after the features are `NoisyLinear`.

    Args:
        observation_space: Observation space, one that `make_features` supports.
        action_space: Discrete, MultiDiscrete or MultiBinary; see `Branches`.
        hidden: Sizes of the hidden layers.
        activation: Their activation, by name.
        dueling: Estimate values and advantages apart.
        noisy: Explore by noise on the weights.
        n_atoms: Numbers per option: 1 for a mean, more for a distribution.
        features: Extractor in place of the one that `make_features` makes for the space.
        generator: Source of the weights.

    Attributes:
        branches: Choices that the values stand for.

    Raises:
        TypeError: A space is not supported.
        ValueError: An option has an impossible value.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> net = QNetwork(box, spaces.Discrete(2), generator=np.random.default_rng(0))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        dueling: bool = False,
        noisy: bool = False,
        n_atoms: int = 1,
        features: Features | None = None,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        if n_atoms < 1:
            raise ValueError(f"n_atoms must be at least 1, got {n_atoms}")
        self.branches = Branches(action_space)
        self.dueling = dueling
        self.noisy = noisy
        self.n_atoms = n_atoms
        self.features = features or make_features(observation_space, generator)
        size, outputs = self.features.size, self.branches.n * n_atoms
        check_sizes(size, hidden, activation)
        if dueling:
            *shared, last = size, *hidden
            stream = (*shared[-1:], last)
            self.trunk = MLP(*_layers(shared, activation, generator, noisy))
            self.value = _mlp((*stream, n_atoms), activation, generator, noisy)
            self.advantage = _mlp((*stream, outputs), activation, generator, noisy)
        else:
            self.net = _mlp((size, *hidden, outputs), activation, generator, noisy)
        self._noisy_layers = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]

    def forward(self, obs: Any) -> Tensor:
        """[B, n] values of observations [B, ...], or [B, n, n_atoms]."""
        x: Tensor = self.features(obs)
        if not self.dueling:
            return self._apart(self.net.lean(x))
        x = self.trunk.lean(x)
        value, advantage = self.value.lean(x), self._apart(self.advantage.lean(x))
        parts = advantage.split(self.branches.sizes, 1)
        centered = torch.cat([part - part.mean(1, keepdim=True) for part in parts], 1)
        return centered + (value if self.n_atoms == 1 else value.unsqueeze(1))

    def _apart(self, output: Tensor) -> Tensor:
        return output if self.n_atoms == 1 else output.unflatten(1, (-1, self.n_atoms))

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """Draws new noise; without `noisy` does nothing.

        Args:
            generator: Source of the draws; None is torch's global one.
        """
        for layer in self._noisy_layers:
            layer.reset_noise(generator)

    def remove_noise(self) -> None:
        """Leaves the weights as they are without noise."""
        for layer in self._noisy_layers:
            layer.remove_noise()


def _mlp(sizes: Sequence[int], activation: str, generator: np.random.Generator, noisy: bool) -> MLP:
    *layers, _ = _layers(sizes, activation, generator, noisy)
    return MLP(*layers)


def _layers(
    sizes: Sequence[int], activation: str, generator: np.random.Generator, noisy: bool
) -> list[nn.Module]:
    """A linear layer and an activation from each size to the next."""
    layers: list[nn.Module] = []
    for size, next_size in pairwise(sizes):
        if noisy:
            linear: nn.Module = NoisyLinear(size, next_size, generator)
        else:
            linear = nn.Linear(size, next_size)
            initialize_uniform(linear, generator)
        layers += [linear, ACTIVATIONS[activation]()]
    return layers
