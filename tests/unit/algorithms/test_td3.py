"""TD3 and DDPG beyond their losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sharpwave as sw
from sharpwave.learners import Acted
from sharpwave.learners.noise import OrnsteinUhlenbeck
from tests.envs import ResumablePush
from tests.unit.algorithms.fixed_batch import batch, make
from tests.unit.algorithms.test_sac import Critic

SMALL: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "hidden": 8, "log_interval": 20}


class Actor(nn.Module):
    """A user's actor."""

    def __init__(self, dim: int = 2) -> None:
        super().__init__()
        self.action = nn.Linear(3, dim)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        actions: torch.Tensor = self.action(obs)
        return actions.tanh()


class TestDelay:
    @pytest.mark.parametrize("delay", [1, 2, 3])
    def test_actor_and_all_slow_copies_move_once_in_so_many_steps(self, delay: int) -> None:
        learner = make(sw.TD3, policy_delay=delay, tau=0.25)
        learner.follow(1.0)
        flats = [
            learner.flats["actor"],
            learner.flats["target_actor"],
            learner.flats["target_critics"],
        ]
        for step in range(1, 7):
            before = [flat.data.clone() for flat in flats]
            critics = learner.flats["critics"].data.clone()
            learner.update(batch())
            assert not torch.equal(learner.flats["critics"].data, critics)
            for flat, old in zip(flats, before, strict=True):
                assert torch.equal(flat.data, old) is (step % delay != 0)
            if step % delay == 0:
                expected = 0.75 * before[2] + 0.25 * learner.flats["critics"].data
                torch.testing.assert_close(learner.flats["target_critics"].data, expected)

    def test_the_actors_loss_is_that_of_its_last_step(self) -> None:
        learner = make(sw.TD3, policy_delay=3)
        learner.follow(1.0)
        losses = [learner.update(batch())["actor_loss"].item() for _ in range(9)]
        assert losses[0] == losses[1] == 0.0
        assert losses[2] == losses[3] == losses[4] != 0.0
        assert losses[5] == losses[6] == losses[7] != losses[4]


class TestNoise:
    @pytest.mark.long
    def test_is_that_of_actions_between_minus_one_and_one(self) -> None:
        algorithm = sw.TD3(ResumablePush, exploration_noise=0.1, backend="torch", **SMALL)
        obs = torch.zeros(1, 3)
        plain = algorithm.policy.mode(obs)
        drawn = [algorithm.learner.act(obs, explore=True).actions for _ in range(2000)]
        noise = (torch.cat(drawn) - plain).detach()
        np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.02)
        np.testing.assert_allclose(noise.std(0), 0.1, rtol=0.1)

    def test_is_none_at_play(self) -> None:
        algorithm = sw.TD3(ResumablePush, **SMALL)
        played = {
            tuple(algorithm.predict(np.ones(3), deterministic=deterministic))
            for deterministic in (True, False, False)
        }
        assert len(played) == 1

    def test_without_any_the_policy_is_played(self) -> None:
        obs = np.ones((1, 3), np.float32)
        for backend in ("torch", "native"):
            algorithm = sw.TD3(ResumablePush, exploration_noise=0.0, backend=backend, **SMALL)
            acted = algorithm.actor.act(obs, np.ones(1, bool))
            explored = algorithm.action_map.to_env(acted.actions)
            np.testing.assert_array_equal(explored, algorithm.predict(obs))

    def test_on_targets_is_clipped_and_stays_in_bounds(self) -> None:
        learner = make(sw.TD3, target_noise=100.0, noise_clip=0.3)
        seen: list[torch.Tensor] = []
        critics = learner.target_critics

        def spy(obs: Any, actions: torch.Tensor) -> torch.Tensor:
            seen.append(actions)
            values: torch.Tensor = critics(obs, actions)
            return values

        learner.target_critics = spy
        plain = learner.target_actor(batch().next_obs)
        learner.targets(batch())
        assert seen[0].abs().max() <= 1.0
        torch.testing.assert_close((seen[0] - plain).abs(), torch.full((6, 2), 0.3))

    def test_a_walk_remembers_and_is_drawn_back(self) -> None:
        walk = OrnsteinUhlenbeck(np.zeros((1000, 1)), sigma=0.3, theta=1.0, dt=0.1)
        rng = np.random.default_rng(0)
        running = np.zeros(1000, bool)
        moves = [walk.move(running, rng.normal(size=(1000, 1))).copy() for _ in range(200)]
        values = np.stack(moves)[100:]
        # x' = 0.9 x + 0.3 √0.1 ε has variance 0.009 / (1 - 0.81)
        assert values.std() == pytest.approx((0.009 / 0.19) ** 0.5, rel=0.05)
        lagged = (values[1:] * values[:-1]).mean() / np.square(values).mean()
        assert lagged == pytest.approx(0.9, abs=0.02)

    @pytest.mark.parametrize("kind", [torch.tensor, np.array])
    def test_a_walk_begins_anew_with_an_episode(self, kind: Any) -> None:
        walk = OrnsteinUhlenbeck(kind([[5.0, 5.0]] * 3), sigma=0.0)
        drawn = walk.move(kind([False, True, False]), kind([[1.0, 1.0]] * 3))
        assert (drawn[1] == 0).all()
        assert (drawn[[0, 2]] > 4).all()

    @pytest.mark.long
    def test_walks_of_a_run_begin_anew_with_its_episodes(self) -> None:
        options: dict[str, Any] = {"noise_type": "ou", "exploration_noise": 0.5, "n_envs": 2}
        algorithm = sw.TD3(lambda: ResumablePush(5), backend="torch", **options, **SMALL)
        sizes = []
        act = algorithm.learner.act

        def spy(obs: Any, **options: Any) -> Acted:
            acted: Acted = act(obs, **options)
            sizes.append(acted.state.value.abs().max().item())
            return acted

        algorithm.learner.act = spy
        algorithm.train(140)
        first_steps = np.array(sizes).reshape(-1, 5)  # all episodes have five steps
        assert first_steps[:, 0].mean() < first_steps[:, -1].mean()
        assert first_steps[:, 0].max() < 0.5 * 0.1 * 5  # one step from zero


class TestNetworksOfOnesOwn:
    def test_learn_act_and_are_saved(self, tmp_path: Path) -> None:
        actor = Actor()
        before = actor.action.weight.clone()
        algorithm = sw.TD3(ResumablePush, actor=actor, critic=Critic(), **SMALL)
        algorithm.train(60)
        assert not torch.equal(actor.action.weight, before)
        algorithm.save(tmp_path / "a")
        loaded = sw.TD3.from_checkpoint(
            tmp_path / "a", ResumablePush, actor=Actor(), critic=Critic()
        )
        np.testing.assert_array_equal(loaded.predict(np.ones(3)), algorithm.predict(np.ones(3)))

    def test_actions_of_a_wrong_shape_are_named(self) -> None:
        algorithm = sw.TD3(ResumablePush, actor=Actor(3), **SMALL)
        with pytest.raises(ValueError, match=r"actions of Actor must have shape \(B, 2\)"):
            algorithm.predict(np.ones(3))


def test_names_that_others_use() -> None:
    options: dict[str, Any] = {"target_policy_noise": 0.3, "target_noise_clip": 0.4}
    config = sw.TD3Config(**options)
    assert (config.target_noise, config.noise_clip) == (0.3, 0.4)


def test_ddpg_is_td3_with_one_critic_no_delay_and_no_noise_on_targets() -> None:
    ddpg = make(sw.DDPG)
    td3 = make(sw.TD3, n_critics=1, policy_delay=1, target_noise=0.0)
    for learner in (ddpg, td3):
        learner.follow(1.0)
    first, second = ddpg.update(batch()), td3.update(batch())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(ddpg.flats["actor"].data, td3.flats["actor"].data)


@pytest.mark.parametrize("option", ["target_noise", "noise_clip", "exploration_noise", "tau"])
def test_an_impossible_option_is_named(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        sw.TD3Config(**{option: -0.1})  # type: ignore[arg-type]
