"""The runner beside rsl_rl's own, of the version that is installed."""

from __future__ import annotations

import copy
from importlib import metadata
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.compat.rsl_rl.runners import DistillationRunner, OnPolicyRunner
from sharpwave.learners.batch import OnPolicyBatch
from tests.unit.compat.rsl_rl.robots import STEPS, config, env_for

theirs = pytest.importorskip("rsl_rl.runners")
FORM = int(metadata.version("rsl-rl-lib").partition(".")[0])


def their_runner(env: Any, folder: Any, given: dict[str, Any], seed: int = 0) -> Any:
    """Their runner; it changes the configuration that it is given, and older ones need a folder."""
    kind = theirs.OnPolicyRunner
    if given["algorithm"]["class_name"] == "Distillation":
        kind = getattr(theirs, "DistillationRunner", kind)
    torch.manual_seed(seed)
    return kind(env, copy.deepcopy(given), str(folder / "theirs"), "cpu")


def save(runner: Any, path: Any) -> None:
    """Some versions need to know the kind of their logger, which `learn` finds out."""
    if not hasattr(runner, "logger"):
        runner.logger_type = "tensorboard"
    runner.save(str(path))


def observations(env: Any) -> Any:
    """Observations in the form that policies take."""
    obs = env.get_observations()
    return obs[0] if isinstance(obs, tuple) else obs


@pytest.mark.long
def test_their_checkpoints_are_read(tmp_path: Any) -> None:
    env = env_for(FORM)
    their = their_runner(env, tmp_path, config(FORM))
    their.learn(8)
    save(their, tmp_path / "model.pt")
    mine = OnPolicyRunner(env, config(FORM))
    mine.load(str(tmp_path / "model.pt"))
    obs = observations(env)
    theirs_policy, policy = their.get_inference_policy(), mine.get_inference_policy()
    with torch.inference_mode():
        np.testing.assert_allclose(policy(obs), theirs_policy(obs), atol=1e-5)
    assert mine.current_learning_iteration == their.current_learning_iteration == 7
    state = their.alg.optimizer.state_dict()
    ours = mine.alg.saved(7, None).optimizer
    assert ours is not None
    for i, one in state["state"].items():
        np.testing.assert_array_equal(ours["state"][i]["exp_avg"], one["exp_avg"])
    assert mine.alg.learning_rate == pytest.approx(their.alg.learning_rate)
    mine.learn(2)


@pytest.mark.long
@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_they_read_what_is_written_here(tmp_path: Any, std_type: str) -> None:
    env = env_for(FORM)
    given = config(FORM)
    if FORM == 5:
        given["actor"]["distribution_cfg"]["std_type"] = std_type
    else:
        given["policy" if FORM < 4 else "actor"]["noise_std_type"] = std_type
    mine = OnPolicyRunner(env, given)
    mine.learn(8)
    mine.save(tmp_path / "model.pt", infos={"note": 3})
    their = their_runner(env, tmp_path, given)
    assert their.load(str(tmp_path / "model.pt")) == {"note": 3}
    obs = observations(env)
    theirs_policy, policy = their.get_inference_policy(), mine.get_inference_policy()
    with torch.inference_mode():
        np.testing.assert_allclose(theirs_policy(obs), policy(obs), atol=1e-5)
    assert their.current_learning_iteration == 7
    their.learn(2)


def steps_of(their: Any, mine: Any) -> OnPolicyBatch:
    """The rollout that their algorithm has stored, as a learner here takes it."""
    storage = their.alg.storage
    rows = {}
    for name in ("actions", "actions_log_prob", "values", "returns"):
        rows[name] = getattr(storage, name).flatten(0, 1).clone()
    stored = storage.observations
    if FORM == 2:
        other = storage.privileged_observations
        obs = {"policy": stored, "critic": stored if other is None else other}
    else:
        obs = {name: stored[name] for name in ("policy", "critic")}
    obs = {name: x.flatten(0, 1).clone() for name, x in obs.items()}
    advantages = (rows["returns"] - rows["values"]).squeeze(1)
    return OnPolicyBatch(
        obs,
        rows["actions"],
        rows["actions_log_prob"].squeeze(1),
        rows["values"].squeeze(1),
        advantages,
        rows["returns"].squeeze(1),
    )


@pytest.mark.skipif(FORM == 2, reason="its runner normalizes what it stores")
@pytest.mark.parametrize("once", [True, False])
def test_the_same_rollout_changes_the_same_weights(tmp_path: Any, once: bool) -> None:
    env = env_for(FORM)
    options = {
        "num_learning_epochs": 4,
        "num_mini_batches": 1,
        "schedule": "fixed",
        "learning_rate": 3e-3,
        "max_grad_norm": 1e9,  # norms are clipped in other parts
        "entropy_coef": 0.01,
        "normalize_advantage_per_mini_batch": not once,
    }
    their = their_runner(env, tmp_path, config(FORM, algorithm=options))
    their.learn(2)
    save(their, tmp_path / "model.pt")
    mine = OnPolicyRunner(env, config(FORM, algorithm=options))
    mine.load(tmp_path / "model.pt")
    their.alg.train_mode() if FORM >= 4 else their.train_mode()
    obs = env.get_observations()
    with torch.inference_mode():
        for _ in range(8):
            actions = their.alg.act(obs)
            obs, rewards, ends, extras = env.step(actions)
            their.alg.process_env_step(obs, rewards, ends, extras)
        their.alg.compute_returns(obs)
    if FORM < 5:  # whose normalizers learn with every step
        save(their, tmp_path / "model.pt")
        mine.load(tmp_path / "model.pt")
    batch = steps_of(their, mine)
    told = their.alg.update()
    metrics = mine.agent.learner.update(batch)
    save(their, tmp_path / "after.pt")
    after = OnPolicyRunner(env, config(FORM, algorithm=options))
    after.load(tmp_path / "after.pt")
    expected = after.agent.policy.state_dict()
    for name, weights in mine.agent.policy.state_dict().items():
        if FORM < 5 and "norm" in name:
            continue
        np.testing.assert_allclose(weights, expected[name], rtol=2e-3, atol=2e-5, err_msg=name)
    value = told.get("value", told.get("value_function"))
    assert 2 * float(metrics["value_loss"]) == pytest.approx(value, rel=1e-3)
    assert float(metrics["policy_loss"]) == pytest.approx(told["surrogate"], abs=1e-5)


@pytest.mark.slow
def test_returns_are_theirs_within_intervals(tmp_path: Any) -> None:
    """The mean returns of the last iterations over seeds, and three of their standard errors."""

    def returns(make: Any) -> np.ndarray:
        found = []
        for seed in range(5):
            env = env_for(FORM, 64, seed)
            runner = make(env, seed)
            runner.learn(60)
            policy, total = runner.get_inference_policy(), torch.zeros(64)
            with torch.inference_mode():
                env.unwrapped.place = env.unwrapped.first()
                env.unwrapped.episode_length_buf.zero_()
                obs = observations(env)
                for _ in range(STEPS - 1):
                    obs, rewards, *_ = env.step(policy(obs))
                    total += rewards
            found.append(float(total.mean()))
        return np.array(found)

    mine = returns(lambda env, seed: OnPolicyRunner(env, config(FORM, seed=seed)))
    expected = returns(lambda env, seed: their_runner(env, tmp_path, config(FORM), seed))
    print("returns here", mine, "and there", expected)
    spread = np.sqrt((mine.var(ddof=1) + expected.var(ddof=1)) / len(mine))
    assert abs(mine.mean() - expected.mean()) <= 3 * spread + 0.02
    assert mine.mean() > -0.3


def distillation(form: int) -> dict[str, Any]:
    """The configuration of a student of what `config` trains."""
    given = config(form)
    given["algorithm"] = {"class_name": "Distillation", "gradient_length": 4, "learning_rate": 3e-3}
    if form <= 3:
        given["policy"] = {
            "class_name": "StudentTeacher",
            "student_hidden_dims": [8, 8],
            "teacher_hidden_dims": [16, 8],
            "activation": "elu",
            "init_noise_std": 0.1,
        }
        if form == 3:
            given["policy"] |= {"teacher_obs_normalization": True}
            given["obs_groups"] = {"policy": ["critic"], "teacher": ["policy"]}
        return given
    distribution = {"class_name": "GaussianDistribution", "init_std": 0.1}
    spread = {"stochastic": True, "init_noise_std": 0.1}
    own: dict[str, Any] = spread if form == 4 else {"distribution_cfg": distribution}
    none: dict[str, Any] = {"stochastic": False} if form == 4 else {}
    model = {"class_name": "MLPModel", "activation": "elu"}
    given["student"] = {**model, "hidden_dims": [8, 8], **own}
    given["teacher"] = {**model, "hidden_dims": [16, 8], "obs_normalization": True, **none}
    given["obs_groups"] = {"student": ["critic"], "teacher": ["policy"]}
    for role in ("actor", "critic"):
        del given[role]
    return given


@pytest.mark.long
@pytest.mark.skipif(FORM == 2, reason="its student looks at the group called policy")
def test_students_are_exchanged(tmp_path: Any) -> None:
    env = env_for(FORM)
    expert = their_runner(env, tmp_path, config(FORM))
    expert.learn(4)
    save(expert, tmp_path / "expert.pt")
    mine = DistillationRunner(env, distribution := distillation(FORM))
    mine.load(tmp_path / "expert.pt")
    mine.learn(20)
    mine.save(tmp_path / "student.pt")
    their = their_runner(env, tmp_path, distribution)
    their.load(str(tmp_path / "student.pt"))
    obs = observations(env)
    with torch.inference_mode():
        expected = their.get_inference_policy()(obs)
        np.testing.assert_allclose(mine.get_inference_policy()(obs), expected, atol=1e-5)
    their.learn(2)


@pytest.mark.skipif(FORM < 5, reason="its writers have another form")
def test_their_writers_are_taken(tmp_path: Any, monkeypatch: Any) -> None:
    """Their writer for Weights & Biases, whose package need not be installed for this."""
    writers = pytest.importorskip("rsl_rl.utils.wandb_log_writer")
    sent: list[tuple[dict[str, float], int]] = []

    class Service:
        init = finish = save = staticmethod(lambda *_, **__: None)
        log = staticmethod(lambda numbers, step: sent.append((numbers, step)))

    monkeypatch.setattr(writers, "wandb", Service)
    logger = {"class_name": "rsl_rl.utils:WandbLogWriter", "project_name": "mine"}
    OnPolicyRunner(env_for(5), config(5, logger=logger), str(tmp_path)).learn(2)
    steps = [step for numbers, step in sent if "Loss/value" in numbers]
    assert steps == [0, 1]
