"""A trainer is an algorithm by name, with its settings and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sharpwave import A2C, PPO, PPOConfig, Trainer, llm
from sharpwave.nn import Transformer

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 32, "batch_size": 64, "n_epochs": 1}


def test_the_algorithm_is_found_by_name_or_class() -> None:
    assert type(Trainer("ppo", **SMALL).algo) is PPO
    assert type(Trainer("A2C", n_envs=2).algo) is A2C
    assert type(Trainer(A2C, n_envs=2).algo) is A2C
    with pytest.raises(ValueError, match="unknown algorithm 'pppo'; did you mean 'ppo'"):
        Trainer("pppo")


def test_single_options_win_over_the_config(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("gamma: 0.5\nn_envs: 3\n")
    for config in ({"gamma": 0.5, "n_envs": 3}, PPOConfig(gamma=0.5, n_envs=3), path, str(path)):
        trainer = Trainer("ppo", seed=7, config=config, n_envs=2)
        assert trainer.algo.config == PPOConfig(gamma=0.5, n_envs=2, seed=7)
        assert trainer.algo.seed == 7


def test_bad_options_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option 'gama' of PPOConfig; did you mean 'gamma'"):
        Trainer("ppo", gama=0.5)
    with pytest.raises(TypeError, match="config must be options or a file that holds them, got 3"):
        Trainer("ppo", config=3)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_whole_run(tmp_path: Path) -> None:
    trainer = Trainer("ppo", env="CartPole-v1", run_dir=tmp_path / "run", **SMALL)
    metrics = trainer.train(128)
    assert metrics["timesteps"] == 128
    assert len(trainer.evaluate(3).returns) == 3
    assert trainer.predict(trainer.env.reset(seed=0)[0]).shape == (2,)
    assert (tmp_path / "run" / "report.html").is_file()
    trainer.save(tmp_path / "saved.safetensors")
    again = Trainer.from_checkpoint(tmp_path / "saved.safetensors")
    assert type(again.algo) is PPO
    assert again.algo.timesteps == 128
    obs = [[0.1, 0.0, -0.1, 0.0]]
    assert again.predict(obs) == trainer.predict(obs)
    trainer.close()
    again.close()


@pytest.mark.long
def test_a_language_model_is_trained_by_name(tmp_path: Path) -> None:
    task = llm.TASKS["copy4"]
    source: dict[str, Any] = {"prompts": task.prompts(8), "reward_fn": task.reward}
    trainer = Trainer(
        "grpo",
        seed=4,
        config={"max_new_tokens": 4, "n_prompts": 2, "kl_coef": 0.0},
        run_dir=tmp_path / "run",
        model=Transformer(14, hidden=16),
        tokenizer=llm.DigitTokenizer(),
        **source,
    )
    assert trainer.train(2)["timesteps"] == 2
    assert trainer.algo.seed == 4
    assert len(trainer.evaluate(3).returns) == 3
    trainer.save(tmp_path / "saved.safetensors")
    again = Trainer.from_checkpoint(tmp_path / "saved.safetensors", **source)
    for deterministic in (True, False):
        assert again.predict(["12="], deterministic) == trainer.predict(["12="], deterministic)
    with pytest.raises(TypeError, match="env must not be given: grpo has no environment"):
        Trainer("grpo", "CartPole-v1", model=Transformer(14, hidden=16), **source)
    rows = task.examples(8)
    sft = Trainer("sft", dataset=rows, model=Transformer(14), tokenizer=llm.DigitTokenizer())
    assert sft.train(1)["timesteps"] == 1


def test_the_seed_of_the_config_is_kept() -> None:
    options = {"seed": 9, "n_examples": 2}
    assert Trainer("sft", config=options, model=Transformer(14, hidden=16)).algo.seed == 9
