"""The interface of rsl_rl's vector environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["VecEnv"]


class VecEnv(ABC):
    """N environments that step tensors and reset themselves, in rsl_rl's form.

    Attributes:
        num_envs: N.
        num_actions: Length of an action.
        max_episode_length: Steps after which an episode is cut.
        episode_length_buf: [N] steps of the episodes so far; it may be set.
        device: Of all tensors.
        cfg: The configuration of the environment, for loggers.
    """

    num_envs: int
    num_actions: int
    max_episode_length: Any
    episode_length_buf: Any
    device: Any
    cfg: Any

    @abstractmethod
    def get_observations(self) -> Any:
        """Observations to act on: a TensorDict of groups [N, d], or a dict.

        Until rsl_rl 2.3 they were a tensor [N, d] and extras, whose "observations" are the other
        groups, and that is taken, too.
        """

    @abstractmethod
    def step(self, actions: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Step with actions [N, num_actions].

        Returns:
            Observations, rewards [N], ends of episodes [N], and extras: "time_outs" [N] where an
            episode was cut, "log" or "episode" of numbers to log, and until rsl_rl 2.3
            "observations" of the other groups.
        """
