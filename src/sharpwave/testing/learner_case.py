"""Agents around a learner, batches for it, and the loop of one's own that `train` stands for."""

from __future__ import annotations

import copy
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.envs import environment_state
from sharpwave.learners.actor import Actor, RolloutActor
from sharpwave.learners.groups import GroupLearners
from sharpwave.loops.off_policy import OffPolicyLoop
from sharpwave.loops.rollouts import RolloutLoop
from sharpwave.testing.bits import array_of
from sharpwave.testing.contract import DoesNotApply
from sharpwave.types import Nested

__all__ = ["LearnerCase", "alone_like", "columns_of", "learn", "own_loop", "single"]

SMALL: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 8,
    "train_freq": 2,
    "learning_starts": 16,
    "batch_size": 8,
    "hidden": 8,
    "critic_hidden": 8,
    "buffer_size": 500,
    "log_interval": 16,
    "save_buffer": True,
}
"""Options of small runs, for algorithms that have them."""
UPDATES = 3


class LearnerCase:
    """A way to make agents with a learner.

    Args:
        learner: The class; None for the algorithm's own.
        algorithm: The class of agents.
        source: First argument of its constructor.
        options: Of the constructor.
    """

    def __init__(self, learner: Any, algorithm: Any, source: Any, options: dict[str, Any]) -> None:
        known = algorithm.Config.annotations()
        small = {name: value for name, value in SMALL.items() if name in known}
        self.learner = learner
        self.algorithm = algorithm
        self.source = source
        self.options = {**small, "learner": learner, **options}
        self._made: list[Any] = []
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def make(self, seed: int = 3) -> Any:
        """An agent that has not learned yet."""
        return self._kept(self.algorithm(self.source, **{**self.options, "seed": seed}))

    def load(self, path: Path) -> Any:
        """The agent of a checkpoint."""
        name = "env" if self.is_online else "dataset"
        options = {name: self.source, "learner": self.learner}
        return self._kept(self.algorithm.from_checkpoint(path, **options))

    def folder(self) -> Path:
        """An empty folder."""
        self._folders.append(tempfile.TemporaryDirectory())
        return Path(self._folders[-1].name)

    def release(self) -> None:
        """Close the agents and remove the folders."""
        while self._made:
            self._made.pop().close()
        while self._folders:
            self._folders.pop().cleanup()

    def _kept(self, agent: Any) -> Any:
        self._made.append(agent)
        return agent

    @property
    def is_online(self) -> bool:
        """True if the algorithm acts in environments."""
        return hasattr(self.algorithm.Config, "n_envs")

    @cached_property
    def steps(self) -> int:
        """Steps of `train` that make a few updates."""
        config = self.make().config
        if not self.is_online:
            return 2 * UPDATES
        if hasattr(config, "learning_starts"):
            first = max(config.learning_starts, config.batch_size)
            return int(first + 2 * UPDATES * config.train_freq * config.n_envs)
        return int(2 * config.n_envs * config.n_steps)

    @property
    def batches(self) -> list[Any]:
        """New copies of some batches to learn from."""
        return copy.deepcopy(self._batches)

    @cached_property
    def _batches(self) -> list[Any]:
        agent = self.make(seed=5)
        loop = agent.loop
        if isinstance(loop, RolloutLoop):
            return [copy.deepcopy(loop.collect()) for _ in range(UPDATES)]
        if self.is_online:
            agent.train(self.steps)
        return [copy.deepcopy(loop.sample()) for _ in range(UPDATES)]

    def observations(self, learner: Any, n: int) -> Nested:
        """Observations [n, ...] of the space, always the same ones; of the first of some groups."""
        space = copy.deepcopy(single(learner).observation_space)
        space.seed(0)
        return map_leaves(lambda *rows: np.stack(rows), *(space.sample() for _ in range(n)))

    def predictions(self, agent: Any, n: int) -> Any:
        """The actions that an agent takes for observations [n, ...], as an array."""
        seen: Any = self.observations(agent.learner, n)
        if hasattr(agent.learner, "team"):
            rows = seen["agents"]
            every = {
                member: rows[name][:, i]
                for name, members in agent.env.groups.items()
                for i, member in enumerate(members)
            }
            return np.stack(list(agent.predict(every).values()))
        if isinstance(agent.learner, GroupLearners) and not single(agent.learner).view.is_plain:
            seen = seen["obs"]  # which the agent itself puts the rest beside
        return array_of(agent.predict(seen))

    def acted(self, learner: Any, n: int, *, explore: bool) -> Any:
        """Actions of a learner, or of the first of some groups, for observations [n, ...]."""
        learner = single(learner)
        actor_class = RolloutActor if hasattr(learner, "begin_rollout") else Actor
        actor: Any = actor_class(learner, n, explore=explore)
        if explore and isinstance(actor, RolloutActor):
            actor.begin_rollout()
        return actor.act(self.observations(learner, n), np.ones(n, np.bool_))

    def need_exact_resume(self, agent: Any) -> None:
        """Leave out a rule where the environments do not offer their state."""
        if self.is_online and environment_state(agent.env) is None:
            raise DoesNotApply


def single(learner: Any) -> Any:
    """The learner itself, or the first of those of several groups of agents."""
    if isinstance(learner, GroupLearners):
        return next(iter(learner.members.values()))
    return learner


def columns_of(batch: Any) -> dict[str, Any]:
    """The columns of a batch, or of the batches of several groups of agents."""
    if isinstance(batch, dict):
        return {group: dict(vars(one)) for group, one in batch.items()}
    return dict(vars(batch))


def alone_like(agent: Any) -> Any:
    """A new learner like that of an agent, which no environment, buffer or run is near."""
    learner = agent.learner
    if isinstance(learner, GroupLearners):
        members = {name: _alone(agent, one, view=one.view) for name, one in learner.members.items()}
        return GroupLearners(agent.config, members)
    return _alone(agent, learner)


def _alone(agent: Any, learner: Any, **arguments: Any) -> Any:
    made = agent.config, learner.observation_space, learner.action_space
    arguments |= {"seeds": learner.seeds, "given": learner.given}
    if hasattr(learner, "team"):
        arguments["team"] = learner.team
    kind = agent._given_learner or agent.Learner
    if learner.kind == "native":
        return type(learner)(kind, *made, **arguments)
    return kind(*made, **arguments, device=learner.device_name)


def learn(learner: Any, batches: list[Any]) -> list[dict[str, Any]]:
    """Update a learner on batches, and give what it measured, as arrays."""
    learner.follow(0.5)
    measured = [learner.update(batch) for batch in batches]
    return [{name: array_of(value) for name, value in one.items()} for one in measured]


def own_loop(agent: Any, steps: int) -> None:
    """The training of `agent.train(steps)`, in the lines of the documentation.

    Args:
        agent: One that has not learned yet.
        steps: In the unit of its loop.
    """
    loop, learner = agent.loop, agent.learner
    if isinstance(loop, OffPolicyLoop):
        while loop.timesteps < steps:
            collected = loop.collect()
            loop.follow(1 - loop.timesteps / steps)
            for _ in range(loop.gradient_steps_due(collected)):
                batch = loop.sample()
                loop.report(batch, learner.update(batch))
    elif isinstance(loop, RolloutLoop):
        while loop.timesteps < steps:
            loop.follow(1 - loop.timesteps / steps)
            learner.update(loop.collect())
    else:
        for step in range(steps):
            loop.follow(1 - step / steps)
            learner.update(loop.sample())
