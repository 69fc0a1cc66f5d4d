"""Presets: settings by algorithm and environment, or task of a language model.

`preset_facts` says which of them were run here, and how they did.

Those of environments are RL Baselines3 Zoo's, with the defaults of its library where it names none;
but for PPO on MuJoCo and all of C51, which are CleanRL's, and for PPO on MountainCarContinuous-v0
and all of HybridPPO, IMPALA, APPO, MAPPO and VDN, which were found here, as those of tasks were.
Those of DreamerV3 are its authors' sizes and train ratios, but for `tiny`, which was found here.
What those projects call a linear schedule falls to 0 over the run. A2C on Atari keeps torch's
RMSprop, where the zoo takes TensorFlow's.
"""

from __future__ import annotations

from copy import deepcopy

from sharpwave.config import (
    language_presets,
    on_policy_presets,
    replay_presets,
    world_model_presets,
)
from sharpwave.core.suggest import did_you_mean
from sharpwave.types import Settings

ATARI = "Atari"
"""The name of the preset that every Atari game has."""


SEED = 42
"""Of runs with a preset, which are then the same for everyone."""


def preset(algorithm: str, env_id: str) -> Settings:
    """The settings of an algorithm for an environment: options of its configuration, with a seed.

    Args:
        algorithm: Name of an algorithm, such as `ppo`.
        env_id: Id of a Gymnasium environment, or `Atari`; of a language model, the name of a task.

    Raises:
        ValueError: There are none; the message names the nearest that exist.

    Example:
        >>> preset("ppo", "CartPole-v1")["n_steps"]
        32
    """
    return {"seed": SEED, **settings_of(algorithm, env_id)}


def settings_of(algorithm: str, name: str) -> Settings:
    """The settings of a preset without a seed.

    Raises:
        ValueError: There are none; the message names the nearest that exist.
    """
    settings = find_preset(algorithm, name)
    if settings is None:
        listed = f"`sharpwave list presets` shows those of {', '.join(sorted(PRESETS))}"
        close = did_you_mean(name, presets(algorithm)) or "."
        raise ValueError(f"{algorithm} has no preset for {name!r}{close} {listed}")
    return settings


def find_preset(algorithm: str, env_id: str) -> Settings | None:
    """The settings of an algorithm for an environment, or None where there are none."""
    known = PRESETS.get(algorithm, {})
    name = ATARI if _is_atari(env_id) and env_id not in known else env_id
    return deepcopy(known.get(name))


def presets(algorithm: str) -> list[str]:
    """The environments, or tasks, for which an algorithm has settings.

    Example:
        >>> "CartPole-v1" in presets("a2c")
        True
    """
    return list(PRESETS.get(algorithm, ()))


def _is_atari(env_id: str) -> bool:
    return env_id.startswith("ALE/") or env_id.endswith("NoFrameskip-v4")


PRESETS: dict[str, dict[str, Settings]] = {
    "ppo": on_policy_presets.PPO,
    "hybrid_ppo": on_policy_presets.HYBRID_PPO,
    "a2c": on_policy_presets.A2C,
    "impala": on_policy_presets.IMPALA,
    "appo": on_policy_presets.APPO,
    "mappo": on_policy_presets.MAPPO,
    "ippo": on_policy_presets.MAPPO,
    "vdn": replay_presets.VDN,
    "dqn": replay_presets.DQN,
    "c51": replay_presets.C51,
    "qr_dqn": replay_presets.QR_DQN,
    "sac": replay_presets.SAC,
    "tqc": replay_presets.TQC,
    "crossq": replay_presets.CROSSQ,
    "td3": replay_presets.TD3,
    "ddpg": replay_presets.TD3,
    "dreamer_v3": world_model_presets.DREAMER_V3,
    "grpo": language_presets.GRPO,
    "online_dpo": language_presets.ONLINE_DPO,
    "dpo": language_presets.DPO,
    "kto": language_presets.KTO,
    "sft": language_presets.SFT,
}
"""By the name of the algorithm, then by the id of the environment or the name of the task."""
