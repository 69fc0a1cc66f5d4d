"""Environments whose observation holds a goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import spaces

__all__ = ["goal_rewards"]

GOALS = ("achieved_goal", "desired_goal")


def goal_rewards(env: Any, make_another: Callable[[], Any]) -> Callable[..., Any]:
    """The function `compute_reward(achieved_goal, desired_goal, info)` of goal environments.

    It is that of the vector environment, or that of its first sub-environment with its wrappers.
    Environments in processes of their own are out of reach: one more is made in this process.

    Args:
        env: A vector environment.
        make_another: Makes one like it in this process, or raises ValueError.

    Raises:
        ValueError: The environments have no goals, no such function, or it is out of reach.
    """
    space = env.single_observation_space
    if not isinstance(space, spaces.Dict) or not set(GOALS) <= set(space.spaces):
        raise ValueError(f"env must observe {' and '.join(GOALS)}, got {space}")
    base = env.unwrapped
    if not hasattr(base, "compute_reward") and not hasattr(base, "envs"):
        try:
            base = make_another().unwrapped
        except ValueError as error:
            raise ValueError(
                "compute_reward of env is out of reach in its own process: "
                "give env as an id or as a function that makes one"
            ) from error
    try:
        if hasattr(base, "compute_reward"):
            return base.compute_reward  # type: ignore[no-any-return]
        return base.envs[0].get_wrapper_attr("compute_reward")  # type: ignore[no-any-return]
    except AttributeError:
        raise ValueError(
            "env must have a method compute_reward(achieved_goal, desired_goal, info), "
            f"{base} has none"
        ) from None
