"""PPO of symmetric tasks, held to its formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.unit.algorithms.rows import rows_of
from tests.unit.envs.tensor_envs import Points

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "hidden": 8, "seed": 3}


class Mirrored(sw.SymmetricPPOLearner):
    """Points on a line, which look the same from both sides."""

    def forms(self, obs: Any, actions: Any) -> Any:
        return tuple(None if x is None else torch.cat((x, -x)) for x in (obs, actions))


class Drawn(Mirrored):
    augments = False
    mirror_coef = 0.7


def test_a_minibatch_learns_from_all_forms_of_its_rows() -> None:
    learner: Any = sw.PPO(Points(4), learner=Mirrored, **SMALL).learner
    batch = rows_of(learner, 10)
    mirrored = learner.mirrored(batch)
    assert torch.equal(mirrored.obs, torch.cat((batch.obs, -batch.obs)))
    assert torch.equal(mirrored.actions, torch.cat((batch.actions, -batch.actions)))
    for name in ("log_probs", "values", "advantages", "returns"):
        assert torch.equal(getattr(mirrored, name), getattr(batch, name).repeat(2))
    loss, metrics = learner.loss(batch)
    plain, _ = sw.PPOLearner.loss(learner, mirrored)
    assert torch.equal(loss, plain)
    own = sw.PPOLearner.loss(learner, batch)[1]["approx_kl"]
    assert torch.equal(metrics["approx_kl"], own)


def test_the_mirror_loss_is_how_far_the_policy_is_from_symmetry() -> None:
    learner: Any = sw.PPO(Points(4), learner=Drawn, **SMALL).learner
    batch = rows_of(learner, 10)
    loss, metrics = learner.loss(batch)
    with torch.no_grad():
        there, here = learner.policy.actor(-batch.obs), learner.policy.actor(batch.obs)
    expected = np.mean(np.square(there.numpy() + here.numpy()))
    np.testing.assert_allclose(metrics["mirror_loss"], expected, rtol=1e-5)
    plain, _ = sw.PPOLearner.loss(learner, batch)
    np.testing.assert_allclose((loss - plain).detach(), 0.7 * expected, rtol=1e-4)


def test_its_gradient_is_that_of_the_mirrored_half() -> None:
    learner: Any = sw.PPO(Points(4), learner=Drawn, **SMALL).learner
    obs = torch.randn(5, 2)
    weights = learner.policy.actor[0].weight
    both = torch.cat((obs, -obs))
    (found,) = torch.autograd.grad(learner.mirror_loss(both, 5), weights)
    wanted = -learner.policy.actor(obs).detach()
    (expected,) = torch.autograd.grad(
        (learner.policy.actor(-obs) - wanted).square().mean(), weights
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("learner", [Mirrored, Drawn])
def test_policies_become_symmetric(learner: Any) -> None:
    def asymmetry(kind: Any) -> float:
        agent = sw.PPO(Points(16), learner=kind, **{**SMALL, "learning_rate": 3e-3})
        agent.train(16 * 16 * 30)
        obs = torch.rand(200, 2) * 2 - 1
        with torch.no_grad():
            means = agent.learner.policy.actor(torch.cat((obs, -obs)))
        return float((means[:200] + means[200:]).square().mean() / means.square().mean())

    assert asymmetry(learner) < 0.5 * asymmetry(sw.PPOLearner)


def test_what_does_not_fit_is_named() -> None:
    class Same(sw.SymmetricPPOLearner):
        def forms(self, obs: Any, actions: Any) -> Any:
            return obs, actions

    with pytest.raises(TypeError, match=r"SymmetricPPOLearner must have forms\(obs, actions\)"):
        sw.PPO(Points(4), learner=sw.SymmetricPPOLearner, **SMALL)
    with pytest.raises(ValueError, match="recurrent must be None"):
        sw.PPO(Points(4), learner=Mirrored, recurrent="gru", **SMALL)
    with pytest.raises(ValueError, match="mirror_coef must be 0 unless actions are continuous"):
        sw.PPO("CartPole-v1", learner=Drawn, **SMALL)
    learner: Any = sw.PPO(Points(4), learner=Same, **SMALL).learner
    with pytest.raises(ValueError, match="forms of Same must give k times 10 rows"):
        learner.loss(rows_of(learner, 10))
