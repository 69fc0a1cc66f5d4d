"""The tasks that algorithms learn beside Stable-Baselines3, with the settings of each side.

Settings are rl-baselines3-zoo's where it has some; those of PPO on MuJoCo are CleanRL's, but for
clipped values, which each side means differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

OURS, PEER = "sharpwave", "SB3"


@dataclass(frozen=True)
class Linear:
    """A value that falls from `start` to 0 over the run."""

    start: float


@dataclass(frozen=True)
class Task:
    """One thing to learn, and the settings of each side.

    Attributes:
        seeds: Runs of each side.
        episodes: Episodes of each evaluation.
        n_envs: Environments at a time.
        network: Widths of the hidden layers.
        normalized: Normalize observations and rewards.
        shared: Options that have the same name and meaning on both sides.
        ours: Our names of the others.
        theirs: SB3's names of the same.
        published: The return that rl-baselines3-zoo's benchmark.md has of its one run with these
            settings and steps, in the version of the environment at the time.
    """

    algorithm: str
    env: str
    steps: int
    eval_every: int
    seeds: int = 5
    episodes: int = 10
    n_envs: int = 1
    network: tuple[int, ...] = (256, 256)
    normalized: bool = False
    shared: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    published: float | None = None

    @property
    def learns_from_replay(self) -> bool:
        """It learns from stored steps; from the first 100 on, if nothing else is said."""
        return self.algorithm != "PPO"

    def options(self, contender: str) -> dict[str, Any]:
        """All options of one side, in the form it takes."""
        options = {"learning_starts": 100} if self.learns_from_replay else {}
        options |= {**self.shared, **(self.ours if contender == OURS else self.theirs)}
        form = _our_form if contender == OURS else _their_form
        return {name: form(value) for name, value in options.items()}

    def our_settings(self) -> dict[str, Any]:
        """All settings of our side."""
        settings = {"n_envs": self.n_envs, "hidden": self.network, **self.options(OURS)}
        if self.normalized:
            settings |= {"normalize_obs": True, "normalize_rewards": True}
        return settings


def _our_form(value: Any) -> Any:
    return f"linear({value.start})" if isinstance(value, Linear) else value


def _their_form(value: Any) -> Any:
    return (lambda left: left * value.start) if isinstance(value, Linear) else value


def ppo(
    env: str,
    steps: int,
    n_envs: int,
    clip: Any = 0.2,
    published: float | None = None,
    **shared: Any,
) -> Task:
    # Our loss of values has a factor of one half.
    return Task(
        "PPO",
        env,
        steps,
        steps // 20,
        seeds=10,
        n_envs=n_envs,
        network=(64, 64),
        shared={"n_epochs": 4, "batch_size": 64, "ent_coef": 0.0, **shared},
        ours={"vf_coef": 1.0, "clip_eps": clip, "anneal_lr": False},
        theirs={"vf_coef": 0.5, "clip_range": clip},
        published=published,
    )


def ppo_mujoco(env: str) -> Task:
    task = ppo(env, 1_000_000, 1, n_steps=2048, n_epochs=10, learning_rate=Linear(3e-4))
    ours, theirs = {**task.ours, "vf_coef": 0.5}, {**task.theirs, "vf_coef": 0.25}
    return replace(task, episodes=5, normalized=True, ours=ours, theirs=theirs)


def dqn(
    env: str,
    steps: int,
    target: int,
    fraction: float,
    final: float,
    published: float | None = None,
    **shared: Any,
) -> Task:
    return Task(
        "DQN",
        env,
        steps,
        steps // 10,
        shared={"exploration_fraction": fraction, "exploration_final_eps": final, **shared},
        ours={"double_dqn": False, "target_update_freq": target, "max_grad_norm": 10},
        theirs={"target_update_interval": target},
        published=published,
    )


def qr_dqn(env: str, quantiles: int, **options: Any) -> Task:
    task = dqn(env, **options)
    return replace(
        task,
        algorithm="QRDQN",
        ours={
            **task.ours,
            "n_quantiles": quantiles,
            "max_grad_norm": None,
            "adam_eps": 0.01 / task.shared["batch_size"],
        },
        theirs={**task.theirs, "policy_kwargs": {"n_quantiles": quantiles}},
    )


def soft(algorithm: str, env: str, **shared: Any) -> Task:
    """SAC, TQC or CrossQ in MuJoCo."""
    return Task(
        algorithm, env, 100_000, 10_000, episodes=5, shared={"learning_starts": 10_000, **shared}
    )


def td3(env: str, steps: int, network: tuple[int, ...], **shared: Any) -> Task:
    return Task("TD3", env, steps, steps // 10, 5, 5, 1, network, shared=shared)


_DQN_CARTPOLE: dict[str, Any] = {
    "steps": 50_000,
    "target": 10,
    "fraction": 0.16,
    "final": 0.04,
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "train_freq": 256,
    "gradient_steps": 128,
    "published": 500.0,
}
_TD3_MUJOCO: dict[str, Any] = {
    "steps": 100_000,
    "network": (400, 300),
    "learning_rate": 1e-3,
    "learning_starts": 10_000,
}

TASKS = {
    "PPO CartPole": ppo(
        "CartPole-v1",
        100_000,
        8,
        clip=Linear(0.2),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=Linear(1e-3),
        published=500.0,
    ),
    "PPO Acrobot": replace(
        ppo("Acrobot-v1", 1_000_000, 16, n_steps=256, gae_lambda=0.94, learning_rate=3e-4),
        normalized=True,
        published=-73.506,
    ),
    "PPO LunarLander": ppo(
        "LunarLander-v3",
        1_000_000,
        16,
        n_steps=1024,
        gamma=0.999,
        gae_lambda=0.98,
        ent_coef=0.01,
        learning_rate=3e-4,
        published=242.119,
    ),
    "PPO HalfCheetah": ppo_mujoco("HalfCheetah-v5"),
    "SAC HalfCheetah": soft("SAC", "HalfCheetah-v5"),
    "SAC Hopper": soft("SAC", "Hopper-v5"),
    "TD3 HalfCheetah": td3("HalfCheetah-v5", **_TD3_MUJOCO),
    "TD3 Hopper": td3("Hopper-v5", **_TD3_MUJOCO),
    "DQN CartPole": dqn("CartPole-v1", **_DQN_CARTPOLE),
    "QRDQN CartPole": qr_dqn("CartPole-v1", 10, **_DQN_CARTPOLE),
    "DQN LunarLander": dqn(
        "LunarLander-v3",
        100_000,
        target=250,
        fraction=0.12,
        final=0.1,
        learning_rate=6.3e-4,
        batch_size=128,
        buffer_size=50_000,
        learning_starts=200,
        train_freq=4,
        gradient_steps=-1,
        published=154.382,
    ),
    "QRDQN LunarLander": qr_dqn(
        "LunarLander-v3",
        170,
        steps=100_000,
        target=1,
        fraction=0.24,
        final=0.18,
        learning_rate=Linear(1.5e-3),
        batch_size=128,
        buffer_size=100_000,
        learning_starts=10_000,
        gamma=0.995,
        train_freq=256,
        gradient_steps=-1,
        published=70.236,
    ),
    "PPO Hopper": ppo_mujoco("Hopper-v5"),
    "PPO Walker2d": ppo_mujoco("Walker2d-v5"),
    "PPO BipedalWalker": replace(
        ppo(
            "BipedalWalker-v3",
            1_000_000,
            32,
            clip=0.18,
            n_steps=2048,
            n_epochs=10,
            gamma=0.999,
            learning_rate=3e-4,
        ),
        normalized=True,
    ),
    "TQC HalfCheetah": soft("TQC", "HalfCheetah-v5"),
    "TQC Hopper": replace(
        soft("TQC", "Hopper-v5"),
        ours={"top_quantiles_to_drop": 5},
        theirs={"top_quantiles_to_drop_per_net": 5},
    ),
    "SAC Walker2d": soft("SAC", "Walker2d-v5"),
    "TD3 Walker2d": td3("Walker2d-v5", **_TD3_MUJOCO),
    "TQC Walker2d": soft("TQC", "Walker2d-v5"),
    **{
        f"CrossQ {env.partition('-')[0]}": replace(
            soft("CrossQ", env, learning_starts=5000),
            ours={"critic_hidden": (1024, 1024)},
            theirs={"policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [1024, 1024]}}},
        )
        for env in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
    },
    "SAC Pendulum": Task("SAC", "Pendulum-v1", 10_000, 1000, shared={"learning_rate": 1e-3}),
    "TD3 Pendulum": replace(
        td3(
            "Pendulum-v1",
            10_000,
            (400, 300),
            learning_rate=1e-3,
            gamma=0.98,
            buffer_size=200_000,
            learning_starts=1000,
        ),
        episodes=10,
    ),
}
"""The first are run first."""
