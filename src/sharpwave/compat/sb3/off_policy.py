"""DQN, SAC, TD3 and their relatives with SB3's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from sharpwave.algorithms import crossq, ddpg, dqn, qr_dqn, sac, td3, tqc
from sharpwave.compat.sb3 import files
from sharpwave.compat.sb3.algorithm import Algorithm
from sharpwave.compat.sb3.networks import PolicyForm
from sharpwave.compat.sb3.noise import noise_options
from sharpwave.compat.sb3.on_policy import LAST, SDE
from sharpwave.compat.sb3.refusals import refuse
from sharpwave.compat.sb3.replay import StoredSteps, replay_options

__all__ = ["DDPG", "DQN", "QRDQN", "SAC", "TD3", "TQC", "CrossQ"]

REPLAY_BUFFER = {
    "replay_buffer_class": None,
    "replay_buffer_kwargs": None,
    "optimize_memory_usage": False,
    "n_steps": 1,
}
EXPLORATION = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
SAME = ("buffer_size", "learning_starts", "batch_size", "gradient_steps")
"""Arguments that are options of the same name."""


class OffPolicy(Algorithm):
    """Base of the algorithms that learn from replay."""

    log_interval = 4
    stores_raw = True

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        options = {name: given[name] for name in SAME}
        if "tau" in given:
            options["tau"] = given["tau"]
        return {
            **options,
            **_train_freq(given["train_freq"]),
            **replay_options(given, self._env),
            "n_step": given["n_steps"],
        }

    @property
    def replay_buffer(self) -> Any:
        """The steps to learn from."""
        return StoredSteps(self.agent.loop.buffer, self.n_envs)

    def save_replay_buffer(self, path: Any) -> None:
        """Write the replay buffer; `.pkl` is added where there is no suffix, but no pickle.

        Args:
            path: The file, or a binary file that is open.
        """
        files.save_replay(self, path)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:  # noqa: ARG002
        """Read a replay buffer that `save_replay_buffer` wrote.

        Args:
            path: The file, or a binary file that is open.
            truncate_last_traj: Without effect: episodes that were under way are cut.
        """
        files.load_replay(self, path)


def _train_freq(train_freq: Any) -> dict[str, int]:
    """The options for a number of steps, or of episodes as `(1, "episode")`."""
    count, unit = train_freq if isinstance(train_freq, tuple | list) else (train_freq, "step")
    unit = str(getattr(unit, "value", unit))
    if unit not in ("step", "episode"):
        raise ValueError(f'unit of train_freq must be "step" or "episode", got {unit!r}')
    return {"train_freq" if unit == "step" else "train_episodes": count}


class DQN(OffPolicy):
    """`sharpwave.DQN` with SB3's arguments: neither double nor dueling.

    Example:
        >>> model = DQN("MlpPolicy", "CartPole-v1", learning_starts=50).learn(200)
        >>> model.num_timesteps, round(model.exploration_rate, 2)
        (200, 0.05)
    """

    Agent: ClassVar[Any] = dqn.DQN
    form = PolicyForm(critic=None)
    arguments = {  # noqa: RUF012 - in SB3's order
        "learning_rate": 1e-4,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "batch_size": 32,
        "tau": 1.0,
        "gamma": 0.99,
        "train_freq": 4,
        "gradient_steps": 1,
        **REPLAY_BUFFER,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "max_grad_norm": 10,
        **LAST,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {
            **super().options(given),
            **{name: given[name] for name in EXPLORATION},
            "double_dqn": False,
            "target_update_freq": given["target_update_interval"],
            "max_grad_norm": given["max_grad_norm"],
        }

    @property
    def exploration_rate(self) -> float:
        """Probability ε of random actions."""
        epsilon: float = self.agent.learner.epsilon
        return epsilon

    def restart(self) -> None:
        """Count from 0 again: exploration begins anew."""
        super().restart()
        self.agent.learner.epsilon = self.agent.config.exploration_initial_eps


class QRDQN(DQN):
    """`sharpwave.QRDQN` with sb3-contrib's arguments.

    Example:
        >>> QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"n_quantiles": 50}).exploration_rate
        1.0
    """

    Agent: ClassVar[Any] = qr_dqn.QRDQN
    form = PolicyForm(critic=None, entries=("n_quantiles",))
    arguments = {  # noqa: RUF012
        **DQN.arguments,
        "learning_rate": 5e-5,
        "exploration_fraction": 0.005,
        "exploration_final_eps": 0.01,
        "max_grad_norm": None,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {**super().options(given), "adam_eps": 0.01 / given["batch_size"]}


FIRST = {
    "learning_rate": 3e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "action_noise": None,
    **REPLAY_BUFFER,
}
"""The first arguments of algorithms with continuous actions."""
TEMPERATURE = {"ent_coef": "auto", "target_update_interval": 1, "target_entropy": "auto"}
LAST_OF_SAC = {**SDE, "use_sde_at_warmup": False, **LAST}
CONTINUOUS: dict[str, Any] = {
    "net_arch": (256, 256),
    "image_net_arch": (256, 256),
    "critic": "qf",
    "shares_features": False,
}


class SAC(OffPolicy):
    """`sharpwave.SAC` with SB3's arguments.

    Example:
        >>> model = SAC("MlpPolicy", "Pendulum-v1", ent_coef="auto_0.1")
        >>> model.agent.config.first_alpha
        0.1
    """

    Agent: ClassVar[Any] = sac.SAC
    form = PolicyForm(**CONTINUOUS, entries=("log_std_init", "n_critics"))
    arguments = {**FIRST, **TEMPERATURE, **LAST_OF_SAC}  # noqa: RUF012

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        for name, default in (("action_noise", None), ("use_sde_at_warmup", False)):
            if given[name] != default:
                raise refuse(name, given[name], repr(default))
        wanted = given["target_entropy"]
        options = {
            **super().options(given),
            "ent_coef": given["ent_coef"],
            "target_entropy": None if wanted == "auto" else float(wanted),
            "use_gsde": given["use_sde"],
            "sde_sample_freq": given["sde_sample_freq"],
        }
        if "target_update_interval" in given:
            options["target_update_interval"] = given["target_update_interval"]
        return options


class TQC(SAC):
    """`sharpwave.TQC` with sb3-contrib's arguments.

    Example:
        >>> TQC("MlpPolicy", "Pendulum-v1").agent.config.top_quantiles_to_drop
        2
    """

    Agent: ClassVar[Any] = tqc.TQC
    form = PolicyForm(**CONTINUOUS, entries=("log_std_init", "n_critics", "n_quantiles"))
    arguments = {  # noqa: RUF012
        **FIRST,
        **TEMPERATURE,
        "top_quantiles_to_drop_per_net": 2,
        **LAST_OF_SAC,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        dropped = given["top_quantiles_to_drop_per_net"]
        return {**super().options(given), "top_quantiles_to_drop": dropped}


class CrossQ(SAC):
    """`sharpwave.CrossQ` with sb3-contrib's arguments.

    Example:
        >>> CrossQ("MlpPolicy", "Pendulum-v1").agent.config.hidden_of("critic")
        (1024, 1024)
    """

    Agent: ClassVar[Any] = crossq.CrossQ
    form = PolicyForm(
        **{**CONTINUOUS, "net_arch": {"pi": (256, 256), "qf": (1024, 1024)}},
        entries=("log_std_init", "n_critics"),
    )
    arguments = {  # noqa: RUF012
        **{name: x for name, x in FIRST.items() if name != "tau"},
        "learning_rate": 1e-3,
        "ent_coef": "auto",
        "target_entropy": "auto",
        "policy_delay": 3,
        **LAST_OF_SAC,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {**super().options(given), "policy_delay": given["policy_delay"]}


class DDPG(OffPolicy):
    """`sharpwave.DDPG` with SB3's arguments.

    Example:
        >>> DDPG("MlpPolicy", "Pendulum-v1").agent.config.hidden
        (400, 300)
    """

    Agent: ClassVar[Any] = ddpg.DDPG
    form = PolicyForm(**{**CONTINUOUS, "net_arch": (400, 300)}, entries=("n_critics",))
    arguments = {  # noqa: RUF012
        **FIRST,
        "learning_rate": 1e-3,
        **{name: x for name, x in LAST.items() if name != "stats_window_size"},
    }
    stats_window_size = 100

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {**super().options(given), **noise_options(given["action_noise"])}


class TD3(DDPG):
    """`sharpwave.TD3` with SB3's arguments.

    Example:
        >>> TD3("MlpPolicy", "Pendulum-v1").agent.config.exploration_noise
        0.0
    """

    Agent: ClassVar[Any] = td3.TD3
    arguments = {  # noqa: RUF012
        **FIRST,
        "learning_rate": 1e-3,
        "policy_delay": 2,
        "target_policy_noise": 0.2,
        "target_noise_clip": 0.5,
        **LAST,
    }

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""
        return {
            **super().options(given),
            "policy_delay": given["policy_delay"],
            "target_noise": given["target_policy_noise"],
            "noise_clip": given["target_noise_clip"],
        }
