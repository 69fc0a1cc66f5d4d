"""Agents that are published and fetched: what comes back is what was sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import sharpwave as sw
from sharpwave.agents import hub as hub_of_agents
from tests.hub import TOKEN, Hub, hub

PUSH = """
import sharpwave as sw
agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, hidden=(16,), seed=3)
agent.train(64)
print(agent.push_to_hub("me/cartpole", evaluation=agent.evaluate(2), private=True))
agent.train(96)
agent.push_to_hub("me/cartpole", revision="later", commit_message="further")
"""
PULL = """
import sys
import numpy as np
import sharpwave as sw
first = sw.PPO.from_hub("me/cartpole", n_envs=1)
later = sw.PPO.from_hub("me/cartpole", revision="later")
assert (first.timesteps, first.config.n_envs) == (64, 1), first.timesteps
assert later.timesteps > 64
later.train(later.timesteps + 32)
np.save(sys.argv[1], first.learner.weights())
for repo, error in (("me/none", "404"), ("me/empty", "must name an agent of sharpwave")):
    try:
        sw.PPO.from_hub(repo)
    except Exception as found:
        assert error in str(found), found
    else:
        raise AssertionError(repo)
try:
    sw.DQN.from_hub("me/cartpole")
except ValueError as found:
    assert "holds 'ppo', not 'dqn'" in str(found), found
else:
    raise AssertionError
"""


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as made:
        yield made


def run(program: str, server: Hub, folder: Path, *arguments: str, token: str = TOKEN) -> str:
    env = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(folder), "HF_TOKEN": token}
    env |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_an_agent_comes_back_as_it_went(server: Hub, tmp_path: Path) -> None:
    import numpy as np

    url = run(PUSH, server, tmp_path / "home").strip()
    assert url.startswith(f"{server.url}/me/cartpole/commit/")
    assert server.private["me/cartpole"]
    assert server.messages[-1] == "further"
    files = server.files("me/cartpole")
    assert sorted(files) == ["README.md", "agent.safetensors", "config.json"]
    config = json.loads(files["config.json"])
    assert (config["algorithm"], config["config"]["n_steps"]) == ("ppo", 16)
    (tmp_path / "agent.safetensors").write_bytes(files["agent.safetensors"])

    server.branches["me/empty"] = {}
    server.commit("me/empty", "main", [])
    run(PULL, server, tmp_path / "other home", str(tmp_path / "weights.npy"))
    sent = sw.PPO.from_checkpoint(tmp_path / "agent.safetensors")
    np.testing.assert_array_equal(np.load(tmp_path / "weights.npy"), sent.learner.weights())

    _, metadata, text = files["README.md"].decode().split("---\n", 2)
    card = yaml.safe_load(metadata)
    assert card["library_name"] == "sharpwave"
    assert {"reinforcement-learning", "ppo", "CartPole-v1"} <= set(card["tags"])
    result = card["model-index"][0]["results"][0]
    assert result["dataset"]["name"] == "CartPole-v1"
    assert result["metrics"][0]["value"] in text
    assert 'sw.PPO.from_hub("me/cartpole")' in text
    assert "n_steps: 16" in text
    assert "model-index" not in server.files("me/cartpole", "later")["README.md"].decode()


LOCAL = """
import sys
import sharpwave as sw
options = {"n_envs": 2, "learning_starts": 10, "batch_size": 8, "hidden": 8, "seed": 0}
agent = sw.DQN("CartPole-v1", buffer=sys.argv[1], env_kwargs={"render_mode": None}, **options)
agent.train(64)
agent.push_to_hub("me/replay")
agent.close()
again = sw.DQN.from_hub("me/replay")
assert (again.timesteps, again.config.buffer) == (64, "memory")
again.train(128)
"""


@pytest.mark.long
def test_folders_of_this_machine_are_not_published(server: Hub, tmp_path: Path) -> None:
    run(LOCAL, server, tmp_path / "home", str(tmp_path / "secret"))
    files = server.files("me/replay")
    assert sorted(files) == ["README.md", "agent.safetensors", "config.json"]
    assert not [name for name, content in files.items() if b"secret" in content]
    assert json.loads(files["config.json"])["config"]["batch_size"] == 8


def test_addresses_datasets_and_paths_of_models_are_left_out() -> None:
    defaults = sw.IMPALAConfig().to_dict()
    local = {"worker_addresses": ["a:1"], "tls": ["key.pem"], "address": "auto", "gamma": 0.9}
    header = {"algorithm": "impala", "config": {**defaults, **local}, "dataset": "/home/me/data"}
    header["model"] = {"config": {"_name_or_path": "/home/me/model", "n_layer": 2}}
    found = hub_of_agents._published(header, defaults)
    assert found["config"] == {**defaults, "gamma": 0.9}
    assert found["dataset"] is None
    assert found["model"] == {"config": {"_name_or_path": "", "n_layer": 2}}
    public = {"dataset": "minari:a/b-v0", "model": {"config": {"_name_or_path": "org/model"}}}
    header = {"algorithm": "impala", "config": defaults, **public}
    assert hub_of_agents._published(header, defaults) == header


@pytest.mark.long
def test_the_command_publishes_the_agent_of_a_run(server: Hub, tmp_path: Path) -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, seed=0)
    agent.train(64, run_dir=tmp_path / "run")
    words = ["push", str(tmp_path / "run"), "me/run", "--episodes", "2"]
    said = run(f"from sharpwave.cli import main; raise SystemExit(main({words}))", server, tmp_path)
    assert f"{server.url}/me/run/commit/" in said
    assert not server.private["me/run"]
    assert b"Mean return of 2 episodes" in server.files("me/run")["README.md"]


@pytest.mark.long
def test_nothing_is_made_without_the_right_token(server: Hub, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="401"):
        run(PUSH, server, tmp_path / "home", token="hf_" + "w" * 34)
    assert server.branches == {}


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    agent = sw.PPO("CartPole-v1", seed=0)
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[hub\]"'):
        agent.push_to_hub("me/cartpole")
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[hub\]"'):
        sw.PPO.from_hub("me/cartpole")
    agent.close()
