"""Learners whose networks are torch modules."""

from __future__ import annotations

import contextlib
import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.core.lazy import nn, torch
from sharpwave.core.tree import map_leaves
from sharpwave.learners.devices import TF32, find_device, matmul_precision, torch_threads
from sharpwave.learners.learner import Learner
from sharpwave.learners.replay import ReplaySampler
from sharpwave.storage.checkpoints import to_tensor

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TorchLearner"]


class TorchLearner(Learner):
    """A learner with torch modules, differentiated by autograd.

    A subclass gives `build`, `act` and `update`.

    Attributes:
        policy: The network that acts.
        flats: The parameters of each network in one block, by its name.
        device: Device of the networks.
    """

    kind = "torch"
    Sampler: ClassVar[type[ReplaySampler]] = ReplaySampler
    """The sampler whose batches `update` takes."""
    takes_tensors = True
    wrappers: Mapping[str, Callable[[Any], Any]] = {}
    """Applied to methods by name, also to those that are assigned later."""
    policy: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.flats: dict[str, nn.FlatParameters] = {}
        # Layers of torch's draw first weights from its global generator. In `build` they follow the
        # seed of the run, and afterwards the generator is where it was.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self.seeds.weights.generate_state(1)[0]))
            self.build()
        # Those of a user's own network may come from anywhere.
        self.ranks.copy_first([flat.data for flat in self.flats.values()])
        self.follow(1.0)

    @abstractmethod
    def build(self) -> None:
        """Make the networks and their optimizers, and `add` those that learning changes."""

    def add(self, name: str, network: Any, optimizer: Callable[[Any], Any] | None = None) -> Any:
        """Make a network part of the learner and its checkpoints.

        Args:
            name: Of the network.
            network: A module.
            optimizer: From its parameters, in one block, to what moves them; None for nothing.

        Returns:
            The network, on the device.
        """
        self.flats[name] = flat = nn.FlatParameters(network, self.device)
        flat.reduce = None if self.ranks.is_alone else self.ranks.mean
        self.networks[name] = flat.module
        if optimizer is not None:
            self.optimizers[name] = optimizer(flat)
        return flat.module

    def add_copy(self, name: str, network: Any) -> Any:
        """Add a copy of a network that no gradient reaches."""
        return self.add(name, copy.deepcopy(network).requires_grad_(False))

    def descend(self, name: str, loss: torch.Tensor) -> None:
        """One gradient step of a network on a loss, clipped to the norm `max_grad_norm`."""
        max_norm = getattr(self.config, "max_grad_norm", None)
        nn.descend(loss, self.flats[name], self.optimizers[name], max_norm)

    @property
    def total(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """Sums a tensor over the processes that learn together; None where this one is alone."""
        return None if self.ranks.is_alone else self.ranks.sum

    def made_of(self) -> list[Any]:
        """All modules of the networks, and what was assigned to them in place of their methods."""
        modules = [module for network in self.networks.values() for module in network.modules()]
        assigned = [
            (name, value)
            for module in modules
            for name, value in vars(module).items()
            if name[0] != "_" and callable(value)
        ]
        return [*modules, *assigned]

    def follow_slowly(self, target: str, network: str, tau: float) -> None:
        """Polyak update: move a target network by the share τ towards another network."""
        self.flats[target].data.lerp_(self.flats[network].data, tau)

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with torch's constants."""
        return nn.Adam(flat, lr=0.0, eps=1e-8)

    def make_critics(self, **options: Any) -> Any:
        """Critics, which estimate Q-values: `n_critics` of them, or copies of a given one."""
        n = self.config.n_critics
        if "critic" in self.given:
            return nn.CustomCritics(self.given["critic"], n, self.weights_generator)
        options = {**self.network_options("critic"), "n_critics": n, **options}
        return nn.Critics(self.observation_space, self.action_dim, **options)

    def network_options(self, network: str) -> dict[str, Any]:
        """Arguments of the constructor of the `actor` or the `critic`."""
        return {
            "hidden": self.config.hidden_of(network),
            "activation": self.config.activation,
            "generator": self.weights_generator,
        }

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; a method is wrapped as the one that it replaces was."""
        wrapper = self.wrappers.get(name)
        super().__setattr__(name, value if wrapper is None else wrapper(value))

    # Acting

    def acting_copy(self) -> Self:
        """A learner that acts with weights of its own, while this one learns."""
        other = copy.copy(self)
        other.policy = copy.deepcopy(self.policy)
        return other

    def copy_acting(self, other: Self) -> None:
        """As an `acting_copy`, act like another learner from now on."""
        mine, theirs = self.policy, other.policy
        vars(self).update({**vars(other), "policy": mine})
        with torch.no_grad():
            torch._foreach_copy_(_tensors(mine), _tensors(theirs))

    def acting_state(self) -> dict[str, Any]:
        """The weights that act, for a checkpoint."""
        return dict(self.policy.state_dict())

    def load_acting_state(self, state: dict[str, Any]) -> None:
        """Act with weights of a checkpoint."""
        self.policy.load_state_dict({name: self.restored(array) for name, array in state.items()})

    def inputs(self, obs: Any) -> Any:
        """Observations [N, ...] as tensors on the device."""
        return map_leaves(self.own, obs)

    def own(self, array: Any) -> torch.Tensor:
        """An array as a tensor on the device."""
        return torch.as_tensor(array, device=self.device)

    def array(self, own: Any) -> Any:
        """A tensor as an array."""
        return own.cpu().numpy()

    def inference(self) -> contextlib.AbstractContextManager[Any]:
        """A context to act in: nothing is kept for gradients."""
        if self.device.type != "cuda":
            return torch.inference_mode()
        stack = contextlib.ExitStack()
        stack.enter_context(torch.inference_mode())
        stack.enter_context(self.precision())
        return stack

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which matrix products have the precision that `matmul` says."""
        if self.device.type != "cuda" or not hasattr(self.config, "matmul"):
            return contextlib.nullcontext()
        return matmul_precision(self.config.matmul or TF32)

    # Construction and checkpoints

    @cached_property
    def device(self) -> torch.device:
        """Device of the networks."""
        return find_device(self.device_name)

    def make_generator(self, seed: int) -> torch.Generator:
        """A source of random numbers for this learner."""
        return torch.Generator(self.device).manual_seed(seed)

    def restored(self, array: Any) -> torch.Tensor:
        """An array of a checkpoint as a tensor, of the dtype that was saved."""
        return to_tensor(array)

    @property
    def generator_kind(self) -> str:
        """Generators of one kind go on from each other's states."""
        return self.device.type

    def load_generator(self, generator: Any, state: Any) -> None:
        """Let a generator go on from a state that a checkpoint held."""
        generator.set_state(to_tensor(state))

    def few_threads(self, rows: int) -> contextlib.AbstractContextManager[None]:
        """Context in which updates on so many rows use as many threads as pay off."""
        return torch_threads(self.config.threads, self.networks.values(), rows)


def _tensors(network: Any) -> list[torch.Tensor]:
    return [*network.parameters(), *network.buffers()]
