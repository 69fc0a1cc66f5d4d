"""What learns from batches of steps, whoever lived through them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from sharpwave.envs import ActionMap, ActionScale
from sharpwave.lazy import nn, torch
from sharpwave.nest import map_leaves
from sharpwave.train.algorithm import Algorithm, Metrics
from sharpwave.train.cuda_graph import GraphedGradients
from sharpwave.train.evaluation import Player
from sharpwave.train.replay import INDICES, ReplayBatch, ReplaySampler
from sharpwave.types import Array, Nested


class ReplayLearner(Algorithm):
    """An algorithm that learns from batches, and how its policy acts.

    A subclass gives `build_networks`, `gradient_step` and `act`.

    Attributes:
        policy: The network that acts.
        action_scale: Between continuous actions and [-1, 1]; None for whole numbers.
        normalizer: Applied to observations before the policy sees them; None for none.
    """

    metrics: ClassVar[tuple[str, ...]]
    """What a gradient step measures, in order."""
    compiled: ClassVar[tuple[str, ...]] = ()
    """Methods to compile, where that is asked for."""
    policy: Any
    normalizer: Any

    @abstractmethod
    def build_networks(self) -> None:
        """Make the networks and their optimisers, and register those that learning changes."""

    @abstractmethod
    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """Learn from one batch; what it measured, in the order of `metrics`."""

    @abstractmethod
    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Actions for observations [N, ...]: in [-1, 1], or whole numbers from 0 on.

        Args:
            policy: The network that acts, or a copy of it.
            obs: Tensors, nested where the space is.
            masks: [N, n] actions that are allowed, or None.
            explore: Whether to look for something new.
            generator: Source of what is random in that.
        """

    def graph_key(self) -> Hashable:
        """What the next gradient step depends on beside networks and batch.

        Steps of one key run the same operations and can be replayed as one CUDA graph; that of None
        runs as it is.
        """
        return None

    def extra_state(self) -> dict[str, Any]:
        """What a subclass adds to the checkpoint: tensors, arrays, numbers."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`, whose tensors have become arrays."""

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed."""
        return {**super().state_dict(), "extra": self.extra_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        self.load_extra_state(state["extra"])

    def register(self, name: str, network: Any, optimizer: nn.FlatOptimizer | None = None) -> None:
        """Make a network part of the checkpoint, with the optimiser that changes it."""
        self.networks[name] = network
        if optimizer is not None:
            self.optimizers[name] = optimizer

    def means(self, measured: Sequence[torch.Tensor]) -> Metrics:
        """The mean of what some gradient steps measured, by name."""
        means = torch.stack(list(measured)).mean(0)
        rate = next(iter(self.optimizers.values())).lr
        return {**dict(zip(self.metrics, means.unbind(), strict=True)), "learning_rate": rate}

    @property
    def action_dim(self) -> int:
        """Size of a continuous action.

        Raises:
            TypeError: Actions are not continuous.
        """
        if self.action_scale is None:
            raise TypeError(f"{self.name} needs a Box action space, got {self.action_space}")
        return len(self.action_scale.middle)

    def player(self, n_envs: int, deterministic: bool) -> Player:  # noqa: ARG002 - any number
        """The policy, ready to play environments."""
        return _Player(self, deterministic)

    def action_form(self) -> dict[str, Any]:
        """How a `ReplaySampler` turns actions of the environment into those of the policy."""
        middle = radius = None
        if self.action_scale is not None:
            middle = torch.from_numpy(self.action_scale.middle).to(self.device)
            radius = torch.from_numpy(self.action_scale.radius).to(self.device)
        elif np.any(getattr(self.action_space, "start", 0)):
            middle = torch.as_tensor(np.asarray(self.action_space.start), device=self.device)
        return {"middle": middle, "radius": radius}

    def _make_networks(self, *, compile: bool, cuda_graph: bool) -> None:
        # Layers draw first weights from torch's global generator, which is not ours to move.
        with torch.random.fork_rng(devices=[]):
            self.build_networks()
        for name in self.compiled if compile else ():
            setattr(self, name, torch.compile(getattr(self, name)))
        graphs = cuda_graph and self.device.type == "cuda"
        self._graphs = GraphedGradients(self.generator) if graphs else None

    def _learn_from(
        self, sampler: ReplaySampler, drawn: dict[str, Any]
    ) -> tuple[torch.Tensor, ReplayBatch]:
        def step() -> tuple[torch.Tensor, ReplayBatch]:
            batch = sampler.as_batch(drawn)
            return self.gradient_step(batch), batch

        key = None if self._graphs is None else self.graph_key()
        if self._graphs is None or key is None:
            return step()
        measured, batch = self._graphs.run(key, step)
        batch.indices = drawn.get(INDICES)  # they stay here, where no graph sees them
        return measured, batch

    def _set_action_form(self) -> None:
        if isinstance(self.action_space, spaces.Box):
            self.action_scale: ActionScale | None = ActionScale(self.action_space)
            self._to_env: Callable[[Any], Array] = self.action_scale.to_env
        else:
            self.action_scale = None
            self._to_env = ActionMap(self.action_space).to_env

    def _act(
        self, obs: Nested, masks: Any, policy: Any, explore: bool, generator: torch.Generator
    ) -> Array:
        act = partial(self.act, policy, explore=explore, generator=generator)
        return self._with_tensors(act, obs, masks)

    def _with_tensors(self, act: Callable[..., torch.Tensor], obs: Nested, masks: Any) -> Array:
        with torch.inference_mode():
            tensors = map_leaves(self._tensor, obs)
            allowed = None if masks is None else self._tensor(masks)
            actions: Array = act(tensors, allowed).cpu().numpy()
            return actions

    def _tensor(self, leaf: Array) -> torch.Tensor:
        return torch.as_tensor(leaf, device=self.device)


class _Player:
    """Plays with the policy of an algorithm."""

    def __init__(self, algorithm: ReplayLearner, deterministic: bool) -> None:
        self._algorithm = algorithm
        self._deterministic = deterministic

    def play(self, obs: Nested, starts: Any, masks: Any = None) -> Array:  # noqa: ARG002
        """Actions for the environments, from observations as they gave them."""
        algorithm = self._algorithm
        if algorithm.normalizer is not None:
            obs = algorithm.normalizer.normalize_obs(obs)
        return algorithm._to_env(
            algorithm._act(
                obs, masks, algorithm.policy, not self._deterministic, algorithm._play_generator
            )
        )
