"""The contract of n-step transitions from every replay buffer of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import NStep, Sequence, SharedReplayBuffer, Transition
from tests.contract.tensor_cases import FLAT, NUM_ENVS, TensorCase, each_in_order
from tests.contract.test_tensor_buffers import assert_same_batch, filled, flat, tensors_of
from tests.reference.tensors import RingOracle

SIZE = 5
GAMMA = 0.9


def assert_n_steps(buffer: Any, batch: Any, oracle: RingOracle, indices: Any, n: int) -> None:
    """That a batch holds the n-step transitions of these rows."""
    place = buffer.fields.names.index("reward")
    found = tensors_of(buffer, batch)
    rows, discounts = zip(
        *(oracle.n_step(buffer.fields, index, n, GAMMA) for index in indices.tolist()), strict=True
    )
    for i, tensor in enumerate(found):
        wanted = torch.stack([row[i] for row in rows])
        if i == place:
            np.testing.assert_allclose(tensor, wanted, rtol=1e-5)
        else:
            assert torch.equal(tensor, wanted)
    assert batch.discounts.dtype == torch.float32
    np.testing.assert_allclose(batch.discounts.cpu(), discounts, rtol=1e-5)


@pytest.mark.long(but=["9-ColumnBuffer extras on cpu"])
@each_in_order
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_steps_are_summed_until_an_end_or_a_cut(case: TensorCase, n: int) -> None:
    buffer, oracle, steps = case.make(SIZE), RingOracle(SIZE, NUM_ENVS), case.steps()
    view = NStep(n, GAMMA)
    for i in range(24):
        if i in (0, 4, 9, 10, 20):
            buffer.cut()
            oracle.cut()
        step = steps.step()
        buffer.add(**step)
        oracle.add(buffer.fields, step)
        indices = torch.arange(buffer.total_current_size)
        batch = buffer.gather(indices, view=view)
        assert_n_steps(buffer, batch, oracle, indices, n)
        assert batch.rewards.device.type == batch.discounts.device.type == case.device


@pytest.mark.long(but=["TensorReplayBuffer flat on cpu"])
@each_in_order
def test_drawn_steps_become_n_steps(case: TensorCase) -> None:
    (buffer, oracle), (plain, _) = filled(case), filled(case)
    rows = [row[0].tolist() for row in oracle.rows()]
    batch: Any = None
    for _ in range(5):
        batch = buffer.get(6, view=NStep(3, GAMMA), out=batch)
        drawn = tensors_of(plain, plain.get(6))[0]
        indices = torch.tensor([rows.index(row) for row in drawn.tolist()])
        if case.prioritized:
            assert torch.equal(batch.indices.cpu(), indices)
        assert_n_steps(buffer, batch, oracle, indices, 3)


@each_in_order
def test_a_batch_is_overwritten_where_it_lies(case: TensorCase) -> None:
    (buffer, _), (other, _) = filled(case), filled(case)
    view = NStep(3, GAMMA)
    batch = buffer.get(4, view=view)
    addresses = [tensor.data_ptr() for tensor in flat(vars(batch))]
    other.get(4, view=view)
    assert buffer.get(4, view=view, out=batch) is batch
    assert_same_batch(batch, other.get(4, view=view))
    assert [tensor.data_ptr() for tensor in flat(vars(batch))] == addresses


@each_in_order
def test_cuts_move_with_the_steps(case: TensorCase, tmp_path: Path) -> None:
    buffer, oracle, steps = case.make(SIZE), RingOracle(SIZE, NUM_ENVS), case.steps()
    for i in range(8):
        if i in (5, 7):
            buffer.cut()
            oracle.cut()
        step = steps.step()
        buffer.add(**step)
        oracle.add(buffer.fields, step)
    buffer.cut()  # before a step that is still to come
    oracle.cut()
    buffer.save(tmp_path / "buffer")
    moved = case.make(SIZE)
    moved.load_state_dict(buffer.state_dict())
    step = steps.step()
    oracle.add(buffer.fields, step)
    indices = torch.arange(SIZE * NUM_ENVS)
    for copy in (moved, type(buffer).load(tmp_path / "buffer", device=case.device)):
        copy.add(**step)
        assert_n_steps(copy, copy.gather(indices, view=NStep(4, GAMMA)), oracle, indices, 4)


@each_in_order
def test_a_buffer_that_was_reset_knows_nothing_of_before(case: TensorCase) -> None:
    buffer, _ = filled(case)
    indices = torch.arange(SIZE * NUM_ENVS)
    buffer.gather(indices, view=NStep(2, GAMMA))
    buffer.cut()
    buffer.reset()
    oracle, steps = RingOracle(SIZE, NUM_ENVS), case.steps()
    for _ in range(3):
        step = steps.step()
        buffer.add(**step)
        oracle.add(buffer.fields, step)
    indices = torch.arange(3 * NUM_ENVS)
    assert_n_steps(buffer, buffer.gather(indices, view=NStep(4, GAMMA)), oracle, indices, 4)


@each_in_order
@pytest.mark.parametrize("view", [3, Transition(), Sequence(2), NStep(3, fields=("obs",))], ids=str)
def test_other_views_are_refused(case: TensorCase, view: Any) -> None:
    buffer, _ = filled(case)
    for draw in (buffer.get, buffer.gather):
        with pytest.raises(TypeError, match=r"view must be NStep\(n, gamma\) or None, got"):
            draw(torch.tensor([0]) if draw == buffer.gather else 1, view=view)


@each_in_order
def test_batches_of_other_views_are_not_overwritten(case: TensorCase) -> None:
    buffer, _ = filled(case)
    single, several = buffer.get(4), buffer.get(4, view=NStep(3))
    with pytest.raises(ValueError, match="out must be a batch of the same view"):
        buffer.get(4, out=several)
    with pytest.raises(ValueError, match="out must be a batch of the same view"):
        buffer.get(4, view=NStep(3), out=single)
    several.discounts = torch.zeros(3, device=case.device)
    with pytest.raises(ValueError, match=r"discounts of out must be a .* of shape \(4,\)"):
        buffer.get(4, view=NStep(3), out=several)


def test_steps_of_several_processes_are_in_no_order() -> None:
    buffer = SharedReplayBuffer(5, 2, **FLAT)
    ones: Tensor = torch.ones(2)
    buffer.add(torch.ones(2, 3), torch.ones(2, 2), ones, ones, torch.ones(2, 3))
    with pytest.raises(ValueError, match="view must be None: steps of several processes"):
        buffer.get(1, view=NStep(3))
    with pytest.raises(ValueError, match="view must be None: steps of several processes"):
        buffer.gather([0], view=NStep(3))
