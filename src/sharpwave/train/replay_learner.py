"""What learns from batches of steps, whoever lived through them."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from sharpwave.envs import ActionMap, ActionScale
from sharpwave.lazy import nn, torch
from sharpwave.learn import Draws, FlatArrays, why_not_native
from sharpwave.nest import map_leaves
from sharpwave.train.algorithm import Algorithm, Metrics
from sharpwave.train.array_sampler import ArraySampler
from sharpwave.train.cuda_graph import GraphedGradients
from sharpwave.train.evaluation import Player
from sharpwave.train.native_replay import NativeAgent
from sharpwave.train.replay import INDICES, ReplayBatch, ReplaySampler
from sharpwave.types import Array, Nested


class ReplayLearner(Algorithm):
    """An algorithm that learns from batches, and how its policy acts.

    A subclass gives `build_networks`, `gradient_step` and `act`.

    Attributes:
        native: What learns and acts in native code; None where torch does.
        action_scale: Between continuous actions and [-1, 1]; None for whole numbers.
        normalizer: Applied to observations before the policy sees them; None for none.
    """

    metrics: ClassVar[tuple[str, ...]]
    """What a gradient step measures, in order."""
    compiled: ClassVar[tuple[str, ...]] = ()
    """Methods to compile, where that is asked for."""
    TRUTH: ClassVar[tuple[str, ...]] = ("build_networks", "gradient_step", "act", "explore")
    """What native code is the twin of; where a subclass changes one of them, torch computes."""
    native: Any = None
    normalizer: Any
    _policy: Any = None

    @abstractmethod
    def build_networks(self) -> None:
        """Make the networks and their optimisers, and register those that learning changes."""

    @abstractmethod
    def gradient_step(self, batch: ReplayBatch) -> Any:
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

    def make_module(self, name: str) -> Any:
        """A new torch module like the one of `networks` with this name."""
        raise NotImplementedError

    def make_native(self) -> NativeAgent[Any]:
        """Make the networks and their optimisers for native code."""
        raise NotImplementedError

    def native_step(self, batch: ReplayBatch) -> Array:
        """What `gradient_step` does, in native code."""
        raise NotImplementedError

    def native_act(
        self, policy: FlatArrays, inputs: Array, masks: Any, draws: Draws | None
    ) -> Array:
        """What `act` does, in native code.

        Args:
            policy: The parameters of the network that acts.
            inputs: [N, n] observations as the network takes them.
            masks: [N, n] actions that are allowed, or None.
            draws: Source of what is random; None to look for nothing new.
        """
        raise NotImplementedError

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        config: Any = self.config
        kinds = type(self).__mro__
        twin = next(cls for cls in kinds if "native_step" in vars(cls))
        if twin is ReplayLearner:
            return f"{self.name} has no native update"
        for cls in kinds[: kinds.index(twin)]:
            changed = [name for name in self.TRUTH if name in vars(cls)]
            if changed:
                return f"{cls.__name__} changes {changed[0]}"
        if config.device != "cpu":
            return f"device is {config.device!r}"
        for option in ("compile", "cuda_graph"):
            if getattr(config, option):
                return f"{option} is on"
        return why_not_native(
            self.observation_space, self.action_space, activation=config.activation
        )

    @property
    def policy(self) -> Any:
        """The network that acts, a torch module. Native code works on the same memory."""
        if self._policy is None and self.native is not None:
            self._policy = self._module_of_native(self.native.acting)
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The networks of native code as torch modules, each made at its first use."""
            native = self.__dict__.get("native")
            if native is None or name not in native.networks:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            module = self._module_of_native(name)
            setattr(self, name, module)
            return module

    def _module_of_native(self, name: str) -> Any:
        with torch.random.fork_rng(devices=[]):
            module = self.make_module(name)
        return nn.FlatParameters(module, memory=self.native.networks[name]).module

    @property
    def playing_policy(self) -> Any:
        """What `_act` takes to play: the network, or its parameters."""
        return self.policy if self.native is None else self.native.policy

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

    def means(self, measured: Sequence[Any]) -> Metrics:
        """The mean of what some gradient steps measured, by name."""
        rate = next(iter(self.optimizers.values())).lr
        means: Sequence[Any]
        if self.native is None:
            means = torch.stack(list(measured)).mean(0).unbind()
        else:
            means = np.mean(measured, 0).tolist()
        return {**dict(zip(self.metrics, means, strict=True)), "learning_rate": rate}

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
        middle: Any = None
        radius: Any = None
        if self.action_scale is not None:
            middle, radius = self.action_scale.middle, self.action_scale.radius
        elif np.any(getattr(self.action_space, "start", 0)):
            middle = np.asarray(self.action_space.start)
        if self.native is None:
            middle, radius = (x if x is None else self._tensor(x) for x in (middle, radius))
        return {"middle": middle, "radius": radius}

    @property
    def sampler_class(self) -> type[ReplaySampler]:
        """What draws batches in the form that the learner takes."""
        return ReplaySampler if self.native is None else ArraySampler

    def few_threads(self) -> contextlib.AbstractContextManager[None]:
        """Inside, torch has as many threads as help."""
        return super().few_threads() if self.native is None else contextlib.nullcontext()

    def _make_networks(self, *, compile: bool, cuda_graph: bool) -> None:
        self._graphs: GraphedGradients | None = None
        if self.backend == "native":
            self.native = self.make_native()
            self.networks = dict(self.native.networks)
            self.optimizers = dict(self.native.optimizers)
            return
        # Layers draw first weights from torch's global generator, which is not ours to move.
        with torch.random.fork_rng(devices=[]):
            self.build_networks()
        for name in self.compiled if compile else ():
            setattr(self, name, torch.compile(getattr(self, name)))
        if cuda_graph and self.device.type == "cuda":
            self._graphs = GraphedGradients(self.generator)

    def _learn_from(self, sampler: ReplaySampler, drawn: dict[str, Any]) -> tuple[Any, ReplayBatch]:
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

    def _act(self, obs: Nested, masks: Any, policy: Any, explore: bool, generator: Any) -> Array:
        if self.native is not None:
            draws = generator if explore else None
            return self.native_act(policy, self.native.features(obs), masks, draws)
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
                obs,
                masks,
                algorithm.playing_policy,
                not self._deterministic,
                algorithm._play_generator,
            )
        )
