"""Lists in the documents are complete and true."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.cli.main import COMMANDS
from sharpwave.config.presets import ATARI, PRESETS
from sharpwave.config.world_model_presets import SIZES, TASKS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def section(page: str, title: str) -> str:
    text = (ROOT / "docs" / page).read_text()
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def named_in_first_column(table: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def commands() -> list[list[str]]:
    lines = [
        line
        for path in DOCUMENTS
        for block in re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.DOTALL | re.M)
        for line in block.splitlines()
    ]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("sharpwave ")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_and_their_options_exist(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert words[0] in COMMANDS
    with pytest.raises(SystemExit) as ended:
        main([*words[: 2 if words[0] in ("train", "tune") else 1], "--help"])
    assert ended.value.code == 0
    options = re.findall(r"--[a-z-]+", capsys.readouterr().out)
    assert {word for word in words if word.startswith("--")} <= set(options)


def test_every_command_is_shown() -> None:
    assert {words[0] for words in commands()} == set(COMMANDS)


def rows_of(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("name", ["PPO", "A2C", "IMPALA", "APPO", "DQN", "C51", "QRDQN"])
def test_the_metrics_are_those_of_an_update(name: str) -> None:
    listed = {
        metric
        for names, algorithms, _ in rows_of(section("algorithms.md", "Metrics"))
        if algorithms == "all" or name in algorithms.split(", ")
        for metric in re.findall(r"`([^`]+)`", names)
    }
    options: dict[str, Any] = {"n_envs": 2}
    if hasattr(getattr(sw, name).Config, "learning_starts"):
        options |= {"learning_starts": 10, "batch_size": 8, "hidden": 8}
    found = getattr(sw, name)("CartPole-v1", **options).train(20)
    assert listed == found.keys()


@pytest.mark.parametrize("algorithm", PRESETS)
def test_every_preset_is_in_the_table(algorithm: str) -> None:
    rows = [
        row for row in rows_of(section("algorithms.md", "Presets")) if f"`{algorithm}`" in row[0]
    ]
    words = "|".join({*sw.llm.TASKS, *SIZES, *TASKS} - {ATARI})
    names = re.compile(rf"[A-Za-z0-9]+-v\d|mpe2/\w+_v\d|\b(?:{words})\b")
    listed = {name for row in rows for name in names.findall(row[1])}
    assert listed == set(PRESETS[algorithm]) - {ATARI}
    assert (ATARI in PRESETS[algorithm]) == any("every Atari game" in row[1] for row in rows)


@pytest.mark.long
def test_a_run_leaves_the_files_of_the_table(tmp_path: Path) -> None:
    evaluation = sw.EvalCallback(eval_freq=32, n_eval_episodes=1)
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, callbacks=[evaluation])
    agent.train(64, run_dir=tmp_path)
    for name in named_in_first_column(section("training.md", "The run folder")):
        if name in ("replay", "samples.jsonl", "dreams.jsonl"):  # PPO has none of them
            continue
        if name != "learning_curve.png" or find_spec("matplotlib") is not None:
            places = [tmp_path / name, tmp_path / "checkpoints" / name]
            assert any(place.exists() for place in places), name


def test_the_names_of_the_compatibility_page_exist() -> None:
    import sharpwave.compat.rlox as rlox

    table = (ROOT / "docs" / "compat.md").read_text().split("## What is the same", 1)[0]
    for name in named_in_first_column(table) - {"_schulman", "_f32"}:
        found = rlox
        for part in name.split("."):
            found = getattr(found, part)


@pytest.mark.parametrize("table", ["Callbacks", "Loggers"])
def test_the_callbacks_and_loggers_of_the_page_exist(table: str) -> None:
    text = section("training.md", table)
    names = re.findall(r"`([A-Z][A-Za-z]*(?:Callback|Logger|StopOnReturn))`", text)
    assert names
    for name in names:
        module = sw.runs.callbacks if name == "TimingCallback" else sw
        assert getattr(module, name) is not None


def test_every_hook_is_in_the_table() -> None:
    from sharpwave.runs.callbacks.base import HOOKS

    named = named_in_first_column(section("training.md", "Callbacks"))
    assert {name for name in named if name.startswith("on_")} == set(HOOKS)


def test_the_kinds_and_experts_of_the_datasets_page_exist() -> None:
    from sharpwave.datasets import KINDS, REFERENCES, TRAINED_KINDS, expert_ids

    assert named_in_first_column(section("datasets.md", "Kinds")) == set(KINDS)
    assert named_in_first_column(section("datasets.md", "Datasets by training")) == set(
        TRAINED_KINDS
    )
    table = section("datasets.md", "Scripted experts")
    assert named_in_first_column(table) == set(expert_ids())
    for env_id in expert_ids():
        known = REFERENCES[env_id]
        assert re.search(rf"`{env_id}` .*\| {known.random} \| {known.expert} \|", table)


def test_the_names_of_the_page_for_users_of_other_libraries_exist() -> None:
    options = named_in_first_column(section("coming_from.md", "Options"))
    known = {
        name for agent in (sw.PPO, sw.SAC, sw.DQN, sw.TD3) for name in agent.Config.annotations()
    }
    assert options
    assert options <= known
    names = named_in_first_column(section("coming_from.md", "What things are called"))
    ours = [found[1] for name in names if (found := re.match(r"sw\.(\w+)", name))]
    assert len(ours) > 5
    for name in ours:
        assert getattr(sw, name) is not None
