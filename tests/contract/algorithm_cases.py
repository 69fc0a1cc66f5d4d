"""Every algorithm with settings that make it quick, and environments that it can act in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

import sharpwave as sw
from tests.envs import resumable, resumable_pendulum
from tests.learning import probes

__all__ = ["ANYTHING", "CASES", "Case"]


@dataclass(frozen=True)
class World:
    """Environments that an algorithm can act in.

    Attributes:
        env_id: An id, which `misspelt` is nearly.
        other_id: One with the same kind of actions and other observations.
        sizes: Lengths of their observations.
        resumable: Makes environments that offer their state.
        constant: An environment whose every episode returns 1.
        spaces: Kinds of actions that its algorithms understand.
    """

    env_id: str
    misspelt: str
    other_id: str
    sizes: tuple[int, int]
    resumable: Callable[[], Any]
    constant: type[probes.Probe]
    spaces: tuple[str, ...]


class ConstantForForces(probes.ConstantValue):
    """One step, reward 1, for continuous actions."""

    action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)


CHOICES = World(
    "CartPole-v1",
    "CartPol-v1",
    "Acrobot-v1",
    (4, 6),
    resumable,
    probes.ConstantValue,
    ("Discrete", "MultiDiscrete", "MultiBinary"),
)
ONE_CHOICE = replace(CHOICES, spaces=("Discrete",))
ANYTHING = replace(CHOICES, spaces=(*CHOICES.spaces, "Box"))
FORCES = World(
    "Pendulum-v1",
    "Pendulm-v1",
    "MountainCarContinuous-v0",
    (3, 2),
    resumable_pendulum,
    ConstantForForces,
    ("Box",),
)


@dataclass(frozen=True)
class Case:
    """An algorithm with settings that make it quick, and what it promises beside the rest."""

    cls: Any
    world: World
    metrics: str
    options: dict[str, Any]

    def __call__(self, env: Any = None, **options: Any) -> Any:
        env = self.world.env_id if env is None else env
        return self.cls(env, **{**self.options, **options})

    @property
    def steps_at_once(self) -> int:
        """Environment steps of an update."""
        rows = self.options.get("train_freq") or self.cls.Config(**self.options).n_steps
        return int(rows * self.options["n_envs"])

    @property
    def steps_of_report(self) -> int:
        """Environment steps between two calls of `on_train_batch`."""
        return int(self.options.get("log_interval", self.steps_at_once))


def on_policy(cls: Any, metrics: str, **options: Any) -> Case:
    return Case(cls, ANYTHING, f"policy_loss value_loss entropy {metrics}", options)


def replaying(cls: Any, world: World, metrics: str, **options: Any) -> Case:
    defaults: dict[str, Any] = {
        "n_envs": 4,
        "train_freq": 4,
        "learning_starts": 40,
        "batch_size": 16,
        "hidden": (16, 16),
        "buffer_size": 5000,
        "log_interval": 64,
        "save_buffer": True,
    }
    return Case(cls, world, f"gradient_steps learning_rate {metrics}", {**defaults, **options})


PPO: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2}
IMPALA: dict[str, Any] = {"n_actors": 1, "n_envs": 4, "n_steps": 5, "deterministic": True}
OF_IMPALA = (
    "lag lag_p95 lag_max dropped_unrolls lost_unrolls actors_alive restarts learner_idle "
    "bytes_per_s"
)
APPO: dict[str, Any] = {**IMPALA, "batch_size": 10, "target_update_freq": 2}
OF_PPO = "approx_kl clip_fraction"
OF_DQN = "loss q_value td_error grad_norm epsilon"
OF_SAC = "critic_loss actor_loss alpha alpha_loss entropy q_value"
CASES: dict[str, Case] = {
    "ppo": on_policy(sw.PPO, OF_PPO, **PPO, backend="torch"),
    "ppo-native": on_policy(sw.PPO, OF_PPO, **PPO, backend="native"),
    "ppo-recurrent": on_policy(sw.PPO, OF_PPO, **{**PPO, "n_steps": 16, "recurrent": "lstm"}),
    "ppo-normalized": on_policy(sw.PPO, OF_PPO, **PPO, normalize_obs=True, normalize_rewards=True),
    "hybrid_ppo": on_policy(sw.HybridPPO, f"{OF_PPO} collection_time_pct", **PPO),
    "a2c": on_policy(sw.A2C, "", n_envs=4, n_steps=5, backend="torch"),
    "a2c-native": on_policy(sw.A2C, "", n_envs=4, n_steps=5, backend="native"),
    "a2c-recurrent": on_policy(sw.A2C, "", n_envs=4, n_steps=5, recurrent="gru"),
    "impala": on_policy(sw.IMPALA, OF_IMPALA, **IMPALA, backend="torch"),
    "impala-native": on_policy(sw.IMPALA, OF_IMPALA, **IMPALA, backend="native"),
    "impala-recurrent": on_policy(sw.IMPALA, OF_IMPALA, **IMPALA, recurrent="lstm"),
    "appo": on_policy(sw.APPO, f"{OF_PPO} {OF_IMPALA}", **APPO, backend="torch"),
    "appo-native": on_policy(sw.APPO, f"{OF_PPO} {OF_IMPALA}", **APPO, backend="native"),
    "appo-recurrent": on_policy(sw.APPO, f"{OF_PPO} {OF_IMPALA}", **APPO, recurrent="gru"),
    "mappo": on_policy(sw.MAPPO, OF_PPO, **PPO),
    "ippo-recurrent": on_policy(sw.IPPO, OF_PPO, **{**PPO, "n_steps": 16, "recurrent": "gru"}),
    "dqn": replaying(sw.DQN, CHOICES, OF_DQN, target_update_freq=60, backend="torch"),
    "dqn-native": replaying(sw.DQN, CHOICES, OF_DQN, target_update_freq=60, backend="native"),
    "dqn-native-all": replaying(
        sw.DQN,
        CHOICES,
        OF_DQN,
        dueling=True,
        n_step=3,
        prioritized=True,
        normalize_obs=True,
        normalize_rewards=True,
        overlap=True,
        tau=0.1,
        backend="native",
    ),
    "dqn-rainbow": replaying(
        sw.DQN,
        CHOICES,
        OF_DQN,
        dueling=True,
        noisy=True,
        n_step=3,
        prioritized=True,
        normalize_obs=True,
        target_update_freq=60,
    ),
    "c51": replaying(sw.C51, CHOICES, OF_DQN, n_atoms=11, v_max=50.0, prioritized=True),
    "qr_dqn": replaying(sw.QRDQN, CHOICES, OF_DQN, n_quantiles=7, overlap=True),
    "vdn": replaying(sw.VDN, ONE_CHOICE, OF_DQN, target_update_freq=60),
    "qmix-all": replaying(
        sw.QMIX,
        ONE_CHOICE,
        OF_DQN,
        dueling=True,
        noisy=True,
        n_step=3,
        prioritized=True,
        overlap=True,
    ),
    "qmix-recurrent": replaying(
        sw.QMIX, ONE_CHOICE, OF_DQN, recurrent="gru", recurrent_size=8, sequence_length=5
    ),
    "sac": replaying(sw.SAC, FORCES, OF_SAC, backend="torch"),
    "sac-native": replaying(sw.SAC, FORCES, OF_SAC, backend="native", threads=2),
    "sac-all": replaying(
        sw.SAC,
        FORCES,
        OF_SAC,
        overlap=True,
        prioritized=True,
        n_step=3,
        normalize_obs=True,
        normalize_rewards=True,
        use_gsde=True,
    ),
    "td3": replaying(sw.TD3, FORCES, "critic_loss actor_loss", backend="torch"),
    "td3-native": replaying(sw.TD3, FORCES, "critic_loss actor_loss", backend="native"),
}
