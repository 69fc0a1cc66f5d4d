"""Run folders and files of episodes with forged or damaged content.

They ended in bare KeyError, IndexError, RecursionError, MemoryError and AttributeError.
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.formats import read_episodes
from sharpwave.storage.run_folder import RunFolder
from tests.unit.runs.runs import write_run

WRONG: list[Any] = [None, True, -1, 10**400, 1e308, "x", "\x1b[31m", [], [1], {}, {"a": []}, [[[]]]]
FILES = ["config.json", "environment.json", "summary.json", "metrics.jsonl", "evaluations.jsonl"]


def forged(value: Any, rng: random.Random) -> Any:
    """A JSON value with something else somewhere in it."""
    if rng.random() < 0.3 or not isinstance(value, dict | list) or not value:
        return rng.choice(WRONG)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: forged(value[key], rng)}
    i = rng.randrange(len(value))
    return [*value[:i], forged(value[i], rng), *value[i + 1 :]]


def written(value: Any) -> str:
    return json.dumps(value)


def damage(path: Path, rng: random.Random) -> None:
    """Forge a value, or cut, repeat or flip bytes."""
    text = path.read_text()
    if rng.random() < 0.7:
        rows = text.splitlines() if path.suffix == ".jsonl" else [text]
        i = rng.randrange(len(rows))
        rows[i] = written(forged(json.loads(rows[i]), rng))
        path.write_text("\n".join(rows) + "\n")
    elif rng.random() < 0.3:
        path.write_text("[" * 50_000)
    else:
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content[: rng.randrange(1, len(content) + 1)])


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_a_forged_run_folder_is_read_reported_and_compared(name: str, tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", n_updates=10, n_evaluations=3)
    rng = random.Random(name)
    for number in range(12):
        run = tmp_path / str(number)
        shutil.copytree(whole, run)
        damage(run / name, rng)
        folder = RunFolder(run)
        folder.metrics()
        folder.evaluations()
        assert main(["report", str(run)]) in (0, 2)
        assert main(["report", str(run), str(whole), "--out", str(tmp_path / "c.html")]) in (0, 2)


def steps(folder: Path, suffix: str) -> Path:
    """A small file of episodes that this library wrote."""
    with sw.EpisodeBuffer(
        folder / "episodes",
        max_episodes=4,
        max_timesteps=10,
        fields={"obs": ("float", 3), "action": "int", "reward": "float", "terminated": "bool"},
    ) as buffer:
        for _ in range(3):
            with buffer.one_episode():
                for i in range(4):
                    buffer.store(obs=np.ones(3), action=1, reward=1.0, terminated=i == 3)
    path = folder / f"steps{suffix}"
    assert main(["convert", str(folder / "episodes"), str(path)]) == 0
    return path


@pytest.mark.long(only=[".parquet"])
@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".parquet", ".arrow"])
def test_a_damaged_file_of_episodes_is_named(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip({".hdf5": "h5py", ".npz": "numpy"}.get(suffix, "pyarrow"))
    source = steps(tmp_path, suffix)
    files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
    rng = random.Random(suffix)
    for number in range(40):
        copy = tmp_path / f"damaged{number}{suffix}"
        (shutil.copyfile if source.is_file() else shutil.copytree)(source, copy)
        chosen = rng.choice(files)
        victim = copy if source.is_file() else copy / chosen.relative_to(source)
        content = bytearray(victim.read_bytes())
        for _ in range(rng.choice([1, 4, 64])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        victim.write_bytes(content[: rng.choice([len(content), rng.randrange(1, len(content))])])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                list(read_episodes(copy))
            except (OSError, ValueError) as error:
                if copy.name not in str(error):
                    raise AssertionError(f"the file is not named: {error!r}") from error
