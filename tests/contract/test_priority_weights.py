"""Weights of prioritized draws follow one rule, wherever the buffer of a run lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.tensors.buffers import TensorPrioritizedReplayBuffer
from sharpwave.tensors.buffers.prioritized import PrioritizedColumns
from sharpwave.tensors.buffers.rows import TensorColumns

PLACES = ["memory", "folder", "device", "columns"]
"""The place of a buffer; "columns" are the tensors that a GPU has, here on the CPU."""
ALPHA, BETA = 0.7, 0.5


def agent_with(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A DQN whose buffer holds one step that is hardly ever drawn."""
    if place == "columns":
        make = TensorPrioritizedReplayBuffer._make_rows

        def on_columns(self: Any) -> Any:
            native: Any = make(self)
            assert native._priorities is not None
            return PrioritizedColumns(
                self.fields,
                self.buffer_size,
                self.num_envs,
                torch.device("cpu"),
                self.device,
                **native._priorities,
            )

        monkeypatch.setattr(TensorPrioritizedReplayBuffer, "_make_rows", on_columns)
    where = {"folder": str(tmp_path / "replay"), "columns": "device"}.get(place, place)
    agent = sw.DQN(
        "CartPole-v1",
        n_envs=2,
        hidden=(8,),
        batch_size=8,
        buffer_size=400,
        learning_starts=10_000,
        prioritized=True,
        alpha=ALPHA,
        beta_start=BETA,
        buffer=where,
        backend="torch",
        seed=1,
        **options,
    )
    agent.train(100)
    agent.store.rows.set_beta(BETA)
    if where == "device":
        assert isinstance(agent.buffer._rows, TensorColumns) == (place == "columns")
        errors = torch.ones(100)
        errors[17] = 1e-3
        agent.buffer.update_priorities(torch.arange(100), errors)
    else:
        agent.buffer.update_priorities(
            agent.buffer.indices(), np.where(np.arange(100) == 17, 1e-3, 1)
        )
    return agent


@pytest.mark.parametrize("place", PLACES)
def test_the_least_likely_step_of_the_buffer_has_the_weight_1(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the buffer on the device the batch's greatest weight was 1: steps were longer there."""
    agent = agent_with(place, tmp_path, monkeypatch)
    weights = np.concatenate([agent.sampler.sample().weights for _ in range(5)])
    assert len(weights) == 40
    np.testing.assert_allclose(weights[weights < 0.9], 1e-3 ** (ALPHA * BETA), rtol=1e-3)
    assert (weights < 0.9).sum() >= 38
    agent.close()


@pytest.mark.parametrize("place", PLACES)
def test_weight_norm_chooses_that_of_the_batch(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_with(place, tmp_path, monkeypatch, weight_norm="batch")
    for _ in range(5):
        assert max(agent.sampler.sample().weights) == pytest.approx(1.0)
    agent.close()


def test_a_folder_of_the_other_rule_is_another_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_with("folder", tmp_path, monkeypatch).close()
    with pytest.raises(ValueError, match="it has weight_norm 'buffer', not 'batch'"):
        agent_with("folder", tmp_path, monkeypatch, weight_norm="batch")


def test_a_tensor_buffer_alone_goes_by_the_batch_unless_told_otherwise(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "buffer_size": 50,
        "num_envs": 2,
        "obs_shape": (),
        "action_shape": (),
    }
    greatest = []
    ways: list[dict[str, Any]] = [{}, {"weight_norm": "batch"}, {"weight_norm": "buffer"}]
    for named in ways:
        buffer = TensorPrioritizedReplayBuffer(**options, **named)
        ones, ended = torch.ones(2), torch.tensor([False, False])
        for _ in range(50):
            buffer.add(ones, ones, ones, ended, ones)
        errors = torch.ones(100)
        errors[17] = 1e-3
        buffer.update_priorities(torch.arange(100), errors)
        greatest.append(float(buffer.get(8).weights.max()))
        buffer.save(tmp_path / "buffer")
        again = TensorPrioritizedReplayBuffer.load(tmp_path / "buffer")
        assert again.weight_norm == buffer.weight_norm
    assert greatest[:2] == [1.0, 1.0]
    assert greatest[2] < 0.5
    with pytest.raises(ValueError, match='weight_norm must be "buffer" or "batch", got \'row\''):
        TensorPrioritizedReplayBuffer(**options, weight_norm="row")  # type: ignore[arg-type]
