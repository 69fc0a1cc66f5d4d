"""Options that people who train robots know, by their names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from tests.learning import probes
from tests.unit.envs.tensor_envs import Points

PPOConfig: Any = sw.PPOConfig  # aliases are known where it is called
A2CConfig: Any = sw.A2CConfig
SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 16, "hidden": (8,), "seed": 1}


def test_names_mean_the_same() -> None:
    config = PPOConfig(
        num_learning_epochs=5,
        num_mini_batches=4,
        num_steps_per_env=24,
        entropy_coef=0.005,
        value_loss_coef=1.0,
        clip_param=0.3,
        use_clipped_value_loss=True,
        lam=0.9,
        init_noise_std=0.5,
    )
    assert (config.n_epochs, config.n_minibatches, config.n_steps) == (5, 4, 24)
    assert (config.ent_coef, config.clip_eps, config.clip_vloss) == (0.005, 0.3, True)
    assert config.vf_coef == 2.0  # times a loss that has its ½
    assert config.gae_lambda == 0.9
    assert config.log_std_init == math.log(0.5)
    assert PPOConfig.from_dict(config.to_dict()) == config
    text = PPOConfig.from_text({"init_noise_std": "0.5", "value_loss_coef": "1"})
    assert (text.log_std_init, text.vf_coef) == (math.log(0.5), 2.0)
    assert A2CConfig(lam=0.8, num_steps_per_env=7, entropy_coef=0.1).gae_lambda == 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_noise_std": 0}, "init_noise_std must be greater than 0, got 0"),
        ({"init_noise_std": "wide"}, "init_noise_std must be a number, got 'wide'"),
        ({"init_noise_std": 1.0, "log_std_init": 0.0}, "option 'log_std_init' .* given twice"),
        ({"n_minibatches": 0}, "n_minibatches must be greater than 0"),
        ({"n_minibatches": 4, "batch_size": 64}, "batch_size must be 256, .* got 64"),
        ({"clip_actions": 0.0}, "clip_actions must be greater than 0"),
        ({"clip_actions": 1.0, "squash_actions": True}, "clip_actions must be None where squash"),
        ({"noise_std_type": "scalar", "use_gsde": True}, "noise_std_type must be 'log' where use"),
        ({"noise_std_type": "square"}, "noise_std_type must be one of 'log', 'scalar'"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        PPOConfig(**options)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(("count", "steps"), [(1, 1), (4, 4), (5, 5), (100, 64)])
def test_an_epoch_has_as_many_minibatches(backend: str, count: int, steps: int) -> None:
    agent = sw.PPO(
        "CartPole-v1", **SMALL, num_mini_batches=count, num_learning_epochs=3, backend=backend
    )
    agent.train(64)
    assert float(agent.learner.optimizers["policy"].arrays()["steps"]) == 3 * steps


def test_several_learners_divide_their_own_rows() -> None:
    config = PPOConfig(n_envs=6, n_minibatches=4).share(3)
    assert (config.n_envs, config.n_minibatches, config.batch_size) == (2, 4, 256)


class Taken(probes.ContinuousIdentity):
    """A probe that remembers the largest action."""

    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    largest = 0.0

    def step(self, action: Any) -> Any:
        type(self).largest = max(type(self).largest, float(np.abs(action).max()))
        return super().step(action)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_actions_are_clipped_before_the_environment(clip: float | None) -> None:
    Taken.largest = 0.0
    agent = sw.PPO(Taken, **SMALL, clip_actions=clip, env_mode="sync")
    agent.train(128)
    assert Taken.largest == 0.5 if clip else Taken.largest > 1.0
    assert agent.backend_reason == ("clip_actions is 0.5" if clip else NATIVE)
    actions = [abs(float(agent.predict([sign], deterministic=False)[0])) for sign in (-1, 1) * 20]
    assert max(actions) <= 0.5 if clip else max(actions) > 0.5
    agent.close()


NATIVE = "native code knows networks, device and options"


def test_actions_of_tensors_are_clipped_too() -> None:
    env = Watched(4)
    sw.PPO(env, **{**SMALL, "n_envs": env.num_envs}, clip_actions=0.25, backend="torch").train(64)
    assert env.largest == 0.25


class Watched(Points):
    """Points that remember the largest action."""

    largest = 0.0

    def step(self, actions: Any) -> Any:
        self.largest = max(self.largest, float(actions.abs().max()))
        return super().step(actions)


def test_a_deviation_may_be_a_parameter_itself(tmp_path: Path) -> None:
    agent = sw.PPO(probes.ContinuousIdentity, **SMALL, noise_std_type="scalar", init_noise_std=0.5)
    assert agent.backend_reason == "noise_std_type is 'scalar'"
    assert agent.policy.log_std is None
    assert agent.policy.std.tolist() == [0.5]
    agent.train(256)
    assert agent.policy.std.tolist() != [0.5]
    agent.save(tmp_path / "a")
    again = sw.PPO.from_checkpoint(tmp_path / "a", probes.ContinuousIdentity)
    assert torch.equal(again.policy.std, agent.policy.std)
    exported = agent.export(tmp_path / "policy.npz")
    assert exported.exists()


def test_both_deviations_are_one_policy() -> None:
    log, scalar = (
        sw.PPO(
            probes.ContinuousIdentity,
            **SMALL,
            backend="torch",
            noise_std_type=kind,
            init_noise_std=2,
        )
        for kind in ("log", "scalar")
    )
    obs, actions = torch.randn(5, 1), torch.randn(5, 1)
    for one, other in zip(*(x.policy.evaluate(obs, actions) for x in (log, scalar)), strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        scalar.policy.std.fill_(-1.0)  # as a gradient step may leave it
    assert torch.isfinite(scalar.policy.evaluate(obs, obs).entropy).all()
