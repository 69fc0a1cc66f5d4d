"""Steps of SAC, TD3 and TD3+BC, and acting with their policies, in native code."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.layouts.features import Features, flat
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.replay import ActorLayout, CriticsLayout
from sharpwave.learners.native.optimizers import Adam, memory_of
from sharpwave.types import Doubles, Floats

__all__ = ["DeterministicActor", "SACSteps", "SquashedActor", "TD3Steps"]


class SACSteps:
    """The gradient steps of SAC for multi-layer perceptrons on the CPU.

    It does what `SACLearner.update` does with torch. Critics, and rows of a batch, go apart on as
    many threads as there are; results do not depend on their number.

    A batch is a `ReplayBatch` of arrays or CPU tensors.

    Args:
        actor_layout: The actor, with two outputs for each action.
        critics_layout: The critics.
        actor: Parameters of the actor and what moves them; changed by steps, like the next two.
        critics: The same of the critics.
        temperature: The same of the logarithm of α.
        targets: Parameters of the target critics.
        features: From observations to the inputs of the networks.
        threads: Most threads of a step.

    Raises:
        ValueError: The arrays do not fit.
    """

    def __init__(
        self,
        actor_layout: ActorLayout,
        critics_layout: CriticsLayout,
        *,
        actor: tuple[FlatArrays, Adam],
        critics: tuple[FlatArrays, Adam],
        temperature: tuple[FlatArrays, Adam],
        targets: FlatArrays,
        features: Features = flat,
        threads: int = 1,
    ) -> None:
        self.threads = threads
        self._features = features
        self._native = _native.SACLearner(
            *_form(actor_layout),
            critics_layout.n_critics,
            list(critics_layout.hidden),
            memory_of(*actor),
            memory_of(*critics),
            memory_of(*temperature),
            targets.data,
        )

    def step(
        self,
        batch: Any,
        *,
        target_entropy: float,
        draw: tuple[int, int] = (0, 0),
        noise: Any = None,
        alpha: float | None = None,
        max_grad_norm: float | None = None,
        tau: float = 0.0,
    ) -> tuple[Doubles, Floats]:
        """One gradient step of the entropy coefficient, of the critics and of the actor.

        Args:
            batch: What to learn from.
            target_entropy: Target entropy of a learned entropy coefficient.
            draw: Seed and call number of the noise, from `Draws.next_call`.
            noise: [2, B, n_actions] noise for `obs` and `next_obs` to use instead.
            alpha: Entropy coefficient; None learns it.
            max_grad_norm: Maximum norm of the gradient, of actor and of critics each.
            tau: Polyak coefficient of the target critics; 0 leaves them as they are.

        Returns:
            The metrics of `sac.METRICS` [6]; the mean absolute TD errors [B] of the critics.

        Raises:
            ValueError: An array does not fit. Nothing has changed then.
        """
        longest = np.inf if max_grad_norm is None else max_grad_norm
        return self._native.step(
            _columns(batch, self._features),
            noise,
            *draw,
            alpha,
            target_entropy,
            longest,
            tau,
            self.threads,
        )


class TD3Steps:
    """The gradient steps of TD3, DDPG and TD3+BC for multi-layer perceptrons on the CPU.

    It does what `TD3Learner.update` does with torch; see `SACSteps`.

    Args:
        actor_layout: The actor, with one output for each action.
        critics_layout: The critics.
        actor: Parameters of the actor and what moves them; changed by steps, like the next.
        critics: The same of the critics.
        target_actor: Parameters of the target actor.
        target_critics: Parameters of the target critics.
        features: From observations to the inputs of the networks.
        threads: Most threads of a step.

    Raises:
        ValueError: The arrays do not fit.
    """

    def __init__(
        self,
        actor_layout: ActorLayout,
        critics_layout: CriticsLayout,
        *,
        actor: tuple[FlatArrays, Adam],
        critics: tuple[FlatArrays, Adam],
        target_actor: FlatArrays,
        target_critics: FlatArrays,
        features: Features = flat,
        threads: int = 1,
    ) -> None:
        self.threads = threads
        self._features = features
        self._native = _native.TD3Learner(
            *_form(actor_layout),
            critics_layout.n_critics,
            list(critics_layout.hidden),
            memory_of(*actor),
            memory_of(*critics),
            target_actor.data,
            target_critics.data,
        )

    def step(
        self,
        batch: Any,
        *,
        target_noise: float,
        noise_clip: float,
        tau: float,
        moves_actor: bool,
        draw: tuple[int, int] = (0, 0),
        noise: Any = None,
        max_grad_norm: float | None = None,
        bc_weight: float | None = None,
    ) -> tuple[Doubles, Floats]:
        """One gradient step of the critics, and perhaps of the actor and all target networks.

        Args:
            batch: What to learn from.
            target_noise: Standard deviation of the noise on the target actor's actions.
            noise_clip: Bound that this noise is clipped to.
            tau: Polyak coefficient of the target networks.
            moves_actor: True to move actor and target networks too.
            draw: Seed and call number of the noise, from `Draws.next_call`.
            noise: [B, n_actions] noise of deviation 1 to use instead.
            max_grad_norm: Maximum norm of the gradient, of actor and of critics each.
            bc_weight: TD3+BC's α; None leaves behavior cloning out.

        Returns:
            Loss of the critics, of the actor (0 where it did not move) and mean target [3]; the
            mean absolute TD errors [B] of the critics.

        Raises:
            ValueError: An array does not fit. Nothing has changed then.
        """
        longest = np.inf if max_grad_norm is None else max_grad_norm
        return self._native.step(
            _columns(batch, self._features),
            noise,
            *draw,
            target_noise,
            noise_clip,
            longest,
            tau,
            moves_actor,
            bc_weight,
            self.threads,
        )


class SquashedActor:
    """Acts with the tanh of a normal variable, as `nn.SquashedActor` does.

    Args:
        layout: The network.
        parameters: Its parameters; later changes count.
    """

    def __init__(self, layout: ActorLayout, parameters: FlatArrays) -> None:
        self._native = _native.SquashedActor(*_form(layout), parameters.data)

    def mode(self, obs: Any) -> Floats:
        """The tanh [B, n_actions] of the means, for obs [B, n_inputs]."""
        return self._native.mode(obs)

    def explore(self, obs: Any, draw: tuple[int, int]) -> Floats:
        """Actions drawn from what `Draws.next_call` gave."""
        return self._native.explore(obs, *draw)


class DeterministicActor:
    """Acts with the tanh of a network, as `nn.DeterministicActor` does.

    Args:
        layout: The network.
        parameters: Its parameters; later changes count.
    """

    def __init__(self, layout: ActorLayout, parameters: FlatArrays) -> None:
        self._native = _native.DeterministicActor(*_form(layout), parameters.data)

    def mode(self, obs: Any) -> Floats:
        """Actions [B, n_actions] in [-1, 1], for obs [B, n_inputs]."""
        return self._native.mode(obs)

    def explore(self, obs: Any, deviation: float, draw: tuple[int, int]) -> Floats:
        """The same with normal noise, from what `Draws.next_call` gave, and clipped to [-1, 1]."""
        return self._native.explore(obs, deviation, *draw)


def _form(layout: ActorLayout) -> tuple[int, int, list[int], str]:
    return layout.n_inputs, layout.n_actions, list(layout.hidden), layout.activation


def _columns(batch: Any, features: Features) -> tuple[Any, ...]:
    return (
        features(batch.obs),
        batch.actions,
        batch.rewards,
        features(batch.next_obs),
        batch.discounts,
        batch.weights,
    )
