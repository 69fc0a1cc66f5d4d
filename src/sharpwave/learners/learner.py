"""The interface of learners, and what all of them share."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.envs import ActionMap, ActionScale
from sharpwave.learners.base import BaseLearner, Metrics
from sharpwave.learners.seeds import Seeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

__all__ = ["Acted", "Learner", "Metrics"]


class Acted(NamedTuple):
    """The result of `Learner.act` for observations [N, ...].

    Attributes:
        actions: [N, ...] as the learner has them: in [-1, 1], or integers from 0 on.
        log_probs: [N] of the actions, for learners that need them.
        values: [N] of the observations, likewise.
        state: Recurrent memory to act with in the next step; None without one.
        extra: Columns [N, ...] to store with the step, those that `extra_columns` declares.
    """

    actions: Any
    log_probs: Any = None
    values: Any = None
    state: Any = None
    extra: Mapping[str, Any] | None = None


class Learner(BaseLearner):
    """Networks, their optimizers, a generator, counters, and the rule by which they learn.

    A subclass gives `build`, `act` and `update`. It knows no environment, buffer or logger: what
    feeds it is a loop, of the library or of one's own.

    Args:
        config: Options.
        observation_space: Of one environment.
        action_space: Of one environment.
        seeds: Of weights and draws; an int stands for all seeds that follow from it.
        device: Device of the networks.
        given: Networks of the user's, by name, in place of the learner's own.
        ranks: The processes that learn together, each from batches of its own.

    Attributes:
        networks: The networks that learn, by name.
        optimizers: By the name of the network that they move.
        generator: Source of the random numbers of updates.
        explore_generator: Source of those of actions.
        updates: Calls of `update` so far.
        action_map: From actions of the learner to those of the environment.
    """

    losses: ClassVar[tuple[str, ...]] = ()
    """Names of the methods that compute losses; `compile` compiles them."""
    compiled_too: ClassVar[tuple[str, ...]] = ()
    """Other methods that `compile` compiles."""
    uncompiled: ClassVar[tuple[str, ...]] = ()
    """Methods that they call and that `compile` leaves as they are."""
    captured: ClassVar[str] = "update"
    """The method whose calls become CUDA graphs: `update`, or one that it calls for minibatches."""
    changes_size: ClassVar[bool] = False
    """True if updates have other numbers of rows each time, for which no graph stands."""
    is_random: ClassVar[bool] = True
    """True if the policy is stochastic; a deterministic one plays its one action, also where a
    sample is asked for, and explores by noise in training alone."""
    acts_in_graphs: bool = False
    """True if what it does to act may be replayed as CUDA graphs."""
    rewards_itself: ClassVar[bool] = False
    """True if `intrinsic_rewards` gives more to learn from than the rewards of environments."""
    takes_tensors: ClassVar[bool] = False
    """True if batches and observations may be tensors on its device from the beginning."""

    def __init__(
        self,
        config: Any,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        seeds: Seeds | int = 0,
        device: str = "cpu",
        given: Mapping[str, Any] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        if isinstance(seeds, int):
            seeds = Seeds.of_replay(seeds)
        super().__init__(config)
        self.ranks = ranks
        self.observation_space = observation_space
        self.action_space = action_space
        self.seeds = seeds
        self.device_name = device
        self.given = {name: one for name, one in (given or {}).items() if one is not None}
        self.action_map = self.make_action_map()
        self.weights_generator = np.random.Generator(np.random.Philox(seeds.weights))
        self.generator = self.make_generator(seeds.learning)
        self.explore_generator = self.generator
        if seeds.exploring is not None:
            self.explore_generator = self.make_generator(seeds.exploring)

    # The rule

    @abstractmethod
    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Choose actions for observations [N, ...].

        Args:
            obs: As `inputs` gives them.
            explore: Sample exploratory actions; otherwise take the greedy ones.
            state: Memory of the last step's `Acted`, or `initial_state`; None without one.
            starts: [N] true where an episode starts, for recurrent learners.
            masks: [N, n] true where an action is allowed; None allows all.
        """

    def extra_columns(self) -> Mapping[str, Any]:
        """Columns that `act` returns in `extra`, and that `update` finds in `batch.extra`.

        Loops store them with the step, and a batch has in each row what belongs to its `obs`. They
        are declared here, since a buffer is made before the first step. Where the learner has not
        acted, which is before `learning_starts`, a column holds zeros.

        Returns:
            By name a dtype of NumPy's, or a pair of it and the shape of a row.
        """
        return {}

    # Acting

    def initial_state(self, n_envs: int) -> Any:  # noqa: ARG002
        """Recurrent memory at the start of acting in so many environments; None without one.

        Returns:
            A tree (tuples and dicts) of arrays or tensors [n_envs, ...], which `act` takes as
            `state` and gives back in `Acted.state`; the rows of `starts` are to begin anew there.
            Checkpoints keep it. Or an object that `act` changes, with `arrays` and `load_arrays`.
        """
        return None

    @abstractmethod
    def acting_copy(self) -> Self:
        """A learner that acts with weights of its own, while this one learns."""

    @abstractmethod
    def copy_acting(self, other: Self) -> None:
        """As an `acting_copy`, act like another learner from now on."""

    @abstractmethod
    def acting_state(self) -> dict[str, Any]:
        """The weights that act, for a checkpoint."""

    @abstractmethod
    def load_acting_state(self, state: dict[str, Any]) -> None:
        """Act with weights of a checkpoint."""

    @abstractmethod
    def inputs(self, obs: Any) -> Any:
        """Observations [N, ...] of environments, arrays, in the form that `act` takes."""

    @abstractmethod
    def own(self, array: Any) -> Any:
        """An array in the form that the learner computes with."""

    @abstractmethod
    def array(self, own: Any) -> Any:
        """The other way."""

    def inference(self) -> contextlib.AbstractContextManager[Any]:
        """A context to act in: nothing is kept for gradients."""
        return contextlib.nullcontext()

    # Construction

    @abstractmethod
    def make_generator(self, seed: int) -> Any:
        """A source of random numbers for this learner."""

    def make_action_map(self) -> Any:
        """Between actions of the learner and of the environment: continuous ones in [-1, 1]."""
        if isinstance(self.action_space, spaces.Box):
            return ActionScale(self.action_space)
        return ActionMap(self.action_space)

    @property
    def action_dim(self) -> int:
        """Size of a continuous action.

        Raises:
            TypeError: Actions are not continuous.
        """
        if not isinstance(self.action_map, ActionScale):
            name = type(self).__name__.removeprefix("Native").removesuffix("Learner").lower()
            instead = "; use discrete_sac" if name == "sac" else ""
            raise TypeError(
                f"action_space must be Box for {name}, got {self.action_space}{instead}"
            )
        return len(self.action_map.bias)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: networks, optimizers, generators, counters."""
        state = super().state_dict()
        state["generator"] = {"device": self.generator_kind, "state": self.generator.get_state()}
        if self.explore_generator is not self.generator:
            state["explore_generator"] = self.explore_generator.get_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, that of a file or of a learner, whatever computes there.

        Raises:
            ValueError: The networks are others than those of the state.
        """
        super().load_state_dict(state)
        if state["generator"]["device"] == self.generator_kind:  # each kind has its own
            self.load_generator(self.generator, state["generator"]["state"])
            if self.explore_generator is not self.generator and "explore_generator" in state:
                self.load_generator(self.explore_generator, state["explore_generator"])

    def restored(self, array: Any) -> Any:
        """An array of a checkpoint in the form that the learner computes with."""
        return self.own(array)

    @property
    @abstractmethod
    def generator_kind(self) -> str:
        """Generators of one kind go on from each other's states."""

    @abstractmethod
    def load_generator(self, generator: Any, state: Any) -> None:
        """Let a generator go on from a state that a checkpoint held."""
