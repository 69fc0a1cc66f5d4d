"""Generalized state-dependent exploration (gSDE): noise that is a function of the state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpwave.nn.distributions import GaussianParams

__all__ = ["SmoothNoise", "StateDependentNoise"]


class StateDependentNoise:
    r"""Exploration noise $\epsilon(s) = h(s) \theta$, with $\theta_{ij} \sim N(0, \sigma_{ij}^2)$.

    $h$ are the latent features of the policy [L]. The matrix is drawn once and kept for some
    steps, one for each environment, so the noise is smooth in time. Over the draws of the matrix
    an action is normal with variance $h^2 \sigma^2$, which is what its log-probability uses.

    Raffin, Kober, Stulp: Smooth Exploration for Robotic Reinforcement Learning, 2021.

    Args:
        learn_features: Train the features through the variance, too.

    Attributes:
        matrices: [n, L, d] in use; None before the first are drawn.
    """

    def __init__(self, *, learn_features: bool = False) -> None:
        self._learn_features = learn_features
        self.matrices: Tensor | None = None

    def reset(self, log_std: Tensor, n: int, generator: torch.Generator | None = None) -> None:
        """Draws new matrices.

        Args:
            log_std: [L, d] logarithm of sigma.
            n: Number of environments.
            generator: Source of the noise.
        """
        with torch.no_grad():
            noise = log_std.new_empty((n, *log_std.shape)).normal_(generator=generator)
            self.matrices = noise.mul_(log_std.exp())

    def params(self, mean: Tensor, latent: Tensor, log_std: Tensor) -> GaussianParams:
        """Parameters of the actions' distribution: means [B, d] and log_std [B, d].

        Args:
            mean: [B, d].
            latent: [B, L].
            log_std: [L, d].
        """
        latent = latent if self._learn_features else latent.detach()
        variance = latent.square() @ (2.0 * log_std).exp()
        return mean, 0.5 * (variance + 1e-6).log()

    def noise(
        self, params: GaussianParams, latent: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The noise [B, d] of the matrices in use.

        A batch that is not one row for each matrix, such as a single observation to predict from,
        gets independent noise of the same distribution.

        Args:
            params: Parameters of the distribution.
            latent: [B, L].
            generator: Source of independent noise.
        """
        if self.matrices is None or len(self.matrices) != len(latent):
            mean, log_std = params
            return torch.empty_like(mean).normal_(generator=generator) * log_std.exp()
        return torch.bmm(latent.unsqueeze(1), self.matrices).squeeze(1)


class SmoothNoise:
    """The noise of an actor in its environments, which is kept for some steps.

    Args:
        n_envs: Number of environments.
        every: Steps between new noise.

    Attributes:
        steps: Steps so far.
        matrices: Those of `StateDependentNoise`; None before the first are drawn.
    """

    def __init__(self, n_envs: int, every: int) -> None:
        self._n_envs = n_envs
        self._every = every
        self.steps = 0
        self.matrices: Tensor | None = None

    def explore(self, actor: Any, obs: Any, generator: torch.Generator) -> Tensor:
        """Actions [N, d] of an actor with the noise of now."""
        if self.steps % self._every == 0:
            actor.reset_noise(self._n_envs, generator)
            self.matrices = actor.noise.matrices
        else:
            actor.noise.matrices = self.matrices
        self.steps += 1
        actions: Tensor = actor.explore_smoothly(obs)
        return actions

    def arrays(self) -> dict[str, Any]:
        """State for a checkpoint, by name."""
        return {"explored": self.steps, "noise": self.matrices}

    def load_arrays(self, arrays: dict[str, Any]) -> None:
        """Go on from `arrays`."""
        if arrays["noise"] is not None:
            self.matrices, self.steps = arrays["noise"], int(arrays["explored"])
