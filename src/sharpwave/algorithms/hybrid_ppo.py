"""PPO whose rollouts native threads collect (PPO: Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.collect import NativeRollouts

COLLECTION = ("collect", "env", "act", "advantages")
"""What is timed of collection."""


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


class HybridPPO(PPO):
    """PPO on native environments, with collection that never touches the interpreter.

    Environment steps, the policy's forward passes, samples and advantages are native code
    (`NativeCollector`); the update is PPO's own, native or torch's as `backend` says. First comes
    the rollout, then the update; with `overlap` both go on at once, one update apart. Where the
    environments or the policy are not native, `collection_reason` says so and it is PPO.

    Attributes:
        collection_reason: Why collection is not native; None where it is.

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

    @property
    def overlap(self) -> bool:
        """Whether the next rollout is collected during an update."""
        return self.config.overlap

    def why_not_collect(self) -> str | None:
        """Why native code cannot collect whole rollouts; None when it does."""
        return self.why_not_act() or NativeRollouts.why_not(self.env)

    @property
    def collection(self) -> str:
        """What collects: "native" code or "python"."""
        return "native" if self.collection_reason is None else "python"

    def timing_summary(self) -> dict[str, float]:
        """Seconds and shares of collection and training so far.

        With `overlap` collection counts where it had to be waited for.
        """
        collection = sum(self.timings.get(name, 0.0) for name in COLLECTION)
        training = self.timings["update"]
        whole = collection + training
        percent = 100.0 / whole if whole > 0 else 0.0
        return {
            "collection_s": collection,
            "training_s": training,
            "collection_pct": percent * collection,
            "training_pct": percent * training,
        }

    def episode_metrics(self) -> dict[str, float]:
        """What is said of episodes and of time beside the metrics of an update."""
        timing = self.timing_summary()
        return {
            **super().episode_metrics(),
            "collection_time_pct": timing["collection_pct"],
            "training_time_pct": timing["training_pct"],
        }
