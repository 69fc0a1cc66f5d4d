"""Rows of on-policy batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sharpwave.core.tree import leaves
from sharpwave.learners.batch import GroupBatch, OnPolicyBatch
from sharpwave.primitives import backend


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


def column(*shape: int, seed: int, device: torch.device) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def batch_of(n: int, device: torch.device, **more: Any) -> OnPolicyBatch:
    names = ("log_probs", "values", "advantages", "returns")
    numbers: Any = {name: column(n, seed=i, device=device) for i, name in enumerate(names)}
    obs = {"seen": (column(n, 3, seed=5, device=device), column(3, n, seed=6, device=device).t())}
    whole = {**obs, "image": torch.arange(n * 5, device=device, dtype=torch.uint8).view(n, 5)}
    actions = torch.arange(n, device=device)
    masks = column(n, 4, seed=7, device=device) > 0
    return OnPolicyBatch(obs=whole, actions=actions, masks=masks, **{**numbers, **more})


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("n", [1, 13, 1000])
def test_rows_are_those_of_every_column(
    n: int, at_once: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once:
        monkeypatch.setattr(backend, "uses_triton", lambda _: True)
    own = {"weight": column(n, seed=9, device=device).requires_grad_()}
    batch = batch_of(n, device, extra=own)
    indices = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: n // 2 + 1]
    indices = indices.to(device).repeat_interleave(2)
    for given in (indices, indices[::2], indices.int()):
        rows = batch.rows(given)
        assert rows.starts is None
        for name, value in vars(batch).items():
            found = list(leaves(getattr(rows, name)))
            for (path, leaf), (other_path, whole) in zip(found, leaves(value), strict=True):
                assert path == other_path
                assert whole is None or torch.equal(leaf, whole[given.long()])
        assert rows.extra is not None
        assert rows.extra["weight"].requires_grad


def test_rows_of_a_group_have_the_inputs_of_their_critic(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "uses_triton", lambda _: True)
    joint_rows = torch.tensor([1, 0, 1, 0], device=device)
    joint = torch.tensor([[1.0], [2.0]], device=device)
    plain = dict(vars(batch_of(4, device)))
    batch = GroupBatch(**plain, joint=joint, joint_rows=joint_rows)
    rows = batch.rows(torch.tensor([3, 2], device=device))
    assert rows.joint is not None
    assert rows.joint.tolist() == [[1.0], [2.0]]
    assert rows.actions.tolist() == [3, 2]
