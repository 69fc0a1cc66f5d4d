"""Policies in files do what `predict` does, computed by what knows nothing of the library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime as runtime
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.types import Array

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "hidden": (16, 8), "seed": 0}
REPLAY: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "hidden": (16,), "seed": 0}
TABLE = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)


class Noise(gym.Env[Any, Any]):
    """Observations of noise, and any actions."""

    def __init__(self, action_space: spaces.Space[Any], space: spaces.Space[Any] = TABLE) -> None:
        self.action_space, self.observation_space = action_space, space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._noise(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.t += 1
        return self._noise(), 1.0, self.t > 20, False, {}

    def _noise(self) -> Any:
        shape = self.observation_space.shape
        return self.np_random.normal(3.0, 2.0, shape).astype(self.observation_space.dtype)


def ppo(action_space: spaces.Space[Any], **options: Any) -> Any:
    return sw.PPO(partial(Noise, action_space), **SMALL, **options)


def offline(kind: Any) -> Any:
    data = sw.datasets.make_dataset("Pendulum-v1", "mixed", n_steps=200)
    return kind(data, env="Pendulum-v1", hidden=(16,), seed=0)


BOUNDED = spaces.Box(np.array([-1.0, 0.0], "f"), np.array([0.5, 3.0], "f"))
AGENTS: dict[str, Callable[[], Any]] = {
    "ppo": lambda: sw.PPO("CartPole-v1", **SMALL),
    "normalized": lambda: ppo(spaces.Discrete(3, start=-1), normalize_obs=True),
    "choices": lambda: ppo(spaces.MultiDiscrete([3, 2], start=[1, -1]), activation="elu"),
    "bits": lambda: ppo(spaces.MultiBinary(3), activation="leaky_relu"),
    "clipped": lambda: ppo(BOUNDED, activation="relu", log_std_init=1.0),
    "selu": lambda: ppo(BOUNDED, activation="selu", log_std_init=1.0),
    "gelu": lambda: ppo(spaces.Discrete(3), activation="gelu"),
    "silu": lambda: ppo(BOUNDED, activation="silu", log_std_init=1.0),
    "clip_actions": lambda: ppo(BOUNDED, clip_actions=0.4, log_std_init=1.0),
    "squashed": lambda: ppo(BOUNDED, squash_actions=True),
    "unbounded": lambda: ppo(spaces.Box(-np.inf, np.inf, (2,))),
    "a2c-torch": lambda: sw.A2C("CartPole-v1", n_envs=2, hidden=(16,), seed=0, backend="torch"),
    "sac": lambda: sw.SAC("Pendulum-v1", **REPLAY),
    "td3": lambda: sw.TD3("Pendulum-v1", **REPLAY),
    "dqn": lambda: sw.DQN("CartPole-v1", **REPLAY),
    "dueling": lambda: sw.DQN("CartPole-v1", dueling=True, **REPLAY),
    "discrete_sac": lambda: sw.DiscreteSAC("CartPole-v1", **REPLAY),
    "bc": lambda: offline(sw.BC),
    "iql": lambda: offline(sw.IQL),
    "td3_bc": lambda: offline(sw.TD3BC),
}
QUICK = ["ppo", "normalized"]


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Any:
    made = AGENTS[request.param]()
    made.train(40)
    yield made
    made.close()


def observations(agent: Any) -> Array:
    rng = np.random.default_rng(7)
    return rng.normal(1.0, 2.0, (64, *agent.observation_space.shape)).astype(np.float32)


def check(agent: Any, found: Array, obs: Array) -> None:
    expected = np.asarray(agent.predict(obs)).reshape(len(obs), -1)
    np.testing.assert_allclose(np.asarray(found).reshape(len(obs), -1), expected, atol=1e-5)
    assert len(np.unique(expected)) > 1  # of a policy that does always the same nothing is seen


def arrays_of(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.long(but=QUICK)
def test_arrays_are_enough_for_numpy(agent: Any, tmp_path: Path) -> None:
    file = arrays_of(agent.export(tmp_path / "policy.npz"))
    about, obs = json.loads(str(file["about"])), observations(agent)
    activation: Any = {
        "tanh": np.tanh,
        "relu": lambda x: x * (x > 0),
        "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
        "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
        "selu": lambda x: torch.selu(torch.from_numpy(x)).numpy(),
        "gelu": lambda x: torch.nn.functional.gelu(torch.from_numpy(x)).numpy(),
        "silu": lambda x: x / (1 + np.exp(-x)),
    }[about["activation"]]
    x = (obs.reshape(len(obs), -1) - file["mean"]) * file["scale"]
    x = np.clip(x, -file["clip"], file["clip"])
    n_layers = sum(name.startswith("weight_") for name in file)
    for i in range(n_layers):
        x = x @ file[f"weight_{i}"].T + file[f"bias_{i}"]
        x = activation(x) if i < n_layers - 1 else x
    if "argmax" in about["action"]:
        parts = np.split(x, np.cumsum(file["options"])[:-1], axis=1)
        found = np.stack([part.argmax(1) for part in parts], 1) + file["start"]
    elif "outputs > 0" in about["action"]:
        found = x > 0
    else:
        squashed = file["bias"] + file["factor"] * np.tanh(x) if "tanh" in about["action"] else x
        found = np.clip(squashed, file["low"], file["high"])
    check(agent, found, obs)


@pytest.mark.long(but=QUICK)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_header_is_enough_for_c(agent: Any, tmp_path: Path) -> None:
    agent.export(tmp_path / "2nd-policy.h")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "2nd-policy.h"\n'
        "int main(void) {\n"
        "  float obs[_2ND_POLICY_INPUTS];\n"
        f"  {kind_of(agent)} action[_2ND_POLICY_ACTIONS];\n"
        "  while (fread(obs, sizeof obs, 1, stdin) == 1) {\n"
        "    _2nd_policy_act(obs, action);\n"
        "    for (int k = 0; k < _2ND_POLICY_ACTIONS; ++k) "
        'printf("%.9g\\n", (double)action[k]);\n'
        "  }\n  return 0;\n}\n"
    )
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2"]
    build = ["gcc", *strict, "main.c", "-o", "policy", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    obs = observations(agent)
    done = subprocess.run([tmp_path / "policy"], input=obs.tobytes(), stdout=-1, check=True)
    check(agent, np.array(done.stdout.split(), float), obs)


def kind_of(agent: Any) -> str:
    return "float" if isinstance(agent.action_space, spaces.Box) else "int"


@pytest.mark.long
def test_a_program_is_enough_for_torch(agent: Any, tmp_path: Path) -> None:
    program = torch.export.load(agent.export(tmp_path / "policy.pt2")).module()
    obs = observations(agent)
    for n in (1, 64):
        found = program(torch.from_numpy(obs[:n].reshape(n, -1)))
        check_first(agent, found.numpy(), obs, n)


@pytest.mark.long(but=QUICK)
def test_a_graph_is_enough_for_onnx(agent: Any, tmp_path: Path) -> None:
    session = runtime.InferenceSession(agent.export(tmp_path / "policy.onnx"))
    obs = observations(agent)
    check(agent, session.run(["actions"], {"obs": obs.reshape(len(obs), -1)})[0], obs)
    (alone,) = session.run(None, {"obs": obs[:1].reshape(1, -1)})
    check_first(agent, alone, obs, 1)


def test_onnx_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    agent = sw.PPO("CartPole-v1", **SMALL)
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[onnx\]"'):
        agent.export(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []
    agent.close()


def check_first(agent: Any, found: Array, obs: Array, n: int) -> None:
    expected = np.asarray(agent.predict(obs[:n])).reshape(n, -1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "recurrent": (lambda: sw.PPO("CartPole-v1", recurrent="gru", **SMALL), "recurrent must be off"),
    "images": (
        lambda: sw.PPO(
            partial(Noise, spaces.Discrete(2), spaces.Box(0, 255, (40, 40, 3), np.uint8))
        ),
        "observations must be vectors of floats",
    ),
    "nested": (
        lambda: sw.PPO(partial(Noise, spaces.Discrete(2), spaces.Dict({"a": TABLE}))),
        "observations must be vectors of floats",
    ),
    "own network": (
        lambda: sw.DQN(
            "CartPole-v1",
            q_network=torch.nn.Sequential(
                torch.nn.Linear(4, 16), torch.nn.Softsign(), torch.nn.Linear(16, 2)
            ),
            **REPLAY,
        ),
        "but .* of 512 actions .* are others",
    ),
    "quantiles": (lambda: sw.C51("CartPole-v1", **REPLAY), "but .* of 512 actions .* are others"),
    "model": (lambda: sw.DreamerV3("CartPole-v1", batch_size=2), "activation must be one of"),
}


@pytest.mark.long(but=["recurrent"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_none_of_these_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, why = REFUSED[case]
    made = make()
    with pytest.raises(ValueError, match=why):
        made.export(tmp_path / "policy.npz")
    assert list(tmp_path.iterdir()) == []
    made.close()


def test_another_suffix_is_named(tmp_path: Path) -> None:
    agent = sw.PPO("CartPole-v1", **SMALL)
    with pytest.raises(ValueError, match=r"one of .npz, .h, .onnx, .pt2, got 'policy.pt'"):
        agent.export(tmp_path / "policy.pt")


@pytest.mark.long
def test_several_agents_are_refused(tmp_path: Path) -> None:
    agent = sw.MAPPO("mpe2/simple_spread_v3", n_envs=2, n_steps=5)
    with pytest.raises(ValueError, match="several agents"):
        agent.export(tmp_path / "policy.npz")
    agent.close()


@pytest.mark.long
def test_the_command_writes_the_best_policy_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = sw.PPO("CartPole-v1", **SMALL)
    agent.train(64, run_dir=tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "policy.npz")]) == 0
    assert str(tmp_path / "policy.npz") in capsys.readouterr().out
    agent.export(tmp_path / "same.npz")
    one, other = (arrays_of(tmp_path / name) for name in ("policy.npz", "same.npz"))
    assert sorted(one) == sorted(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "policy.txt")]) == 2
    assert "path must end in one of" in capsys.readouterr().err
