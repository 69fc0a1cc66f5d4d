"""PPO, A2C and their relatives with SB3's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave.algorithms import a2c, ppo
from sharpwave.compat.sb3.algorithm import Algorithm
from sharpwave.compat.sb3.networks import PolicyForm
from sharpwave.compat.sb3.refusals import refuse

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.compat.sb3.networks import Networks

__all__ = ["A2C", "PPO", "MaskablePPO", "RecurrentPPO"]

LAST = {
    "stats_window_size": 100,
    "tensorboard_log": None,
    "policy_kwargs": None,
    "verbose": 0,
    "seed": None,
    "device": "auto",
    "_init_setup_model": True,
}
"""The last arguments of every algorithm."""
ROLLOUT_BUFFER = {"rollout_buffer_class": None, "rollout_buffer_kwargs": None}
LOSSES = {"ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5}
CLIPPED = {"clip_range": 0.2, "clip_range_vf": None, "normalize_advantage": True, **LOSSES}
SDE = {"use_sde": False, "sde_sample_freq": -1}
SAME = ("n_steps", "gae_lambda", "ent_coef", "max_grad_norm")
SAME_OF_PPO = (*SAME, "batch_size", "n_epochs", "clip_range", "clip_range_vf", "target_kl")
"""Arguments that are options of the same name."""
ENTRIES = ("ortho_init", "log_std_init")


class OnPolicy(Algorithm):
    """Base of the algorithms that learn from rollouts."""

    form = PolicyForm(entries=ENTRIES, adam_eps=1e-5)

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        for name in ROLLOUT_BUFFER:
            if given.get(name):
                raise refuse(name, given[name], "None")
        options = {
            "vf_coef": 2.0 * given["vf_coef"],  # whose loss has a half here
            "normalize_advantages": given["normalize_advantage"],
        }
        if "use_sde" not in given:
            return options
        return {
            **options,
            "use_gsde": given["use_sde"],
            "sde_sample_freq": given["sde_sample_freq"],
        }


class PPO(OnPolicy):
    """`sharpwave.PPO` with SB3's arguments.

    Example:
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64).learn(128)
        >>> action, _ = model.predict([0.0, 0.1, 0.0, -0.1], deterministic=True)
        >>> model.num_timesteps, action.shape
        (128, ())
    """

    Agent: ClassVar[Any] = ppo.PPO
    arguments = {  # noqa: RUF012 - in SB3's order
        "learning_rate": 3e-4,
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        **CLIPPED,
        **SDE,
        **ROLLOUT_BUFFER,
        "target_kl": None,
        **LAST,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        same = {name: given[name] for name in SAME_OF_PPO}
        return {**super().options(given), **same, "anneal_lr": False}


class MaskablePPO(PPO):
    """`sharpwave.PPO` with sb3-contrib's arguments, whose environments say which actions are valid.

    Example:
        >>> list(MaskablePPO.arguments)[-8:-6]
        ['target_kl', 'stats_window_size']
    """

    has_masks = True
    arguments = {  # noqa: RUF012
        "learning_rate": 3e-4,
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        **CLIPPED,
        **ROLLOUT_BUFFER,
        "target_kl": None,
        **LAST,
    }

    def learn(  # type: ignore[override]  # noqa: D417 - the others are those of `Algorithm`
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        use_masking: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Learn; see `Algorithm.learn`.

        Args:
            use_masking: Must be True.
        """
        if not use_masking:
            raise refuse("use_masking", use_masking, "True")
        return super().learn(
            total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        )

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Actions for an observation or a batch; see `Algorithm.predict`."""
        return super().predict(
            observation, state, episode_start, deterministic, action_masks=action_masks
        )


class RecurrentPPO(PPO):
    """`sharpwave.PPO` with an LSTM and sb3-contrib's arguments.

    Example:
        >>> RecurrentPPO("MlpLstmPolicy", "CartPole-v1").agent.config.recurrent_size
        256
    """

    arguments = {  # noqa: RUF012
        "learning_rate": 3e-4,
        "n_steps": 128,
        "batch_size": 128,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        **CLIPPED,
        **SDE,
        "target_kl": None,
        **LAST,
    }
    form = PolicyForm(entries=(*ENTRIES, "lstm_hidden_size"), adam_eps=1e-5, ends="LstmPolicy")

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {**super().options(given), "recurrent": "lstm", "recurrent_size": 256}

    def _memory(self, states: Any) -> Any:
        """Hidden and cell states of actor and critic, [layers, N, size], as one."""
        return np.concatenate([np.asarray(one) for one in states])

    def _as_states(self, memory: Any) -> Any:
        return tuple(np.array_split(self.agent.learner.array(memory), 2))


class A2C(OnPolicy):
    """`sharpwave.A2C` with SB3's arguments.

    Example:
        >>> A2C("MlpPolicy", "CartPole-v1").learn(100).num_timesteps
        100
    """

    Agent: ClassVar[Any] = a2c.A2C
    log_interval = 100
    arguments = {  # noqa: RUF012
        "learning_rate": 7e-4,
        "n_steps": 5,
        "gamma": 0.99,
        "gae_lambda": 1.0,
        **LOSSES,
        "rms_prop_eps": 1e-5,
        "use_rms_prop": True,
        **SDE,
        **ROLLOUT_BUFFER,
        "normalize_advantage": False,
        **LAST,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        same = {name: given[name] for name in SAME}
        return {**super().options(given), **same, "rms_eps": given["rms_prop_eps"]}

    @property
    def networks(self) -> Networks:
        """Networks that a program asks for, with Adam where RMSprop is not wanted."""
        found = super().networks
        if self._given["use_rms_prop"] or found.optimizer is not None:
            return found
        from dataclasses import replace

        from torch.optim import Adam

        return replace(found, optimizer=Adam, optimizer_kwargs={"eps": 1e-5})
