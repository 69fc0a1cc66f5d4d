"""Distillation of a teacher into a student."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.unit.algorithms.rows import rows_of
from tests.unit.envs.tensor_envs import Points

SMALL: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "hidden": 16,
    "anneal_lr": False,
    "learning_rate": 3e-3,
    "seed": 3,
}


class Student(sw.DistillationLearner):
    """Learns to push points back."""

    def teach(self, obs: torch.Tensor) -> torch.Tensor:
        return -obs[:, :1] - 0.5 * obs[:, 1:]


class Ordered(Student):
    distance = "huber"
    in_order = True


def test_the_loss_is_the_distance_to_what_the_teacher_would_do() -> None:
    learner: Any = sw.PPO(Points(4), learner=Student, **SMALL).learner
    batch = rows_of(learner, 10)
    loss, metrics = learner.loss(batch)
    with torch.no_grad():
        errors = (learner.policy.actor(batch.obs) - learner.teach(batch.obs)).numpy()
    np.testing.assert_allclose(loss.detach(), np.mean(errors**2), rtol=1e-5)
    assert metrics["behavior_loss"] == loss


def test_the_huber_loss_is_linear_beyond_one() -> None:
    learner: Any = sw.PPO(Points(4), learner=Ordered, **SMALL).learner
    batch = rows_of(learner, 10)
    with torch.no_grad():
        errors = (learner.policy.actor(batch.obs) - learner.teach(batch.obs)).abs().numpy()
    expected = np.where(errors < 1, errors**2 / 2, errors - 0.5).mean()
    np.testing.assert_allclose(learner.loss(batch)[0].detach(), expected, rtol=1e-5)


def test_minibatches_may_be_steps_in_order() -> None:
    learner: Any = sw.PPO(Points(4), learner=Ordered, **{**SMALL, "batch_size": 4}).learner
    rows = [part.tolist() for part in learner.minibatches(rows_of(learner, 10))]
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("learner", [Student, Ordered])
def test_the_student_becomes_the_teacher(learner: Any) -> None:
    agent = sw.PPO(Points(16), learner=learner, **SMALL)
    first = agent.train(16 * 16)["behavior_loss"]
    last = agent.train(16 * 16 * 60)["behavior_loss"]
    assert last < 0.02 * first
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    wanted = np.clip(-obs[:, :1] - 0.5 * obs[:, 1:], -1, 1)
    np.testing.assert_allclose(agent.predict(obs), wanted, atol=0.2)


@pytest.mark.long
def test_a_student_with_a_memory() -> None:
    class Sequences(sw.DistillationLearner):
        def teach(self, obs: torch.Tensor) -> torch.Tensor:
            return -obs[..., :1]

    agent = sw.PPO(Points(16), learner=Sequences, recurrent="gru", recurrent_size=8, **SMALL)
    first = agent.train(16 * 16)["behavior_loss"]
    assert agent.train(16 * 16 * 30)["behavior_loss"] < 0.3 * first


def test_values_and_spread_stay_as_they_are() -> None:
    agent = sw.PPO(Points(4), learner=Student, **SMALL)
    before = {name: x.clone() for name, x in agent.policy.state_dict().items()}
    agent.train(256)
    after = agent.policy.state_dict()
    changed = {name.partition(".")[0] for name, x in before.items() if not x.equal(after[name])}
    assert changed == {"actor"}


def test_what_does_not_fit_is_named() -> None:
    class Wide(sw.DistillationLearner):
        def teach(self, obs: torch.Tensor) -> torch.Tensor:
            return obs

    with pytest.raises(TypeError, match=r"DistillationLearner must have teach\(obs\)"):
        sw.PPO(Points(4), learner=sw.DistillationLearner, **SMALL)
    with pytest.raises(TypeError, match="action_space must be Box for Student"):
        sw.PPO("CartPole-v1", learner=Student, **SMALL)
    with pytest.raises(ValueError, match="target_kl must be None for Student"):
        sw.PPO(Points(4), learner=Student, target_kl=0.1, **SMALL)
    learner: Any = sw.PPO(Points(4), learner=Wide, **SMALL).learner
    with pytest.raises(ValueError, match=r"teach of Wide must give actions \(10, 1\), got"):
        learner.loss(rows_of(learner, 10))
