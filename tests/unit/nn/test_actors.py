"""Actors of the algorithms that learn from replay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpwave.nn import CategoricalActor, DeterministicActor, SquashedActor, SquashedGaussian
from tests.reference.actor_critic import squashed

BOX = spaces.Box(-1.0, 1.0, (3,))
OBS = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def squashed_actor(**options: Any) -> SquashedActor:
    return SquashedActor(BOX, 2, hidden=(16,), generator=np.random.default_rng(0), **options)


class TestSquashedDensity:
    """Against float64, where 1 - tanh(u)² is 0 in float32 long before its logarithm is gone."""

    @pytest.mark.parametrize("raw", [0.0, 1e-4, 1.0, 5.0, 9.0, 15.0, 50.0, 300.0, -20.0, -1e3])
    @pytest.mark.parametrize("log_std", [-20.0, -3.0, 0.0, 2.0])
    def test_at_the_edges(self, raw: float, log_std: float) -> None:
        noise = 1.3
        mean = raw - math.exp(log_std) * noise
        _, expected = squashed(np.array([mean]), np.array([log_std]), np.array([noise]))
        found = SquashedGaussian(1).log_prob_of_noise(
            torch.tensor([[raw]]), torch.tensor([[log_std]]), torch.tensor([[noise]])
        )
        assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)

    @settings(deadline=None)
    @given(st.floats(-50, 50), st.floats(-5, 2), st.floats(-4, 4))
    def test_everywhere(self, mean: float, log_std: float, noise: float) -> None:
        _, expected = squashed(np.array([mean]), np.array([log_std]), np.array([noise]))
        raw = torch.tensor([[mean + math.exp(log_std) * noise]], dtype=torch.float32)
        found = SquashedGaussian(1).log_prob_of_noise(
            raw, torch.tensor([[log_std]]), torch.tensor([[noise]])
        )
        assert found.item() == pytest.approx(expected, rel=1e-4, abs=1e-4)

    @pytest.mark.parametrize("raw", [-100.0, -9.0, 0.0, 9.0, 100.0])
    def test_gradients_are_finite_and_right(self, raw: float) -> None:
        # d/du of -log(1 - tanh²u) is 2 tanh u
        u = torch.tensor([[raw]], requires_grad=True)
        zero = torch.zeros(1, 1)
        SquashedGaussian(1).log_prob_of_noise(u, zero, zero).sum().backward()
        assert u.grad is not None
        assert u.grad.item() == pytest.approx(2 * math.tanh(raw), abs=1e-6)


class TestSquashedActor:
    @pytest.mark.parametrize("gsde", [False, True])
    def test_samples_have_the_density_they_say(self, gsde: bool) -> None:
        actor = squashed_actor(gsde=gsde, log_std_init=-0.5)
        actions, log_probs = actor.sample(OBS, seeded())
        mean, log_std = actor(OBS)
        raw = torch.atanh(actions.double())
        normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
        expected = (normal.log_prob(raw) - torch.log(1 - actions.double() ** 2)).sum(-1)
        np.testing.assert_allclose(log_probs.detach(), expected.detach(), rtol=1e-3, atol=1e-3)

    def test_deviations_stay_in_their_range(self) -> None:
        actor = squashed_actor()
        for sign, bound in ((-1, -20.0), (1, 2.0)):
            with torch.no_grad():
                list(actor.net)[-1].bias[2:] = 1e3 * sign  # type: ignore[operator]
            assert (actor(OBS)[1] == bound).all()
            actions, log_probs = actor.sample(OBS, seeded())
            assert actions.isfinite().all()
            assert log_probs.isfinite().all()

    def test_exploring_draws_what_sampling_draws(self) -> None:
        actor = squashed_actor()
        torch.testing.assert_close(
            actor.explore(OBS, seeded(3)), actor.sample(OBS, seeded(3))[0].detach()
        )
        assert not actor.explore(OBS, seeded(3)).requires_grad

    def test_smooth_noise_needs_gsde(self) -> None:
        with pytest.raises(TypeError, match="gsde"):
            squashed_actor().explore_smoothly(OBS)

    def test_smooth_noise_over_many_draws_is_that_of_the_density(self) -> None:
        actor = squashed_actor(gsde=True, log_std_init=-1.0)
        obs = OBS[:1].expand(20_000, -1)
        actor.reset_noise(20_000, seeded())
        raw = torch.atanh(actor.explore_smoothly(obs).double())
        mean, log_std = actor(OBS[:1])
        torch.testing.assert_close(raw.mean(0).float(), mean[0].detach(), rtol=0, atol=0.03)
        torch.testing.assert_close(raw.std(0).log().float(), log_std[0].detach(), rtol=0, atol=0.03)


def test_a_deterministic_actor_stays_in_bounds() -> None:
    actor = DeterministicActor(BOX, 2, hidden=(16,), generator=np.random.default_rng(0))
    actions = actor(100 * OBS)
    assert actions.abs().max() <= 1.0
    assert torch.equal(actor.mode(OBS), actor(OBS).detach())


class TestCategoricalActor:
    def actor(self) -> CategoricalActor:
        return CategoricalActor(BOX, 4, hidden=(16,), generator=np.random.default_rng(0))

    def test_forbidden_actions_have_no_probability(self) -> None:
        masks = torch.rand(64, 4, generator=seeded()) < 0.5
        masks[:, 1] = True
        log_probs = self.actor()(OBS, masks)
        assert (log_probs.exp()[~masks] == 0).all()
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(64))
        for actions in (self.actor().mode(OBS, masks), self.actor().explore(OBS, masks, seeded())):
            assert masks.gather(1, actions[:, None]).all()

    def test_draws_are_as_frequent_as_they_are_likely(self) -> None:
        actor = self.actor()
        obs = OBS[:1].expand(20_000, -1)
        counts = torch.bincount(actor.explore(obs, None, seeded()), minlength=4) / 20_000
        torch.testing.assert_close(counts, actor(OBS[:1]).exp()[0].detach(), rtol=0, atol=0.02)
