"""Settings of CleanRL, in its own words, and those found here; see `zoo_facts`."""

from __future__ import annotations

from tests.unit.algorithms.zoo_facts import Facts

_PPO_CONTINUOUS: Facts = {
    "total_timesteps": 1_000_000,
    "learning_rate": "lin_3e-4",
    "num_envs": 1,
    "num_steps": 2048,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "minibatch_size": 64,
    "update_epochs": 10,
    "norm_adv": True,
    "clip_coef": 0.2,
    "clip_vloss": True,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "target_kl": None,
    "normalize": True,
    "hidden": (64, 64),
    "activation": "tanh",
    "ortho_init": True,
}
_C51: Facts = {
    "total_timesteps": 500_000,
    "learning_rate": 2.5e-4,
    "num_envs": 1,
    "n_atoms": 101,
    "v_min": -100.0,
    "v_max": 100.0,
    "buffer_size": 10_000,
    "gamma": 0.99,
    "target_network_frequency": 500,
    "batch_size": 128,
    "start_e": 1.0,
    "end_e": 0.05,
    "exploration_fraction": 0.5,
    "learning_starts": 10_000,
    "train_frequency": 10,
    "hidden": (120, 84),
    "adam_eps": "0.01 / batch_size",
    "double_q": False,
    "max_grad_norm": None,
    "activation": "relu",
}
CLEANRL: dict[str, dict[str, Facts]] = {
    "ppo": {
        f"{name}-v5": _PPO_CONTINUOUS
        for name in (
            "HalfCheetah",
            "Hopper",
            "Walker2d",
            "Ant",
            "Reacher",
            "Swimmer",
            "InvertedPendulum",
        )
    },
    "c51": {
        "CartPole-v1": _C51,
        "Acrobot-v1": _C51,
        "Atari": {
            **_C51,
            "total_timesteps": 10_000_000,
            "n_atoms": 51,
            "v_min": -10.0,
            "v_max": 10.0,
            "buffer_size": 1_000_000,
            "target_network_frequency": 10_000,
            "batch_size": 32,
            "end_e": 0.01,
            "exploration_fraction": 0.1,
            "learning_starts": 80_000,
            "train_frequency": 4,
            "hidden": (),
            "frame_stack": 4,
        },
    },
}

MPE = (
    "mpe2/simple_spread_v3",
    "mpe2/simple_speaker_listener_v4",
    "mpe2/simple_reference_v3",
)

OWN: dict[str, set[str]] = {
    **{name: {"copy4", "sort3", "mod10", "even"} for name in ("grpo", "online_dpo")},
    **{name: {"copy4", "sort3", "mod10"} for name in ("dpo", "kto", "sft")},
    "ppo": {"MountainCarContinuous-v0"},
    "hybrid_ppo": {"CartPole-v1", "Acrobot-v1", "Pendulum-v1"},
    "impala": {"CartPole-v1"},
    "appo": {"CartPole-v1"},
    **{name: {*MPE} for name in ("mappo", "ippo")},
    "vdn": {"mpe2/simple_spread_v3"},
    "dreamer_v3": {"tiny", "CartPole-v1", "Pendulum-v1"},
}
"""The settings found here."""
