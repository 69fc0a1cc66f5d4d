"""The compiled twins of PPO, A2C, APPO and IMPALA."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave import _native
from sharpwave.config.schedules import Adaptive
from sharpwave.envs import ActionMap
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.policy import PolicyLayout
from sharpwave.learners.devices import native_threads
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam, RMSprop
from sharpwave.learners.native.policy import PolicySteps
from sharpwave.learners.unrolls import UnrollBatch, Valued

__all__ = ["NativeA2CLearner", "NativeAPPOLearner", "NativeIMPALALearner", "NativePPOLearner"]


class NativePolicyLearner(NativeLearner):
    """A policy and its values for multi-layer perceptrons on the CPU."""

    acting = "policy"
    not_known = (
        *("recurrent", "use_gsde", "squash_actions", "critic_obs", "feature_norm"),
        *("noise_std_type=scalar", "clip_actions", "obs_groups", "normalize_obs=policy"),
    )

    def build(self) -> None:
        """Make the parameters and their optimizer."""
        config = self.config
        self._layout = self.make_layout()
        first = self._layout.first_parameters(
            self.weights_generator, log_std_init=config.log_std_init, ortho_init=config.ortho_init
        )
        self.flat = self.add("policy", first, self.make_optimizer)

    def make_layout(self) -> PolicyLayout:
        """The networks."""
        return self.layout_of()

    def layout_of(self, critic_space: spaces.Space[Any] | None = None) -> PolicyLayout:
        """Networks with this input space of the critic; None for that of the actor."""
        config = self.config
        return PolicyLayout.of(
            self.observation_space,
            self.action_space,
            hidden=config.hidden_of("actor"),
            critic_hidden=config.hidden_of("critic"),
            activation=config.activation,
            critic_space=critic_space,
        )

    @abstractmethod
    def make_optimizer(self, flat: FlatArrays) -> Any:
        """The optimizer of the parameters; its learning rate follows the schedule."""

    def make_action_map(self) -> ActionMap:
        """Between actions of the policy and of the environment."""
        return ActionMap(self.action_space)

    def make_actor(self, flat: FlatArrays) -> PolicySteps:
        """The actor and learner with the parameters of the policy."""
        threads = native_threads(
            self.config.threads, self._layout.n_parameters * self.config.minibatch
        )
        return PolicySteps(self._layout, flat.data, flat.grad, threads=threads)

    def act(self, obs: Any, *, explore: bool, masks: Any = None, **_: Any) -> Acted:
        """Actions drawn from the policy, or its mode, with log-probabilities and values."""
        draw = self.explore_generator.next_call() if explore else None
        actions, log_probs, values = self.actor.act(obs, masks, draw)
        if isinstance(self.action_space, spaces.Discrete):
            actions = actions[:, 0]
        return Acted(actions, log_probs, values)

    def values(self, obs: Any, state: Any = None) -> Any:  # noqa: ARG002 - it has no memory
        """Values [N] of inputs [N, n]."""
        return self.actor.values(obs)

    def begin_rollout(self, n_envs: int) -> None:
        """Nothing to prepare."""

    def weights(self) -> Any:
        """[n_parameters] a copy of all parameters."""
        return self.flat.data.copy()

    def follow_weights(self, weights: Any) -> None:
        """As an `acting_copy`, act with the parameters [n_parameters] of another learner."""
        self.networks[self.acting].data[:] = weights

    @property
    def block(self) -> Any:
        """The memory of all parameters."""
        return self.flat.data

    def columns(self, batch: Any) -> dict[str, Any]:
        """The columns of a batch by name, as native code takes them."""
        return {**vars(batch), "obs": self.features(batch.obs)}

    def valued(self, policy: PolicySteps, batch: UnrollBatch) -> Valued:
        """Log-probabilities and values of unrolls by a policy."""
        steps = batch.steps()
        log_probs, _, values = policy.evaluate({**steps, "obs": self.features(steps["obs"])})
        last_values, cut_values = (
            None if obs is None else policy.values(self.features(obs))
            for obs in (batch.last_obs, batch.cut_obs)
        )
        shape = batch.log_probs.shape
        return Valued(log_probs.reshape(shape), values.reshape(shape), last_values, cut_values)

    def orders(self, n_orders: int, n: int) -> npt.NDArray[np.int64]:
        """[n_orders, n] orders of so many rows."""
        seed, call = self.generator.next_call()
        return _native.shuffled(seed, call, n_orders, n)


class NativePPOLearner(NativePolicyLearner):
    """PPO for multi-layer perceptrons on the CPU."""

    def build(self) -> None:
        """Make the parameters and their optimizer."""
        super().build()
        if isinstance(rate := self.config.learning_rate, Adaptive):
            self.optimizers["policy"].set_lr(rate.start)

    def make_optimizer(self, flat: FlatArrays) -> Adam:
        """Adam with the ε of the paper's code."""
        return Adam(flat, lr=0.0, eps=1e-5)

    def follow(self, progress_remaining: float) -> None:
        """Set learning rate and clip ranges."""
        super().follow(progress_remaining)
        self.clip, self.value_clip = self.config.clip_ranges(progress_remaining)

    def update(self, batch: Any) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps on shuffled minibatches."""
        columns = self.columns(batch)
        orders = self.orders(self.config.n_epochs, len(columns["obs"]))
        rows = self.config.minibatch_of(len(columns["obs"]))
        metrics = self.descend(columns, orders, rows)
        self.updates += 1
        return metrics

    def descend(self, columns: dict[str, Any], orders: Any, batch_size: int) -> Metrics:
        """Gradient steps on minibatches of some columns, in the order of the rows of each pass."""
        config = self.config
        metrics: Metrics = self.actor.ppo_update(
            columns,
            orders,
            self.optimizers["policy"],
            batch_size=batch_size,
            clip=self.clip,
            vf_coef=config.vf_coef,
            ent_coef=config.ent_coef,
            clip_vloss=config.clips_values,
            value_clip=self.value_clip,
            max_grad_norm=config.max_grad_norm,
            target_kl=config.target_kl,
            desired_kl=config.desired_kl if config.adapts_rate else None,
            **self.update_options(),
        )
        return metrics

    def update_options(self) -> dict[str, Any]:
        """Options of an update that learners of other losses override."""
        return {"normalize": self.config.normalize_advantages}


class NativeA2CLearner(NativePolicyLearner):
    """A2C for multi-layer perceptrons on the CPU."""

    def make_optimizer(self, flat: FlatArrays) -> RMSprop:
        """RMSprop with the constants of the reference."""
        return RMSprop(flat, lr=0.0, alpha=self.config.rms_alpha, eps=self.config.rms_eps)

    def update(self, batch: Any) -> Metrics:
        """Learn from one rollout: one gradient step."""
        config = self.config
        metrics: Metrics = self.actor.a2c_update(
            self.columns(batch),
            self.optimizers["policy"],
            vf_coef=config.vf_coef,
            ent_coef=config.ent_coef,
            normalize=config.normalize_advantages,
            max_grad_norm=config.max_grad_norm,
        )
        self.updates += 1
        return metrics


class NativeIMPALALearner(NativeA2CLearner):
    """IMPALA for multi-layer perceptrons on the CPU."""

    def update(self, batch: UnrollBatch) -> Metrics:
        """Learn from some unrolls: one gradient step on the targets of V-trace."""
        return super().update(batch.corrected(self.valued(self.actor, batch), self.config))


class NativeAPPOLearner(NativePPOLearner):
    """APPO for multi-layer perceptrons on the CPU."""

    def build(self) -> None:
        """Make the parameters, their optimizer, and the target network where there is one."""
        super().build()
        self._target: PolicySteps | None = None
        if self.config.target_update_freq > 1:
            self._target = self.make_actor(self.add("target", self.flat.copy()))

    def update(self, batch: UnrollBatch) -> Metrics:
        """Learn from some unrolls: gradient steps on minibatches with the targets of V-trace."""
        valued = self.valued(self._target or self.actor, batch)
        corrected = batch.corrected(valued, self.config, old_log_probs=valued.log_probs)
        metrics = super().update(corrected)
        if self._target is not None and self.updates % self.config.target_update_freq == 0:
            self.networks["target"].data[:] = self.flat.data
        return metrics
