"""A preset that names a source has that source's settings, all of them."""

from __future__ import annotations

from typing import Any

import pytest

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.config.presets import PRESETS, preset
from sharpwave.config.schedules import Linear
from tests.unit.algorithms.cleanrl_facts import CLEANRL, OWN
from tests.unit.algorithms.dreamer_facts import DREAMER
from tests.unit.algorithms.zoo_facts import DEFAULTS, ZOO, Facts

NAMES = {
    "n_timesteps": "total_timesteps",
    "clip_range": "clip_eps",
    "normalize_advantage": "normalize_advantages",
    "use_sde": "use_gsde",
    "rms_prop_eps": "rms_eps",
    "target_update_interval": "target_update_freq",
    "double_q": "double_dqn",
    "target_policy_noise": "target_noise",
    "target_noise_clip": "noise_clip",
    "noise_std": "exploration_noise",
    "top_quantiles_to_drop_per_net": "top_quantiles_to_drop",
    "activation_fn": "activation",
    "num_envs": "n_envs",
    "num_steps": "n_steps",
    "minibatch_size": "batch_size",
    "update_epochs": "n_epochs",
    "norm_adv": "normalize_advantages",
    "clip_coef": "clip_eps",
    "target_network_frequency": "target_update_freq",
    "start_e": "exploration_initial_eps",
    "end_e": "exploration_final_eps",
    "train_frequency": "train_freq",
}
"""Their words that are not ours."""
ON_POLICY = ("ppo", "a2c")


def in_our_words(algorithm: str, facts: Facts, *, value_loss_has_half: bool) -> Facts:
    """Options of ours, by their names, that say what the source says."""
    ours: Facts = {}
    for name, value in facts.items():
        if name == "normalize":
            ours["normalize_obs"] = ours["normalize_rewards"] = value
        elif name == "net_arch":
            ours.update(hidden_layers(value))
        elif name == "n_steps" and algorithm not in ON_POLICY:
            ours["n_step"] = value
        elif name == "clip_range_vf":
            ours["clip_vloss"] = value is not None
        elif name == "vf_coef":
            ours["vf_coef"] = value if value_loss_has_half else 2 * value
        elif name == "target_update_interval" and algorithm in ("sac", "tqc", "crossq"):
            ours[name] = value
        else:
            ours[NAMES.get(name, name)] = value
    return {name: as_number(value, ours) for name, value in ours.items()}


def hidden_layers(net_arch: Any) -> Facts:
    """Of both networks alike, or of actor and critic."""
    if isinstance(net_arch, dict):
        return {"hidden": net_arch["pi"], "critic_hidden": net_arch["qf"]}
    return {"hidden": net_arch}


def as_number(value: Any, options: Facts) -> Any:
    """The value that a text of the source stands for."""
    if value == "0.01 / batch_size":
        return 0.01 / options["batch_size"]
    if isinstance(value, str) and value.startswith("lin_"):
        return Linear(float(value.removeprefix("lin_")), 0.0)
    return value


def effective(algorithm: str, env_id: str) -> dict[str, Any]:
    """All options of an agent of this preset, with constants where schedules are."""
    config: Any = algorithm_class(algorithm).Config.from_dict(preset(algorithm, env_id))
    values = {name: getattr(config, name) for name in config.annotations()}
    if values.get("anneal_lr") and isinstance(values["learning_rate"], float):
        values["learning_rate"] = Linear(values["learning_rate"], 0.0)
    return values


CASES = [
    *(("zoo", algorithm, env_id) for algorithm, envs in ZOO.items() for env_id in envs),
    *(("cleanrl", algorithm, env_id) for algorithm, envs in CLEANRL.items() for env_id in envs),
]


@pytest.mark.parametrize(("source", "algorithm", "env_id"), CASES)
def test_a_preset_is_what_its_source_says(source: str, algorithm: str, env_id: str) -> None:
    """Presets said they were the zoo's or CleanRL's and differed: Swimmer, Pendulum, Atari."""
    if source == "zoo":
        facts = {**DEFAULTS[algorithm], **ZOO[algorithm][env_id]}
    else:
        facts = CLEANRL[algorithm][env_id]
    expected = in_our_words(algorithm, facts, value_loss_has_half=source == "cleanrl")
    found = effective(algorithm, env_id)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("name", DREAMER["dreamer_v3"])
def test_sizes_and_kinds_of_tasks_of_dreamer_are_the_authors(name: str) -> None:
    expected = DREAMER["dreamer_v3"][name]
    found = effective("dreamer_v3", name)
    assert {option: found[option] for option in expected} == expected


def test_every_preset_has_a_source() -> None:
    told = {
        (algorithm, env_id)
        for table in (ZOO, CLEANRL, DREAMER, OWN)
        for algorithm, envs in table.items()
        for env_id in envs
    }
    assert told == {(algorithm, env_id) for algorithm, envs in PRESETS.items() for env_id in envs}
