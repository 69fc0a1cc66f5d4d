"""Intrinsic rewards, symmetry and distillation as rsl_rl's configurations ask for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.compat.rsl_rl.runners import DistillationRunner, OnPolicyRunner
from tests.unit.compat.rsl_rl.robots import (
    LabEnv,
    LabWrapper,
    config,
    env_for,
    events_of,
    named,
)

RND = {
    "weight": 50.0,
    "weight_schedule": None,
    "reward_normalization": True,
    "state_normalization": True,
    "learning_rate": 1e-3,
    "num_outputs": 2,
    "predictor_hidden_dims": [-1, 8],
    "target_hidden_dims": [8],
}


def curious(form: int = 5, **changes: Any) -> dict[str, Any]:
    """A configuration with intrinsic rewards for new places."""
    given = config(form, algorithm={"rnd_cfg": {**RND, **changes}})
    if form > 2:
        given["obs_groups"]["rnd_state"] = ["critic"]
    return given


def test_intrinsic_rewards(tmp_path: Path) -> None:
    runner = OnPolicyRunner(env_for(5), curious(), str(tmp_path))
    learner: Any = runner.agent.learner
    assert [x.out_features for x in learner.predictor[::2]] == [2, 8, 2]
    assert learner.unknown.features.size == 2
    runner.learn(6)
    assert float(learner.curiosity_weight) == pytest.approx(50.0 * 0.02)  # of a step of 0.02 s
    assert learner.seen == 6 * 8
    events = events_of(tmp_path)
    scalars = {name: events.Scalars(name)[-1].value for name in events.Tags()["scalars"]}
    extrinsic, intrinsic = (scalars[f"Rnd/mean_{x}trinsic_reward"] for x in ("ex", "in"))
    assert extrinsic < 0 < intrinsic
    assert scalars["Train/mean_reward"] == pytest.approx(extrinsic + intrinsic)
    assert scalars["Rnd/weight"] == pytest.approx(1.0)
    assert scalars["Loss/rnd"] > 0


@pytest.mark.parametrize("form", [2, 5])
def test_intrinsic_rewards_go_on_from_a_checkpoint(tmp_path: Path, form: int) -> None:
    env = env_for(form)
    if form == 2:
        env.unwrapped.observation_manager.compute = lambda: {
            **env.unwrapped.groups(),
            "rnd_state": env.unwrapped.place,
        }
    runner = OnPolicyRunner(env, curious(form))
    if form == 5:
        runner.learn(2)
    runner.save(tmp_path / "model.pt")
    again = OnPolicyRunner(env, curious(form, learning_rate=1e-4))
    again.load(tmp_path / "model.pt")
    ours, theirs = again.alg.saved(0, None).rnd, runner.alg.saved(0, None).rnd
    assert ours is not None
    assert theirs is not None
    assert ours.keys() == theirs.keys()
    assert {name for name, x in theirs.items() if not torch.allclose(ours[name], x)} == set()
    expected = {"predictor.0.weight", "target.2.bias", "state_normalizer._mean"}
    assert expected < ours.keys()


@pytest.mark.parametrize(
    ("schedule", "weights"),
    [
        ({"mode": "constant"}, [1, 1, 1]),
        ({"mode": "step", "final_step": 9, "final_value": 0.1}, [1, 0.1, 0.1]),
        (
            {"mode": "linear", "initial_step": 8, "final_step": 24, "final_value": 0.0},
            [1, 0.5, 0],
        ),
    ],
)
def test_schedules_of_the_weight(schedule: dict[str, Any], weights: list[float]) -> None:
    runner = OnPolicyRunner(env_for(5), curious(weight_schedule=schedule))
    found = []
    for _ in range(3):
        runner.learn(1)
        found.append(float(runner.agent.learner.curiosity_weight))
    assert found == pytest.approx(weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wieght": 1.0}, "rnd_cfg has no entry 'wieght'.*'weight'"),
        ({"weight_schedule": {"mode": "cosine"}}, "weight_schedule.mode must be one of"),
        ({"activation": "mish"}, "rnd_cfg.activation must be one of"),
    ],
)
def test_what_is_not_here_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnPolicyRunner(env_for(5), curious(**changes))


def mirror(env: Any, obs: Any, actions: Any) -> Any:
    """Points seen from the other side, as functions for rsl_rl 3 and later are written."""
    assert env.num_actions == 2
    both = None
    if obs is not None:
        turned = {"policy": 2 - obs["policy"], "critic": -obs["critic"]}
        both = named({name: torch.cat((obs[name], x)) for name, x in turned.items()})
    return both, None if actions is None else torch.cat((actions, -actions))


def mirror_until_2(env: Any, obs: Any, actions: Any, obs_type: str) -> Any:
    """The same for rsl_rl 2: a tensor of one type at a time."""
    if obs is not None:
        obs = torch.cat((obs, 2 - obs if obs_type == "policy" else -obs))
    return obs, None if actions is None else torch.cat((actions, -actions))


def symmetric(form: int, function: Any, **options: Any) -> dict[str, Any]:
    given = {"data_augmentation_func": function, **options}
    return config(form, algorithm={"symmetry_cfg": given})


@pytest.mark.parametrize("form", [2, 5])
@pytest.mark.parametrize(
    "options",
    [
        {"use_data_augmentation": True},
        {"use_mirror_loss": True, "mirror_loss_coeff": 1.0},
        {"use_data_augmentation": True, "use_mirror_loss": True, "mirror_loss_coeff": 0.5},
    ],
)
def test_policies_become_symmetric(form: int, options: dict[str, Any], tmp_path: Path) -> None:
    function = mirror if form == 5 else mirror_until_2

    def asymmetry(given: dict[str, Any]) -> float:
        runner = OnPolicyRunner(env_for(form), given, str(tmp_path))
        runner.learn(8)
        policy: Any = runner.get_inference_policy()
        obs = torch.rand(200, 2) * 4 - 1
        return float((policy(obs) + policy(2 - obs)).square().mean())

    plain = asymmetry(config(form))
    assert asymmetry(symmetric(form, function, **options)) < 0.6 * plain


def test_functions_may_be_given_by_name() -> None:
    for name in (f"{__name__}:mirror", f"{__name__}.mirror"):
        given = symmetric(5, name, use_data_augmentation=True)
        OnPolicyRunner(env_for(5), given).learn(1)
    given = symmetric(5, f"{__name__}:miror", use_data_augmentation=True)
    with pytest.raises(ValueError, match="data_augmentation_func must be a function, or its name"):
        OnPolicyRunner(env_for(5), given)
    with pytest.raises(ValueError, match="symmetry_cfg must be one with use_data_augmentation or"):
        OnPolicyRunner(env_for(5), symmetric(5, mirror))


def test_curiosity_and_symmetry_together() -> None:
    given = curious()
    given["algorithm"]["symmetry_cfg"] = {
        "data_augmentation_func": mirror,
        "use_data_augmentation": True,
    }
    runner = OnPolicyRunner(env_for(5), given)
    runner.learn(2)
    assert runner.agent.learner.seen == 16


def student(form: int) -> dict[str, Any]:
    """A student that sees the place itself, of a teacher that `config` trains."""
    given = config(form)
    given["algorithm"] = {
        "class_name": "Distillation",
        "num_learning_epochs": 2,
        "gradient_length": 4,
        "learning_rate": 3e-3,
        "loss_type": "huber",
    }
    if form == 3:
        given["policy"] = {
            "class_name": "StudentTeacher",
            "student_hidden_dims": [8, 8],
            "teacher_hidden_dims": [16, 8],
            "activation": "elu",
            "init_noise_std": 0.1,
            "teacher_obs_normalization": True,
        }
        given["obs_groups"] = {"policy": ["critic"], "teacher": ["policy"]}
        return given
    model = {"class_name": "MLPModel", "activation": "elu"}
    del given["actor"], given["critic"]
    distribution = {"class_name": "GaussianDistribution", "init_std": 0.1}
    return given | {
        "student": {**model, "hidden_dims": [8, 8], "distribution_cfg": distribution},
        "teacher": {**model, "hidden_dims": [16, 8], "obs_normalization": True},
        "obs_groups": {"student": ["critic"], "teacher": ["policy"]},
    }


@pytest.mark.long
@pytest.mark.parametrize("form", [3, 5])
def test_a_student_learns_from_what_reinforcement_trained(tmp_path: Path, form: int) -> None:
    expert = OnPolicyRunner(env_for(form), config(form))
    expert.learn(10)
    expert.save(tmp_path / "expert.pt")
    runner = DistillationRunner(env_for(form), student(form), str(tmp_path / "logs"))
    with pytest.raises(ValueError, match="a teacher must be loaded before it can teach"):
        runner.learn(1)
    runner.load(tmp_path / "expert.pt")
    assert runner.current_learning_iteration == 0
    runner.learn(60)
    place = torch.rand(200, 2) - 0.5
    obs = {"policy": 4 * place + 1, "critic": place}
    wanted, found = expert.get_inference_policy()(obs), runner.get_inference_policy()(obs)
    assert (found - wanted).square().mean() < 0.15 * wanted.var()
    assert not hasattr(runner.alg.policy, "critic")
    policy: Any = runner.alg.policy
    assert policy.student[0].in_features == 2

    again = DistillationRunner(env_for(form), student(form))
    again.load(tmp_path / "logs" / "model_59.pt")
    assert again.current_learning_iteration == 59
    assert torch.allclose(again.get_inference_policy()(obs), found, atol=1e-6)
    again.learn(1)
    assert math.isfinite(again.alg.learning_rate)


def test_rewards_play_no_part_in_a_distillation(tmp_path: Path) -> None:
    class Worthless(LabEnv):
        def move(self, actions: Any) -> Any:
            rewards, *rest = super().move(actions)
            return torch.zeros_like(rewards), *rest

    expert = OnPolicyRunner(env_for(5), config(5))
    expert.save(tmp_path / "expert.pt")
    weights = []
    for kind in (LabEnv, Worthless):
        runner = DistillationRunner(LabWrapper(kind(16)), student(5))
        runner.load(tmp_path / "expert.pt")
        runner.learn(2)
        policy: Any = runner.alg.policy
        weights.append(policy.student[0].weight.detach().clone())
    assert torch.equal(*weights)
