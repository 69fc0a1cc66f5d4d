"""Whatever does not fit is refused by name, before anything changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import _native, nn
from sharpwave.learners.native import Adam, PolicySteps, RMSprop
from tests.unit.learners.native.test_policy import (
    UPDATE,
    arrays_of,
    batch_of,
    layout_of,
    learner_of,
    orders,
)
from tests.unit.nn.policy_case import Case


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("obs", np.zeros((32, 5), np.float32), r"obs must have shape \(n, 6\), got \(32, 5\)"),
        ("obs", np.zeros((0, 6), np.float32), "obs must have rows"),
        ("obs", np.zeros(6, np.float32), r"obs must have shape \(n, 6\), got \(6,\)"),
        ("actions", np.zeros(31, np.int64), r"actions must have shape \(32,\), got \(31,\)"),
        ("actions", np.full(32, 5), r"actions must be in \[0, 5\), got 5 in row 0"),
        ("actions", np.full(32, -1), r"actions must be in \[0, 5\), got -1"),
        ("advantages", np.zeros(31), r"advantages must have shape \(32,\), got \(31,\)"),
        ("advantages", None, "advantages must be given"),
        ("returns", None, "returns must be given"),
        ("log_probs", None, "log_probs must be given"),
        ("values", np.zeros((32, 1)), r"values must have shape \(32,\)"),
        ("masks", np.ones((32, 4), bool), r"masks must have shape \(32, 5\), got \(32, 4\)"),
        ("masks", np.zeros((32, 5), bool), "masks must allow at least one action"),
        ("weights", np.ones(3), r"weights must have shape \(32,\), got \(3,\)"),
    ],
)
def test_columns_that_do_not_fit(name: str, value: Any, message: str) -> None:
    case = Case()
    before = case.flat.block.tobytes()
    adam = Adam(arrays_of(case), 1e-3)
    with pytest.raises((ValueError, IndexError), match=message):
        learner_of(case).ppo_update({**batch_of(case), name: value}, orders(2, 32), adam, **UPDATE)
    assert case.flat.block.tobytes() == before
    assert adam.arrays()["steps"] == 0


def test_rows_that_do_not_exist() -> None:
    case = Case()
    adam = Adam(arrays_of(case), 1e-3)
    learner, batch = learner_of(case), batch_of(case)
    for wrong in (32, -1):
        order = orders(2, 32)
        order[1, 3] = wrong
        with pytest.raises(IndexError, match=rf"orders must be in \[0, 32\), got {wrong}"):
            learner.ppo_update(batch, order, adam, **UPDATE)
        with pytest.raises(IndexError, match=rf"rows must be in \[0, 32\), got {wrong}"):
            learner.gradient(batch, [wrong])
    with pytest.raises(ValueError, match=r"orders must have shape \(n_epochs, 32\), got \(2, 31\)"):
        learner.ppo_update(batch, orders(2, 31), adam, **UPDATE)
    with pytest.raises(ValueError, match="rows must not be empty"):
        learner.gradient(batch, np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="batch_size must be positive"):
        learner.ppo_update(batch, orders(2, 32), adam, **{**UPDATE, "batch_size": 0})


def test_memory_that_does_not_fit() -> None:
    case = Case()
    layout, block = layout_of(case), case.flat.block
    n = len(block)
    with pytest.raises(ValueError, match=rf"parameters must have shape \({n},\), got \({n - 1},\)"):
        PolicySteps(layout, block[1:], block)
    with pytest.raises(ValueError, match="gradient"):
        PolicySteps(layout, block, block.astype(np.float64))
    other = Adam(arrays_of(Case(hidden=(4,))), 1e-3)
    with pytest.raises(ValueError, match="exp_avg must have shape"):
        learner_of(case).ppo_update(batch_of(case), orders(2, 32), other, **UPDATE)


def test_networks_that_do_not_exist() -> None:
    block = np.zeros(10, np.float32)
    wrong: list[tuple[Any, str]] = [
        ((0, (), (), "tanh", "choices", (2,)), "n_inputs must hold sizes from 1"),
        ((1, (0,), (), "tanh", "choices", (2,)), "^hidden must hold sizes from 1"),
        ((1, (), (0,), "tanh", "choices", (2,)), "critic_hidden must hold sizes from 1"),
        (
            (1, (), (), "mish", "choices", (2,)),
            "activation must be one of tanh, .* silu, got 'mish'",
        ),
        ((1, (), (), "tanh", "words", (2,)), "actions must be 'choices', 'bits' or 'normals'"),
        ((1, (), (), "tanh", "choices", ()), "options must not be empty"),
        ((1, (), (), "tanh", "bits", (2, 2)), "options must hold one number"),
        ((1, (), (), "tanh", "choices", (0,)), "options must hold sizes from 1"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            _native.PolicyLearner(*(*arguments, block, block))


def test_masks_of_unbounded_actions() -> None:
    case = Case("gaussian")
    with pytest.raises(ValueError, match="masks need discrete actions"):
        learner_of(case).act(case.obs, np.ones((32, 3), bool))


def test_states_of_other_optimizers() -> None:
    case = Case()
    adam = Adam(arrays_of(case), 1e-3)
    with pytest.raises(ValueError, match=r"names \['exp_avg', .*, got \['lr', 'square_avg'\]"):
        adam.load_arrays(RMSprop(arrays_of(case), 1e-3).arrays())
    with pytest.raises(ValueError, match="exp_avg must have shape"):
        adam.load_arrays(Adam(arrays_of(Case(hidden=(4,))), 1e-3).arrays())
    assert adam.lr == np.float32(1e-3)


@pytest.mark.parametrize("twins", [(nn.Adam, Adam), (nn.RMSprop, RMSprop)], ids=["Adam", "RMSprop"])
def test_states_of_their_twins_in_torch_load(twins: tuple[Any, Any]) -> None:
    case = Case()
    theirs, mine = twins[0](case.flat, 0.5), twins[1](arrays_of(case), 0.1)
    for array in theirs.arrays().values():
        array.fill_(3.0)
    mine.load_arrays(theirs.arrays())
    assert mine.lr == 3.0
    assert all((array == 3.0).all() for array in mine.arrays().values())
    mine.set_lr(0.25)
    theirs.load_arrays({name: torch.from_numpy(a) for name, a in mine.arrays().items()})
    assert theirs.lr == 0.25
