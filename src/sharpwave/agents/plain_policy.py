"""Trained policies as plain functions: multi-layer perceptrons that need none of this library."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from sharpwave.envs import ActionMap, VecNormalize
from sharpwave.loops.offline_data import StateNormalizer
from sharpwave.types import Array

__all__ = ["PlainPolicy", "entries_of"]

NETWORKS = (("policy", "actor."), ("policy", "net."), ("actor", "net."), ("q_network", ""))
"""Networks that choose actions, and how the names of their layers begin."""
SELU_SCALE, SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, x * np.float32(0.01)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: (
        x * np.array([math.erfc(-z * math.sqrt(0.5)) / 2 for z in x.flat], x.dtype).reshape(x.shape)
    ),
    "silu": lambda x: x / (1 + np.exp(-np.maximum(x, -80))),
}


@dataclass(frozen=True)
class PlainPolicy:
    """The deterministic actions of a multi-layer perceptron, in NumPy.

    Example:
        >>> import sharpwave as sw
        >>> agent = sw.PPO("CartPole-v1", seed=0)
        >>> policy = PlainPolicy.of(agent)
        >>> bool(policy(np.zeros((1, 4)))[0, 0] == agent.predict(np.zeros(4)))
        True
    """

    layers: tuple[tuple[Array, Array], ...]
    """Weights [outputs, inputs] and biases [outputs] of each layer, float32."""
    activation: str
    """Activation between the layers, one of `ACTIVATIONS`."""
    mean: Array
    """[inputs] subtracted from observations, float64."""
    scale: Array
    """[inputs] factor of what is left, float64."""
    clip: float
    """Bound of normalized observations; inf for none."""
    actions: Literal["choices", "bits", "box"]
    """Kind of the outputs: logits or values of choices, logits of bits, or means of numbers."""
    options: tuple[int, ...]
    """Number of options of each choice; of bits and numbers how many there are."""
    start: Array
    """[choices] the first option of each."""
    squash: bool
    """True if numbers are bias + factor · tanh of the outputs; they are clipped in any case."""
    bias: Array
    """[numbers] middle of the bounds."""
    factor: Array
    """[numbers] half of the distance between the bounds."""
    low: Array
    """[numbers] lower bounds."""
    high: Array
    """[numbers] upper bounds."""

    @classmethod
    def of(cls, agent: Any) -> PlainPolicy:
        """The policy of an agent.

        Raises:
            ValueError: It is no multi-layer perceptron on a vector of numbers.
        """
        config = agent.config
        if hasattr(agent.env, "groups"):
            raise ValueError(f"{agent.name} plays for several agents")
        entries = entries_of(agent)
        for option in ("recurrent", "feature_norm"):
            if getattr(config, option, None):
                raise ValueError(f"{option} must be off, got {getattr(config, option)!r}")
        activation = getattr(config, "activation", None)
        if activation not in ACTIVATIONS:
            expected = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation must be one of {expected}, got {activation!r}")
        n = sum(int(np.prod(space.shape)) for space in entries.values())
        mean, scale, clip = np.zeros(n), np.ones(n), np.inf
        normalizer = agent.normalizer
        if getattr(config, "normalize_obs", None) == "policy":
            norm = agent.learner.policy.features.norm
            mean, var = norm.mean.cpu().numpy(), norm.var.cpu().numpy()
            clip, scale = norm.clip, 1 / np.sqrt(var + norm.epsilon)
        elif isinstance(normalizer, VecNormalize) and normalizer.norm_obs:
            if len(entries) > 1 or None not in entries:
                raise ValueError("normalize_obs must be 'policy' or off for Dict observations")
            stats: Any = normalizer.get_obs_rms()
            mean, clip = np.asarray(stats.mean, np.float64).reshape(-1), normalizer.clip_obs
            scale = 1 / np.sqrt(np.asarray(stats.var, np.float64).reshape(-1) + normalizer.epsilon)
        elif isinstance(normalizer, StateNormalizer):
            mean = np.asarray(normalizer.mean, np.float64).reshape(-1)
            scale = 1 / np.asarray(normalizer.std, np.float64).reshape(-1)
        form = _form_of(agent.action_space, agent.learner.action_map)
        return cls(
            layers=_layers_of(agent, n, sum(form["options"])),
            activation=activation,
            mean=mean,
            scale=scale,
            clip=clip,
            **form,
        )

    def __call__(self, obs: Any) -> Array:
        """Actions [B, k] for observations [B, ...]: integers, bits or numbers."""
        return self.chosen(self.outputs(obs))

    def outputs(self, obs: Any) -> Array:
        """Outputs [B, n] of the last layer."""
        given = np.asarray(obs, np.float64).reshape(len(obs), -1)
        x = np.clip((given - self.mean) * self.scale, -self.clip, self.clip).astype(np.float32)
        for weight, bias in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](x @ weight.T + bias)
        weight, bias = self.layers[-1]
        return x @ weight.T + bias

    def chosen(self, outputs: Array) -> Array:
        """Actions [B, k] by the outputs of the last layer."""
        if self.actions == "bits":
            return (outputs > 0).astype(np.int64)
        if self.actions == "choices":
            ends = np.cumsum(self.options)[:-1]
            best = [part.argmax(1) for part in np.split(outputs, ends, axis=1)]
            return np.stack(best, axis=1) + self.start
        if self.squash:
            outputs = self.bias + self.factor * np.tanh(outputs, dtype=np.float64)
        return np.clip(outputs, self.low, self.high).astype(np.float32)

    def margin(self, outputs: Array) -> Array:
        """[B] by how much outputs may change before another option is chosen; inf for numbers."""
        if self.actions == "box":
            return np.full(len(outputs), np.inf)
        if self.actions == "bits":
            return np.abs(outputs).min(1)  # type: ignore[no-any-return]
        parts = np.split(outputs, np.cumsum(self.options)[:-1], axis=1)
        best = [np.sort(part, axis=1) for part in parts]
        gaps = [part[:, -1] - part[:, -2] for part in best if part.shape[1] > 1]
        return np.min([*gaps, np.full(len(outputs), np.inf)], axis=0)  # type: ignore[no-any-return]


def entries_of(agent: Any) -> dict[str | None, spaces.Box]:
    """The entries of observations that the policy looks at, side by side; None for all of one.

    Raises:
        ValueError: One of them is no vector of floats.
    """
    space, groups_of = agent.observation_space, getattr(agent.config, "groups_of", None)
    entries: dict[str | None, Any] = {None: space}
    groups = groups_of(space.spaces) if groups_of and isinstance(space, spaces.Dict) else None
    if groups is not None:
        entries = {key: space[key] for key in groups["policy"]}
    for one in entries.values():
        if not isinstance(one, spaces.Box) or one.dtype == np.uint8:
            raise ValueError(f"observations must be vectors of floats, got {one}")
    return entries


def _form_of(space: spaces.Space[Any], action_map: Any) -> dict[str, Any]:
    none = np.zeros(0)
    form: dict[str, Any] = dict.fromkeys(("bias", "factor", "low", "high", "start"), none)
    if isinstance(space, spaces.Box):
        ends = action_map if isinstance(action_map, ActionMap) else space
        low, high = (np.asarray(x, np.float64).reshape(-1) for x in (ends.low, ends.high))
        squash = not isinstance(action_map, ActionMap) or action_map.squash
        half = (high / 2 - low / 2, low / 2 + high / 2) if squash else (none, none)
        bounds = {"low": low, "high": high, "factor": half[0], "bias": half[1]}
        return {**form, **bounds, "actions": "box", "options": (len(low),), "squash": squash}
    form["squash"] = False
    if isinstance(space, spaces.MultiBinary):
        return {**form, "actions": "bits", "options": (int(np.prod(space.shape)),)}
    options: tuple[int, ...]
    if isinstance(space, spaces.Discrete):
        options, start = (int(space.n),), np.array([int(space.start)])
    else:
        assert isinstance(space, spaces.MultiDiscrete)
        options = tuple(int(n) for n in space.nvec.reshape(-1))
        start = np.asarray(space.start).reshape(-1)
    return {**form, "actions": "choices", "options": options, "start": start}


def _layers_of(agent: Any, n_inputs: int, n_outputs: int) -> tuple[tuple[Array, Array], ...]:
    """The layers from observations to the outputs that choose actions."""
    networks = agent.learner.state_dict()["networks"]
    every = [
        _linear_layers(networks[name], begins) for name, begins in NETWORKS if name in networks
    ]
    found = next(filter(None, every), [])
    sizes = [(weight.shape[1], len(weight)) for weight, _ in found]
    fits = found and sizes[0][0] == n_inputs and sizes[-1][1] >= n_outputs
    if not fits or any(one[1] != other[0] for one, other in pairwise(sizes)):
        raise ValueError(f"{agent.name} must have a multi-layer perceptron, got layers {sizes}")
    weight, bias = found[-1]  # an actor may give deviations, too, after its means
    return (*found[:-1], (weight[:n_outputs], bias[:n_outputs]))


def _linear_layers(parameters: Mapping[str, Any], begins: str) -> list[tuple[Array, Array]]:
    names = [re.sub(r"\.weight$", "", name) for name in parameters if name.endswith(".weight")]
    # A constant value beside advantages changes no choice.
    wanted = [name for name in names if name.startswith(begins) and not name.startswith("value.")]

    def array(name: str) -> Array:
        given = parameters[name]
        given = given.detach().cpu().numpy() if hasattr(given, "detach") else given
        return np.array(given, np.float32)

    found = [(array(f"{name}.weight"), array(f"{name}.bias")) for name in wanted]
    return [(weight, bias) for weight, bias in found if weight.ndim == 2]
