"""Parts that DreamerV3 adds can be left out, one by one."""

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


def test_without_a_uniform_share_a_policy_may_be_certain() -> None:
    for share, least in ((0.3, 0.1), (0.0, 0.0)):
        actor = learner(policy_unimix=share).actor
        with torch.no_grad():
            actor.head.output.weight.zero_()
            actor.head.output.bias.copy_(torch.tensor([200.0, 0.0, 0.0]))
        features = torch.zeros(4000, actor.head.hidden[0].linear.in_features)  # type: ignore[union-attr, arg-type]
        log_probs, _ = actor.log_prob_and_entropy(features[:3], torch.eye(3))
        assert log_probs.exp()[1:].max().item() == pytest.approx(least, abs=1e-6)
        noise = actor.noise((4000,), torch.Generator().manual_seed(0))
        taken = actor.act(features, noise=noise).mean(0)
        assert taken[1].item() == pytest.approx(least, abs=0.02)
        assert actor.act(features[:1], deterministic=True)[0, 0] == 1.0


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
    for agc, is_whole in ((0.3, False), (None, True)):
        made, batch = learner(agc=agc), batch_of()
        made.generator.manual_seed(0)
        model_loss, observed, _ = made.model_loss(batch)
        behavior_loss, _ = made.behavior_loss(batch, observed)
        parameters = list(made.policy.parameters())
        wanted = torch.autograd.grad(model_loss + behavior_loss, parameters)
        made.return_range.zero_()  # which the losses have moved
        made.generator.manual_seed(0)
        made.follow(1.0)
        made.update(batch)
        pairs = list(zip(parameters, wanted, strict=True))
        same = [torch.allclose(one.grad, grad, rtol=1e-4, atol=1e-6) for one, grad in pairs]
        assert all(same) == is_whole


def test_without_a_weight_a_loss_of_the_model_is_absent() -> None:
    """Also where it is no number, which 0 times it would spread."""
    for name in learner().config.model_coefs:
        made = learner(**{f"{name}_coef": 0.0})
        loss = made.world.loss

        def broken(*args: Any, name: str = name, loss: Any = loss) -> Any:
            found = loss(*args)
            return {**found, name: found[name] * torch.nan}

        made.world.loss = broken  # type: ignore[method-assign, assignment]
        total, _, _ = made.model_loss(batch_of())
        assert torch.isfinite(total)


def test_a_loss_that_somebody_adds_to_the_model_counts() -> None:
    made, batch = learner(), batch_of()
    loss, totals = made.world.loss, []
    for added in (0.0, 5.0):
        extra = {"added": torch.full((6, 4), added)}
        made.world.loss = lambda *args, e=extra: {**loss(*args), **e}  # type: ignore[method-assign]
        made.generator.manual_seed(0)
        totals.append(made.model_loss(batch)[0].item())
    assert totals[1] - totals[0] == pytest.approx(5.0, abs=1e-4)


@pytest.mark.parametrize(("name", "part"), [("policy_coef", "actor"), ("value_coef", "critic")])
def test_without_a_weight_the_behavior_of_a_part_is_not_learned(name: str, part: str) -> None:
    for coef in (0.0, 1.0):
        made = learner(**{name: coef, "replay_value_coef": 0.0})
        _, observed, _ = made.model_loss(batch_of())
        loss, _ = made.behavior_loss(batch_of(), observed)
        grads = torch.autograd.grad(loss, list(made.policy[part].parameters()))
        assert any(bool(grad.any()) for grad in grads) == bool(coef)
