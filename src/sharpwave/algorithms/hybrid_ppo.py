"""PPO whose rollouts native threads collect (PPO: Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.collect import NativeRollouts
from sharpwave.envs.native import SPECS, NativeVectorEnv
from sharpwave.train.threads import native_threads


@dataclass(frozen=True, kw_only=True)
class HybridPPOConfig(PPOConfig):
    """Options of HybridPPO."""

    n_envs: int = 16
    """Number of environments."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of actor and critic alike; one number stands for two layers."""
    overlap: bool = False
    """Collect the next rollout during an update, by the policy from before it: its data are then
    always exactly one update old."""

    def __post_init__(self) -> None:
        hidden: Any = self.hidden
        if isinstance(hidden, int):
            object.__setattr__(self, "hidden", (hidden, hidden))
        super().__post_init__()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """Read texts as values; one number is two hidden layers here too."""
        parsed = super().parse(options)
        if options.get("hidden", "").strip().isdecimal():
            parsed["hidden"] *= 2
        return parsed

    def check(self) -> None:
        """Check the values."""
        super().check()
        for name in ("normalize_obs", "normalize_rewards", "squash_actions", "use_gsde"):
            if getattr(self, name):
                raise ValueError(f"{name} must be False: native collection does not know it")
        if self.recurrent is not None:
            raise ValueError(f"recurrent must be None in native collection, got {self.recurrent!r}")


class HybridPPO(PPO):
    """PPO on native environments, with collection that never touches the interpreter.

    Environment steps, the policy's forward passes, samples and advantages are native code
    (`NativeCollector`); the update is PPO's own, native or torch's as `backend` says. First comes
    the rollout, then the update; with `overlap` both go on at once, one update apart.

    Example:
        >>> agent = HybridPPO("CartPole-v1", n_envs=4, n_steps=32)
        >>> metrics = agent.train(256)
        >>> sorted(agent.timing_summary())
        ['collection_pct', 'collection_s', 'training_pct', 'training_s']
        >>> agent.close()
    """

    name = "hybrid_ppo"
    Config = HybridPPOConfig
    config: HybridPPOConfig
    collector: Any

    def build(self) -> None:
        """Make the policy, its optimiser and the native collector."""
        if self._custom_policy:
            raise ValueError("policy must be None: native collection has a network of its own")
        if not isinstance(self.env, NativeVectorEnv):
            raise ValueError(  # noqa: TRY004 - the id is the wrong one
                f"env_id must be one of {', '.join(SPECS)} in native code, got {self.env_id}"
            )
        super().build()
        config = self.config
        weights = self.flat.block if self.native is None else self.native.flat.data
        self.collector = NativeRollouts(
            self.env,
            weights,
            hidden=config.hidden,
            activation=config.activation,
            n_steps=config.n_steps,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            seed=self.env_seed,
            action_seed=self._noise_seed,
            threads=native_threads(config.threads, weights.size * config.n_envs),
            overlap=config.overlap,
        )

    def timing_summary(self) -> dict[str, float]:
        """Seconds and shares of collection and training so far.

        With `overlap` collection counts where it had to be waited for.
        """
        collection, training = self.timings.get("collect", 0.0), self.timings["update"]
        whole = collection + training
        share = 100.0 / whole if whole > 0 else 0.0
        return {
            "collection_s": collection,
            "training_s": training,
            "collection_pct": share * collection,
            "training_pct": share * training,
        }

    def episode_metrics(self) -> dict[str, float]:
        """What is said of episodes and of time beside the metrics of an update."""
        timing = self.timing_summary()
        return {
            **super().episode_metrics(),
            "collection_time_pct": timing["collection_pct"],
            "training_time_pct": timing["training_pct"],
        }

    def close(self) -> None:
        """End the collecting thread and close the environments."""
        self.collector.close()
        super().close()
