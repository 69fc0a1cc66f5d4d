"""No file that is read decides which code runs.

A checkpoint, plan or dataset that named `helper:Env-v0` imported `helper`: whoever could hand over
a file could run code on the machine that opened it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli import main
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from tests.forged import change_header, write_module

SMALL: dict[str, dict[str, Any]] = {
    "PPO": {"n_envs": 1, "n_steps": 16, "batch_size": 16, "hidden": (8,)},
    "DQN": {"learning_starts": 8, "batch_size": 4, "buffer_size": 64, "hidden": (8,)},
    "BC": {"hidden": (8,), "batch_size": 4},
}


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that could be imported, and the file that tells that it was."""
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    mark = write_module(tmp_path / "modules", "attack")
    yield mark
    forget(mark)


def forget(mark: Path) -> None:
    """Go on as a process that has not imported it."""
    mark.unlink(missing_ok=True)
    sys.modules.pop("attack", None)
    gymnasium.registry.pop("Forged-v0", None)


def trained(kind: str, run_dir: Path, env: str = "CartPole-v1") -> Path:
    if kind == "BC":
        data: dict[str, Any] = {name: np.zeros((8, 4), np.float32) for name in ("obs", "next_obs")}
        data |= {"actions": np.arange(8) % 2, "rewards": np.zeros(8)}
        agent: Any = sw.BC({**data, "terminated": np.zeros(8, bool)}, env=env, **SMALL[kind])
    else:
        agent = getattr(sw, kind)(env, **SMALL[kind])
    agent.train(16, run_dir=run_dir)
    agent.close()
    return run_dir / "checkpoints" / "latest.safetensors"


FORGED = [
    {"id": "attack:Forged-v0", "kwargs": {}},
    {"id": "attack:CartPole-v1", "kwargs": {}},
    {"id": "CartPole-v1", "kwargs": {"entry": "attack:Forged"}},
    {"id": "CartPole-v1", "kwargs": {"deep": [{"wrappers": ["attack:Wrapper"]}]}},
    {"id": "CartPole-v1", "kwargs": {}, "wrappers": ["attack:Wrapper"]},
]


@pytest.mark.long(only=["DQN"])
@pytest.mark.parametrize("kind", SMALL)
def test_a_checkpoint_imports_nothing(kind: str, attack: Path, tmp_path: Path) -> None:
    path = trained(kind, tmp_path / "run")
    cls = getattr(sw, kind)
    for env in FORGED:
        change_header(path, env=env)
        for load in (cls.from_checkpoint, Trainer.from_checkpoint):
            with pytest.raises(ValueError, match="env="):
                load(path)
        assert not attack.exists(), env


@pytest.mark.long(but=["PPO"])
@pytest.mark.parametrize("kind", SMALL)
def test_what_the_user_passes_is_imported(kind: str, attack: Path, tmp_path: Path) -> None:
    path = trained(kind, tmp_path / "run", "attack:Forged-v0")
    forget(attack)
    with pytest.raises(ValueError, match="env='attack:Forged-v0'"):
        getattr(sw, kind).from_checkpoint(path)
    assert not attack.exists()
    agent = getattr(sw, kind).from_checkpoint(path, env="attack:Forged-v0")
    assert attack.exists()
    assert agent.evaluate(2).mean_length <= 50
    agent.close()


@pytest.mark.long(only=["eval", "resume"])
@pytest.mark.parametrize("command", ["eval", "enjoy", "dream", "resume", "report"])
def test_no_command_imports_what_a_run_folder_names(
    command: str, attack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained("PPO", tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    for number, env in enumerate(FORGED):
        run = tmp_path / str(number)
        shutil.copytree(tmp_path / "run", run)
        for checkpoint in (run / "checkpoints").iterdir():
            change_header(checkpoint, env=env)
        (run / "config.json").write_text(json.dumps({**config, "env": env["id"]}))
        status = main([command, str(run)])
        assert not attack.exists(), env
        if command != "report":
            assert status == 2
            said = capsys.readouterr().err
            assert "--env" in said or "--wrapper" in said
            assert said.count("\n") == 1


@pytest.mark.long(but=["True-forged0"])
@pytest.mark.parametrize(
    "forged",
    [
        {"env_id": "attack:Forged-v0"},
        {"wrappers": ["attack:Wrapper"]},
        {"imports": ["attack"]},
        {"env_kwargs": {"entry": "attack:Forged"}},
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_a_plan_imports_nothing(
    forged: dict[str, Any],
    begun: bool,
    attack: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    quick = ["--n-envs", "1", "--n-steps", "16", "--batch-size", "16", "--eval-freq", "0"]
    command = ["train", "ppo", "CartPole-v1", "--run-dir", str(run), "--quiet", *quick]
    assert main([*command, "--total-timesteps", "16"]) == 0
    if not begun:
        shutil.rmtree(run / "checkpoints")
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, **forged}))
    assert main(["resume", str(run), "--total-timesteps", "32"]) == 2
    assert "sharpwave resume" in capsys.readouterr().err
    assert not attack.exists()


@pytest.mark.filterwarnings("ignore:Minari wants", "ignore:not carried")
def test_a_minari_dataset_imports_nothing(attack: Path, tmp_path: Path) -> None:
    """Minari makes the environment of a dataset that does not say its spaces."""
    pytest.importorskip("minari")
    from sharpwave.formats import read_episodes

    with sw.EpisodeBuffer(
        tmp_path / "episodes",
        max_episodes=4,
        max_timesteps=10,
        fields={"obs": ("float", 4), "action": "int", "reward": "float"},
    ) as buffer:
        with buffer.one_episode():
            for _ in range(5):
                buffer.store(obs=np.zeros(4), action=1, reward=1.0)
        buffer.to_minari(tmp_path / "data")
    file = tmp_path / "data/data/metadata.json"
    metadata = json.loads(file.read_text())
    spec = json.loads(gymnasium.spec("CartPole-v1").to_json())
    for name in ("observation_space", "action_space"):
        del metadata[name]
    for forged in (
        {"id": "attack:Forged-v0"},
        {"id": "Forged-v0", "entry_point": "attack:Forged"},
        {"entry_point": "attack:Forged"},
        {"additional_wrappers": [{"name": "W", "entry_point": "attack:Wrapper", "kwargs": {}}]},
        {"vector_entry_point": "attack:Forged"},
    ):
        file.write_text(json.dumps({**metadata, "env_spec": json.dumps({**spec, **forged})}))
        try:
            list(read_episodes(tmp_path / "data"))
        except (ValueError, OSError) as error:
            assert str(tmp_path / "data") in str(error)  # noqa: PT017 - some are read
        assert not attack.exists(), forged


@pytest.mark.long
@pytest.mark.parametrize("name", ["test", "seed", "mtrand", "Generator", "", "__loader__"])
def test_a_generator_of_a_checkpoint_is_one_of_numpys(name: str, tmp_path: Path) -> None:
    """Whatever `numpy.random` had by the name in the file was called, its test suite too."""
    path = trained("PPO", tmp_path / "run")
    header, state = read_checkpoint(path)
    random = {"bit_generator": name, "state": {"state": 1, "inc": 1}}
    env = gymnasium.make("CartPole-v1")
    depth = 1
    while isinstance(env, gymnasium.Wrapper):
        depth, env = depth + 1, env.env
    state = {**state, "env": None, "env_random": {"envs": [[random] * depth]}}
    header = {**header, "config": {**header["config"], "env_mode": "sync"}}
    write_checkpoint(path, header, state)
    with pytest.raises((ValueError, sw.SharpwaveIOError)):
        sw.PPO.from_checkpoint(path)


def test_a_configuration_of_rlox_imports_nothing(attack: Path, tmp_path: Path) -> None:
    from sharpwave.compat.rlox import TrainingConfig, train_from_config

    path = tmp_path / "config.yaml"
    path.write_text("algorithm: ppo\nenv_id: attack:Forged-v0\ntotal_timesteps: 64\n")
    with pytest.raises(ValueError, match="may not run code"):
        train_from_config(path)
    assert not attack.exists()
    train_from_config(TrainingConfig.from_file(path))
    assert attack.exists()
