"""Updates of actor-critic policies in native code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from sharpwave import _native
from sharpwave.layouts.policy import PolicyLayout
from sharpwave.learners.native.optimizers import Adam, RMSprop
from sharpwave.learners.native.value_norm import ValueNormArrays
from sharpwave.types import Doubles, Floats

__all__ = ["PolicySteps"]


COLUMNS = (
    "obs",
    "actions",
    "advantages",
    "returns",
    "log_probs",
    "values",
    "masks",
    "weights",
    "joint",
    "joint_rows",
)
"""Columns of a batch, in the order that native code takes them."""

METRICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "loss",
    "grad_norm",
    "explained_variance",
)
"""Metrics of an update, in order."""

OF_RATIOS = ("approx_kl", "clip_fraction")
"""Metrics of importance ratios, which A2C does not have."""


class PolicySteps:
    """The gradients and updates of PPO and A2C for multi-layer perceptrons on the CPU.

    It computes what the losses, the optimizers and the updates of the torch learners do, without
    the interpreter. Rows are split among threads in a way that
    depends on their number alone, so that results do not depend on the number of threads.

    A batch is a mapping with `obs` [N, n_inputs], `actions`, and whichever of `advantages`,
    `returns`, `log_probs`, `values`, `masks` and `weights` a loss needs; arrays or CPU tensors. For
    a critic with inputs of its own `joint` [M, n_critic_inputs] are those, and `joint_rows` [N]
    says which of them belongs to each row; None where they lie alike. It values each once.

    Args:
        layout: The networks.
        parameters: [n_parameters] float32, in the order of `layout.shapes`; changed by updates.
        gradient: [n_parameters] float32; overwritten by updates.
        threads: Most threads of an update.

    Raises:
        ValueError: The arrays do not fit.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> layout = PolicyLayout.of(box, spaces.Discrete(2), hidden=(8,), activation="tanh")
        >>> zeros = np.zeros(layout.n_parameters, np.float32)
        >>> learner = PolicySteps(layout, zeros, np.empty_like(zeros))
        >>> batch = {"obs": np.ones((4, 3), np.float32), "actions": [0, 1, 1, 0]}
        >>> log_probs, entropies, values = learner.evaluate(batch)
        >>> np.exp(log_probs)
        array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """

    def __init__(
        self, layout: PolicyLayout, parameters: Any, gradient: Any, *, threads: int = 1
    ) -> None:
        self.layout = layout
        self.threads = threads
        self._native = _native.PolicyLearner(
            layout.n_inputs,
            layout.hidden,
            layout.critic_hidden,
            layout.activation,
            layout.actions,
            layout.options,
            parameters,
            gradient,
            layout.n_critic_inputs,
        )

    def act(
        self, obs: Any, masks: Any = None, draw: tuple[int, int] | None = None
    ) -> tuple[npt.NDArray[Any], Floats, Floats | None]:
        """Chooses actions.

        Args:
            obs: [N, n_inputs] observations.
            masks: [N, n_outputs], False where an action is forbidden (discrete actions only).
            draw: What `Draws.next_call` gives, for a sample; otherwise the most likely action.

        Returns:
            Actions [N, k], their log-probabilities and the values [N], which are None for a critic
            with inputs of its own.

        Raises:
            ValueError: A shape does not fit, or a row of the masks allows nothing.
        """
        return self._native.act(obs, masks, draw)

    def values(self, obs: Any) -> Floats:
        """Values [N] of inputs [N, n] of the critic."""
        return self._native.values(obs)

    def evaluate(self, batch: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
        """Log-probabilities, entropies and values of actions by the networks, [N] each."""
        return self._native.evaluate(_columns(batch))

    def gradient(
        self,
        batch: Mapping[str, Any],
        rows: Any,
        *,
        clip: float | None = None,
        vf_coef: float = 0.5,
        ent_coef: float = 0.0,
        clip_vloss: bool = False,
        value_clip: float | None = None,
        normalize: bool = True,
    ) -> Doubles:
        """Overwrites the gradient with that of a loss.

        Args:
            batch: Columns of a rollout.
            rows: [B] rows to compute on.
            clip: Clip range of PPO's loss; None for A2C's.
            vf_coef: Weight of the value loss.
            ent_coef: Entropy coefficient.
            clip_vloss: Clips the values too.
            value_clip: Range of that; `clip` when None.
            normalize: Normalizes the advantages of these rows.

        Returns:
            [6] the first ones of `METRICS`.

        Raises:
            IndexError: A row does not exist.
            ValueError: A column is missing or does not fit.
        """
        of_values = _range_of_values(clip_vloss, clip, value_clip)
        return self._native.gradient(
            _columns(batch), rows, clip, of_values, normalize, vf_coef, ent_coef, self.threads
        )

    def ppo_update(
        self,
        batch: Mapping[str, Any],
        orders: Any,
        adam: Adam,
        *,
        batch_size: int,
        clip: float,
        vf_coef: float,
        ent_coef: float,
        clip_vloss: bool,
        normalize: bool,
        max_grad_norm: float,
        target_kl: float | None,
        desired_kl: float | None = None,
        value_clip: float | None = None,
        huber_delta: float | None = None,
        value_norm: ValueNormArrays | None = None,
    ) -> dict[str, float]:
        """Gradient steps on minibatches of a rollout, as `PPOLearner.update` takes them.

        Args:
            batch: Columns of a rollout of N steps.
            orders: [n_epochs, N] the rows of each pass.
            adam: The optimizer of the parameters.
            batch_size: Rows in a minibatch.
            clip: Clip range.
            vf_coef: Weight of the value loss.
            ent_coef: Entropy coefficient.
            clip_vloss: Clips the values too.
            normalize: Normalizes the advantages of each minibatch.
            max_grad_norm: Maximum norm of the gradient.
            target_kl: KL divergence at 1.5 times of which the update stops early.
            desired_kl: KL divergence at which the learning rate aims, which changes in every step;
                None leaves it.
            value_clip: Range of values, where they are clipped; `clip` when None.
            huber_delta: Errors of values count linearly beyond it; None for squares.
            value_norm: Running normalization of returns for the critic, updated by those of each
                minibatch before its step.

        Returns:
            Means over the steps of what `METRICS` names, but for the explained variance, which is
            that of the rollout.

        Raises:
            IndexError: A row does not exist.
            ValueError: An array is missing or does not fit. Nothing has changed then.
        """
        measured = self._native.ppo_update(
            _columns(batch),
            orders,
            batch_size=batch_size,
            clip=clip,
            value_clip=_range_of_values(clip_vloss, clip, value_clip),
            normalize=normalize,
            vf_coef=vf_coef,
            ent_coef=ent_coef,
            max_grad_norm=max_grad_norm,
            target_kl=target_kl,
            threads=self.threads,
            huber_delta=huber_delta,
            **({} if value_norm is None else value_norm.arguments()),
            **({} if desired_kl is None else {"desired_kl": desired_kl, **adam.adaptive()}),
            **adam.arguments(),
        )
        return dict(zip(METRICS, measured.tolist(), strict=True))

    def a2c_update(
        self,
        batch: Mapping[str, Any],
        rmsprop: RMSprop,
        *,
        vf_coef: float,
        ent_coef: float,
        normalize: bool,
        max_grad_norm: float,
    ) -> dict[str, float]:
        """One gradient step on a rollout, as `A2CLearner.update` takes it.

        Args:
            batch: Columns of a rollout.
            rmsprop: The optimizer of the parameters.
            vf_coef: Weight of the value loss.
            ent_coef: Entropy coefficient.
            normalize: Normalizes the advantages.
            max_grad_norm: Maximum norm of the gradient.

        Returns:
            What `METRICS` names, but for `OF_RATIOS`.

        Raises:
            ValueError: An array is missing or does not fit. Nothing has changed then.
        """
        measured = self._native.a2c_update(
            _columns(batch),
            normalize=normalize,
            vf_coef=vf_coef,
            ent_coef=ent_coef,
            max_grad_norm=max_grad_norm,
            threads=self.threads,
            **rmsprop.arguments(),
        )
        named = zip(METRICS, measured.tolist(), strict=True)
        return {name: value for name, value in named if name not in OF_RATIOS}


def _range_of_values(clips: bool, clip: float | None, own: float | None) -> float | None:
    return (clip if own is None else own) if clips else None


def _columns(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(batch.get(name) for name in COLUMNS)
