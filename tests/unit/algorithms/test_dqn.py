"""Exploration, collection and resuming of DQN: what others have got wrong."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import sharpwave as sw
from tests.envs import CountingEnv, numbered, resumable, vectorized
from tests.learning import probes

SMALL: dict[str, Any] = {"hidden": (8, 8), "buffer_size": 2000, "batch_size": 16}
backends = pytest.mark.parametrize("backend", ["native", "torch"])


def forget_weights(algo: Any) -> None:
    """Let the best action always be the first."""
    for parameter in algo.policy.parameters():
        parameter.data.zero_()


class Recorder(sw.Callback):
    """Keeps what an algorithm was after every update."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.seen: list[tuple[float, ...]] = []

    def on_train_batch(self, *, algo: Any, **metrics: float) -> None:
        self.seen.append((algo.timesteps, *(metrics[name] for name in self.names)))


class TestEpsilon:
    def run(self, *lengths: int, **options: Any) -> list[tuple[float, ...]]:
        recorder = Recorder("epsilon")
        options = {"learning_starts": 0, "log_interval": 100, **SMALL, **options}
        algo = sw.DQN("CartPole-v1", train_freq=10, **options)
        for length in lengths:
            algo.train(length, callbacks=recorder)
        return recorder.seen

    def test_falls_linearly_over_its_part_of_the_run(self) -> None:
        seen = self.run(1000, exploration_fraction=0.5, exploration_final_eps=0.2)
        expected = [1.0 - 0.8 * min(1.0, step / 500) for step, _ in seen]
        np.testing.assert_allclose([epsilon for _, epsilon in seen], expected, rtol=1e-5)

    def test_begins_where_it_is_told(self) -> None:
        seen = self.run(1000, exploration_initial_eps=0.6, exploration_fraction=1.0)
        np.testing.assert_allclose(seen[0][1], 0.6 - 0.55 * 0.1, rtol=1e-5)

    @pytest.mark.parametrize("fraction", [0.1, 0.9])
    def test_never_rises_in_a_second_run(self, fraction: float) -> None:
        seen = self.run(500, 500, 500, exploration_fraction=fraction)
        epsilons = [epsilon for _, epsilon in seen]
        assert all(after <= before for before, after in pairwise(epsilons))
        assert epsilons[4] == pytest.approx(0.05)

    @pytest.mark.long
    @backends
    def test_is_the_share_of_random_actions(self, backend: str) -> None:
        algo = sw.DQN("CartPole-v1", backend=backend, **SMALL)
        algo.learner.epsilon = 0.3
        forget_weights(algo)
        actions = algo.predict(np.zeros((4000, 4)), deterministic=False)
        assert actions.mean() == pytest.approx(0.15, abs=0.03)
        few = [algo.predict(np.zeros(4), deterministic=False) for _ in range(2000)]
        assert np.mean(few) == pytest.approx(0.15, abs=0.03)
        assert not algo.predict(np.zeros((100, 4))).any()

    @backends
    def test_actions_before_learning_starts_are_random(self, backend: str) -> None:
        options: dict[str, Any] = {"learning_starts": 400, "exploration_initial_eps": 0.0}
        algo = sw.DQN("CartPole-v1", n_envs=4, backend=backend, **options, **SMALL)
        forget_weights(algo)
        algo.train(400)
        actions = algo.buffer.gather(algo.buffer.indices())["actions"]
        assert actions.mean() == pytest.approx(0.5, abs=0.1)

    def test_noise_on_the_weights_takes_its_place(self) -> None:
        algo = sw.DQN("CartPole-v1", noisy=True, learning_starts=20, **{**SMALL, "seed": 0})
        assert algo.train(60)["epsilon"] == 0.0
        obs = np.random.default_rng(0).normal(size=(50, 4))
        quiet = [algo.predict(obs) for _ in range(3)]
        assert all((actions == quiet[0]).all() for actions in quiet)
        loud = [algo.predict(obs, deterministic=False) for _ in range(10)]
        assert any((actions != loud[0]).any() for actions in loud)


class TestActing:
    @pytest.mark.long(only=["torch"])
    @backends
    def test_actions_that_do_not_count_from_zero(self, backend: str) -> None:
        class Shifted(probes.Identity):
            action_space = spaces.Discrete(2, start=5)

            def outcome(self, action: Any) -> tuple[float, bool, bool]:
                assert action in (5, 6)
                return super().outcome(action - 5)

        options: dict[str, Any] = {"learning_starts": 50, "learning_rate": 5e-3, "seed": 1}
        algo = sw.DQN(Shifted, n_envs=4, backend=backend, **options, **SMALL)
        algo.train(1000)
        assert [algo.predict(np.array([sign], np.float32)) for sign in (-1, 1)] == [5, 6]


class TestBatches:
    @pytest.mark.long(but=["False-1-next_step"])
    @pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("prioritized", [False, True])
    def test_n_steps_of_several_environments(
        self, mode: str, n_step: int, prioritized: bool
    ) -> None:
        lengths, gamma = (4, 2, 7), 0.9
        env = vectorized(numbered(3, lengths=lengths, ends="alternating"), mode)
        options: dict[str, Any] = {**SMALL, "batch_size": 64, "prioritized": prioritized}
        algo = sw.DQN(env, n_step=n_step, gamma=gamma, learning_starts=10**6, **options)
        algo.train(300)
        for _ in range(5):
            batch = algo.sampler.sample()
            for row in range(64):
                number, episode, step = batch.obs[row].tolist()
                length = lengths[int(episode) % 3]
                terminated = episode % 2 == 0
                taken = min(n_step, length - int(step))
                later = algo.collector.obs[int(number)]
                if episode == later[1] and later[2] != length:  # data end before the episode
                    taken = min(taken, int(later[2] - step))
                last = int(step) + taken
                assert batch.next_obs[row].tolist() == [number, episode, last]
                over = terminated and last == length
                expected = 0.0 if over else gamma**taken
                assert batch.discounts[row].item() == pytest.approx(expected)
                rewards = [1 + number + (step + i + 1) / 10 for i in range(taken)]
                low = sum(gamma**i * reward for i, reward in enumerate(rewards))
                assert low - 1e-4 <= batch.rewards[row].item() <= low + 0.01 * taken + 1e-4

    @pytest.mark.long(but=["False-native"])
    @backends
    @pytest.mark.parametrize("prioritized", [False, True])
    def test_every_gradient_step_has_a_batch_of_its_own(
        self, prioritized: bool, backend: str
    ) -> None:
        options = {"prioritized": prioritized, "backend": backend, **SMALL}
        env = partial(CountingEnv, (9,))
        algo = sw.DQN(env, learning_starts=200, gradient_steps=6, **options)
        drawn: list[bytes] = []
        step = algo.learner.update

        def remember(batch: Any) -> Any:
            drawn.append(np.asarray(batch.obs).tobytes())
            return step(batch)

        vars(algo.learner)["update"] = remember
        algo.train(203)
        algo.train(3)
        assert len(drawn) >= 6 * 6
        assert len(set(drawn)) == len(drawn)

    def test_as_many_gradient_steps_as_environment_steps(self) -> None:
        algo = sw.DQN(
            "CartPole-v1", n_envs=3, train_freq=4, gradient_steps=-1, learning_starts=24, **SMALL
        )
        algo.train(120)
        assert algo.gradient_steps == 120 - 24 + 12  # the update at 24 steps is the first


class TestPriorities:
    def test_weights_correct_more_and_more_from_beta_start_on(self) -> None:
        betas = []

        class Betas(sw.Callback):
            def on_train_batch(self, *, algo: Any, **_: Any) -> None:
                betas.append(algo.buffer.beta)

        algo = sw.DQN(
            "CartPole-v1",
            prioritized=True,
            beta_start=0.2,
            learning_starts=20,
            log_interval=100,
            **SMALL,
        )
        algo.train(400, callbacks=Betas())
        np.testing.assert_allclose(betas, [0.4, 0.6, 0.8, 1.0])

    @backends
    def test_are_the_errors_of_the_last_time(self, backend: str) -> None:
        options: dict[str, Any] = {"prioritized": True, "learning_starts": 100}
        algo = sw.DQN("CartPole-v1", backend=backend, **options, **SMALL)
        algo.train(100)
        batch = algo.sampler.sample()
        measured = algo.learner.update(batch)
        algo.loop.report(batch, measured)
        largest = abs(measured["td_errors"]).max().item()
        assert algo.buffer.max_priority >= largest
        algo.buffer.update_priorities(algo.buffer.indices(), np.full(len(algo.buffer), 1e-9))
        algo.loop.report(batch, measured)
        again = algo.sampler.sample()
        assert np.isin(np.asarray(again.indices), np.asarray(batch.indices)).all()

    @pytest.mark.long(only=["torch"])
    @backends
    def test_go_on_exactly_from_a_checkpoint(self, tmp_path: Path, backend: str) -> None:
        make = partial(sw.DQN, resumable, n_envs=2, prioritized=True, n_step=2, seed=3)
        options: dict[str, Any] = {"learning_starts": 50, "log_interval": 50, **SMALL}
        options["backend"] = backend
        through = make(save_buffer=True, **options)
        through.train(400)

        class Stop(sw.Callback):
            def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
                return bool(algo.timesteps < 200)

        first = make(save_buffer=True, **options)
        first.train(400, callbacks=Stop())
        first.save(tmp_path / "half")
        resumed = sw.DQN.from_checkpoint(tmp_path / "half", resumable)
        resumed.train()
        for name, network in resumed.networks.items():
            for key, weight in through.networks[name].state_dict().items():
                np.testing.assert_array_equal(network.state_dict()[key], weight)
        assert resumed.epsilon == through.epsilon
        one, other = resumed.sampler.sample(), through.sampler.sample()
        np.testing.assert_array_equal(one.obs, other.obs)
        assert one.weights is not None
        np.testing.assert_array_equal(one.weights, other.weights)


class TestNetworks:
    @pytest.mark.long
    def test_one_of_ones_own(self, tmp_path: Path) -> None:
        def network() -> nn.Module:
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(1, 16), nn.GELU(), nn.Linear(16, 2))

        options: dict[str, Any] = {**SMALL, "n_envs": 4, "learning_starts": 50, "seed": 1}
        algo = sw.DQN(probes.Identity, policy=network(), learning_rate=1e-2, **options)
        algo.train(1500)
        assert [algo.predict([sign]) for sign in (-1.0, 1.0)] == [0, 1]
        algo.save(tmp_path / "own")
        with pytest.raises(ValueError, match="q_network must be given"):
            sw.DQN.from_checkpoint(tmp_path / "own", probes.Identity)
        loaded = sw.DQN.from_checkpoint(tmp_path / "own", probes.Identity, q_network=network())
        assert torch.equal(loaded.flats["q_network"].data, algo.flats["q_network"].data)

    def test_one_of_ones_own_that_does_not_fit(self) -> None:
        with pytest.raises(TypeError, match=r"q_network must be a torch.nn.Module, got str"):
            sw.DQN(probes.Identity, policy="deep")
        algo = sw.DQN(probes.Identity, q_network=nn.Linear(1, 3))
        with pytest.raises(ValueError, match=r"Linear must have shape \(B, 2\), got \(1, 3\)"):
            algo.predict([1.0])

    @pytest.mark.parametrize("cls", [sw.C51, partial(sw.QRDQN, n_quantiles=51)])
    def test_one_of_ones_own_that_gives_distributions(self, cls: Any) -> None:
        network = nn.Sequential(nn.Linear(1, 2 * 51), nn.Unflatten(1, (2, 51)))
        assert cls(probes.Identity, policy=network, learning_starts=20, **SMALL).train(60)

    @pytest.mark.long
    def test_images_with_frames_stored_once(self) -> None:
        class Frames(gym.Env[Any, Any]):
            """Stacks of four frames that count, in episodes of ten steps."""

            observation_space = spaces.Box(0, 255, (4, 36, 36), np.uint8)
            action_space = spaces.Discrete(2)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                self.t = 0
                self.frames = np.zeros((4, 36, 36), np.uint8)
                return self.frames.copy(), {}

            def step(self, action: Any) -> Any:
                self.t += 1
                self.frames = np.roll(self.frames, -1, 0)
                self.frames[-1] = self.t
                return self.frames.copy(), 1.0, self.t == 10, False, {}

        sizes = {}
        for stack in (1, 4):
            algo = sw.DQN(
                Frames,
                frame_stack=stack,
                learning_starts=60,
                hidden=(),
                buffer_size=200,
                batch_size=8,
                train_freq=20,
            )
            algo.train(100)
            assert algo.gradient_steps > 0
            batch = algo.sampler.sample()
            newest = batch.obs[:, -1, 0, 0].long()
            ages = torch.arange(3, -1, -1)
            assert torch.equal(batch.obs[:, :, 0, 0], (newest[:, None] - ages).clamp(min=0))
            assert torch.equal(batch.next_obs[:, -1, 0, 0].long(), newest + 1)
            sizes[stack] = algo.buffer.stats()["bytes_per_step"]
        assert sizes[4] < 0.35 * sizes[1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("exploration_fraction", 1.5),
        ("exploration_final_eps", -0.1),
        ("target_update_freq", 0),
        ("tau", 0.0),
        ("loss", "hinge"),
        ("adam_eps", 0.0),
    ],
)
def test_an_impossible_option_is_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        sw.DQNConfig(**{option: value})


@pytest.mark.parametrize(
    ("config", "options", "match"),
    [
        (sw.C51Config, {"n_atoms": 1}, "n_atoms"),
        (sw.C51Config, {"v_min": 3.0, "v_max": 3.0}, "v_max"),
        (sw.C51Config, {"loss": "huber"}, "loss"),
        (sw.QRDQNConfig, {"n_quantiles": 0}, "n_quantiles"),
    ],
)
def test_an_impossible_option_of_distributions_is_named(
    config: Any, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        config(**options)


def test_names_that_others_use() -> None:
    options: dict[str, Any] = {"target_update_interval": 7, "n_steps": 3, "hidden": 32}
    config = sw.DQNConfig(**options)
    assert (config.target_update_freq, config.n_step, config.hidden) == (7, 3, (32, 32))


@pytest.mark.parametrize("cls", [sw.DQN, sw.C51, sw.QRDQN])
def test_presets_are_valid(cls: Any) -> None:
    from sharpwave.config.presets import preset, presets

    for env_id in presets(cls.name):
        cls.Config(**preset(cls.name, env_id))
