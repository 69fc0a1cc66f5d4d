"""Native updates are those of autograd and torch's optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import _native, losses, nn
from sharpwave.config.schedules import Adaptive
from sharpwave.learners.native import Adam, FlatArrays, PolicyLayout, PolicySteps, RMSprop
from sharpwave.nn.mlp import ACTIVATIONS
from tests.unit.nn.policy_case import ACTIONS, MASKED, Case, assert_metrics, assert_near

ROWS = 300
"""More than one part of what threads share."""
UPDATE: dict[str, Any] = {
    "batch_size": 128,
    "clip": 0.2,
    "vf_coef": 0.7,
    "ent_coef": 0.02,
    "clip_vloss": False,
    "normalize": True,
    "max_grad_norm": 0.5,
    "target_kl": None,
}


def layout_of(case: Case) -> PolicyLayout:
    kinds = {type(layer) for layer in (*case.policy.actor, *case.policy.critic)}
    names = [name for name, module in ACTIVATIONS.items() if module in kinds]
    return PolicyLayout.of(
        case.observation_space,
        case.action_space,
        hidden=widths(case.policy.actor),
        critic_hidden=widths(case.policy.critic),
        activation=names[0] if names else "tanh",
    )


def widths(network: torch.nn.Sequential) -> list[int]:
    linears = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return [linear.out_features for linear in linears[:-1]]


def learner_of(case: Case, threads: int = 1) -> PolicySteps:
    return PolicySteps(layout_of(case), case.flat.block, case.flat.grad.numpy(), threads=threads)


def batch_of(case: Case) -> dict[str, Any]:
    return {
        "obs": case.obs,
        "actions": case.actions,
        "advantages": case.advantages,
        "returns": case.returns,
        "log_probs": case.log_probs,
        "values": case.old_values,
        "masks": case.masks,
    }


def arrays_of(case: Case) -> FlatArrays:
    """Memory of the size of the policy's, for an optimizer."""
    return FlatArrays(layout_of(case).shapes)


def orders(n_epochs: int, rows: int = ROWS) -> Any:
    return _native.shuffled(3, 1, n_epochs, rows)


every_kind = pytest.mark.parametrize(
    ("actions", "masks"),
    [*((actions, False) for actions in ACTIONS), *((actions, True) for actions in MASKED)],
)


@every_kind
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_log_probabilities_entropies_and_values_are_those_of_torch(
    actions: str, masks: bool, activation: str
) -> None:
    case = Case(actions, masks=masks, activation=activation, rows=ROWS)
    expected = case.policy.evaluate(case.obs, case.actions, masks=case.masks)
    found = learner_of(case).evaluate(batch_of(case))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-5, atol=1e-6)


@every_kind
@pytest.mark.parametrize("clip_vloss", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_of_ppo_is_that_of_autograd(
    actions: str, masks: bool, clip_vloss: bool, normalize: bool
) -> None:
    case = Case(actions, masks=masks)
    options: dict[str, Any] = {
        "vf_coef": 0.7,
        "ent_coef": 0.1,
        "clip_vloss": clip_vloss,
        "normalize": normalize,
    }
    for size in (32, 19, 1):
        rows = torch.randperm(32)[:size]
        metrics = learner_of(case).gradient(batch_of(case), rows, clip=0.2, **options)
        gradient, expected = case.differentiated(rows, clip=0.2, **options)
        assert_near(case.flat.grad, gradient, 1e-5)
        assert_metrics(torch.from_numpy(metrics), expected)


@every_kind
@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_of_a2c_is_that_of_autograd(
    actions: str, masks: bool, normalize: bool
) -> None:
    case = Case(actions, masks=masks)
    options: dict[str, Any] = {"vf_coef": 0.3, "ent_coef": 0.05, "normalize": normalize}
    metrics = learner_of(case).gradient(batch_of(case), np.arange(32), **options)
    gradient, expected = case.differentiated(clip=None, **options)
    assert_near(case.flat.grad, gradient, 1e-5)
    assert_metrics(torch.from_numpy(metrics), expected)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 9, 10), (200, 70)])
@pytest.mark.parametrize("critic_hidden", [None, (5, 70)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_any_depth_and_activation_is_known(
    activation: str, hidden: tuple[int, ...], critic_hidden: tuple[int, ...] | None
) -> None:
    case = Case(activation=activation, hidden=hidden, critic_hidden=critic_hidden)
    learner_of(case).gradient(batch_of(case), np.arange(32), clip=0.2, ent_coef=0.1)
    assert_near(case.flat.grad, case.differentiated(ent_coef=0.1)[0], 1e-5)


@pytest.mark.parametrize("value_clip", [0.05, 0.2, 5.0])
def test_values_are_clipped_by_a_range_of_their_own(value_clip: float) -> None:
    case = Case()
    options: dict[str, Any] = {"clip_vloss": True, "value_clip": value_clip, "vf_coef": 1.0}
    metrics = learner_of(case).gradient(batch_of(case), np.arange(32), clip=0.2, **options)
    gradient, expected = case.differentiated(**options)
    assert_near(case.flat.grad, gradient, 1e-5)
    assert_metrics(torch.from_numpy(metrics), expected)


def test_rows_without_weight_do_not_count() -> None:
    case = Case()
    learner = learner_of(case)
    weights = np.r_[np.ones(20), np.zeros(12)].astype(np.float32)
    weighted = learner.gradient({**batch_of(case), "weights": weights}, np.arange(32), clip=0.2)
    gradient = case.flat.grad.clone()
    expected = learner.gradient(batch_of(case), np.arange(20), clip=0.2)
    np.testing.assert_allclose(weighted, expected, rtol=1e-5)
    torch.testing.assert_close(gradient, case.flat.grad, rtol=1e-5, atol=1e-7)


class TorchUpdate:
    """The updates of `PPO` and `A2C`, by autograd, on given rows."""

    def __init__(self, case: Case, optimizer: Any) -> None:
        self.case = case
        self.optimizer = optimizer
        self.too_far = False

    def step(self, rows: Tensor, *, clip: float | None, **options: Any) -> None:
        case, flat = self.case, self.case.flat
        masks = None if case.masks is None else case.masks[rows]
        log_probs, entropy, values = case.policy.evaluate(
            case.obs[rows], case.actions[rows], masks=masks
        )
        advantages = case.advantages[rows]
        if options["normalize"]:
            advantages = losses.normalize(advantages)
        kl = torch.zeros(())
        if clip is None:
            policy_loss = losses.policy_gradient(log_probs, advantages)
        else:
            log_ratio = log_probs - case.log_probs[rows]
            policy_loss = losses.clipped_surrogate(log_ratio, advantages, clip)
            kl = losses.approx_kl(log_ratio)
        if options.get("clip_vloss", False):
            value_loss = losses.clipped_value_loss(
                values, case.old_values[rows], case.returns[rows], clip or 0.0
            )
        else:
            value_loss = losses.value_loss(values, case.returns[rows])
        loss = policy_loss + options["vf_coef"] * value_loss - options["ent_coef"] * entropy.mean()
        flat.backward(loss)
        flat.clip_grad_norm(options["max_grad_norm"])
        if options.get("desired_kl") is not None and not self.too_far:
            self.optimizer.adapt_lr(kl.detach(), options["desired_kl"], Adaptive.bounds)
        target_kl = options.get("target_kl")
        self.too_far |= target_kl is not None and bool(kl > 1.5 * target_kl)
        if not self.too_far:
            self.optimizer.step()

    def ppo(self, order: Any, *, batch_size: int, **options: Any) -> None:
        self.too_far = False
        for rows in torch.from_numpy(order):
            for part in rows.split(batch_size):
                self.step(part, **options)
            if self.too_far:
                break


@pytest.mark.long(but=["categorical-False"])
@every_kind
def test_a_whole_update_of_ppo_is_that_of_torch(actions: str, masks: bool) -> None:
    mine, theirs = (Case(actions, masks=masks, rows=ROWS) for _ in range(2))
    torch_update = TorchUpdate(theirs, nn.Adam(theirs.flat, 3e-4))
    torch_update.ppo(orders(4), **UPDATE)
    adam = Adam(arrays_of(mine), 3e-4)
    metrics = learner_of(mine).ppo_update(batch_of(mine), orders(4), adam, **UPDATE)
    assert_near(mine.flat.data, theirs.flat.data.double(), 1e-5)
    for name, array in adam.arrays().items():
        expected = torch_update.optimizer.arrays()[name].numpy()
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())
    explained = losses.explained_variance(mine.old_values, mine.returns)
    assert metrics["explained_variance"] == pytest.approx(explained.item(), rel=1e-5)


@pytest.mark.parametrize("actions", ["categorical", "gaussian"])
@pytest.mark.parametrize(
    "change",
    [
        {"clip_vloss": True},
        {"normalize": False},
        {"max_grad_norm": 1e9},
        {"batch_size": 7},
        {"batch_size": 1000},
        {"target_kl": 0.03},
        {"target_kl": 1e-9},
        {"desired_kl": 0.01},
        {"desired_kl": 1.0},
        {"desired_kl": 1e-6, "target_kl": 0.03},
        {"desired_kl": 1e-9, "target_kl": 1e-9},
    ],
    ids=str,
)
def test_every_option_of_ppo_is_that_of_torch(actions: str, change: dict[str, Any]) -> None:
    options = {**UPDATE, **change}
    mine, theirs = (Case(actions, rows=60) for _ in range(2))
    torch_adam, adam = nn.Adam(theirs.flat, 1e-3), Adam(arrays_of(mine), 1e-3)
    TorchUpdate(theirs, torch_adam).ppo(orders(3, 60), **options)
    learner_of(mine).ppo_update(batch_of(mine), orders(3, 60), adam, **options)
    assert adam.lr == torch_adam.lr.item()
    assert_near(mine.flat.data, theirs.flat.data.double(), 1e-5)


@pytest.mark.long
def test_fifty_updates_of_ppo_are_those_of_torch() -> None:
    mine, theirs = (Case(rows=64) for _ in range(2))
    torch_update = TorchUpdate(theirs, nn.Adam(theirs.flat, 1e-4))
    learner, adam = learner_of(mine), Adam(arrays_of(mine), 1e-4)
    options = {**UPDATE, "batch_size": 32}
    for update in range(50):
        order = _native.shuffled(5, update, 2, 64)
        torch_update.ppo(order, **options)
        learner.ppo_update(batch_of(mine), order, adam, **options)
    assert adam.arrays()["steps"] == 200
    assert_near(mine.flat.data, theirs.flat.data.double(), 1e-5)


@pytest.mark.long(but=["False-categorical"])
@pytest.mark.parametrize("actions", ["categorical", "multi categorical", "bernoulli", "gaussian"])
@pytest.mark.parametrize("normalize", [False, True])
def test_fifty_updates_of_a2c_are_those_of_torch(actions: str, normalize: bool) -> None:
    options: dict[str, Any] = {
        "vf_coef": 0.4,
        "ent_coef": 0.01,
        "normalize": normalize,
        "max_grad_norm": 0.5,
    }
    mine, theirs = (Case(actions, rows=40) for _ in range(2))
    torch_update = TorchUpdate(theirs, nn.RMSprop(theirs.flat, 1e-4))
    learner, rmsprop = learner_of(mine), RMSprop(arrays_of(mine), 1e-4)
    for _ in range(50):
        torch_update.step(torch.arange(40), clip=None, **options)
        metrics = learner.a2c_update(batch_of(mine), rmsprop, **options)
    assert_near(mine.flat.data, theirs.flat.data.double(), 1e-5)
    assert "approx_kl" not in metrics


@pytest.mark.parametrize("actions", ["categorical", "gaussian"])
def test_results_do_not_depend_on_the_number_of_threads(actions: str) -> None:
    results = []
    for threads in (1, 2, 4):
        case = Case(actions, rows=ROWS, hidden=(64, 100))
        learner = learner_of(case, threads)
        metrics = learner.ppo_update(
            batch_of(case), orders(3), Adam(arrays_of(case), 1e-3), **UPDATE
        )
        results.append((case.flat.block.tobytes(), metrics))
    assert results[0] == results[1] == results[2]


def test_a_policy_that_moved_too_far_stays_where_it_is() -> None:
    case = Case(rows=64)
    before = case.flat.data.clone()
    adam = Adam(arrays_of(case), 1e-2)
    options = {**UPDATE, "target_kl": 1e-12}
    metrics = learner_of(case).ppo_update(batch_of(case), orders(5, 64), adam, **options)
    assert torch.equal(case.flat.data, before)
    assert adam.arrays()["steps"] == 0
    assert metrics["approx_kl"] > 0


def test_nan_reaches_the_metrics() -> None:
    case = Case(rows=64)
    case.flat.data[3] = float("nan")
    metrics = learner_of(case).ppo_update(
        batch_of(case), orders(1, 64), Adam(arrays_of(case), 1e-2), **UPDATE
    )
    assert np.isnan(metrics["loss"])
    assert np.isnan(metrics["grad_norm"])
