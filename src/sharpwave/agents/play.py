"""Methods of agents that act in environments: predictions, episodes, evaluation.

Classes of agents take these methods as their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave import envs
from sharpwave.agents.agent import Agent
from sharpwave.learners.actor import Actor, RolloutActor
from sharpwave.loops.source import without_normalizer
from sharpwave.runs import evaluation
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.interval import positive

__all__ = [
    "close",
    "env_id",
    "evaluate",
    "facts",
    "make_env",
    "one_action",
    "play_generator",
    "player",
    "predict",
]


def predict(  # noqa: D417 - a method
    self: Any,
    obs: Any,
    deterministic: bool = True,
    *,
    state: Any = None,
    episode_start: Any = None,
    action_masks: Any = None,
) -> Any:
    """The action for one observation, or the actions for a batch.

    Args:
        obs: An observation as the environment gives it, or a batch of them.
        deterministic: The mode of the policy; otherwise a sample.
        state: Memory of a recurrent policy, which the last call returned, also as an array; its
            initial one when None.
        episode_start: True where an episode begins with the observation, for one or for each of a
            batch; all do when None.
        action_masks: Actions that are allowed, [n] or [B, n].

    Returns:
        For one observation an `int` (Discrete actions) or an array; for a batch an array.
        Always inside the action space. With `state` or `episode_start` a pair of that and the
        memory to pass next, None for policies without one.

    Raises:
        ValueError: The shape is not that of an observation or a batch, or `state` is not the memory
            of as many.
    """
    batch, n, single = envs.as_batch(_played_space(self, obs), obs)
    masks = None
    if action_masks is not None:
        masks = np.asarray(action_masks, np.bool_).reshape(n, -1)
    actor = self.player(n, deterministic)
    starts = np.ones(n, np.bool_)
    if state is not None:
        actor.remember(state)
        starts = np.zeros(n, np.bool_)
    if episode_start is not None:
        starts = np.full(n, episode_start, np.bool_)
    actions = actor.play(batch, starts, masks)
    chosen = one_action(actions) if single else actions
    return chosen if state is None and episode_start is None else (chosen, actor.state)


def _played_space(agent: Any, obs: Any) -> Any:
    """The observation space, without what the actor does not look at where that is not given."""
    space, groups_of = agent.observation_space, getattr(agent.config, "groups_of", None)
    if not isinstance(obs, Mapping) or groups_of is None or not hasattr(space, "spaces"):
        return space
    groups = groups_of(space.spaces)
    if groups is None or space.spaces.keys() <= obs.keys():
        return space
    from gymnasium import spaces  # who plays no such observations does without

    needed = {*groups["policy"], *obs}
    return spaces.Dict({name: one for name, one in space.spaces.items() if name in needed})


def one_action(actions: Any) -> Any:
    """The only one of some actions: an `int` where it is discrete."""
    whole = np.ndim(actions) == 1 and actions.dtype.kind in "iu"
    return int(actions[0]) if whole else np.asarray(actions[0])


def evaluate(  # noqa: D417
    self: Any,
    n_episodes: int = 20,
    *,
    env: Any = None,
    deterministic: bool = True,
    seed: int | None = None,
) -> EvaluationResult:
    """Play whole episodes in a separate environment.

    Args:
        n_episodes: Number of episodes.
        env: Environment to play in; one like that of training when not given.
        deterministic: Play the mode of the policy, not samples of it.
        seed: Seed of the environment; one that follows from the run's when not given, so that
            evaluations can be compared.

    Raises:
        ValueError: `env` is not given and the training environment cannot be made again, its
            spaces are not those of training, or `n_episodes` is less than 1.
    """
    n_episodes = positive(n_episodes, name="n_episodes")
    own = env is None or not hasattr(env, "num_envs") or envs.is_tensor_env(env)
    if env is None:
        played = self.make_env(min(n_episodes, 8))
    else:
        played = envs.make_vec_env(env, mode="sync") if own else without_normalizer(env)
    if seed is None:
        seed = int(np.random.SeedSequence((self.seed, 1)).generate_state(1)[0] >> 1)
    try:
        envs.check_same_form(played, *_env_spaces(self))
        actor = self.player(played.num_envs, deterministic)
        return evaluation.evaluate(actor, played, n_episodes, seed)
    finally:
        if own and (isinstance(env, type) or not hasattr(env, "step")):
            played.close()


def _env_spaces(agent: Any) -> tuple[Any, Any]:
    """The spaces of the environments that it plays, before observations are normalized."""
    env = getattr(agent.loop, "env", None)
    if env is None:
        return agent.observation_space, agent.action_space
    env = without_normalizer(env)
    return env.single_observation_space, env.single_action_space


def play_generator(self: Any) -> Any:
    """Play outside of training draws from its own, so that it does not change the run."""
    return self.learner.make_generator(self.learner.seeds.playing)


def player(self: Any, n_envs: int, deterministic: bool) -> Actor:
    """The policy, ready to play `n_envs` environments from their start."""
    learner = self.learner
    kind = RolloutActor if hasattr(learner, "begin_rollout") else Actor
    actor = kind(
        learner,
        n_envs,
        explore=not deterministic and learner.is_random,
        normalizer=self.normalizer,
        generator=self.play_generator,
    )
    if isinstance(actor, RolloutActor) and not deterministic:
        actor.begin_rollout()
    return actor


def make_env(self: Any, n_envs: int = 1, **env_kwargs: Any) -> Any:  # noqa: D417
    """A separate vector environment of the kind of the agent's own.

    Args:
        n_envs: Number of environments.
        **env_kwargs: For its constructor, such as `render_mode="rgb_array"`.

    Raises:
        ValueError: The agent has no environment, or it was given as an object that has no id.
    """
    if self.source is None:
        raise ValueError("env must be given: the algorithm has no environment of its own")
    return self.source.make_another(n_envs, **env_kwargs)


def env_id(self: Any) -> str | None:
    """Gymnasium id of the environment, if it has one."""
    return None if self.source is None else self.source.env_id


def facts(self: Any) -> dict[str, Any]:
    """The environment, where it has one by an id."""
    return {"env_id": self.env_id}


def close(self: Any) -> None:
    """Close what the agent has opened, and the environments."""
    Agent.close(self)
    if self.env is not None:
        self.env.close()
