"""Checkpoints in rsl_rl's form, and the policies that play scripts get from them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.compat.rsl_rl.runners import OnPolicyRunner
from tests.unit.compat.rsl_rl.robots import config, env_for


def trained(form: int, given: Any = None) -> OnPolicyRunner:
    runner = OnPolicyRunner(env_for(form), config(form) if given is None else given)
    runner.learn(3)
    return runner


def actions(runner: OnPolicyRunner, obs: Any) -> Any:
    return runner.get_inference_policy()(obs)


OBS = {"policy": torch.randn(7, 2), "critic": torch.randn(7, 2)}


@pytest.mark.parametrize("form", [2, 3, 4, 5])
@pytest.mark.parametrize("other", [2, 3, 4, 5])
def test_every_form_is_read_in_every_configuration(tmp_path: Path, form: int, other: int) -> None:
    if 2 in (form, other):  # whose critic looks at another group
        given, wanted = (config(x, obs_groups={"critic": ["critic"]}) for x in (form, other))
    else:
        given, wanted = config(form), config(other)
    runner = trained(form, given)
    runner.save(tmp_path / "model.pt", infos={"note": "kept"})
    again = OnPolicyRunner(env_for(other), wanted)
    assert again.load(tmp_path / "model.pt") == {"note": "kept"}
    assert torch.allclose(actions(again, OBS), actions(runner, OBS), atol=1e-6)
    policy, own = runner.agent.policy, again.agent.policy
    assert torch.allclose(own.values(OBS), policy.values(OBS), atol=1e-6)
    assert torch.allclose(own.spread, policy.spread)
    ours, theirs = (one.agent.learner.optimizers["policy"].arrays() for one in (again, runner))
    for name in ("exp_avg", "exp_avg_sq", "steps", "lr"):
        assert torch.equal(ours[name], theirs[name]), name
    assert again.current_learning_iteration == 2
    assert int(own.features.norm.n) == 3 * 8 * 32


def test_the_layout_is_that_of_the_newest(tmp_path: Path) -> None:
    trained(5).save(tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert sorted(saved) == [
        "actor_state_dict",
        "critic_state_dict",
        "infos",
        "iter",
        "optimizer_state_dict",
    ]
    shapes = {name: tuple(x.shape) for name, x in saved["actor_state_dict"].items()}
    assert shapes == {
        "distribution.std_param": (2,),
        "obs_normalizer._mean": (1, 2),
        "obs_normalizer._var": (1, 2),
        "obs_normalizer._std": (1, 2),
        "obs_normalizer.count": (),
        "mlp.0.weight": (16, 2),
        "mlp.0.bias": (16,),
        "mlp.2.weight": (8, 16),
        "mlp.2.bias": (8,),
        "mlp.4.weight": (2, 8),
        "mlp.4.bias": (2,),
    }


def test_actions_are_those_of_the_formula(tmp_path: Path) -> None:
    """The file alone, in NumPy: normalize, and pass through the layers."""
    runner = trained(3)
    runner.save(tmp_path / "model.pt")
    model = torch.load(tmp_path / "model.pt", weights_only=True)["model_state_dict"]
    state = {name: x.numpy() for name, x in model.items()}
    mean, std = (state[f"actor_obs_normalizer.{name}"] for name in ("_mean", "_std"))
    x = (OBS["policy"].numpy() - mean) / (std + 1e-2)
    for i in (0, 2, 4):
        x = x @ state[f"actor.{i}.weight"].T + state[f"actor.{i}.bias"]
        x = np.where(x > 0, x, np.expm1(x)) if i < 4 else x
    np.testing.assert_allclose(actions(runner, OBS), x, rtol=1e-4, atol=1e-6)


def test_parts_are_loaded_by_name(tmp_path: Path) -> None:
    runner = trained(5)
    runner.save(tmp_path / "model.pt")
    again = OnPolicyRunner(env_for(5), config(5))
    again.load(tmp_path / "model.pt", {"actor": True})
    assert torch.allclose(actions(again, OBS), actions(runner, OBS), atol=1e-6)
    values, others = (one.agent.policy.values(OBS) for one in (runner, again))
    assert not torch.allclose(others, values, atol=1e-2)
    assert again.current_learning_iteration == 0
    assert float(again.agent.learner.optimizers["policy"].arrays()["steps"]) == 0
    again.load(tmp_path / "model.pt", load_optimizer=False)
    assert torch.allclose(again.agent.policy.values(OBS), values, atol=1e-6)
    assert float(again.agent.learner.optimizers["policy"].arrays()["steps"]) == 0


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_no_code_of_a_file_is_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model_state_dict": {}, "infos": Evil()}, tmp_path / "evil.pt")
    runner = OnPolicyRunner(env_for(3), config(3))
    with pytest.raises(ValueError, match=r"evil\.pt must be a checkpoint of tensors, numbers and"):
        runner.load(tmp_path / "evil.pt")
    assert not (tmp_path / "evil").exists()


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    trained(5).save(tmp_path / "model.pt")
    wide, plain = config(5), config(5)
    wide["actor"]["hidden_dims"] = [32, 8]
    plain["actor"]["obs_normalization"] = False
    with pytest.raises(ValueError, match=r"actor of the checkpoint must have shapes .*\(32, 2\)"):
        OnPolicyRunner(env_for(5), wide).load(tmp_path / "model.pt")
    message = "actor of the checkpoint has normalized observations, that of train_cfg has not"
    with pytest.raises(ValueError, match=message):
        OnPolicyRunner(env_for(5), plain).load(tmp_path / "model.pt")
    runner = OnPolicyRunner(env_for(5), config(5))
    torch.save({"weights": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt must be a checkpoint of rsl_rl, got one of"):
        runner.load(tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.pt must be a checkpoint of tensors"):
        runner.load(tmp_path / "text.pt")
    with pytest.raises(FileNotFoundError):
        runner.load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="strict must be True here, got False"):
        runner.load(tmp_path / "model.pt", strict=False)


def test_a_policy_takes_groups_and_rows() -> None:
    runner = trained(3)
    policy: Any = runner.get_inference_policy()
    assert torch.equal(policy(OBS), policy(OBS["policy"]))
    assert torch.equal(policy.act_inference(OBS), policy(OBS))
    assert policy.evaluate(OBS).shape == (7, 1)
    samples = torch.stack([policy.act(OBS) for _ in range(2000)])
    np.testing.assert_allclose(samples.mean(0), policy(OBS), atol=0.1)
    assert torch.equal(policy.action_std, runner.agent.policy.spread)
    assert not policy.training
    runner.train_mode()
    assert policy.training
    runner.eval_mode()
    assert not policy.training


def jit_of(path: Path) -> Any:
    """A module of TorchScript, which torch deprecates and robots run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(path)


@pytest.mark.parametrize("normalizes", [True, False])
def test_policies_are_written_for_robots(tmp_path: Path, normalizes: bool) -> None:
    given = config(5)
    given["actor"]["obs_normalization"] = normalizes
    runner = trained(5, given)
    runner.export_policy_to_jit(str(tmp_path / "exported"))
    expected = actions(runner, OBS)
    module = jit_of(tmp_path / "exported" / "policy.pt")
    assert torch.allclose(module(OBS["policy"]), expected, atol=1e-6)


def test_policies_are_written_as_onnx(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    runner = trained(5)
    runner.export_policy_to_onnx(str(tmp_path / "exported"))
    session = onnxruntime.InferenceSession(tmp_path / "exported" / "policy.onnx")
    assert [one.name for one in session.get_inputs()] == ["obs"]
    (found,) = session.run(["actions"], {"obs": OBS["policy"].numpy()})
    np.testing.assert_allclose(found, actions(runner, OBS), atol=1e-5)


def recurrent(form: int, kind: str) -> dict[str, Any]:
    """A configuration with a memory."""
    given = config(form)
    memory = {"rnn_type": kind, "rnn_hidden_dim": 6, "rnn_num_layers": 1}
    if form <= 3:
        given["policy"] |= {"class_name": "ActorCriticRecurrent", **memory}
    else:
        for role in ("actor", "critic"):
            given[role] |= {"class_name": "RNNModel", **memory}
    return given


@pytest.mark.parametrize(("form", "kind"), [(3, "lstm"), (5, "gru"), (5, "lstm")])
def test_policies_with_a_memory(tmp_path: Path, form: int, kind: str) -> None:
    runner = trained(form, recurrent(form, kind))
    runner.save(tmp_path / "model.pt")
    again = OnPolicyRunner(env_for(form), recurrent(form, kind))
    again.load(tmp_path / "model.pt")
    runner.export_policy_to_jit(str(tmp_path))
    module = jit_of(tmp_path / "policy.pt")
    policy: Any = again.get_inference_policy()
    rows = torch.randn(5, 1, 2)
    first = [policy(row) for row in rows]
    assert not torch.equal(policy(rows[0]), first[0])  # it remembers
    policy.reset()
    for row, expected in zip(rows, first, strict=True):
        assert torch.equal(policy(row), expected)
        assert torch.allclose(module(row), expected, atol=1e-6)
    policy.reset(torch.ones(1))
    assert torch.allclose(policy(rows[0]), first[0], atol=1e-7)
    ours, theirs = (one.agent.learner.optimizers["policy"].arrays() for one in (again, runner))
    assert torch.equal(ours["exp_avg"], theirs["exp_avg"])
