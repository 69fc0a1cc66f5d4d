"""Every algorithm in a small form, and what tests of their learning share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import sharpwave as sw
from sharpwave.agents import OnlineAgent
from sharpwave.envs.multi.toys import Mortal, Roles
from sharpwave.loops.off_policy import OffPolicyLoop
from sharpwave.testing.bits import state_of
from tests.contract.test_offline import columns
from tests.envs import resumable

__all__ = ["BOTH_BACKENDS", "LEARNERS", "TEAMS", "Learner", "parameters", "state_of"]


@dataclass(frozen=True)
class Learner:
    """An algorithm with few steps and small networks.

    Attributes:
        cls: Its class.
        world: What the constructor takes first.
        options: The rest of it.
        steps: Of `train`, which make some gradient steps.
        native: Whether it has a twin in native code.
    """

    cls: Any
    world: Callable[[], Any]
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    native: bool = False

    def make(self, cls: Any = None, **options: Any) -> Any:
        """An agent, perhaps of a subclass, or with a learner of its own."""
        return (cls or self.cls)(self.world(), **{**self.options, "seed": 3, **options})

    @property
    def is_online(self) -> bool:
        """True if it acts in environments."""
        return issubclass(self.cls, OnlineAgent)

    @property
    def replays(self) -> bool:
        """True if it learns from a replay buffer."""
        return self.is_online and issubclass(self.cls.Loop, OffPolicyLoop)

    @property
    def losses(self) -> tuple[str, ...]:
        """Methods that compute what it descends."""
        return self.cls.Learner.losses  # type: ignore[no-any-return]


ROLLOUT: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,)}
# In environments of Python all learners have the same rollouts, whatever computes.
UNROLL: dict[str, Any] = {**ROLLOUT, "n_actors": 1, "deterministic": True}
CLIPPED: dict[str, Any] = {**UNROLL, "n_epochs": 2, "batch_size": 8}
REPLAY: dict[str, Any] = {
    "n_envs": 2,
    "train_freq": 2,
    "learning_starts": 16,
    "batch_size": 8,
    "hidden": (8, 8),
    "buffer_size": 500,
    "log_interval": 16,
}
DREAMER: dict[str, Any] = {
    "n_envs": 2,
    "train_freq": 2,
    "learning_starts": 16,
    "batch_size": 4,
    "sequence_length": 8,
    "imag_last": 4,
    "imagination": 3,
    "deter": 16,
    "hidden": 8,
    "latents": 3,
    "classes": 4,
    "units": 8,
    "blocks": 4,
    "warmup": 0,
    "buffer_size": 500,
    "log_interval": 16,
}
DATA: dict[str, Any] = {"hidden": 8, "batch_size": 16, "log_interval": 3}


def on_policy(cls: Any, **options: Any) -> Learner:
    return Learner(cls, lambda: "CartPole-v1", {**ROLLOUT, **options}, 32, native=True)


def choosing(cls: Any, *, native: bool = False, **options: Any) -> Learner:
    return Learner(cls, lambda: "CartPole-v1", {**REPLAY, **options}, 48, native=native)


def moving(cls: Any, *, native: bool = False, **options: Any) -> Learner:
    return Learner(cls, lambda: "Pendulum-v1", {**REPLAY, **options}, 48, native=native)


def offline(cls: Any, *, native: bool = False, **options: Any) -> Learner:
    discrete = options.pop("discrete", False)
    return Learner(cls, lambda: columns(discrete=discrete), {**DATA, **options}, 7, native=native)


Q: dict[str, Any] = {"target_update_freq": 12}
LEARNERS: dict[str, Learner] = {
    "ppo": on_policy(sw.PPO, n_epochs=2, batch_size=8),
    "hybrid_ppo": on_policy(sw.HybridPPO, n_epochs=2, batch_size=8),
    "a2c": on_policy(sw.A2C),
    "impala": Learner(sw.IMPALA, lambda: resumable, UNROLL, 48, native=True),
    "appo": Learner(sw.APPO, lambda: resumable, CLIPPED, 48, native=True),
    "appo-target": Learner(
        sw.APPO, lambda: resumable, {**CLIPPED, "target_update_freq": 2}, 48, native=True
    ),
    "dqn": choosing(sw.DQN, native=True, **Q),
    "c51": choosing(sw.C51, n_atoms=5, v_min=0.0, v_max=50.0, **Q),
    "qr_dqn": choosing(sw.QRDQN, n_quantiles=5, **Q),
    "qr_dqn-one": choosing(sw.QRDQN, n_quantiles=1, **Q),
    "discrete_sac": choosing(sw.DiscreteSAC, target_update_interval=2),
    "sac": moving(sw.SAC, native=True, target_update_interval=3),
    "td3": moving(sw.TD3, native=True),
    "ddpg": moving(sw.DDPG, native=True),
    "tqc": moving(sw.TQC, n_quantiles=5),
    "crossq": moving(sw.CrossQ, critic_hidden=(8, 8)),
    "dreamer_v3": Learner(sw.DreamerV3, lambda: "CartPole-v1", DREAMER, 48),
    "bc": offline(sw.BC),
    "bc-discrete": offline(sw.BC, discrete=True),
    "td3_bc": offline(sw.TD3BC, native=True),
    "rebrac": offline(sw.ReBRAC),
    "iql": offline(sw.IQL),
    "cql": offline(sw.CQL, n_random_actions=2),
}
TEAMS: dict[str, Learner] = {
    "mappo": Learner(sw.MAPPO, lambda: Roles, {**ROLLOUT, "n_epochs": 2}, 32),
    "mappo-one": Learner(sw.MAPPO, lambda: "CartPole-v1", {**ROLLOUT, "n_epochs": 2}, 32),
    "ippo": Learner(sw.IPPO, lambda: Roles, {**ROLLOUT, "share_policy": False}, 32),
    "vdn": Learner(sw.VDN, lambda: Roles, {**REPLAY, **Q}, 48),
    "vdn-one": choosing(sw.VDN, **Q),
    "qmix": Learner(sw.QMIX, lambda: Roles, {**REPLAY, **Q}, 48),
    "qmix-recurrent": Learner(
        sw.QMIX, lambda: Mortal, {**REPLAY, **Q, "recurrent": "gru", "sequence_length": 4}, 48
    ),
}
"""Those of several agents."""
BOTH_BACKENDS = [
    (name, backend)
    for name, learner in LEARNERS.items()
    for backend in (("native", "torch") if learner.native else ("torch",))
]


def parameters(agent: Any) -> dict[str, Any]:
    """The arrays of an agent or a learner that optimizers move, by the name of the network."""
    found = {}
    for name in agent.optimizers:
        network = agent.networks[name]
        if isinstance(network, torch.nn.Module):
            parts = [p.detach().numpy().ravel() for p in network.parameters()]
            found[name] = np.concatenate(parts)
        else:
            found[name] = network.data.copy()
    return found
