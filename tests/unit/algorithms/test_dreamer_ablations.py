"""What DreamerV3 adds can be left out, part by part."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sharpwave.losses.world_model import symlog
from tests.unit.algorithms.test_dreamer import batch_of, learner


def model_grads(made: Any, name: str) -> dict[str, torch.Tensor]:
    """Gradients of one loss of the model, by parameter; those that it does not reach are absent."""
    batch = batch_of()
    made.generator.manual_seed(0)
    actions = torch.nn.functional.one_hot(batch.prev_actions.long(), 3).float()
    columns = {**vars(batch), "prev_actions": actions}
    observed = made.world.observe(columns, made._before(batch), made.generator)
    loss = made.world.loss(columns, observed)[name].mean()
    named = dict(made.world.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {k: x for k, x in zip(named, grads, strict=True) if x is not None and bool(x.any())}


def test_without_replayed_values() -> None:
    assert learner(replay_value_coef=0.0).update(batch_of())["replay_value_loss"].item() == 0.0
    assert learner().update(batch_of())["replay_value_loss"].item() > 0.0


def test_without_the_gradient_of_rewards_their_head_alone_learns() -> None:
    plain, alone = (model_grads(learner(reward_grad=x), "reward") for x in (True, False))
    assert any(not name.startswith("reward_head.") for name in plain)
    assert alone
    assert all(name.startswith("reward_head.") for name in alone)
    for name, grad in alone.items():
        torch.testing.assert_close(grad, plain[name])


def test_without_a_uniform_share_latents_may_be_certain() -> None:
    for share, least in ((0.01, 0.01 / 4), (0.0, 0.0)):
        rssm = learner(unimix=share).world.rssm
        logits = torch.zeros(2, 12)
        logits[:, 0] = 200.0
        assert rssm._log_probs(logits).exp()[0, 0].min().item() == pytest.approx(least, abs=1e-6)


def test_without_free_nats_every_divergence_counts() -> None:
    free, strict = (learner(free_nats=x).update(batch_of()) for x in (50.0, 0.0))
    assert free["dynamics_loss"].item() == 50.0
    assert 0.0 < strict["dynamics_loss"].item() < 50.0
    assert not model_grads(learner(free_nats=50.0), "dynamics")
    assert model_grads(learner(free_nats=0.0), "dynamics")


@pytest.mark.parametrize("used", [True, False])
def test_without_symlogs_vectors_are_seen_and_predicted_as_they_are(used: bool) -> None:
    world = learner(symlog=used).world
    obs = {"obs": torch.tensor([[30.0, -7.0, 0.5]])}
    target = symlog(obs["obs"]) if used else obs["obs"]
    assert world.decoder.loss({"obs": target}, obs).item() == 0.0
    torch.testing.assert_close(world.decoder.shown({"obs": target})["obs"], obs["obs"])
    torch.testing.assert_close(world.encoder(obs), world.encoder.vectors(target))


def test_without_normalization_advantages_are_as_they_are() -> None:
    returns = torch.linspace(-100.0, 100.0, 50)
    made = learner(normalize_returns=False, return_rate=1.0)
    assert made._scale(returns).item() == 1.0
    assert not made.return_range.any()
    assert learner(return_rate=1.0)._scale(returns).item() == pytest.approx(180.0)


def test_without_clipping_gradients_are_whole() -> None:
    plain, whole = learner(), learner(agc=None)
    for made in (plain, whole):
        made.follow(1.0)
        made.update(batch_of())
    assert not torch.equal(plain.flats["policy"].data, whole.flats["policy"].data)
