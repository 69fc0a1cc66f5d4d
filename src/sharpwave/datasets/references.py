"""Returns that scores are measured against."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave.core.suggest import did_you_mean

__all__ = ["REFERENCES", "Reference", "reference"]


@dataclass(frozen=True)
class Reference:
    """The returns that stand for the scores 0 and 100 of an environment."""

    random: float
    """Mean return of uniformly random actions: 0."""
    expert: float
    """Mean return of an expert: 100."""
    source: str
    """Source of the two returns."""


def reference(env_id: str) -> Reference:
    """The reference returns of an environment.

    Args:
        env_id: An id of `REFERENCES`; of Hopper, HalfCheetah, Walker2d and Ant any version.

    Raises:
        ValueError: There are none for it.

    Example:
        >>> reference("Hopper-v5").expert
        3234.3
    """
    found = find_reference(env_id)
    if found is None:
        raise ValueError(
            f"there are no reference returns for {env_id!r}{did_you_mean(env_id, REFERENCES)} "
            f"(there are some for {', '.join(REFERENCES)})"
        )
    return found


def find_reference(env_id: str) -> Reference | None:
    """The reference returns of an environment, None where there are none."""
    return REFERENCES.get(env_id) or REFERENCES.get(env_id.rpartition("-v")[0])


_MEASURED = "measure_reference: 300 episodes each of random actions and of the expert"
_D4RL = "D4RL's, of random and of SAC policies"

REFERENCES = {
    "CartPole-v1": Reference(22.0, 500.0, _MEASURED),
    "Pendulum-v1": Reference(-1223.3, -148.9, _MEASURED),
    "MountainCar-v0": Reference(-200.0, -106.6, _MEASURED),
    "MountainCarContinuous-v0": Reference(-33.4, 97.8, _MEASURED),
    "Acrobot-v1": Reference(-499.2, -83.9, _MEASURED),
    "LunarLander-v3": Reference(-173.9, 281.8, _MEASURED),
    "LunarLanderContinuous-v3": Reference(-203.3, 281.8, _MEASURED),
    # Published by D4RL, which takes the same for all versions.
    "Hopper": Reference(-20.272305, 3234.3, _D4RL),
    "HalfCheetah": Reference(-280.178953, 12135.0, _D4RL),
    "Walker2d": Reference(1.629008, 4592.3, _D4RL),
    "Ant": Reference(-325.6, 3879.7, _D4RL),
}
