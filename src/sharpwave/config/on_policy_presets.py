"""Settings of the on-policy algorithms; see `presets`."""

from __future__ import annotations

from sharpwave.config.schedules import Linear
from sharpwave.types import Settings

__all__ = ["A2C", "APPO", "HYBRID_PPO", "IMPALA", "MAPPO", "PPO"]


_NORMALIZED: Settings = {"normalize_obs": True, "normalize_rewards": True}

# What the zoo leaves to its library's defaults, where ours are others. Its value loss has no ½, so
# its vf_coef is doubled here and below.
_PPO_ZOO: Settings = {
    "vf_coef": 1.0,
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "ent_coef": 0.0,
    "anneal_lr": False,
}
_PPO_LANDER: Settings = {
    **_PPO_ZOO,
    "total_timesteps": 1_000_000,
    "n_envs": 16,
    "n_steps": 1024,
    "n_epochs": 4,
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "ent_coef": 0.01,
}
_PPO_WALKER: Settings = {
    **_PPO_ZOO,
    **_NORMALIZED,
    "n_envs": 32,
    "total_timesteps": 5_000_000,
    "gamma": 0.999,
    "clip_eps": 0.18,
}
_PPO_MUJOCO: Settings = {
    **_NORMALIZED,
    "total_timesteps": 1_000_000,
    "n_envs": 1,
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "learning_rate": Linear(3e-4),
    "anneal_lr": False,
    "ent_coef": 0.0,
    "clip_vloss": True,
}

PPO: dict[str, Settings] = {
    "CartPole-v1": {
        "total_timesteps": 100_000,
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "learning_rate": Linear(1e-3),
        "clip_eps": Linear(0.2),
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "ent_coef": 0.0,
        "vf_coef": 1.0,
        "anneal_lr": False,
    },
    "Acrobot-v1": {
        **_PPO_ZOO,
        **_NORMALIZED,
        "total_timesteps": 1_000_000,
        "n_envs": 16,
        "n_steps": 256,
        "n_epochs": 4,
        "gae_lambda": 0.94,
    },
    "MountainCar-v0": {
        **_PPO_ZOO,
        **_NORMALIZED,
        "total_timesteps": 1_000_000,
        "n_envs": 16,
        "n_steps": 16,
        "n_epochs": 4,
        "gae_lambda": 0.98,
    },
    # Found here: with the zoo's (one environment, 20,000 steps) every third seed stays below,
    # in the zoo's own library too. Eight environments hold their noise for 64 steps.
    "MountainCarContinuous-v0": {
        **_PPO_ZOO,
        **_NORMALIZED,
        "total_timesteps": 100_000,
        "n_envs": 8,
        "n_steps": 64,
        "batch_size": 128,
        "learning_rate": Linear(1e-3),
        "gamma": 0.9999,
        "gae_lambda": 0.9,
        "use_gsde": True,
        "log_std_init": -1.0,
        "ortho_init": False,
    },
    "Pendulum-v1": {
        **_PPO_ZOO,
        "total_timesteps": 100_000,
        "n_envs": 4,
        "n_steps": 1024,
        "learning_rate": 1e-3,
        "gamma": 0.9,
        "use_gsde": True,
        "sde_sample_freq": 4,
    },
    "LunarLander-v3": _PPO_LANDER,
    "LunarLanderContinuous-v3": _PPO_LANDER,
    "BipedalWalker-v3": _PPO_WALKER,
    "HalfCheetah-v5": _PPO_MUJOCO,
    "Hopper-v5": _PPO_MUJOCO,
    "Walker2d-v5": _PPO_MUJOCO,
    "Ant-v5": _PPO_MUJOCO,
    "Reacher-v5": _PPO_MUJOCO,
    "Swimmer-v5": _PPO_MUJOCO,
    "InvertedPendulum-v5": _PPO_MUJOCO,
    "Atari": {
        "total_timesteps": 10_000_000,
        "n_envs": 8,
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 4,
        "learning_rate": Linear(2.5e-4),
        "clip_eps": Linear(0.1),
        "hidden": (),  # the heads stand on the convolutions
        "vf_coef": 1.0,
        "anneal_lr": False,
    },
}

_A2C_GSDE: Settings = {
    **_NORMALIZED,
    "n_steps": 8,
    "learning_rate": Linear(7e-4),
    "gae_lambda": 0.9,
    "vf_coef": 0.8,
    "ent_coef": 0.0,
    "use_gsde": True,
    "log_std_init": -2.0,
    "ortho_init": False,
}
_A2C_ZOO: Settings = {"vf_coef": 1.0, "ent_coef": 0.0}
_A2C_MUJOCO: Settings = {
    **_A2C_ZOO,
    **_NORMALIZED,
    "total_timesteps": 1_000_000,
    "n_envs": 1,
}

A2C: dict[str, Settings] = {
    "CartPole-v1": {"total_timesteps": 500_000, "n_envs": 8, **_A2C_ZOO},
    "Acrobot-v1": {**_NORMALIZED, "total_timesteps": 500_000, "n_envs": 16, **_A2C_ZOO},
    "MountainCar-v0": {**_NORMALIZED, "total_timesteps": 1_000_000, "n_envs": 16, **_A2C_ZOO},
    "MountainCarContinuous-v0": {
        **_NORMALIZED,
        "total_timesteps": 100_000,
        "n_envs": 4,
        "n_steps": 100,
        **_A2C_ZOO,
        "use_gsde": True,
        "sde_sample_freq": 16,
        "ortho_init": False,
    },
    "Pendulum-v1": {**_A2C_GSDE, "total_timesteps": 1_000_000, "n_envs": 8, "gamma": 0.9},
    "LunarLander-v3": {
        "total_timesteps": 200_000,
        "n_envs": 8,
        "learning_rate": Linear(8.3e-4),
        "gamma": 0.995,
        "vf_coef": 1.0,
        "ent_coef": 1e-5,
    },
    "LunarLanderContinuous-v3": {**_A2C_GSDE, "total_timesteps": 5_000_000, "n_envs": 4},
    "BipedalWalker-v3": {
        **_A2C_GSDE,
        "total_timesteps": 5_000_000,
        "n_envs": 16,
        "learning_rate": Linear(9.6e-4),
    },
    "HalfCheetah-v5": _A2C_MUJOCO,
    "Hopper-v5": _A2C_MUJOCO,
    "Walker2d-v5": _A2C_MUJOCO,
    "Ant-v5": _A2C_MUJOCO,
    "Swimmer-v5": {**_A2C_MUJOCO, "gamma": 0.9999},
    "Atari": {
        "total_timesteps": 10_000_000,
        "n_envs": 16,
        "hidden": (),
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    },
}

# Found by trying on seeds 1 to 17. Of 20 others, Pendulum-v1 ends between -294 and -152, and
# Acrobot-v1 between -91 and -79 but for one.
_HYBRID: Settings = {"learning_rate": 3e-3, "ent_coef": 0.0, "total_timesteps": 100_000}
_OF_PENDULUM: Settings = {"learning_rate": 1e-3, "gamma": 0.9, "n_epochs": 10, "batch_size": 128}
HYBRID_PPO: dict[str, Settings] = {
    "CartPole-v1": _HYBRID,
    "Acrobot-v1": {**_HYBRID, "learning_rate": 1e-3, "ent_coef": 0.01, "total_timesteps": 200_000},
    "Pendulum-v1": {**_HYBRID, **_OF_PENDULUM, "n_envs": 8, "total_timesteps": 200_000},
}

# Found here: on seeds 101 to 108 the best three evaluations in a row give 482 to 500; with unrolls
# of 64 steps, which learn faster at first, 454 to 500.
IMPALA: dict[str, Settings] = {"CartPole-v1": {"n_steps": 128, "total_timesteps": 1_000_000}}

# Found here: on seeds 1 to 3 the last evaluations give 500, and after 100,000 steps 489 to 500,
# where a rate of 1e-3 gives 298 to 500.
APPO: dict[str, Settings] = {"CartPole-v1": {"learning_rate": 3e-3, "total_timesteps": 500_000}}

# Episodes of 25 steps are cut, and go on in value. At a discount of 0.99 most of a value would be
# that of steps nobody sees: agents learn to leave for where their critics expect the best.
_MPE: Settings = {"n_envs": 64, "n_steps": 25, "gamma": 0.95, "total_timesteps": 400_000}
MAPPO: dict[str, Settings] = {
    f"mpe2/{name}": _MPE
    for name in ("simple_spread_v3", "simple_speaker_listener_v4", "simple_reference_v3")
}
