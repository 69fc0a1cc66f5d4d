"""Losses and gradients of one step on a fixed batch are those of plain float64 loops.

The learning rate is 0, so a step leaves the weights as they are and its gradients behind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.learners.replay import ReplayBatch
from tests.reference import actor_critic as ref
from tests.reference.actor_critic import Layers, Vector
from tests.reference.q_learning import quantile_huber
from tests.unit.algorithms.fixed_batch import (
    ACTIONS,
    CHOICES,
    HIDDEN,
    OBS,
    ROWS,
    actor_layers,
    batch,
    critic_layers,
    make,
    noises,
    rows,
)

CRITIC_SIZES = (OBS + ACTIONS, *HIDDEN, 1)
SQUASHED_SIZES = (OBS, *HIDDEN, 2 * ACTIONS)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "prioritized"])


def same_gradient(found: Any, loss: Callable[[Vector], float], at: Any) -> None:
    expected = ref.gradient(loss, rows(at))
    largest = np.abs(expected).max()
    assert largest > 1e-3
    np.testing.assert_allclose(rows(found), expected, rtol=1e-3, atol=1e-4 * largest)


def measured(learner: Any, step: Any) -> dict[str, Any]:
    """The metrics of an update, in float64; `td_errors` is an array."""
    return {
        name: rows(value) if value.ndim else value.item()
        for name, value in learner.update(step).items()
    }


def row_weights(step: ReplayBatch) -> Vector:
    return np.ones(ROWS) if step.weights is None else rows(step.weights)


def squared_loss(critics: list[Layers], step: ReplayBatch, targets: Vector) -> float:
    """Σ_i mean(w (Q_i(s, a) − y)²)."""
    total = 0.0
    for critic in critics:
        for obs, action, weight, y in zip(
            rows(step.obs), rows(step.actions), row_weights(step), targets, strict=True
        ):
            total += weight * (ref.value(critic, obs, action)[0] - y) ** 2 / ROWS
    return total


class TestSAC:
    ALPHA = 0.3

    def critics(self, flat: Any, n: int = 2) -> list[Layers]:
        return critic_layers(flat, n, CRITIC_SIZES)

    def expected_targets(self, learner: Any, step: ReplayBatch, noise: Vector) -> Vector:
        actor = actor_layers(rows(learner.flats["actor"].data), SQUASHED_SIZES)
        critics = self.critics(rows(learner.flats["target_critics"].data))
        targets = []
        for i, obs in enumerate(rows(step.next_obs)):
            action, log_prob = ref.sampled(actor, obs, noise[i])
            least = min(ref.value(critic, obs, action)[0] for critic in critics)
            soft = least - self.ALPHA * log_prob
            targets.append(rows(step.rewards)[i] + rows(step.discounts)[i] * soft)
        return np.array(targets)

    def expected_actor_loss(
        self, learner: Any, step: ReplayBatch, noise: Vector, flat: Vector
    ) -> float:
        actor = actor_layers(flat, SQUASHED_SIZES)
        critics = self.critics(rows(learner.flats["critics"].data))
        total = 0.0
        for i, obs in enumerate(rows(step.obs)):
            action, log_prob = ref.sampled(actor, obs, noise[i])
            least = min(ref.value(critic, obs, action)[0] for critic in critics)
            total += (self.ALPHA * log_prob - least) / ROWS
        return total

    @pytest.mark.long
    @WEIGHTED
    def test_losses_and_gradients(self, weighted: bool) -> None:
        learner, step = make(sw.SAC, ent_coef=f"auto_{self.ALPHA}"), batch(weighted=weighted)
        learner.flats["target_critics"].data.mul_(0.9)  # which are not the critics
        noise, next_noise = noises(learner, 2)
        targets = self.expected_targets(learner, step, next_noise)
        found = measured(learner, step)

        def critic_loss(flat: Vector) -> float:
            return 0.5 * squared_loss(self.critics(flat), step, targets)

        def actor_loss(flat: Vector) -> float:
            return self.expected_actor_loss(learner, step, noise, flat)

        assert found["critic_loss"] == pytest.approx(
            critic_loss(rows(learner.flats["critics"].data)), rel=1e-4
        )
        assert found["actor_loss"] == pytest.approx(
            actor_loss(rows(learner.flats["actor"].data)), rel=1e-4
        )
        assert found["q_value"] == pytest.approx(targets.mean(), rel=1e-4)
        assert found["alpha"] == pytest.approx(self.ALPHA)
        same_gradient(learner.flats["critics"].grad, critic_loss, learner.flats["critics"].data)
        same_gradient(learner.flats["actor"].grad, actor_loss, learner.flats["actor"].data)

        values = [
            [ref.value(c, o, a)[0] for o, a in zip(rows(step.obs), rows(step.actions), strict=True)]
            for c in self.critics(rows(learner.flats["critics"].data))
        ]
        np.testing.assert_allclose(
            found["td_errors"], np.mean(np.abs(values - targets), 0), rtol=1e-3, atol=1e-4
        )

    def test_the_weight_of_entropy(self) -> None:
        learner, step = make(sw.SAC, ent_coef=f"auto_{self.ALPHA}"), batch()
        (noise,) = noises(learner, 1)
        actor = actor_layers(rows(learner.flats["actor"].data), SQUASHED_SIZES)
        log_probs = [
            ref.sampled(actor, obs, one)[1] for obs, one in zip(rows(step.obs), noise, strict=True)
        ]
        found = measured(learner, step)
        surplus = np.mean(log_probs) - ACTIONS  # the target is minus the number of actions
        assert found["alpha_loss"] == pytest.approx(-math.log(self.ALPHA) * surplus, rel=1e-4)
        assert learner.flats["temperature"].grad.item() == pytest.approx(-surplus, rel=1e-4)
        assert found["entropy"] == pytest.approx(-np.mean(log_probs), rel=1e-4)


class TestTD3:
    SIZES = (OBS, *HIDDEN, ACTIONS)

    @pytest.mark.long(but=["TD3-uniform"])
    @WEIGHTED
    @pytest.mark.parametrize("cls", [sw.TD3, sw.DDPG])
    def test_losses_and_gradients(self, cls: Any, weighted: bool) -> None:
        learner, step = make(cls, policy_delay=1), batch(weighted=weighted)
        n = learner.config.n_critics
        learner.flats["target_actor"].data.mul_(3.0)
        learner.flats["target_critics"].data.mul_(0.9)
        (noise,) = noises(learner, 1)

        target_actor = actor_layers(rows(learner.flats["target_actor"].data), self.SIZES)
        target_critics = critic_layers(rows(learner.flats["target_critics"].data), n, CRITIC_SIZES)
        targets = np.empty(ROWS)
        for i, obs in enumerate(rows(step.next_obs)):
            action = np.tanh(ref.mlp(target_actor, obs))
            if cls is sw.TD3:
                action = np.clip(action + np.clip(0.2 * noise[i], -0.5, 0.5), -1, 1)
            least = min(ref.value(critic, obs, action)[0] for critic in target_critics)
            targets[i] = rows(step.rewards)[i] + rows(step.discounts)[i] * least
        found = measured(learner, step)

        def critic_loss(flat: Vector) -> float:
            return squared_loss(critic_layers(flat, n, CRITIC_SIZES), step, targets)

        def actor_loss(flat: Vector) -> float:
            actor = actor_layers(flat, self.SIZES)
            first = critic_layers(rows(learner.flats["critics"].data), n, CRITIC_SIZES)[0]
            actions = [np.tanh(ref.mlp(actor, obs)) for obs in rows(step.obs)]
            values = [
                ref.value(first, o, a)[0] for o, a in zip(rows(step.obs), actions, strict=True)
            ]
            return -float(np.mean(values))

        assert found["critic_loss"] == pytest.approx(
            critic_loss(rows(learner.flats["critics"].data)), rel=1e-4
        )
        assert found["actor_loss"] == pytest.approx(
            actor_loss(rows(learner.flats["actor"].data)), rel=1e-4
        )
        same_gradient(learner.flats["critics"].grad, critic_loss, learner.flats["critics"].data)
        same_gradient(learner.flats["actor"].grad, actor_loss, learner.flats["actor"].data)


class TestTQC:
    N, QUANTILES, DROP, ALPHA = 3, 5, 2, 0.2
    SIZES = (OBS + ACTIONS, *HIDDEN, QUANTILES)

    @pytest.mark.long
    @WEIGHTED
    def test_losses_and_gradients(self, weighted: bool) -> None:
        learner = make(
            sw.TQC,
            n_critics=self.N,
            n_quantiles=self.QUANTILES,
            top_quantiles_to_drop_per_net=self.DROP,
            ent_coef=self.ALPHA,
        )
        step = batch(weighted=weighted)
        learner.flats["target_critics"].data.mul_(0.9)
        noise, next_noise = noises(learner, 2)
        actor = actor_layers(rows(learner.flats["actor"].data), SQUASHED_SIZES)
        slow = critic_layers(rows(learner.flats["target_critics"].data), self.N, self.SIZES)
        targets = []
        for i, obs in enumerate(rows(step.next_obs)):
            action, log_prob = ref.sampled(actor, obs, next_noise[i])
            pooled = np.sort(np.concatenate([ref.value(critic, obs, action) for critic in slow]))
            kept = pooled[: len(pooled) - self.N * self.DROP]
            soft = kept - self.ALPHA * log_prob
            targets.append(rows(step.rewards)[i] + rows(step.discounts)[i] * soft)
        found = measured(learner, step)

        def critic_loss(flat: Vector) -> float:
            total = 0.0
            for critic in critic_layers(flat, self.N, self.SIZES):
                for i in range(ROWS):
                    theta = ref.value(critic, rows(step.obs)[i], rows(step.actions)[i])
                    (loss,) = quantile_huber(theta[None], targets[i][None])
                    total += row_weights(step)[i] * loss / (self.QUANTILES * self.N * ROWS)
            return total

        def actor_loss(flat: Vector) -> float:
            actor = actor_layers(flat, SQUASHED_SIZES)
            critics = critic_layers(rows(learner.flats["critics"].data), self.N, self.SIZES)
            total = 0.0
            for i, obs in enumerate(rows(step.obs)):
                action, log_prob = ref.sampled(actor, obs, noise[i])
                mean = np.mean([ref.value(critic, obs, action) for critic in critics])
                total += (self.ALPHA * log_prob - float(mean)) / ROWS
            return total

        assert found["critic_loss"] == pytest.approx(
            critic_loss(rows(learner.flats["critics"].data)), rel=1e-4
        )
        assert found["actor_loss"] == pytest.approx(
            actor_loss(rows(learner.flats["actor"].data)), rel=1e-4
        )
        assert found["alpha"] == pytest.approx(self.ALPHA)
        assert found["alpha_loss"] == 0.0
        same_gradient(learner.flats["critics"].grad, critic_loss, learner.flats["critics"].data)
        same_gradient(learner.flats["actor"].grad, actor_loss, learner.flats["actor"].data)


class TestDiscreteSAC:
    ALPHA = 0.4
    SIZES = (OBS, *HIDDEN, CHOICES)

    @pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
    def test_losses_and_gradients(self, masked: bool) -> None:
        learner = make(sw.DiscreteSAC, ent_coef=f"auto_{self.ALPHA}")
        step = batch(discrete=True, masked=masked)
        learner.flats["target_critics"].data.mul_(0.9)
        everything = np.ones((ROWS, CHOICES), np.bool_)
        allowed = everything if step.masks is None else rows(step.masks)
        next_allowed = everything if step.next_masks is None else rows(step.next_masks)

        actor = actor_layers(rows(learner.flats["actor"].data), self.SIZES)
        slow = critic_layers(rows(learner.flats["target_critics"].data), 2, self.SIZES)
        targets = np.empty(ROWS)
        for i, obs in enumerate(rows(step.next_obs)):
            probs = ref.softmax(ref.mlp(actor, obs), next_allowed[i])
            least = np.minimum(*(ref.mlp(critic, obs) for critic in slow))
            soft = probs @ least + self.ALPHA * ref.entropy(probs)
            targets[i] = rows(step.rewards)[i] + rows(step.discounts)[i] * soft
        found = measured(learner, step)

        def critic_loss(flat: Vector) -> float:
            total = 0.0
            for critic in critic_layers(flat, 2, self.SIZES):
                for i, obs in enumerate(rows(step.obs)):
                    error = ref.mlp(critic, obs)[rows(step.actions)[i]] - targets[i]
                    total += 0.5 * error**2 / ROWS
            return total

        def policies(flat: Vector) -> list[Vector]:
            actor = actor_layers(flat, self.SIZES)
            pairs = zip(rows(step.obs), allowed, strict=True)
            return [ref.softmax(ref.mlp(actor, obs), mask) for obs, mask in pairs]

        def actor_loss(flat: Vector) -> float:
            critics = critic_layers(rows(learner.flats["critics"].data), 2, self.SIZES)
            total = 0.0
            for obs, probs in zip(rows(step.obs), policies(flat), strict=True):
                least = np.minimum(*(ref.mlp(critic, obs) for critic in critics))
                total += (-self.ALPHA * ref.entropy(probs) - float(probs @ least)) / ROWS
            return total

        assert found["critic_loss"] == pytest.approx(
            critic_loss(rows(learner.flats["critics"].data)), rel=1e-4
        )
        assert found["actor_loss"] == pytest.approx(
            actor_loss(rows(learner.flats["actor"].data)), rel=1e-4
        )
        same_gradient(learner.flats["critics"].grad, critic_loss, learner.flats["critics"].data)
        same_gradient(learner.flats["actor"].grad, actor_loss, learner.flats["actor"].data)

        entropies = [ref.entropy(probs) for probs in policies(rows(learner.flats["actor"].data))]
        wanted = [0.89 * math.log(mask.sum()) for mask in allowed]
        surplus = np.mean(entropies) - np.mean(wanted)
        assert found["entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
        assert learner.flats["temperature"].grad.item() == pytest.approx(surplus, rel=1e-3)


class TestCrossQ:
    ALPHA = 0.3
    SIZES = CRITIC_SIZES

    def networks(self, flat: Vector) -> list[tuple[Layers, Layers]]:
        """The linear layers and the normalizations of two critics."""
        n_linear = 2 * sum((a + 1) * b for a, b in itertools.pairwise(self.SIZES))
        linear = critic_layers(flat[:n_linear], 2, self.SIZES)
        norms: list[list[tuple[Vector, Vector]]] = [[], []]
        start = n_linear
        for size in self.SIZES[:-1]:
            pair = flat[start : start + 4 * size].reshape(2, 2, size)
            for i in range(2):
                norms[i].append((pair[0, i], pair[1, i]))
            start += 4 * size
        assert start == len(flat)
        return list(zip(linear, norms, strict=True))

    @pytest.mark.long
    @WEIGHTED
    def test_the_loss_of_the_critics_and_its_gradient(self, weighted: bool) -> None:
        learner = make(sw.CrossQ, ent_coef=self.ALPHA, critic_hidden=HIDDEN, policy_delay=1)
        step = batch(weighted=weighted)
        (next_noise,) = noises(learner, 1)
        actor = self.fresh_actor(learner)
        pairs = [
            ref.sampled(actor, obs, noise)
            for obs, noise in zip(rows(step.next_obs), next_noise, strict=True)
        ]
        now = np.concatenate((rows(step.obs), rows(step.actions)), 1)
        later = np.concatenate((rows(step.next_obs), [action for action, _ in pairs]), 1)
        penalties = self.ALPHA * np.array([log_prob for _, log_prob in pairs])
        both = np.concatenate((now, later))

        def outputs(flat: Vector) -> list[Vector]:
            return [ref.batch_normed_mlp(*critic, both)[:, 0] for critic in self.networks(flat)]

        before = rows(learner.flats["critics"].data)
        least = np.minimum(*(output[ROWS:] for output in outputs(before)))
        targets = rows(step.rewards) + rows(step.discounts) * (least - penalties)
        found = measured(learner, step)

        def critic_loss(flat: Vector) -> float:
            errors = [output[:ROWS] - targets for output in outputs(flat)]
            return sum(0.5 * float(np.mean(row_weights(step) * e**2)) for e in errors)

        assert found["critic_loss"] == pytest.approx(critic_loss(before), rel=1e-4)
        assert found["q_value"] == pytest.approx(targets.mean(), rel=1e-4)
        same_gradient(learner.flats["critics"].grad, critic_loss, learner.flats["critics"].data)

    def fresh_actor(self, learner: Any) -> Layers:
        """The actor at play, whose normalizations have seen nothing yet: x / sqrt(1 + ε)."""
        scale = 1 / math.sqrt(1 + ref.BATCH_NORM_EPS)
        linears = [layer for layer in learner.policy.net if hasattr(layer, "in_features")]
        return [(scale * rows(layer.weight).T, rows(layer.bias)) for layer in linears]
