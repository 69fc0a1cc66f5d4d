"""Action noise of SB3 as options of exploration."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.compat.sb3.refusals import refuse

__all__ = ["noise_options"]

OU = {"_theta": 0.15, "_dt": 1e-2}
"""Constants of the Ornstein-Uhlenbeck process here, by SB3's attributes."""


def noise_options(noise: Any) -> dict[str, Any]:
    """Options of TD3 and DDPG for the noise that a program gives.

    Args:
        noise: `NormalActionNoise` or `OrnsteinUhlenbeckActionNoise` of mean 0 and one deviation, or
            a `VectorizedActionNoise` of these; None for no noise.

    Raises:
        ValueError: The noise is of another kind.
    """
    if noise is None:
        return {"exploration_noise": 0.0}
    noise = getattr(noise, "base_noise", noise)
    kind = type(noise).__name__
    if kind not in ("NormalActionNoise", "OrnsteinUhlenbeckActionNoise"):
        raise refuse("action_noise", noise, "normal or Ornstein-Uhlenbeck noise")
    mean, sigma = np.asarray(noise._mu), np.asarray(noise._sigma)
    if np.any(mean != 0) or np.ptp(sigma) != 0:
        raise refuse("action_noise", noise, "of mean 0 and one sigma for all dimensions")
    options = {"exploration_noise": float(sigma.flat[0]), "noise_type": "normal"}
    if kind == "NormalActionNoise":
        return options
    for name, constant in OU.items():
        if getattr(noise, name) != constant:
            raise refuse(f"{name[1:]} of action_noise", getattr(noise, name), repr(constant))
    return {**options, "noise_type": "ou"}
