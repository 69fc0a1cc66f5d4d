"""A user's own modules as actor, critics and Q-network of off-policy algorithms."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.custom import as_single, global_randomness_from
from sharpwave.nn.q_networks import Branches

__all__ = [
    "CustomCritics",
    "CustomDeterministicActor",
    "CustomQNetwork",
    "CustomSquashedActor",
]


class CustomDeterministicActor(nn.Module):
    """Adapts a module `actor(obs) -> actions` to what the algorithms use.

    Args:
        module: Gives actions [B, d] in [-1, 1] for observations [B, ...].
        action_dim: d.

    Raises:
        TypeError: It is not a module.
    """

    def __init__(self, module: nn.Module, action_dim: int) -> None:
        super().__init__()
        self.module: Any = _module("actor", module)
        self._dim = action_dim

    def forward(self, obs: Any) -> Tensor:
        """Actions [B, d]."""
        actions: Tensor = self.module(as_single(obs))
        return _shaped("actions", self.module, actions, self._dim)

    def mode(self, obs: Any) -> Tensor:
        """The same, without differentiation."""
        with torch.no_grad():
            actions: Tensor = self(obs)
            return actions


class CustomSquashedActor(nn.Module):
    """Adapts a module with `sample` and `deterministic` to what the algorithms use.

    The module draws from torch's global generator; the algorithm's stands in for it meanwhile, so
    runs are reproducible and the global one is left alone.

    Args:
        module: Offers `sample(obs) -> (actions, log_probs)` and `deterministic(obs) -> actions`,
            with actions [B, d] in [-1, 1] through which gradients flow, and log-probabilities [B].
        action_dim: d.

    Raises:
        TypeError: A method is missing, or it is not a module.
    """

    def __init__(self, module: nn.Module, action_dim: int) -> None:
        super().__init__()
        required = {
            "sample": "(obs) -> (actions, log_probs)",
            "deterministic": "(obs) -> actions",
        }
        self.module: Any = _module("actor", module)
        missing = [
            name + signature
            for name, signature in required.items()
            if not callable(getattr(module, name, None))
        ]
        if missing:
            raise TypeError(f"actor {type(module).__name__} must offer {', '.join(missing)}")
        self._dim = action_dim

    def sample(self, obs: Any, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Actions [B, d] that gradients flow through, and log-probabilities [B]."""
        with global_randomness_from(generator):
            actions, log_probs = self.module.sample(as_single(obs))
        _shaped("actions", self.module, actions, self._dim)
        return actions, _column("log_probs", self.module, log_probs, len(actions))

    def explore(self, obs: Any, generator: torch.Generator | None = None) -> Tensor:
        """Actions [B, d] to collect experience with."""
        with torch.no_grad():
            return self.sample(obs, generator)[0]

    def mode(self, obs: Any) -> Tensor:
        """Deterministic actions [B, d]."""
        with torch.no_grad():
            actions: Tensor = self.module.deterministic(as_single(obs))
            return _shaped("actions", self.module, actions, self._dim)


class CustomCritics(nn.Module):
    """Adapts modules `critic(obs, actions) -> values` to what the algorithms use.

    One module is copied until there are `n_critics`, and the layers of the copies that know how
    (`reset_parameters`) draw first weights of their own: critics that begin alike and learn alike
    would stay alike, and the least of them would mean nothing. Several modules are taken as they
    are.

    Args:
        modules: A module, or as many as `n_critics`; values are [B] or [B, 1].
        n_critics: Number of critics.
        generator: Source of the weights of copies.

    Raises:
        TypeError: Something else than modules is given.
        ValueError: The number of modules is wrong.
    """

    def __init__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        n_critics: int,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        given: Any = modules
        members = list(given) if isinstance(given, list | tuple | nn.ModuleList) else [given]
        if len(members) not in (1, n_critics):
            raise ValueError(f"critic must be one module or {n_critics}, got {len(members)}")
        members = [_module("critic", member) for member in members]
        while len(members) < n_critics:
            members.append(_redrawn(copy.deepcopy(members[0]), generator))
        self.members = nn.ModuleList(members)

    def forward(self, obs: Any, actions: Tensor, n: int | None = None) -> Tensor:
        """Estimates [n, B] of actions [B, d], by the first n critics or by all."""
        members = list(self.members)[:n]
        values = [
            _column("values", member, member(as_single(obs), actions), len(actions))
            for member in members
        ]
        return torch.stack(values)


class CustomQNetwork(nn.Module):
    """Adapts a module `q_network(obs) -> values` to what the algorithms use.

    Args:
        module: Gives values [B, n], or [B, n, n_atoms], for observations [B, ...].
        action_space: Action space; see `Branches`.
        n_atoms: Numbers per option.

    Raises:
        TypeError: It is not a module.
    """

    def __init__(self, module: Any, action_space: spaces.Space[Any], *, n_atoms: int = 1) -> None:
        super().__init__()
        self.module: Any = _module("q_network", module)
        self.branches = Branches(action_space)
        self.n_atoms = n_atoms

    def forward(self, obs: Any) -> Tensor:
        """[B, n] values of observations [B, ...], or [B, n, n_atoms].

        Raises:
            ValueError: The module gave another shape.
        """
        values: Tensor = self.module(as_single(obs))
        wanted = (self.branches.n,) if self.n_atoms == 1 else (self.branches.n, self.n_atoms)
        if values.shape[1:] != wanted:
            shape = ", ".join(map(str, ("B", *wanted)))
            raise ValueError(
                f"values of {type(self.module).__name__} must have shape ({shape}), "
                f"got {tuple(values.shape)}"
            )
        return values

    def reset_noise(self, generator: torch.Generator | None = None) -> None:
        """There is none."""

    def remove_noise(self) -> None:
        """There is none."""


def _module(argument: str, given: Any) -> Any:
    if not isinstance(given, nn.Module):
        raise TypeError(f"{argument} must be a torch.nn.Module, got {type(given).__name__}")
    return given


def _redrawn(module: nn.Module, generator: np.random.Generator) -> nn.Module:
    seed = int(generator.integers(2**63))
    device = next((parameter.device for parameter in module.parameters()), "cpu")
    with global_randomness_from(torch.Generator(device).manual_seed(seed)):
        for layer in module.modules():
            if callable(reset := getattr(layer, "reset_parameters", None)):
                reset()
    return module


def _shaped(name: str, module: nn.Module, result: Tensor, dim: int) -> Tensor:
    if result.ndim != 2 or result.shape[1] != dim:
        raise ValueError(
            f"{name} of {type(module).__name__} must have shape (B, {dim}), "
            f"got {tuple(result.shape)}"
        )
    return result


def _column(name: str, module: nn.Module, result: Tensor, n: int) -> Tensor:
    """[n] of [n] or [n, 1], which would otherwise broadcast to [n, n] further on."""
    if result.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"{name} of {type(module).__name__} must have shape ({n},) or ({n}, 1), "
            f"got {tuple(result.shape)}"
        )
    return result.reshape(n)
