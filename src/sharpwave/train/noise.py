"""Noise that explores: added to the actions of policies that have none of their own."""

from __future__ import annotations

from typing import Any

from sharpwave.lazy import torch


class OrnsteinUhlenbeck:
    r"""Noise that remembers: a random walk that is pulled back to zero.

    x ← x − θ x dt + σ √dt ε with ε ~ N(0, 1), and x = 0 at the start of an episode. It pushes the
    same way for about 1 / (θ dt) steps, which moves masses that independent noise does not.

    Args:
        n_envs: Number of environments, each with a walk of its own.
        dim: Number of actions.
        sigma: σ.
        theta: θ.
        dt: Length of a step.
        device: Where it lives.

    Attributes:
        value: [n_envs, dim] x.
    """

    def __init__(
        self,
        n_envs: int,
        dim: int,
        sigma: float,
        *,
        theta: float = 0.15,
        dt: float = 0.01,
        device: Any = "cpu",
    ) -> None:
        self.value = torch.zeros(n_envs, dim, device=device)
        self._keep = 1.0 - theta * dt
        self._std = sigma * dt**0.5

    def draw(self, starts: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The next x.

        Args:
            starts: [n_envs] bool, where an episode starts.
            generator: Source of ε.
        """
        change = torch.empty_like(self.value).normal_(std=self._std, generator=generator)
        self.value.masked_fill_(starts[:, None], 0.0).mul_(self._keep).add_(change)
        return self.value
