"""Columns of a dataset reach the learner that declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.core.tree import map_leaves
from tests.contract.remembering import COLUMNS, REPLAY, remembering
from tests.contract.test_offline import columns as dataset
from tests.envs import resumable_pendulum


class Looks:
    """Looks at the columns of a dataset in every batch."""

    def extra_columns(self) -> dict[str, Any]:
        return {"twice": ("float32", (1,)), "row": "int64"}

    def update(self, batch: Any) -> Any:
        assert batch.extra.keys() == {"twice", "row"}
        assert torch.equal(batch.extra["twice"], 2 * batch.obs[:, :1])
        assert torch.equal(torch.as_tensor(dataset()["obs"])[batch.extra["row"]], batch.obs)
        return super().update(batch)  # type: ignore[misc]


class LooksIQL(Looks, sw.IQLLearner):
    """For IQL."""


class LooksBC(Looks, sw.BCLearner):
    """For behavior cloning, which may take the best episodes alone."""


class LooksTD3BC(Looks, sw.TD3BCLearner):
    """For an algorithm with a twin in native code."""


def with_columns() -> dict[str, Any]:
    data = dataset()
    return {**data, "twice": 2 * data["obs"][:, :1], "row": np.arange(len(data["obs"]))}


def as_buffer(data: dict[str, Any]) -> Any:
    fields = {
        "obs": ("float32", (3,)),
        "action": ("float32", (2,)),
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
        "next_obs": ("float32", (3,)),
        **{name: (data[name].dtype, data[name].shape[1:]) for name in data if name in LOOKED},
    }
    buffer = sw.ReplayBuffer(len(data["rewards"]), fields=fields)
    buffer.push_batch(**data)
    return buffer


class Drawn:
    """A dataset of somebody else's."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data["rewards"])

    def sample(self, batch_size: int, seed: int | None = None) -> Any:
        rows = np.random.default_rng(seed).integers(0, len(self), batch_size)
        return map_leaves(lambda column: column[rows], self.data)


def as_episodes(data: dict[str, Any], path: Path) -> Any:
    """The same steps as whole episodes on disk, of which `extra` names columns to read."""
    names = {"actions": "action", "rewards": "reward"}
    steps = {names.get(name, name): column for name, column in data.items() if name != "next_obs"}
    fields = {name: (column.dtype, column.shape[1:]) for name, column in steps.items()}
    final = {"final_obs": ("float32", (3,))}
    with sw.EpisodeBuffer(path, 20, 20, fields=fields, meta_fields=final) as episodes:
        for begin in range(0, len(data["rewards"]), 20):
            part = {name: column[begin : begin + 20] for name, column in steps.items()}
            episodes.store_episode(**part, final_obs=data["next_obs"][begin + 19])
    return sw.OfflineDatasetBuffer.from_episodes(path, extra=[x for x in LOOKED if x in data])


LOOKED = ("twice", "row")
PLAIN: dict[str, Any] = {"hidden": 8, "batch_size": 32, "normalize_obs": False}
SOURCES = ("dict", "buffer", "foreign", "mixture", "episodes")


def made(source: str, data: dict[str, Any], path: Path) -> Any:
    """A dataset of a kind with these columns."""
    if source == "episodes":
        return as_episodes(data, path)
    if source == "mixture":
        return sw.OfflineMixture([(as_buffer(data), 0.5), (Drawn(data), 0.5)])
    if source == "foreign":
        return Drawn(data)
    return as_buffer(data) if source == "buffer" else data


@pytest.mark.parametrize("source", SOURCES)
def test_datasets(source: str, memory_path: Path) -> None:
    data = made(source, with_columns(), memory_path / "data")
    agent = sw.IQL(data, learner=LooksIQL, act_low=-1.0, act_high=1.0, **PLAIN)
    agent.train(5)
    assert agent.gradient_steps == 5


def test_algorithms_of_datasets() -> None:
    sw.BC(with_columns(), learner=LooksBC, top_share=0.3, **PLAIN).train(5)
    agent = sw.TD3BC(with_columns(), learner=LooksTD3BC, **PLAIN)
    agent.train(5)
    assert agent.backend == "torch"


@pytest.mark.parametrize("source", SOURCES)
def test_datasets_without_the_columns(source: str, memory_path: Path) -> None:
    data = with_columns()
    del data["row"]
    lacking = made(source, data, memory_path / "data")
    agent = sw.IQL(lacking, learner=LooksIQL, act_low=-1.0, act_high=1.0, **PLAIN)
    with pytest.raises(ValueError, match=r"dataset must .*'row' as int64 .*LooksIQL.*got only"):
        agent.train(5)


def test_datasets_with_columns_of_another_kind() -> None:
    data = {**with_columns(), "row": np.arange(400.0)}
    agent = sw.IQL(data, learner=LooksIQL, **PLAIN)
    with pytest.raises(ValueError, match=r"'row' as int64 \[1\], .* got float64 \[1\]"):
        agent.train(5)


@pytest.mark.long
def test_a_buffer_of_a_run_is_a_dataset() -> None:
    agent: Any = sw.SAC(resumable_pendulum, learner=remembering(sw.SAC), **REPLAY)
    agent.train(150)
    learner = type("Again", (sw.IQLLearner,), {"extra_columns": lambda _: COLUMNS})
    again: Any = sw.IQL(agent.buffer, learner=learner, act_low=-2.0, act_high=2.0, **PLAIN)
    again.train(3)
    batch = again.loop.sample()
    acted = batch.extra["acted"]
    assert torch.equal(batch.extra["twice"][acted], 2 * batch.obs[acted][:, :1])
