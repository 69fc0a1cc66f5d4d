"""Options of other libraries that are said in another way here, for the errors that name them."""

from __future__ import annotations

__all__ = ["said_elsewhere"]

_NETWORKS = "hidden, activation and ortho_init say what networks are, and policy= takes a module"
_BUFFER = "buffer= takes a replay buffer"
_SHOWN = "callbacks=ProgressCallback() shows a bar, logger=ConsoleLogger() lines"

ELSEWHERE = {
    "actor_hidden_dims": "hidden={'actor': ..., 'critic': ...} says it",
    "actor_obs_normalization": "normalize_obs says it",
    "action_noise": "exploration_noise and noise_type say it",
    "activation_fn": "activation says it",
    "callback": "callbacks= takes them",
    "critic_hidden_dims": "hidden={'actor': ..., 'critic': ...} says it",
    "critic_obs_normalization": "normalize_obs says it",
    "empirical_normalization": "normalize_obs says it",
    "env": "env_id takes the environment, by position too",
    "features_extractor_class": "policy= takes a module",
    "max_iterations": "total_timesteps says it, times n_envs and n_steps",
    "net_arch": "hidden says it",
    "optimize_memory_usage": "observations are stored once anyway",
    "policy_kwargs": _NETWORKS,
    "progress_bar": _SHOWN,
    "replay_buffer_class": _BUFFER,
    "replay_buffer_kwargs": _BUFFER,
    "reset_num_timesteps": "train goes on from where it was",
    "rollout_buffer_class": "a learner= of your own makes other minibatches",
    "schedule": "learning_rate='adaptive' says it",
    "stats_window_size": "mean_return is that of the last 100 episodes, episodes.returns has them",
    "tb_log_name": "TensorBoardLogger takes a folder",
    "tensorboard_log": "logger=TensorBoardLogger(folder) writes it",
    "total_steps": "total_timesteps says it",
    "use_rms_prop": "sharpwave.compat.sb3.A2C takes it",
    "use_sde_at_warmup": "there are random actions before learning_starts",
    "verbose": _SHOWN,
}
"""By name; sharpwave.compat.sb3 takes them as they are."""


def said_elsewhere(name: str) -> str:
    """The end of an error message: what says the same here, or nothing.

    Example:
        >>> said_elsewhere("net_arch")
        ': hidden says it'
    """
    return f": {ELSEWHERE[name]}" if name in ELSEWHERE else ""
