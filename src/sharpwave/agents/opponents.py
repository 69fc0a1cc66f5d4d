"""Groups of agents that others play: earlier checkpoints, other agents, functions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.collect.joint import GroupView, JointView
from sharpwave.core.tree import leaves
from sharpwave.learners.base import BaseLearner
from sharpwave.learners.groups import GroupLearners
from sharpwave.learners.learner import Acted
from sharpwave.storage.checkpoints import read_checkpoint
from sharpwave.storage.files import reading

__all__ = [
    "FunctionActor",
    "SavedOpponent",
    "opponent_of_file",
    "opposing_learner",
    "to_copy",
    "to_json",
]

FUNCTION = "function"
"""Entry of a checkpoint for an opponent that is a function, which it cannot hold."""


class SavedOpponent:
    """An opponent that a checkpoint holds, whose weights are in the state of the run.

    Args:
        config: Its options.
    """

    def __init__(self, config: Any) -> None:
        self.config = config


def opposing_learner(agent: Any, group: str, given: Any) -> Any:
    """The learner or function that plays a group which does not learn.

    Args:
        agent: The agent whose other groups learn.
        group: The group.
        given: A checkpoint of such an agent, an agent, its learner of a group, a function from
            observations [B, ...] to actions, or None.

    Returns:
        A learner that acts, the function, or None where the group stays as it begins.

    Raises:
        TypeError: `given` is none of these.
        ValueError: The checkpoint or agent has no such group, or one of other networks, or the
            checkpoint is of an algorithm without policies of groups.
    """
    if given is None:
        return None
    if isinstance(given, SavedOpponent):
        return _like(agent, group, given.config, None)
    if hasattr(given, "learner") and hasattr(given, "own_config"):
        if not isinstance(given.learner, GroupLearners):
            raise TypeError(_wanted(group, f"one of {type(given).__name__}"))
        _check_has(group, given.learner.members)
        given = given.learner[group]
    if isinstance(given, BaseLearner) and hasattr(given, "view"):
        return _like(agent, group, given.config, given.state_dict())
    if isinstance(given, str | os.PathLike):
        header, state = read_checkpoint(given)
        algorithm = header.get("algorithm")
        if algorithm != agent.name and "groups" not in state.get("learner", {}):
            raise ValueError(_wanted(group, f"one of {algorithm!r}: {os.fspath(given)}"))
        with reading(given):
            groups = state["learner"]["groups"]
            _check_has(group, groups)
            config = type(agent).Config.from_dict(header["config"])
            config = config.of_group(group, groups, header["groups"])
            return _like(agent, group, config, groups[group])
    if callable(given) and not hasattr(given, "evaluate"):
        return given
    hint = ": a network does not know what it looks at" if callable(given) else ""
    raise TypeError(
        f"opponents[{group!r}] must be a checkpoint, an agent, its learner of the group "
        f"(agent.learner[{group!r}]), a function or None, got {_in_short(given)}{hint}"
    )


def _wanted(group: str, got: str) -> str:
    return (
        f"opponents[{group!r}] must be an agent with a policy for each group, as MAPPO and IPPO "
        f"are, or its checkpoint, got {got}"
    )


def _check_has(group: str, groups: Mapping[str, Any]) -> None:
    if group not in groups:
        raise ValueError(
            f"opponents[{group!r}] must have that group, got one with {sorted(groups)}"
        )


def _in_short(given: Any) -> str:
    return repr(given) if isinstance(given, int | float | tuple) else type(given).__name__


def to_copy(opponent: Any) -> Any:
    """An opponent, as `opposing_learner` gives it, as an argument of the agent's copy.

    The weights are in the state that the copy takes over.
    """
    return SavedOpponent(opponent.config) if isinstance(opponent, BaseLearner) else opponent


def to_json(opponent: Any) -> Any:
    """Entry of a checkpoint for an opponent, as `opposing_learner` gives it."""
    if opponent is None:
        return None
    return FUNCTION if callable(opponent) else opponent.config.to_dict()


def opponent_of_file(
    path: str | os.PathLike[str], config_class: Any, group: str, saved: Any
) -> SavedOpponent | None:
    """The opponent that a checkpoint holds.

    Args:
        path: The checkpoint, as errors say it.
        config_class: Of its options.
        group: Whom it plays.
        saved: The result of `to_json`.

    Raises:
        ValueError: It was a function, which no file holds.
    """
    if saved is None:
        return None
    if saved == FUNCTION:
        raise ValueError(
            f"opponents must be given: {path} was trained against a function as {group!r}"
        )
    with reading(path):
        return SavedOpponent(config_class.from_dict(saved))


def _like(agent: Any, group: str, config: Any, state: dict[str, Any] | None) -> Any:
    """A learner of a group with the networks and weights of another one."""
    env = agent.env
    view = GroupView(env, group, JointView(env, config.critic_input), agent_id=config.agent_id)
    learner = agent.learner[group]
    made = agent.Learner(
        config.replace(device="cpu"),
        view.observation_space,
        env.action_spaces[group],
        seeds=learner.seeds,
        device=learner.device_name,
        view=view,
    )
    if state is not None:
        made.load_state_dict(state)
    return made


class FunctionActor:
    """Acts for a group by a function.

    Args:
        function: From observations [B, ...] to actions [B, ...] of the environment. If it has an
            argument `action_masks`, it gets the masks [B, n] too.
        n_choices: n; None where actions are continuous, of which there are no masks.
    """

    learns = False
    state = None

    def __init__(self, function: Any, n_choices: int | None) -> None:
        self._function = function
        self._n_choices = n_choices
        self._takes_masks = _has_argument(function, "action_masks")
        self.action_map = self

    @staticmethod
    def to_env(actions: Any) -> Any:
        """The actions as they are."""
        return actions

    def begin_rollout(self) -> None:
        """Nothing to prepare."""

    def act(
        self,
        obs: Any,
        joint: Any,  # noqa: ARG002
        starts: Any,  # noqa: ARG002
        masks: Any = None,
        acts: Any = None,  # noqa: ARG002
    ) -> Acted:
        """Actions for rows [N * G, ...]."""
        if not self._takes_masks:
            return Acted(np.asarray(self._function(obs)))
        if masks is None and self._n_choices is not None:
            n = len(next(leaf for _, leaf in leaves(obs)))
            masks = np.ones((n, self._n_choices), np.bool_)
        return Acted(np.asarray(self._function(obs, action_masks=masks)))

    def play(self, obs: Any, starts: Any, masks: Any = None, acts: Any = None) -> Any:
        """Actions for rows [N * G, ...]."""
        return self.act(obs, None, starts, masks, acts).actions


def _has_argument(function: Any, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some compiled functions do not tell
        return False
