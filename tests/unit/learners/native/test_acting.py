"""Actions of native policies: those that torch's policy would evaluate and choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.core.draws import Draws
from tests.unit.learners.native.test_policy import every_kind, learner_of
from tests.unit.nn.policy_case import Case


def shaped(case: Case, actions: Any) -> torch.Tensor:
    return torch.from_numpy(actions.reshape(len(actions), *case.policy.distribution.action_shape))


@every_kind
@pytest.mark.parametrize("rows", [1, 8, 300])
def test_log_probabilities_and_values_are_those_of_torch(
    actions: str, masks: bool, rows: int
) -> None:
    case = Case(actions, masks=masks, rows=rows)
    learner, draws = learner_of(case), Draws(1)
    for draw in (None, draws.next_call(), draws.next_call()):
        taken, log_probs, values = learner.act(case.obs.numpy(), case.masks, draw)
        assert values is not None
        expected = case.policy.evaluate(case.obs, shaped(case, taken), masks=case.masks)
        np.testing.assert_allclose(
            log_probs, expected.log_probs.detach().numpy(), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(values, expected.values.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(learner.values(case.obs), values)


@every_kind
def test_the_most_likely_actions_are_those_of_torch(actions: str, masks: bool) -> None:
    case = Case(actions, masks=masks, rows=40)
    expected = case.policy.act(case.obs, masks=case.masks, deterministic=True).actions
    found = shaped(case, learner_of(case).act(case.obs.numpy(), case.masks)[0])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_no_rows_give_no_actions() -> None:
    case = Case()
    actions, log_probs, values = learner_of(case).act(np.zeros((0, 6)), None, (1, 2))
    assert values is not None
    assert (actions.shape, log_probs.shape, values.shape) == ((0, 1), (0,), (0,))


def test_draws_are_a_function_of_seed_and_call() -> None:
    case = Case("gaussian")
    learner, obs = learner_of(case), case.obs.numpy()
    first, second = (learner.act(obs, None, (5, call))[0] for call in (0, 1))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(learner.act(obs, None, (5, 0))[0], first)
    assert not np.array_equal(learner.act(obs, None, (6, 0))[0], first)


def test_draws_go_on_from_their_state() -> None:
    draws = Draws(2**64 - 1)
    draws.next_call()
    other = Draws(0)
    other.set_state(draws.get_state())
    assert other.next_call() == draws.next_call() == (2**64 - 1, 1)


def test_later_changes_of_the_parameters_count() -> None:
    case = Case()
    learner = learner_of(case)
    with torch.no_grad():
        case.policy.get_parameter("critic.4.weight").zero_()
        case.policy.get_parameter("critic.4.bias").fill_(100.0)
    np.testing.assert_array_equal(learner.values(case.obs), np.full(32, 100.0))


def test_what_was_handed_out_does_not_change() -> None:
    case = Case("gaussian")
    learner = learner_of(case)
    first = learner.act(case.obs)
    copies = [np.array(array) for array in first]
    learner.act(2 * case.obs)
    for array, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
