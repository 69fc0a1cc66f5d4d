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
        reward: What the action gave.
        terminated: Whether the episode ended by itself.
        truncated: Whether it was cut.
    """

    obs: npt.ArrayLike
    next_obs: npt.ArrayLike
    action: npt.ArrayLike
    reward: float
    terminated: bool
    truncated: bool
