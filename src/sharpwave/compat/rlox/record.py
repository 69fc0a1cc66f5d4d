"""A step as one object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt


@dataclass(frozen=True)
class ExperienceRecord:
    """One step, for `MmapReplayBuffer.push`.

    Attributes:
        obs: Observation, [obs_dim].
        next_obs: The one after the action, [obs_dim].
        action: [act_dim].
        reward: Reward of the action.
        terminated: True if the episode terminated.
        truncated: True if the episode was truncated.
    """

    obs: npt.ArrayLike
    next_obs: npt.ArrayLike
    action: npt.ArrayLike
    reward: float
    terminated: bool
    truncated: bool
