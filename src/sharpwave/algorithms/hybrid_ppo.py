"""PPO whose rollouts native threads collect (PPO: Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.loops.on_policy import OnPolicyLoop

COLLECTION = ("collect", "env", "act", "advantages")
"""Timers of the parts of collection."""


@dataclass(frozen=True, kw_only=True)
class HybridPPOConfig(PPOConfig):
    """Options of HybridPPO."""

    n_envs: int = 16
    """Number of environments."""
    overlap: bool = False
    """Collect the next rollout during an update, by the policy from before it: its data are then
    always exactly one update old."""


class TimedLoop(OnPolicyLoop):
    """A loop that reports how long collection and training took."""

    @property
    def collection(self) -> str:
        """Kind of collector: "native" or "python"."""
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

    def progress_metrics(self) -> dict[str, float]:
        """Measures of the last episodes, and shares of time."""
        timing = self.timing_summary()
        return {
            **super().progress_metrics(),
            "collection_time_pct": timing["collection_pct"],
            "training_time_pct": timing["training_pct"],
        }


class HybridPPO(OnlineAgent):
    """PPO whose rollouts native threads collect, in native environments.

    Environment steps, the policy's forward passes, samples and advantages are native code
    (`NativeCollector`); the update is PPO's own, native or torch's as `backend` says. First comes
    the rollout, then the update; with `overlap` both go on at once, one update apart. Where the
    environments or the policy are not native, `collection_reason` says so and it is PPO.

    Example:
        >>> agent = HybridPPO("CartPole-v1", n_envs=4, n_steps=32)
        >>> metrics = agent.train(256)
        >>> sorted(agent.timing_summary())
        ['collection_pct', 'collection_s', 'training_pct', 'training_s']
        >>> agent.close()
    """

    name = "hybrid_ppo"
    Config = HybridPPOConfig
    Learner = PPO.Learner
    Native = PPO.Native
    Fused = PPO.Fused
    Loop = TimedLoop
    takes = PPO.takes
    collects_natively = True
