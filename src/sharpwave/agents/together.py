"""Checkpoints of agents whose learners are several processes.

All processes have the same networks, optimizers and counts, which the first one writes. What each
has for itself, such as its environments, its buffer and its generators, comes to the first one and
lies in the same file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sharpwave.core.notice import notice
from sharpwave.storage.checkpoints import as_arrays, write_checkpoint

if TYPE_CHECKING:
    from sharpwave.agents.online import OnlineAgent

__all__ = ["own_part", "save_together"]

EQUAL = ("networks", "optimizers", "gradient_steps", "extra")
"""Parts of a learner's state that are the same in all processes."""
OWN = ("n_envs", "normalizer", "env", "env_random")
"""Parts of an agent's state that are not, beside its learner and loop."""
DRAWS = ("generator", "explore_generator", "random_actions")
"""Random number generators, which differ between processes."""


def save_together(
    agent: OnlineAgent, path: str | os.PathLike[str], keeps_replay: bool = False
) -> None:
    """Write a checkpoint of all processes, each of which calls this.

    Args:
        agent: The agent of this process.
        path: The file, which the first process writes.
        keeps_replay: Include the replay buffer.
    """
    before, agent.loop.keeps_replay = agent.loop.keeps_replay, keeps_replay
    try:
        state = agent._state()
    finally:
        agent.loop.keeps_replay = before
    ranks = agent.ranks
    own = {} if ranks.leads else as_arrays(_own(state))
    every = ranks.to_first(own)
    if ranks.leads:
        write_checkpoint(path, agent._header(), {**state, "ranks": every[1:]})


def _own(state: dict[str, Any]) -> dict[str, Any]:
    """The part of the state that only this process has."""
    learner = {name: part for name, part in state["learner"].items() if name not in EQUAL}
    return {**{name: state[name] for name in OWN}, "learner": learner}


def own_part(agent: OnlineAgent, state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The state of a checkpoint as this process goes on with it.

    Args:
        agent: The agent of this process.
        state: The result of `_state`, with `ranks` where several processes learned together.

    Returns:
        The state, and whether as many processes wrote it as there are now. If not, all go on with
        what the first one had, but for episodes, buffers and draws, which begin anew.
    """
    ranks, parts = agent.ranks, state.get("ranks", [])
    if len(parts) + 1 == ranks.size:
        if ranks.leads:
            return state, True
        own = parts[ranks.rank - 1]
        return {**state, **own, "learner": {**state["learner"], **own["learner"]}}, True
    if state["timesteps"] and ranks.leads:
        notice(
            f"{agent._loaded_from} was written by {len(parts) + 1} learners and goes on with "
            f"{ranks.size}: episodes and replay buffers begin anew"
        )
    learner = {**state["learner"]}
    if "buffer" in learner:
        learner["buffer"] = None
    if not ranks.leads:
        learner |= {name: part for name, part in agent.state_dict().items() if name in DRAWS}
    return {**state, "learner": learner}, False
