"""Recipes of actors: configuration that makes one here, in a process or on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from sharpwave import _native
from sharpwave.collect import NativeRollouts, UnrollCollector
from sharpwave.core.draws import Draws
from sharpwave.distributed.actors import Block, FleetActor
from sharpwave.distributed.fleet import Weights
from sharpwave.distributed.workers import WorkerRecipe
from sharpwave.envs import ActionMap, make_vec_env
from sharpwave.layouts.features import features_of
from sharpwave.layouts.parameters import aligned_zeros
from sharpwave.layouts.policy import PolicyLayout

__all__ = [
    "ActorRecipe",
    "EnvRecipe",
    "FollowerMaker",
    "Followers",
    "NativePolicy",
    "PolicyRecipe",
    "make_actor",
]


@dataclass(frozen=True, kw_only=True)
class EnvRecipe:
    """The vector environment of an actor.

    Example:
        >>> recipe = EnvRecipe(env="CartPole-v1", n_envs=2)
        >>> recipe.make().num_envs, EnvRecipe.of_json(recipe.to_json()) == recipe
        (2, True)
    """

    env: Any
    """Id of the environment, or a function that makes one."""
    n_envs: int
    """Number of environments."""
    mode: str = "auto"
    """Stepping mode, such as "sync" or "async"; see `make_vec_env`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for an id."""

    def make(self, number: int = 0) -> Any:  # noqa: ARG002 - those of all actors are alike
        """Make the environments of an actor."""
        return make_vec_env(
            self.env, self.n_envs, mode=self.mode, env_kwargs=dict(self.kwargs) or None
        )

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON values.

        Raises:
            TypeError: The environment has no id: no code is sent anywhere.
        """
        if not isinstance(self.env, str):
            raise TypeError(f"env must be an id for actors elsewhere, got {self.env!r}")
        return {**asdict(self), "kwargs": dict(self.kwargs)}

    @classmethod
    def of_json(cls, saved: Mapping[str, Any]) -> EnvRecipe:
        """The recipe that `to_json` described."""
        return cls(**saved)


@dataclass(frozen=True, kw_only=True)
class PolicyRecipe:
    """A multi-layer perceptron that native code acts with."""

    hidden: tuple[int, ...]
    """Widths of the actor's hidden layers."""
    critic_hidden: tuple[int, ...]
    """Widths of the critic's hidden layers."""
    activation: str
    """Activation function between the layers."""
    threads: int = 1
    """Maximum number of threads that step native environments."""

    def layout(self, env: Any) -> PolicyLayout:
        """Layout of its parameters, for the spaces of an environment."""
        return PolicyLayout.of(
            env.single_observation_space,
            env.single_action_space,
            hidden=self.hidden,
            critic_hidden=self.critic_hidden,
            activation=self.activation,
        )

    def n_weights(self, env: Any) -> int:
        """Size of its weights, for the spaces of an environment."""
        return self.layout(env).n_parameters

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON values."""
        return asdict(self)

    @classmethod
    def of_json(cls, saved: Mapping[str, Any]) -> PolicyRecipe:
        """The recipe that `to_json` described, with lists for tuples."""
        widths = {name: tuple(saved[name]) for name in ("hidden", "critic_hidden")}
        return cls(**{**saved, **widths})


class FollowerMaker(Protocol):
    """Maker of a policy of torch, here or in another process."""

    def __call__(self, env: Any, seed: int) -> Any:
        """A `Follower` with `act` and `action_map` for some environments."""

    def n_weights(self, env: Any) -> int:
        """Size of its weights, for the spaces of an environment."""

    def to_json(self) -> dict[str, Any]:
        """An `algorithm` by its name, with what makes its policy, as JSON values.

        Raises:
            TypeError: It is code of a user's, which is not sent anywhere.
        """


Followers = Callable[[Mapping[str, Any]], FollowerMaker]
"""Function that makes a `FollowerMaker` again from its `to_json`."""


@dataclass(frozen=True, kw_only=True)
class ActorRecipe:
    """All that makes the actors of a fleet, but for the weights.

    It can be pickled where the environment and the policy can, and is JSON where they are an id and
    networks of this library.
    """

    env: EnvRecipe | WorkerRecipe | None
    """Environments, here or at servers; None where the only ones there are cannot be made again."""
    policy: PolicyRecipe | FollowerMaker
    """A policy for native code, or the maker of one of torch."""
    n_steps: int
    """Number of steps of an unroll."""
    gamma: float
    """Discount factor."""
    seeds: tuple[int, int]
    """Seeds of environments and actions; each actor derives its own."""
    memory: tuple[int, ...] | None = None
    """Shape of the recurrent state of an actor; None without one. Actors find it by themselves."""
    step_timeout: float = 120.0
    """Seconds that its environments may take for a step, a reset, or to be made."""
    first_number: int = 0
    """Offset of the indices of actors: those of a node are some of a larger fleet."""
    first_life: int = 0
    """Offset of their lives, the number of times that each was made before."""

    def own_seeds(self, number: int, life: int) -> tuple[int, int]:
        """Seeds of the environments and actions of an actor, others in each of its lives."""
        number, life = number + self.first_number, life + self.first_life
        entropy = [*self.seeds, number, *([life] if life else [])]
        states = np.random.SeedSequence(entropy).generate_state(2, np.uint64)
        env, actions = (int(state) for state in states)
        return env >> 33, actions >> 1

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON values: ids and numbers.

        Raises:
            TypeError: The environment has no id, or the policy is code of a user's, which is not
                sent anywhere.
        """
        if self.env is None:
            raise TypeError("env must be an id for actors elsewhere, got an environment without")
        numbers = {"n_steps": self.n_steps, "gamma": self.gamma, "seeds": list(self.seeds)}
        numbers["step_timeout"] = self.step_timeout
        return {"env": self.env.to_json(), "policy": self.policy.to_json(), **numbers}

    @classmethod
    def of_json(cls, saved: Mapping[str, Any], followers: Followers | None = None) -> ActorRecipe:
        """The recipe that `to_json` described.

        Args:
            saved: Dict that it returned.
            followers: Finds the makers of policies of torch; None where only native code acts.

        Raises:
            TypeError: An algorithm is named that nobody knows.
        """
        policy: Any = saved["policy"]
        if "algorithm" not in policy:
            policy = PolicyRecipe.of_json(policy)
        elif followers is None:
            raise TypeError(f"policy must be one for native code, got {policy['algorithm']!r}")
        else:
            policy = followers(policy)
        parts: dict[str, Any] = {
            "env": EnvRecipe.of_json(saved["env"]),
            "policy": policy,
            "seeds": tuple(saved["seeds"]),
        }
        return cls(**{**saved, **parts})


def make_actor(recipe: ActorRecipe, number: int, life: int = 0, env: Any = None) -> FleetActor:
    """Make an actor from a recipe; it waits for weights.

    Args:
        recipe: Recipe of the actor.
        number: Index of the actor.
        life: Number of times that it was made before.
        env: Environments of somebody else's to step, who closes them.

    Raises:
        EnvironmentFailed: An environment cannot be made.
    """
    closes_env = env is None
    if env is None:
        assert recipe.env is not None
        env = recipe.env.make(number)
    env_seed, action_seed = recipe.own_seeds(number, life)
    number += recipe.first_number
    policy: Any = recipe.policy
    if isinstance(policy, PolicyRecipe) and NativeRollouts.why_not(env) is None:
        block = Block(policy.layout(env).n_parameters)
        rollouts = NativeRollouts(
            env,
            block.weights,
            hidden=policy.hidden,
            critic_hidden=policy.critic_hidden,
            activation=policy.activation,
            n_steps=recipe.n_steps,
            gamma=recipe.gamma,
            gae_lambda=1.0,
            seed=env_seed,
            action_seed=action_seed,
            threads=policy.threads,
            values=False,
        )
        return FleetActor(number, env, rollouts, block, recipe.gamma, closes_env=closes_env)
    if isinstance(policy, PolicyRecipe):
        spaces = env.single_observation_space, env.single_action_space
        follower: Any = NativePolicy(policy.layout(env), *spaces, action_seed)
    else:
        follower = policy(env, action_seed)
    collector = UnrollCollector(
        env, follower, follower.action_map, n_steps=recipe.n_steps, seed=env_seed
    )
    return FleetActor(number, env, collector, follower, recipe.gamma, closes_env=closes_env)


class Chosen(NamedTuple):
    """Actions [N, ...] with their log-probabilities [N] and the values [N]."""

    actions: Any
    log_probs: Any
    values: Any
    extra: None = None


class NativePolicy:
    """A multi-layer perceptron that acts in environments of Python.

    Args:
        layout: Layout of the networks.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        seed: Seed of the actions.

    Attributes:
        action_map: Maps its actions to those of the environments.
    """

    def __init__(
        self,
        layout: PolicyLayout,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> None:
        self.action_map = ActionMap(action_space)
        self._is_discrete = isinstance(action_space, spaces.Discrete)
        self._features = features_of(observation_space)
        self._weights = aligned_zeros(layout.n_parameters)
        self._draws = Draws(seed)
        self._native = _native.PolicyLearner(
            layout.n_inputs,
            layout.hidden,
            layout.critic_hidden,
            layout.activation,
            layout.actions,
            layout.options,
            self._weights,
            aligned_zeros(layout.n_parameters),
        )

    def act(self, obs: Any, starts: Any, masks: Any) -> Chosen:  # noqa: ARG002 - no memory
        """Sample actions for observations [N, ...]."""
        drawn = self._native.act(self._features(obs), masks, self._draws.next_call())
        actions, log_probs, values = drawn
        return Chosen(actions[:, 0] if self._is_discrete else actions, log_probs, values)

    def values(self, obs: Any, rows: Any = None) -> Any:  # noqa: ARG002
        """Values [N] of observations [N, ...]."""
        return self._native.values(self._features(obs))

    def memory(self) -> None:
        """None: it has no recurrent state."""

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""
        np.copyto(self._weights, weights)

    def state_dict(self) -> dict[str, Any]:
        """State of its random generator, without the weights."""
        return {"kind": "native", "generator": self._draws.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`; generators of another kind begin anew."""
        if state.get("kind") == "native":
            self._draws.set_state(state["generator"])
