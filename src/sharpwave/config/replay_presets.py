"""Settings of the off-policy algorithms; see `presets`."""

from __future__ import annotations

from sharpwave.config.schedules import Linear
from sharpwave.types import Settings

__all__ = ["C51", "CROSSQ", "DQN", "QR_DQN", "SAC", "TD3", "TQC"]


# The zoo's library and CleanRL let the target network choose its own best action.
_DQN_CARTPOLE: Settings = {
    "double_dqn": False,
    "total_timesteps": 50_000,
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "target_update_freq": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
}
_DQN_ACROBOT: Settings = {
    "double_dqn": False,
    "total_timesteps": 100_000,
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "target_update_freq": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
}
_DQN_MOUNTAIN: Settings = {
    "double_dqn": False,
    "total_timesteps": 120_000,
    "learning_rate": 4e-3,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1000,
    "gamma": 0.98,
    "target_update_freq": 600,
    "train_freq": 16,
    "gradient_steps": 8,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.07,
}
_DQN_ATARI: Settings = {
    "double_dqn": False,
    "total_timesteps": 10_000_000,
    "learning_rate": 1e-4,
    "batch_size": 32,
    "buffer_size": 100_000,
    "frame_stack": 4,
    "learning_starts": 100_000,
    "target_update_freq": 1000,
    "train_freq": 4,
    "gradient_steps": 1,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.01,
    "hidden": (),  # the values stand on the convolutions
}

DQN: dict[str, Settings] = {
    "CartPole-v1": _DQN_CARTPOLE,
    "Acrobot-v1": _DQN_ACROBOT,
    "MountainCar-v0": _DQN_MOUNTAIN,
    "LunarLander-v3": _DQN_ACROBOT,
    "Atari": _DQN_ATARI,
}

_C51_CLASSIC: Settings = {
    "double_dqn": False,
    "max_grad_norm": None,
    "hidden": (120, 84),
    "adam_eps": 0.01 / 128,
    "total_timesteps": 500_000,
    "learning_rate": 2.5e-4,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 10_000,
    "target_update_freq": 500,
    "train_freq": 10,
    "exploration_fraction": 0.5,
    "n_atoms": 101,
    "v_min": -100.0,
    "v_max": 100.0,
}

C51: dict[str, Settings] = {
    "CartPole-v1": _C51_CLASSIC,
    "Acrobot-v1": _C51_CLASSIC,
    "Atari": {
        **_DQN_ATARI,
        "max_grad_norm": None,
        "learning_rate": 2.5e-4,
        "buffer_size": 1_000_000,
        "learning_starts": 80_000,
        "target_update_freq": 10_000,
    },
}

# Its library does not clip gradients, and has an ε of 0.01 / batch_size.
_QR_BATCH_64: Settings = {"max_grad_norm": None, "adam_eps": 0.01 / 64}
_QR_BATCH_128: Settings = {"max_grad_norm": None, "adam_eps": 0.01 / 128}

QR_DQN: dict[str, Settings] = {
    "CartPole-v1": {**_DQN_CARTPOLE, **_QR_BATCH_64, "n_quantiles": 10},
    "Acrobot-v1": {**_DQN_ACROBOT, **_QR_BATCH_128, "n_quantiles": 25},
    "MountainCar-v0": {**_DQN_MOUNTAIN, **_QR_BATCH_128, "n_quantiles": 25},
    "LunarLander-v3": {
        **_QR_BATCH_128,
        "double_dqn": False,
        "total_timesteps": 100_000,
        "learning_rate": Linear(1.5e-3),
        "batch_size": 128,
        "buffer_size": 100_000,
        "learning_starts": 10_000,
        "gamma": 0.995,
        "target_update_freq": 1,
        "train_freq": 256,
        "gradient_steps": -1,
        "exploration_fraction": 0.24,
        "exploration_final_eps": 0.18,
        "n_quantiles": 170,
    },
    "Atari": {
        **_DQN_ATARI,
        "max_grad_norm": None,
        "learning_rate": 5e-5,
        "buffer_size": 1_000_000,
        "learning_starts": 50_000,
        "target_update_freq": 10_000,
        "exploration_fraction": 0.025,
    },
}

_SOFT_MOUNTAIN: Settings = {
    "total_timesteps": 50_000,
    "learning_rate": 3e-4,
    "batch_size": 512,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "train_freq": 32,
    "gradient_steps": 32,
    "gamma": 0.9999,
    "tau": 0.01,
    "ent_coef": 0.1,
    "use_gsde": True,
    "log_std_init": -3.67,
    "hidden": (64, 64),
}
_SOFT_LANDER: Settings = {
    "total_timesteps": 500_000,
    "learning_rate": Linear(7.3e-4),
    "learning_starts": 10_000,
    "tau": 0.01,
    "hidden": (400, 300),
}
_SOFT_WALKER: Settings = {
    "total_timesteps": 500_000,
    "learning_rate": 7.3e-4,
    "buffer_size": 300_000,
    "learning_starts": 10_000,
    "train_freq": 64,
    "gradient_steps": 64,
    "gamma": 0.98,
    "tau": 0.02,
    "use_gsde": True,
    "hidden": (400, 300),
}
_SOFT_MUJOCO: Settings = {"total_timesteps": 1_000_000, "learning_starts": 10_000}
SAC: dict[str, Settings] = {
    "Pendulum-v1": {"total_timesteps": 20_000, "learning_rate": 1e-3, "learning_starts": 100},
    "MountainCarContinuous-v0": _SOFT_MOUNTAIN,
    "LunarLanderContinuous-v3": _SOFT_LANDER,
    "BipedalWalker-v3": _SOFT_WALKER,
    "HalfCheetah-v5": _SOFT_MUJOCO,
    "Hopper-v5": _SOFT_MUJOCO,
    "Walker2d-v5": _SOFT_MUJOCO,
    "Ant-v5": _SOFT_MUJOCO,
    "Humanoid-v5": {**_SOFT_MUJOCO, "total_timesteps": 2_000_000},
    "Swimmer-v5": {**_SOFT_MUJOCO, "gamma": 0.999},
}

TQC: dict[str, Settings] = {**SAC, "Hopper-v5": {**_SOFT_MUJOCO, "top_quantiles_to_drop": 5}}

_CROSSQ_MUJOCO: Settings = {
    "total_timesteps": 5_000_000,
    "learning_starts": 5000,
    "critic_hidden": (2048, 2048),
}
CROSSQ: dict[str, Settings] = {
    "Pendulum-v1": {
        "total_timesteps": 20_000,
        "learning_starts": 100,
        "policy_delay": 2,
        "critic_hidden": (256, 256),
    },
    "LunarLanderContinuous-v3": {"total_timesteps": 200_000, "learning_starts": 10_000},
    "BipedalWalker-v3": {
        "total_timesteps": 200_000,
        "buffer_size": 300_000,
        "learning_starts": 10_000,
        "gamma": 0.98,
    },
    "HalfCheetah-v5": _CROSSQ_MUJOCO,
    "Hopper-v5": _CROSSQ_MUJOCO,
    "Walker2d-v5": _CROSSQ_MUJOCO,
    "Ant-v5": _CROSSQ_MUJOCO,
    "Swimmer-v5": {**_CROSSQ_MUJOCO, "gamma": 0.999},
}

_TD3_ZOO: Settings = {"learning_rate": 1e-3, "hidden": (400, 300)}
_TD3_CLASSIC: Settings = {
    **_TD3_ZOO,
    "buffer_size": 200_000,
    "learning_starts": 10_000,
    "gamma": 0.98,
}
_TD3_MUJOCO: Settings = {**_TD3_ZOO, "total_timesteps": 1_000_000, "learning_starts": 10_000}
TD3: dict[str, Settings] = {
    "Pendulum-v1": {**_TD3_CLASSIC, "total_timesteps": 20_000},
    "MountainCarContinuous-v0": {
        **_TD3_ZOO,
        "total_timesteps": 300_000,
        "learning_starts": 100,
        "noise_type": "ou",
        "exploration_noise": 0.5,
    },
    "LunarLanderContinuous-v3": {**_TD3_CLASSIC, "total_timesteps": 300_000},
    "BipedalWalker-v3": {**_TD3_CLASSIC, "total_timesteps": 1_000_000},
    "HalfCheetah-v5": _TD3_MUJOCO,
    "Hopper-v5": _TD3_MUJOCO,
    "Walker2d-v5": _TD3_MUJOCO,
    "Ant-v5": _TD3_MUJOCO,
    "Swimmer-v5": {**_TD3_MUJOCO, "gamma": 0.9999},
}

VDN: dict[str, Settings] = {
    "mpe2/simple_spread_v3": {
        "total_timesteps": 100_000,
        "gamma": 0.95,
        "hidden": (64, 64),
        "batch_size": 256,
        "learning_starts": 2_000,
        "tau": 0.01,
        "exploration_fraction": 0.3,
    },
}
