"""A learner at work in environments: it keeps the memory, and takes and gives arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sharpwave.buffers.schema import Field
from sharpwave.config.schedules import is_unwritten_callable
from sharpwave.core.tree import leaves, like, map_leaves, numbered
from sharpwave.learners.choose import why_not_ours
from sharpwave.learners.columns import check_columns
from sharpwave.learners.learner import Acted, Learner
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    import torch

__all__ = ["Actor", "FollowerRecipe", "FollowingActor", "RolloutActor"]

OF_THIS_MACHINE = ("address", "tls", "worker_addresses")
"""Options that do not concern remote actors."""


class Actor:
    """Acts in a number of environments with a learner.

    Args:
        learner: The learner that acts.
        n_envs: Number of environments.
        explore: Sample exploratory actions; otherwise take the greedy ones.
        normalizer: Applied to observations that the environment did not normalize.
        generator: Source of samples; that of the learner when None.
        columns: Of the learner's own, to be stored with a step; None where nothing is stored.

    Attributes:
        state: Recurrent memory of the learner; None without one.
    """

    def __init__(
        self,
        learner: Learner,
        n_envs: int,
        *,
        explore: bool,
        normalizer: Any = None,
        generator: Any = None,
        columns: Mapping[str, Field] | None = None,
    ) -> None:
        self.learner = learner
        self.n_envs = n_envs
        self.explore = explore
        self.normalizer = normalizer
        self.generator = generator
        self.columns = columns
        with self._drawing():
            self.state = learner.initial_state(n_envs)

    def act(self, obs: Nested, starts: Any, masks: Any = None) -> Acted:
        """Choose actions for observations [N, ...], which are arrays like all that it gives."""
        learner, state = self.learner, self.state
        if self.normalizer is not None:
            obs = self.normalizer.normalize_obs(obs)
        with self._drawing(), learner.inference():
            acted = learner.act(
                learner.inputs(obs),
                explore=self.explore,
                state=state,
                starts=None if state is None else learner.own(starts),
                masks=None if masks is None else learner.own(masks),
            )
            self.state = acted.state
            array = learner.array
            extra: Any = None
            if acted.extra or self.columns:
                # Copies, since the learner may go on in the same memory before they are stored.
                columns = self._extra(acted.extra)
                extra = columns and {name: array(x).copy() for name, x in columns.items()}
            return Acted(
                array(acted.actions),
                None if acted.log_probs is None else array(acted.log_probs),
                None if acted.values is None else array(acted.values),
                acted.state,
                extra,
            )

    def memory_arrays(self) -> dict[str, Any] | None:
        """Recurrent memory as a checkpoint keeps it; None without one.

        A memory is a tree of arrays or tensors [N, ...], or an object with `arrays` and
        `load_arrays`.
        """
        if self.state is None or hasattr(self.state, "arrays"):
            return None if self.state is None else dict(self.state.arrays())
        return {"memory": numbered(map_leaves(self.learner.array, self.state))}

    def load_memory_arrays(self, saved: Mapping[str, Any]) -> None:
        """Go on from `memory_arrays`.

        Raises:
            ValueError: It is the memory of another learner, or of other environments.
        """
        if hasattr(self.state, "load_arrays"):
            own = self.learner.own
            self.state.load_arrays({k: x if x is None else own(x) for k, x in saved.items()})
            return
        self.remember(saved.get("memory", ()))

    def remember(self, memory: Any) -> None:
        """Go on with a recurrent memory as `state` has it, of arrays or tensors.

        Without a memory of its own the learner forgets it.

        Raises:
            ValueError: It is the memory of another learner, or of other environments.
        """
        if self.state is None or hasattr(self.state, "arrays"):
            self.state = None if self.state is None else memory
            return
        before = [leaf for _, leaf in leaves(self.state)]
        given = [self.learner.own(leaf) for _, leaf in leaves(memory)]
        shapes = [[tuple(leaf.shape) for leaf in part] for part in (before, given)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"the memory of the policy must have shapes {shapes[0]}, got {shapes[1]}"
            )
        self.state = like(self.state, tuple(given))

    def act_tensors(self, obs: Any, starts: torch.Tensor, masks: torch.Tensor | None) -> Acted:
        """Choose actions for observations that are on the device of the learner, like the rest."""
        state = self.state
        with self.learner.inference():
            acted = self.learner.act(
                obs,
                explore=self.explore,
                state=state,
                starts=None if state is None else starts,
                masks=masks,
            )
        self.state = acted.state
        if acted.extra or self.columns:
            return acted._replace(extra=self._extra(acted.extra))
        return acted

    def _extra(self, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The columns of a step to store, as the learner has its numbers; None at play.

        Raises:
            ValueError: They are others than those that the learner declares.
        """
        columns, given = self.columns, given or {}
        if columns is None:
            return None
        check_columns(given, columns, self.n_envs, self.learner, "act")
        for name in given.keys() - columns.keys():
            raise ValueError(
                f"act must not give the extra column {name!r}: extra_columns of "
                f"{type(self.learner).__name__} declares {sorted(columns) or 'none'}"
            )
        return {name: self.learner.own(given[name]) for name in columns}

    def play(self, obs: Nested, starts: Any, masks: Any = None) -> Array:
        """Actions for the environments, from observations as they gave them."""
        actions: Array = self.learner.action_map.to_env(self.act(obs, starts, masks).actions)
        return actions

    def _drawing(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the learner draws from the generator of this actor."""
        return contextlib.nullcontext() if self.generator is None else self._drawing_from_own()

    @contextlib.contextmanager
    def _drawing_from_own(self) -> Iterator[None]:
        learner, before = self.learner, self.learner.explore_generator
        learner.explore_generator = self.generator
        try:
            yield
        finally:
            learner.explore_generator = before


class RolloutActor(Actor):
    """Acts in rollouts, and values what comes after them; its learner has `values` too."""

    learner: Any

    def begin_rollout(self) -> None:
        """Prepare to explore in another rollout."""
        with self._drawing():
            self.learner.begin_rollout(self.n_envs)

    def values(self, obs: Nested, rows: Any = None) -> Array:
        """Values [N] of what comes after the last `act`, of some environments or of all."""
        learner = self.learner
        with learner.inference():
            values: Array = learner.array(learner.values(learner.inputs(obs), self._state(rows)))
            return values

    def value_tensors(self, obs: Any) -> torch.Tensor:
        """Values [N] of what comes after the last `act_tensors`, as tensors."""
        with self.learner.inference():
            values: torch.Tensor = self.learner.values(obs, self.state)
            return values

    def _state(self, rows: Any) -> Any:
        if self.state is None or rows is None:
            return self.state
        return self.state[:, self.learner.own(rows)]


class FollowingActor(RolloutActor):
    """Acts in rollouts with a copy of a learner, which follows the weights that it is given.

    It shares nothing with the learner that changes, so that it may act in a thread of its own.

    Args:
        learner: The learner to copy.
        n_envs: Number of environments.
        seed: Of its actions.
        columns: Of the learner's own, to be stored with a step.
    """

    def __init__(
        self, learner: Any, n_envs: int, seed: int, columns: Mapping[str, Field] | None
    ) -> None:
        own, generator = learner.acting_copy(), learner.make_generator(seed)
        super().__init__(own, n_envs, explore=True, generator=generator, columns=columns)

    @property
    def action_map(self) -> Any:
        """From its actions to the environments'."""
        return self.learner.action_map

    def memory(self) -> Array | None:
        """A copy of the recurrent state [..., N, size]; None without one."""
        return None if self.state is None else self.learner.array(self.state).copy()

    def follow_weights(self, weights: Array) -> None:
        """Act with weights [n_parameters] of the learner, in another rollout."""
        self.learner.follow_weights(weights)
        self.begin_rollout()

    def state_dict(self) -> dict[str, Any]:
        """State of its generator and memory, beside the weights."""
        return {
            "kind": self.learner.generator_kind,
            "generator": self.generator.get_state(),
            "memory": self.memory(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`; generators of another kind begin anew."""
        if state.get("kind") == self.learner.generator_kind:
            self.learner.load_generator(self.generator, state["generator"])
        if state.get("memory") is not None:
            self.state = self.learner.own(state["memory"])


class FollowerRecipe:
    """Makes followers of a torch learner, here or in another process.

    What arrives there is a new learner of the same kind on the CPU, whose weights follow.

    Args:
        learner: The learner to copy.
        columns: Of the learner's own, to be stored with a step.
        algorithm: The name by which other machines know its class; None where they do not.
    """

    def __init__(
        self, learner: Any, columns: Mapping[str, Field] | None, algorithm: str | None = None
    ) -> None:
        self._learner, self._columns, self._algorithm = learner, columns, algorithm

    def __call__(self, env: Any, seed: int) -> FollowingActor:
        """A follower in some environments."""
        return FollowingActor(self._learner, env.num_envs, seed, self._columns)

    def n_weights(self, env: Any) -> int:  # noqa: ARG002 - those of its own spaces
        """Size of the weights."""
        return int(self._learner.weights().size)

    def to_json(self) -> dict[str, Any]:
        """The algorithm by its name, its options, and the size of its weights.

        Options that name files and addresses stay here, and so do schedules of Python: actors do
        not learn.

        Raises:
            TypeError: The learner or a network is of a user's, whose code is not sent anywhere.
        """
        learner = self._learner
        own = why_not_ours(type(learner))
        if own is None and learner.given:
            own = f"{next(iter(learner.given))} is a network of its own"
        if own is not None or self._algorithm is None:
            raise TypeError(
                "policy must be one of this library for actors elsewhere, since no code is sent: "
                f"{own or f'{self!r} has no name'}"
            )
        config = {
            name: value
            for name, value in learner.config.to_dict().items()
            if name not in OF_THIS_MACHINE and not is_unwritten_callable(value)
        }
        size = int(learner.weights().size)
        return {"algorithm": self._algorithm, "config": config, "n_weights": size}

    def __repr__(self) -> str:
        return f"a {type(self._learner).__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        learner = self._learner
        spaces = learner.observation_space, learner.action_space
        made_of = learner.config, *spaces, learner.seeds, learner.given
        return _follower_recipe, (type(learner), *made_of, self._columns)


def _follower_recipe(
    kind: Any, config: Any, obs_space: Any, action_space: Any, seeds: Any, given: Any, columns: Any
) -> FollowerRecipe:
    learner = kind(config, obs_space, action_space, seeds=seeds, given=given, device="cpu")
    return FollowerRecipe(learner, columns)
