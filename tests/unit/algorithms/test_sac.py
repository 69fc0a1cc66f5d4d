"""SAC and its kin beyond their losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import sharpwave as sw
from sharpwave.learners import Acted
from tests.envs import ResumablePush
from tests.learning import probes
from tests.unit.algorithms.fixed_batch import batch, make

SMALL: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "hidden": 8, "log_interval": 20}


class Actor(nn.Module):
    """A user's actor, which draws from torch's global generator."""

    def __init__(self, columns: bool = False) -> None:
        super().__init__()
        self.mean = nn.Linear(3, 2)
        self.columns = columns

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normal = torch.distributions.Normal(self.mean(obs), 0.5)
        raw = normal.rsample()
        log_prob = (normal.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)).sum(-1)
        return raw.tanh(), log_prob[:, None] if self.columns else log_prob

    def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
        actions: torch.Tensor = self.mean(obs)
        return actions.tanh()


class Critic(nn.Module):
    """A user's critic."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.value = nn.Linear(5, width)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.value(torch.cat((obs, actions), 1))
        return values


class TestWeightOfEntropy:
    @pytest.mark.parametrize(
        ("options", "learned", "first"),
        [
            ({}, True, 1.0),
            ({"ent_coef": "auto_0.1"}, True, 0.1),
            ({"ent_coef": 0.3}, False, 0.3),
            ({"ent_coef": "0.3"}, False, 0.3),
            ({"ent_coef": 0}, False, 0.0),
            ({"auto_entropy": False}, False, 0.2),
            ({"auto_entropy": False, "ent_coef": "auto_0.1"}, False, 0.1),
            ({"auto_entropy": False, "ent_coef": 0.7}, False, 0.7),
        ],
    )
    def test_is_learned_or_fixed(
        self, options: dict[str, Any], learned: bool, first: float
    ) -> None:
        learner = make(sw.SAC, **options)
        learner.optimizers["temperature"].set_lr(0.1)
        measured = learner.update(batch())
        assert measured["alpha"].item() == pytest.approx(first)
        assert (learner.alpha().item() != pytest.approx(first)) is learned
        assert (measured["alpha_loss"].item() == 0) is (not learned or first == 1.0)

    @pytest.mark.parametrize("value", [-0.1, "often", "auto_", "auto_x", "auto_0", "auto_-1", None])
    def test_an_impossible_one_is_named(self, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="ent_coef"):
            sw.SACConfig(ent_coef=value)

    def test_falls_where_there_is_more_entropy_than_wanted(self) -> None:
        for target, rises in ((-100.0, False), (100.0, True)):
            learner = make(sw.SAC, target_entropy=target)
            learner.optimizers["temperature"].set_lr(0.1)
            learner.update(batch())
            assert (learner.alpha().item() > 1.0) is rises


class TestTargets:
    def test_follow_by_tau_every_so_many_steps(self) -> None:
        learner = make(sw.SAC, tau=0.25, target_update_interval=3)
        learner.follow(1.0)
        before = learner.flats["target_critics"].data.clone()
        for step in range(1, 7):
            learner.update(batch())
            if step % 3 == 0:
                expected = 0.75 * before + 0.25 * learner.flats["critics"].data
                torch.testing.assert_close(learner.flats["target_critics"].data, expected)
                before = learner.flats["target_critics"].data.clone()
            else:
                assert torch.equal(learner.flats["target_critics"].data, before)

    def test_the_critics_learn_nothing_from_the_actors_loss(self) -> None:
        learner = make(sw.SAC)
        learner.update(batch())
        grad = learner.flats["critics"].grad.clone()
        obs = batch().obs
        actions, log_probs = learner.sample(obs, None)
        loss = learner.actor_loss(batch(), actions, log_probs, learner.alpha())
        sw.nn.descend(loss, learner.flats["actor"], learner.optimizers["actor"])
        assert torch.equal(learner.flats["critics"].grad, grad)


class TestBounds:
    """Every dimension has bounds of its own: [0, 1] and [-5, 5]."""

    def test_the_whole_space_is_explored(self) -> None:
        algorithm = sw.SAC(ResumablePush, **SMALL, n_envs=4)
        algorithm.train(400)
        stored = algorithm.buffer.sample(400)["actions"]
        assert stored[:, 0].min() < 0.05 < 0.95 < stored[:, 0].max()
        assert stored[:, 1].min() < -4.5 < 4.5 < stored[:, 1].max()

    def test_batches_hold_actions_between_minus_one_and_one(self) -> None:
        algorithm = sw.SAC(ResumablePush, **SMALL)
        algorithm.train(60)
        drawn = algorithm.sampler.draw()
        step = algorithm.sampler.as_batch(drawn)
        stored = np.asarray(drawn["actions"])
        expected = np.stack((2 * stored[:, 0] - 1, stored[:, 1] / 5), 1)
        np.testing.assert_allclose(step.actions, expected, atol=1e-6)
        assert abs(step.actions).max() <= 1.0


class TestStateDependentNoise:
    def noise_at(self, freq: int, train_freq: int, steps: int) -> list[torch.Tensor]:
        algorithm = sw.SAC(
            ResumablePush,
            use_gsde=True,
            sde_sample_freq=freq,
            **{**SMALL, "learning_starts": 0, "train_freq": train_freq},
        )
        seen: list[torch.Tensor] = []
        act = algorithm.learner.act

        def spy(obs: Any, **options: Any) -> Acted:
            acted: Acted = act(obs, **options)
            seen.append(algorithm.policy.noise.matrices.clone())
            return acted

        algorithm.learner.act = spy
        algorithm.train(steps)
        return seen

    @pytest.mark.parametrize(("freq", "train_freq", "every"), [(3, 1, 3), (-1, 4, 4), (1, 4, 1)])
    def test_is_drawn_anew_every_so_many_steps(
        self, freq: int, train_freq: int, every: int
    ) -> None:
        seen = self.noise_at(freq, train_freq, 12)
        for t in range(1, 12):
            assert torch.equal(seen[t], seen[t - 1]) is (t % every != 0)

    def test_is_the_same_function_of_the_state_in_between(self) -> None:
        algorithm = sw.SAC(ResumablePush, use_gsde=True, sde_sample_freq=100, **SMALL)
        obs, starts = np.random.default_rng(0).normal(size=(1, 3)).astype("f"), np.zeros(1, bool)
        _, first, second = (algorithm.actor.act(obs, starts).actions for _ in range(3))
        assert np.array_equal(first, second)

    def test_play_is_not_bound_to_it(self) -> None:
        algorithm = sw.SAC(ResumablePush, use_gsde=True, log_std_init=0.0, **SMALL)
        algorithm.train(30)
        played = [algorithm.predict(np.zeros(3), deterministic=False)[1] for _ in range(5)]
        assert len(set(played)) == 5


class TestNetworksOfOnesOwn:
    @pytest.mark.long
    def test_learn_and_act(self) -> None:
        actor, critic = Actor(), Critic()
        before = [p.clone() for p in (*actor.parameters(), *critic.parameters())]
        algorithm = sw.SAC(ResumablePush, actor=actor, critic=critic, **SMALL)
        algorithm.train(60)
        after = [*actor.parameters(), *critic.parameters()]
        assert all(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
        expected = actor.deterministic(torch.zeros(1, 3)).detach().numpy() * [0.5, 5] + [0.5, 0]
        np.testing.assert_allclose(algorithm.predict(np.zeros((1, 3))), expected, atol=1e-6)

    def test_a_copied_critic_is_no_duplicate(self) -> None:
        critic = Critic()
        first, twin = sw.SAC(ResumablePush, critic=critic, **SMALL).critics.members
        assert first is critic
        assert not torch.equal(first.value.weight, twin.value.weight)

    def test_several_critics_are_taken_as_they_are(self) -> None:
        critics = [Critic(), Critic()]
        algorithm = sw.SAC(ResumablePush, critic=critics, **SMALL)
        assert list(algorithm.critics.members) == critics

    @pytest.mark.long
    @pytest.mark.parametrize("argument", ["actor", "policy"])
    def test_runs_are_reproducible_and_the_global_generator_is_left_alone(
        self, argument: str
    ) -> None:
        weights = []
        for ambient in (1, 2):
            torch.manual_seed(7)
            options: dict[str, Any] = {argument: Actor(columns=True), "critic": Critic()}
            algorithm = sw.SAC(ResumablePush, seed=42, **options, **SMALL)
            torch.manual_seed(ambient)
            expected = torch.rand(3)
            torch.manual_seed(ambient)
            algorithm.train(60)
            assert torch.equal(torch.rand(3), expected)
            weights.append(algorithm.flats["actor"].data.clone())
        assert torch.equal(*weights)

    @pytest.mark.long
    def test_a_checkpoint_needs_them_again(self, tmp_path: Path) -> None:
        algorithm = sw.SAC(ResumablePush, actor=Actor(), critic=Critic(), **SMALL)
        algorithm.train(40)
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="actor must be given"):
            sw.SAC.from_checkpoint(tmp_path / "a", ResumablePush)
        with pytest.raises(ValueError, match="critic must be given"):
            sw.SAC.from_checkpoint(tmp_path / "a", ResumablePush, actor=Actor())
        loaded = sw.SAC.from_checkpoint(
            tmp_path / "a", ResumablePush, actor=Actor(), critic=Critic()
        )
        np.testing.assert_array_equal(loaded.predict(np.ones(3)), algorithm.predict(np.ones(3)))

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"actor": nn.Linear(3, 2)}, TypeError, r"must offer sample\(obs\).*deterministic"),
            ({"actor": "mine"}, TypeError, "actor must be a torch.nn.Module, got str"),
            ({"critic": print}, TypeError, "critic must be a torch.nn.Module"),
            ({"critic": [Critic(), Critic(), Critic()]}, ValueError, "one module or 2, got 3"),
            ({"actor": Actor(), "use_gsde": True}, ValueError, "use_gsde must be False"),
        ],
        ids=["plain-actor", "text", "function", "three", "gsde"],
    )
    def test_what_does_not_fit_is_named(
        self, options: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            sw.SAC(ResumablePush, **options, **SMALL)

    def test_results_of_a_wrong_shape_are_named(self) -> None:
        algorithm = sw.SAC(ResumablePush, critic=Critic(width=2), **SMALL)
        with pytest.raises(ValueError, match=r"values of Critic must have shape \(8,\).*\(8, 2\)"):
            algorithm.train(60)


class TestKin:
    def test_tqc_without_dropped_quantiles_keeps_all(self) -> None:
        learner = make(sw.TQC, n_critics=2, n_quantiles=5, top_quantiles_to_drop=0)
        targets = learner.targets(batch(), learner.alpha())
        assert targets.shape == (6, 10)

    @pytest.mark.parametrize("value", [-1, 25, 2.5])
    def test_tqc_keeps_at_least_one_quantile(self, value: Any) -> None:
        with pytest.raises(ValueError, match="top_quantiles_to_drop"):
            sw.TQCConfig(top_quantiles_to_drop=value)

    def test_crossq_has_no_target_networks(self) -> None:
        learner = make(sw.CrossQ, critic_hidden=(8, 8))
        assert set(learner.networks) == {"actor", "critics", "temperature"}
        with pytest.raises(ValueError, match="tau has no meaning"):
            sw.CrossQConfig(tau=0.1)

    def test_crossq_moves_the_actor_once_in_policy_delay_steps(self) -> None:
        learner = make(sw.CrossQ, critic_hidden=(8, 8), policy_delay=3)
        learner.follow(1.0)
        for step in range(1, 7):
            before = learner.flats["actor"].data.clone(), learner.alpha()
            learner.update(batch())
            moved = not torch.equal(learner.flats["actor"].data, before[0])
            assert moved is (step % 3 == 0)
            assert (learner.alpha() != before[1]) == moved

    def test_crossq_acts_by_running_statistics_and_learns_them(self) -> None:
        learner = make(sw.CrossQ, critic_hidden=(8, 8), policy_delay=1)
        norm = learner.policy.net[0]
        assert not learner.policy.training
        before = norm.running_mean.clone()
        learner.act(torch.ones(5, 3), explore=False)
        assert torch.equal(norm.running_mean, before)
        learner.update(batch())
        assert not torch.equal(norm.running_mean, before)
        assert not learner.policy.training
        assert not learner.critics.training

    def test_discrete_sac_values_nothing_that_is_forbidden(self) -> None:
        learner = make(sw.DiscreteSAC, ent_coef=0.0)
        step = batch(discrete=True, masked=True)
        free = learner.targets(step, learner.alpha())
        with torch.no_grad():
            list(learner.target_critics.net.layers)[-1].bias[:, :, 0] += 100.0
        moved = learner.targets(step, learner.alpha())
        assert step.next_masks is not None
        allowed = step.next_masks[:, 0] & (step.discounts > 0)
        assert torch.equal(moved != free, allowed)

    def test_discrete_sac_refuses_actions_it_cannot_choose(self) -> None:
        class OneAction(probes.ConstantValue):
            action_space = spaces.Discrete(1)

        with pytest.raises(TypeError, match="two actions or more, got Discrete"):
            sw.DiscreteSAC(OneAction)
        with pytest.raises(ValueError, match="use_gsde"):
            sw.DiscreteSAC("CartPole-v1", use_gsde=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler warns of what itself does
@pytest.mark.parametrize("cls", [sw.SAC, sw.TD3, sw.TQC, sw.CrossQ, sw.DiscreteSAC])
def test_compiled_losses_give_the_same_steps(cls: Any) -> None:
    results = []
    for compiled in (False, True):
        options = {"critic_hidden": (8, 8)} if cls is sw.CrossQ else {}
        learner = make(cls, compile=compiled, learning_rate=1e-2, **options)
        learner.follow(1.0)
        for _ in range(6):
            measured = learner.update(batch(discrete=cls is sw.DiscreteSAC))
        results.append((measured, learner.flats["actor"].data, learner.flats["critics"].data))
    for eager, fast in zip(*results, strict=True):
        torch.testing.assert_close(eager, fast, rtol=1e-3, atol=1e-4)
