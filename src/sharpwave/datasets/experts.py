"""Scripted experts: a few lines of control theory each, for many observations at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from sharpwave.core.suggest import did_you_mean
from sharpwave.types import Array

__all__ = ["Expert", "expert", "expert_ids"]

Expert: TypeAlias = Callable[[Array], Array]
"""Gives actions [N] or [N, d], as the environment takes them, for observations [N, ...]."""


def expert(env_id: str) -> Expert:
    """The scripted expert of an environment.

    Args:
        env_id: One of `expert_ids()`.

    Raises:
        ValueError: There is none for it.

    Example:
        >>> act = expert("CartPole-v1")
        >>> act(np.array([[0.0, 0.0, 0.1, 0.0], [0.0, 0.0, -0.1, 0.0]]))  # it falls right, and left
        array([1, 0])
    """
    if env_id not in _EXPERTS:
        raise ValueError(
            f"there is no scripted expert for {env_id!r}{did_you_mean(env_id, _EXPERTS)} "
            f"(there are {', '.join(_EXPERTS)})"
        )
    return _EXPERTS[env_id]


def expert_ids() -> list[str]:
    """The environments that have a scripted expert."""
    return list(_EXPERTS)


def _cart_pole(obs: Array) -> Array:
    """Push the cart to the side where the pole falls; slowly come back to the middle."""
    position, speed, angle, spin = obs.T
    falls_right: Array = angle + 0.5 * spin + 0.02 * position + 0.05 * speed > 0
    return falls_right.astype(np.int64)


def _pendulum(obs: Array) -> Array:
    """Pump energy until it suffices to stand, then balance.

    With g = 10 and a rod of mass and length 1, θ'' = 15 sin θ + 3 u, so that the energy
    E = θ'² / 2 + 15 (cos θ - 1) changes by 3 u θ', and is 0 at rest on top.
    """
    cosine, sine, spin = obs.T
    energy = spin**2 / 2 + 15 * (cosine - 1)
    pump = -2 * energy * np.where(spin >= 0, 1, -1)
    balance = -13 * np.arctan2(sine, cosine) - 3 * spin
    torque: Array = np.clip(np.where(cosine > 0.85, balance, pump), -2, 2)
    return torque.astype(np.float32)[:, None]


def _mountain_car(obs: Array) -> Array:
    """Push the way the car rolls, and turn a little before the slope turns it."""
    position, speed = obs.T
    return np.where(speed > 0.012 * (position + 0.5) - 0.0005, 2, 0).astype(np.int64)


def _mountain_car_continuous(obs: Array) -> Array:
    """Push the way the car rolls; gently, for force costs and time does not."""
    force = np.where(obs[:, 1] >= 0, 0.3, -0.3)
    return force.astype(np.float32)[:, None]


def _acrobot(obs: Array) -> Array:
    """Swing the second link on, against the first."""
    spin, relative_spin = obs[:, 4], obs[:, 5]
    return np.where(relative_spin > 2 * spin, 2, 0).astype(np.int64)


NOTHING, TURN_LEFT, MAIN_ENGINE, TURN_RIGHT = range(4)
_THRUST = np.array([[0, 0], [0, -1], [1, 0], [0, 1]], np.float32)
"""Main and side engine for each of the four."""


def _lunar_lander(obs: Array) -> Array:
    """Lean against drift, and sink the slower the lower and the farther aside.

    Positive angles are to the left, and lean the main engine's thrust that way.
    """
    x, y, speed_x, speed_y, angle, spin, left_leg, right_leg = obs.T
    landed = left_leg + right_leg > 0
    lean = np.clip(0.5 * x + speed_x, -0.5, 0.5)
    turn = np.where(landed, 0, 0.5 * (lean - angle) - 0.85 * spin)
    sink = np.where(landed, 0, 0.13 + 0.55 * np.maximum(y - 0.75 * np.abs(x), 0))
    lift = 0.8 * (-sink - speed_y)
    side = np.where(turn > 0.05, TURN_LEFT, np.where(turn < -0.05, TURN_RIGHT, NOTHING))
    needs_lift = lift > np.maximum(np.abs(turn), 0.05)
    return np.where(needs_lift, MAIN_ENGINE, side).astype(np.int64)


def _lunar_lander_continuous(obs: Array) -> Array:
    """The same engines, each at its full thrust or off."""
    thrust: Array = _THRUST[_lunar_lander(obs)]
    return thrust


_EXPERTS: dict[str, Expert] = {
    "CartPole-v1": _cart_pole,
    "Pendulum-v1": _pendulum,
    "MountainCar-v0": _mountain_car,
    "MountainCarContinuous-v0": _mountain_car_continuous,
    "Acrobot-v1": _acrobot,
    "LunarLander-v3": _lunar_lander,
    "LunarLanderContinuous-v3": _lunar_lander_continuous,
}
