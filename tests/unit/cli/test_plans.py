"""Arguments become the plan of a run: preset, then file, then single options."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import UserError
from sharpwave.cli.train import parser_of, plan_of


def plan(*arguments: str, env: str = "CartPole-v1") -> Plan:
    return plan_of(parser_of(PPO).parse(["ppo", env, *arguments]), PPO)


def config(*arguments: str, env: str = "CartPole-v1") -> PPOConfig:
    return PPOConfig.from_dict(plan(*arguments, env=env).config)


def test_the_preset_of_the_environment_is_the_start() -> None:
    assert config().n_steps == 32
    assert config("--preset").n_steps == 32
    assert config("--no-preset") == PPOConfig()
    assert config(env="FrozenLake-v1") == PPOConfig()


def test_a_file_wins_over_the_preset_and_options_over_both(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('n_steps = 64\nclip_range = "lin_0.1"\ngamma = 0.5\n')
    found = config("--config", str(path), "--gamma", "0.9")
    assert (found.n_steps, found.gamma, found.n_epochs) == (64, 0.9, 20)
    assert str(found.clip_eps) == "linear(0.1, 0.0)"


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--hidden", "256,128"], "hidden", (256, 128)),
        (["--learning_rate", "1e-3"], "learning_rate", 1e-3),
        (["--learning-rate=linear(1e-3, 1e-4)"], "learning_rate", "linear(0.001, 0.0001)"),
        (["--clip-range", "0.3"], "clip_eps", 0.3),
        (["--total-timesteps", "1e6"], "total_timesteps", 1_000_000),
        (["--normalize-obs"], "normalize_obs", True),
        (["--normalize-obs", "false"], "normalize_obs", False),
        (["--no-normalize-advantages"], "normalize_advantages", False),
        (["--target-kl", "none"], "target_kl", None),
        (["--recurrent", "gru"], "recurrent", "gru"),
        (["--log-std-init", "-2"], "log_std_init", -2.0),
        (["--init-noise-std", "1"], "log_std_init", 0.0),
        (["--value-loss-coef", "1.5"], "vf_coef", 3.0),
        (["--learning-rate", "adaptive"], "learning_rate", "adaptive"),
        (["--normalize-obs", "policy"], "normalize_obs", "policy"),
        (["--obs-groups", '{"policy": ["a"]}'], "obs_groups", {"policy": ("a",), "critic": ("a",)}),
    ],
)
def test_every_option_of_the_algorithm_is_an_option(
    arguments: list[str], name: str, value: object
) -> None:
    found = getattr(config(*arguments), name)
    assert (str(found) if isinstance(value, str) else found) == value


def test_what_happens_beside_the_training_is_an_option_too() -> None:
    found = plan("--eval-freq", "0", "--logger", "tensorboard,wandb", "--video")
    assert (found.eval_freq, found.logger, found.video) == (0, ("tensorboard", "wandb"), True)
    assert plan().eval_episodes == 20


def test_every_seed_has_a_folder_and_its_own_config(tmp_path: Path) -> None:
    found = plan("--seeds", "0,2")
    assert found.folders(tmp_path) == [tmp_path / "seed_0", tmp_path / "seed_2"]
    assert [one["seed"] for one in found.configs()] == [0, 2]
    assert plan("--seed", "3").folders(tmp_path) == [tmp_path]
    assert [one["seed"] for one in plan("--seed", "3").configs()] == [3]


def test_seeds_may_be_a_range() -> None:
    assert plan("--seeds", "3..6").seeds == (3, 4, 5, 6)
    for wrong in ("3..", "..3", "5..3", "a..b"):
        with pytest.raises(ValueError, match="--seeds must be"):
            plan("--seeds", wrong)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    found = plan("--seeds", "0,1", "--learning-rate", "lin_1e-3", "--video")
    found.to_json(tmp_path / Plan.file)
    assert Plan.from_file(tmp_path / Plan.file) == found


def test_abbreviations_are_not_guessed() -> None:
    with pytest.raises(UserError, match="unknown option --gam"):
        plan("--gam", "0.9")
