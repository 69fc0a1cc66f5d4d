"""PPO whose rollouts are collected by native code, in a thread of their own if wanted."""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.collect import EpisodeStats, NativeRollouts, Rollout
from sharpwave.envs.native import SPECS
from sharpwave.lazy import nn
from sharpwave.learn import Draws, FlatArrays, PolicyLayout
from sharpwave.train.algorithm import Metrics
from sharpwave.train.native_policy import NativeActor, NativePolicy

ARRAYS = tuple(field.name for field in fields(Rollout) if field.name != "masks")
"""What a rollout of these environments is made of."""


@dataclass(frozen=True, kw_only=True)
class HybridPPOConfig(PPOConfig):
    """Options of HybridPPO."""

    n_envs: int = 16
    """Number of environments."""
    overlap: bool = False
    """Collect the next rollout while learning from this one, with the policy of one update
    before."""


class HybridPPO(PPO):
    """PPO with native collection, whatever learns: environments, policy and advantages in C++.

    It collects, then learns, as PPO does. With `overlap` a thread collects the next rollout
    meanwhile: each is one update old, always exactly one, so that the same seed gives the same run.
    The environments must be native ones, and the policy a multi-layer perceptron.

    Example:
        >>> hybrid = HybridPPO("CartPole-v1", n_steps=32, overlap=True)
        >>> metrics = hybrid.train(2048)
        >>> sorted(hybrid.timing_summary())
        ['collection_pct', 'collection_s', 'training_pct', 'training_s']
    """

    name = "hybrid_ppo"
    Config = HybridPPOConfig
    config: HybridPPOConfig
    collector: NativeRollouts

    def build(self) -> None:
        """Make policy, optimiser, collector, and the thread that collects."""
        if not NativeRollouts.fits(self.env):
            raise ValueError(
                f"env_id must be one of {', '.join(SPECS)}, which native code steps, in its own "
                f"vector environment and without normalisation, got {self.env}"
            )
        reason = self.why_not_native()
        if reason is not None:
            raise ValueError(f"hybrid_ppo acts in native code, which it cannot here: {reason}")
        self._draws = Draws(self._noise_seed + 2)
        self._pending: Future[Rollout | None] | None = None
        self._pool = ThreadPoolExecutor(1, "collect") if self.config.overlap else None
        super().build()
        self._seen = EpisodeStats(self.config.n_envs)

    @cached_property
    def flat(self) -> nn.FlatParameters:
        """The parameters in one block, which the module views and native code acts with."""
        memory = self._memory  # first: it draws the same weights as the module after it
        return nn.FlatParameters(self._make_policy(), memory=memory)

    @cached_property
    def _memory(self) -> FlatArrays:
        if self.native is not None:
            return self.native.flat
        generator = copy.deepcopy(self.weights_generator)
        return self._layout.first_parameters(generator, log_std_init=self.config.log_std_init)

    @cached_property
    def _layout(self) -> PolicyLayout:
        spaces = (self.observation_space, self.action_space)
        config = self.config
        return PolicyLayout.of(*spaces, hidden=config.hidden, activation=config.activation)

    def _make_actor(self) -> NativeActor:
        """What collects: on the memory of the policy, or on a copy that lags behind."""
        self._acting = FlatArrays(self._layout.shapes) if self.config.overlap else self._memory
        self._follow_policy()
        policy = NativePolicy(
            self.observation_space,
            self.action_space,
            self._layout,
            self._acting,
            draws=self._draws,
            threads=1,
        )
        return NativeActor(policy, self._draws)

    def _make_collector(self) -> NativeRollouts:
        assert isinstance(self.actor, NativeActor)
        return NativeRollouts(
            self.env,
            self.actor,
            self.action_map,
            n_steps=self.config.n_steps,
            seed=self.env_seed,
            n_buffers=2 if self.config.overlap else 1,
        )

    @property
    def episodes(self) -> EpisodeStats:
        """Returns and lengths of the episodes finished in training."""
        return self._seen if self.config.overlap else self.collector.episodes

    def iterate(self) -> Metrics | None:
        """One rollout, one update."""
        metrics = self._iterate_overlapped() if self.config.overlap else super().iterate()
        if metrics is None:
            return None
        summary = self.timing_summary()
        shares = {f"{name}_time_pct": summary[f"{name}_pct"] for name in ("collection", "training")}
        return {**metrics, **shares}

    def _iterate_overlapped(self) -> Metrics | None:
        self.follow_schedules(self.progress_remaining)
        if self._pending is None:
            self._collect_next()
        rollout = self._pending_rollout()
        self._pending = None
        self._seen = copy.deepcopy(self.collector.episodes)
        self.timings.update(self.collector.timings)
        for reward in rollout.rewards.mean(1).tolist():
            self.timesteps += self.config.n_envs
            if self._hooks.overrides("on_step") and not self._call_hook("on_step", reward=reward):
                return None
        self._follow_policy()
        self._collect_next()
        return self._learn(rollout, None)

    def _follow_policy(self) -> None:
        np.copyto(self._acting.data, self._memory.data)

    def _collect_next(self) -> None:
        assert self._pool is not None
        config = self.config
        self._pending = self._pool.submit(self.collector.collect, config.gamma, config.gae_lambda)

    def _pending_rollout(self) -> Rollout:
        assert self._pending is not None
        rollout = self._pending.result()
        assert rollout is not None
        return rollout

    def timing_summary(self) -> dict[str, float]:
        """Seconds and shares of collecting and learning; with `overlap` they pass together."""
        sections = self.collector.timings
        collection = sum(sections.values())
        training = self.timings["update"]
        total = max(collection + training, 1e-9)
        return {
            "collection_s": collection,
            "training_s": training,
            "collection_pct": 100.0 * collection / total,
            "training_pct": 100.0 * training / total,
        }

    def close(self) -> None:
        """Close the environments, once nobody steps them any more."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed, with the rollout that is collected meanwhile."""
        pending = None
        if self._pending is not None:
            rollout = self._pending_rollout()
            pending = {name: getattr(rollout, name).copy() for name in ARRAYS}
        return {
            **super().state_dict(),
            "draws": self._draws.get_state(),
            "pending": pending,
            "seen": self._seen.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; in new episodes, with a new rollout."""
        super().load_state_dict(state)
        self._draws.set_state(state["draws"])
        self._seen.load_state_dict(state["seen"])
        self._follow_policy()
        if state["pending"] is not None and self._environments_restored:
            self._pending = Future()
            self._pending.set_result(Rollout(**state["pending"]))
