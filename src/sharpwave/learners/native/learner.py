"""Compiled twins of learners: the same Config, the same state_dict, the same numbers."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave.core.draws import Draws
from sharpwave.core.lazy import nn, torch
from sharpwave.core.tree import map_leaves
from sharpwave.layouts.features import features_of
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.learners.learner import Learner
from sharpwave.learners.replay import INDICES, ReplayBatch, ReplaySampler, check_whole
from sharpwave.storage.checkpoints.tensors import as_arrays
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.envs import VecNormalize

__all__ = ["ArrayNormalizer", "ArraySampler", "NativeLearner"]


class ArrayNormalizer:
    """Does to batches what a `VecNormalize` does to observations and rewards.

    Args:
        normalizer: Whose statistics to apply.
        device: None, since arrays have none.
        n_step: Rewards that are summed, each of which may be as large as the bound of one.
    """

    def __init__(self, normalizer: VecNormalize, device: None = None, n_step: int = 1) -> None:  # noqa: ARG002
        self._normalizer = normalizer
        self._clip_rewards = normalizer.clip_reward * n_step

    def refresh(self) -> None:
        """Nothing: the statistics are always those of now."""

    def obs(self, obs: Nested) -> Nested:
        """Observations [B, ...]."""
        return self._normalizer.normalize_obs(obs)

    def rewards(self, rewards: Array) -> Array:
        """Rewards [B]."""
        if not self._normalizer.norm_reward:
            return rewards
        scaled: Array = rewards / np.float32(self._normalizer.reward_std)
        return np.clip(scaled, -self._clip_rewards, self._clip_rewards)


class ArraySampler(ReplaySampler):
    """A `ReplaySampler` whose batches are arrays."""

    Normalizer = ArrayNormalizer

    def _reserve(self) -> None:
        self._out = self.buffer.batch(self.batch_size, view=self.view, **self._how)

    def _brought(self, drawn: dict[str, Any]) -> dict[str, Any]:
        ids = {name: drawn.pop(name) for name in (INDICES,) if name in drawn}
        return {**map_leaves(np.asarray, drawn), **ids}

    def _discounts(self, drawn: Any) -> Any:
        if "discounts" in drawn:
            return drawn["discounts"]
        return np.where(drawn["terminated"], np.float32(0.0), np.float32(self.gamma))

    def _actions(self, actions: Any) -> Any:
        if self.action_scale is None:
            return super()._actions(actions)
        rows = actions.reshape(len(actions), -1)
        return rows if self._is_unit else (rows - self.action_bias) / self.action_scale

    def _whole(self, actions: Any) -> Any:
        whole = actions.astype(np.int64, copy=False)
        if actions.dtype.kind == "f":
            check_whole(bool((whole == actions).all()), actions)
        return whole

    def report(self, batch: ReplayBatch, metrics: Mapping[str, Any]) -> None:
        """Write the new priorities of a batch that was learned from, by its `td_errors` [B]."""
        td_errors = metrics.get("td_errors")
        if batch.indices is not None and td_errors is not None:
            priorities = np.abs(td_errors) + np.float32(1e-6)
            self.buffer.update_priorities(np.asarray(batch.indices), priorities)


LIBRARY = __name__.partition(".")[0]


class NativeLearner(Learner):
    """A learner whose updates and actions native code computes, on arrays.

    A subclass gives `build`, `act` and `update`. Its networks are blocks of memory; torch modules
    that view them are made when somebody asks for one: `learner.policy`, `learner.critics`.

    Args:
        definition: The learner that this is the twin of.
        *args: Of a learner.
        **options: Of a learner.

    Attributes:
        features: From observations [B, ...] to inputs [B, n].
    """

    kind = "native"
    Sampler: ClassVar[type[ArraySampler]] = ArraySampler
    """The sampler whose batches `update` takes."""
    acting: ClassVar[str] = "actor"
    """The name of the network that acts."""
    not_known: ClassVar[tuple[str, ...]] = ()
    """Names of options that it does not support, or of one of their values as `name=value`."""
    networks: dict[str, FlatArrays]
    definition: type[Learner]

    def __init__(self, definition: type[Learner], *args: Any, **options: Any) -> None:
        vars(self)["definition"] = definition
        vars(self)["_methods"] = _methods(type(self)) | _methods(definition)
        super().__init__(*args, **options)
        self.features = features_of(self.observation_space)
        self.build()
        self.actor: Any = self.make_actor(self.networks[self.acting])
        self.follow(1.0)

    @abstractmethod
    def build(self) -> None:
        """Make the parameters, their optimizers, and what computes on them."""

    def add(self, name: str, flat: FlatArrays, optimizer: Any = None) -> FlatArrays:
        """Make parameters part of the learner and its checkpoints, and an optimizer over them."""
        self.networks[name] = flat
        if optimizer is not None:
            self.optimizers[name] = optimizer(flat)
        return flat

    def memory(self, name: str) -> tuple[FlatArrays, Any]:
        """Parameters and their optimizer."""
        return self.networks[name], self.optimizers[name]

    # Acting

    @abstractmethod
    def make_actor(self, flat: FlatArrays) -> Any:
        """The actor with the parameters of the acting network."""

    def acting_copy(self) -> Self:
        """A learner that acts with weights of its own, while this one learns."""
        other = copy.copy(self)
        flat = self.networks[self.acting].copy()
        vars(other).update(networks={self.acting: flat}, actor=other.make_actor(flat))
        return other

    def copy_acting(self, other: Self) -> None:
        """As an `acting_copy`, act like another learner from now on."""
        mine = {"networks": self.networks, "actor": self.actor}
        vars(self).update({**vars(other), **mine})
        self.networks[self.acting].data[:] = other.networks[self.acting].data

    def acting_state(self) -> dict[str, Any]:
        """The weights that act, for a checkpoint."""
        return dict(self.networks[self.acting].state_dict())

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """Act with weights of a checkpoint."""
        self.networks[self.acting].load_state_dict(state)

    def inputs(self, obs: Any) -> Any:
        """Observations [N, ...] as inputs [N, n] of the networks."""
        return self.features(obs)

    def own(self, array: Any) -> Any:
        """The array itself."""
        return array

    def array(self, own: Any) -> Any:
        """The array itself."""
        return own

    # Construction and checkpoints

    def make_generator(self, seed: int) -> Draws:
        """A source of random numbers for this learner."""
        return Draws(seed)

    def restored(self, array: Any) -> Any:
        """An array, also of what was a tensor."""
        return as_arrays(array)

    @property
    def generator_kind(self) -> str:
        """Generators of one kind go on from each other's states."""
        return self.kind

    def load_generator(self, generator: Any, state: Any) -> None:
        """Let a generator go on from a state that a checkpoint held."""
        generator.set_state(state)

    # As torch modules

    @cached_property
    def modules(self) -> Mapping[str, Any]:
        """The networks as torch modules, which view the memory that native code works on."""
        return {
            name: as_module(module, self.networks[name])
            for name, module in self.define().networks.items()
        }

    def define(self) -> Any:
        """The learner that this is the twin of."""
        given = (self.config, self.observation_space, self.action_space)
        return self.definition(*given, seeds=self.seeds, given=self.given)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A network as a torch module; `policy` is the one that acts.

            Also what somebody added to the learner that this is the twin of.
            """
            if name.startswith("_") or "networks" not in vars(self):
                raise AttributeError(name)
            network = self.acting if name == "policy" else name
            if network in self.networks:
                return self.modules[network]
            for kind in self.definition.__mro__:
                if name in vars(kind) and kind.__module__.partition(".")[0] != LIBRARY:
                    added = vars(kind)[name]
                    return added.__get__(self, type(self)) if hasattr(added, "__get__") else added
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            """Sets an attribute, but for a method that native code does not call."""
            if name in self._methods:
                raise AttributeError(
                    f"{name} would not be called: native code computes here. Pass "
                    f'`learner=` a subclass of {self.definition.__name__}, or backend="torch"'
                )
            super().__setattr__(name, value)


def as_module(module: Any, memory: Any) -> Any:
    """A torch module over memory that native code works on."""
    if isinstance(memory, FlatArrays):
        return nn.FlatParameters(module, memory=memory).module
    for name, array in memory.state_dict().items():
        setattr(module, name, torch.from_numpy(array))
    return module


@cache
def _methods(cls: type) -> frozenset[str]:
    """Names of the methods and properties of a class."""
    return frozenset(
        name
        for kind in cls.__mro__
        for name, value in vars(kind).items()
        if (callable(value) and not isinstance(value, type))
        or isinstance(value, property | cached_property | staticmethod | classmethod)
    )
