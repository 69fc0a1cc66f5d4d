"""Imagination and predictions of a world model, which leave training alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave.agents.dreams import sequences_of
from tests.unit.agents.dreaming import Lamp, Ring, dreamer, weights


@pytest.fixture(scope="module")
def cartpole() -> Any:
    agent = dreamer()
    agent.train(60)
    return agent


@pytest.fixture(scope="module")
def lamp() -> Any:
    agent = dreamer(partial(Lamp, nested=True), train_ratio=1)
    agent.train(48)
    return agent


def test_a_dream_has_a_row_for_every_step(cartpole: Any) -> None:
    dream = cartpole.imagine(np.zeros((3, 4), np.float32), horizon=7)
    assert dream.obs.shape == (7, 3, 4)
    assert dream.rewards.shape == dream.continues.shape == dream.values.shape == (7, 3)
    assert dream.actions.shape == (7, 3)
    assert set(np.unique(dream.actions)) <= {0, 1}
    assert ((dream.continues > 0) & (dream.continues < 1)).all()
    assert all(np.isfinite(part).all() for part in dream)
    assert cartpole.imagine([0.0, 0.1, 0.0, -0.1]).obs.shape == (15, 1, 4)


def test_a_dream_goes_on_from_a_memory(cartpole: Any) -> None:
    chosen, memory = cartpole.predict(np.zeros((3, 4), np.float32), episode_start=True)
    before = memory.clone()
    dream = cartpole.imagine(memory, horizon=2)
    assert dream.obs.shape == (2, 3, 4)
    np.testing.assert_array_equal(dream.actions[0], chosen)
    assert torch.equal(memory, before)
    of_both = [dreamer().imagine(one, horizon=2) for one in (memory, memory.numpy())]
    for one, other in zip(*of_both, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_dream_is_the_models(cartpole: Any) -> None:
    _, memory = cartpole.predict(np.zeros((3, 4), np.float32), episode_start=True)
    agent = dreamer()
    agent.learner.load_state_dict(cartpole.learner.state_dict())
    learner = agent.learner
    generator = learner.make_generator(learner.seeds.playing)
    with learner.inference():
        latent, action = learner._unpacked(memory[0])
        latent = learner.world.imagine(latent, action[None], generator)
        expected = [learner.world.decode(latent), learner.world.rewards(latent)]
    dream = agent.imagine(memory, horizon=1)  # the first that its play draws
    np.testing.assert_allclose(dream.obs, expected[0], rtol=1e-5)
    np.testing.assert_allclose(dream.rewards, expected[1], rtol=1e-5)


def test_dreams_are_nested_as_the_space(lamp: Any) -> None:
    dream = lamp.imagine(Lamp(nested=True).reset()[0], horizon=2)
    assert dream.obs["image"].shape == (2, 1, 64, 64, 3)
    assert dream.obs["image"].dtype == np.uint8
    assert dream.obs["level"].shape == (2, 1, 1)
    assert set(np.unique(dream.actions)) <= {3, 4}


def test_continuous_actions_are_the_environments() -> None:
    dream = dreamer("Pendulum-v1").imagine(np.zeros((4, 3), np.float32), horizon=20)
    assert dream.actions.shape == (20, 4, 1)
    assert np.abs(dream.actions).max() <= 2.0
    assert np.abs(dream.actions).max() > 1.0


def test_a_horizon_must_be_positive(cartpole: Any) -> None:
    with pytest.raises(ValueError, match="horizon must be"):
        cartpole.imagine(np.zeros(4, np.float32), horizon=0)
    with pytest.raises(ValueError, match="obs must"):
        cartpole.imagine(np.zeros(5, np.float32))


def test_looking_leaves_training_alone() -> None:
    alone, watched = dreamer(), dreamer()
    for agent in (alone, watched):
        agent.train(60)
    watched.imagine(np.zeros(4, np.float32))
    watched.open_loop(context=3)
    assert watched.buffer.stats()["pushed"] == alone.buffer.stats()["pushed"]
    for agent in (alone, watched):
        agent.train(40)
    np.testing.assert_array_equal(weights(watched), weights(alone))


def test_an_open_loop_is_a_function_of_weights_and_sequences(cartpole: Any) -> None:
    first, second = cartpole.open_loop(context=3), cartpole.open_loop(context=3)
    np.testing.assert_array_equal(first.truth, second.truth)
    np.testing.assert_array_equal(first.prediction, second.prediction)
    assert first.truth.shape == first.prediction.shape == (6, 8, 4)
    np.testing.assert_allclose(first.error, first.prediction - first.truth)
    assert first.video is None
    assert first.curves["reward"][0].shape == (6, 8, 1)


def test_only_the_context_is_seen(cartpole: Any) -> None:
    batch = sequences_of(cartpole, 4, 8)
    changed = replace(batch, obs=batch.obs.clone())
    changed.obs[3:] += 5.0
    seen, unseen = (cartpole.open_loop(one, context=3).prediction for one in (batch, changed))
    np.testing.assert_array_equal(seen, unseen)
    changed.obs[2] += 5.0
    assert (cartpole.open_loop(changed, context=3).prediction[:, 3:] != seen[:, 3:]).any()


def test_predictions_follow_the_true_actions(cartpole: Any) -> None:
    batch = sequences_of(cartpole, 4, 8)
    other = replace(batch, prev_actions=1 - batch.prev_actions)
    found, others = (cartpole.open_loop(one, context=2).prediction for one in (batch, other))
    assert (found[:, 2:] != others[:, 2:]).any()


def test_a_prediction_begins_anew_with_an_episode(cartpole: Any) -> None:
    batch = sequences_of(cartpole, 4, 8)
    is_first = torch.zeros_like(batch.is_first)
    is_first[5] = True
    batch = replace(batch, is_first=is_first)
    other = replace(batch, obs=batch.obs + 3.0, prev_actions=batch.prev_actions.clone())
    other.prev_actions[:6] = 1 - other.prev_actions[:6]
    found, others = (cartpole.open_loop(one, context=2).prediction for one in (batch, other))
    assert (found[:, :5] != others[:, :5]).any()
    np.testing.assert_array_equal(found[:, 5:], others[:, 5:])


def test_images_are_a_video(lamp: Any) -> None:
    shown = lamp.open_loop(context=2)
    video = shown.video
    assert video.shape == (6, 8, 64, 3 * 64, 3)
    assert video.dtype == np.uint8
    truth, model, error = np.split(video, 3, axis=3)
    np.testing.assert_array_equal(truth, shown.truth["image"])
    np.testing.assert_array_equal(model, shown.prediction["image"])
    assert set(np.unique(truth)) <= {40 * level for level in range(7)}
    brighter = model.astype(int) - truth
    assert (error[brighter == 0] == 128).all()
    assert (error[brighter > 1] > 128).all()
    assert (error[brighter < -1] < 128).all()
    assert list(shown.curves) == ["level", "reward"]
    np.testing.assert_array_equal(shown.curves["level"][0] * 40, truth[:, :, 0, :1, 0])


def test_a_context_must_leave_something_to_predict(cartpole: Any) -> None:
    with pytest.raises(ValueError, match="context must be less than the 8 rows of batch, got 8"):
        cartpole.open_loop(context=8)
    with pytest.raises(ValueError, match="context must be"):
        cartpole.open_loop(context=0)


def test_short_sequences_are_seen_by_half() -> None:
    agent = dreamer(sequence_length=4)
    agent.train(60)
    assert agent.open_loop().context == 2


def test_errors_of_vectors_of_integers_are_numbers() -> None:
    """They were flags, as those of single integers are."""

    class Bytes(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(gym.make("CartPole-v1"))
            self.observation_space = spaces.Box(0, 255, (4,), np.uint8)

        def observation(self, observation: Any) -> Any:
            return np.clip(128 + 20 * observation, 0, 255).astype(np.uint8)

    agent = dreamer(Bytes)
    agent.train(60)
    seen = agent.open_loop()
    assert seen.truth.dtype == np.uint8
    np.testing.assert_allclose(seen.error, seen.prediction - seen.truth.astype(np.float32))
    assert np.abs(seen.error).max() > 1


def test_an_empty_buffer_shows_nothing() -> None:
    with pytest.raises(ValueError, match="buffer must hold a batch of 32 steps, got 0"):
        dreamer().open_loop()


def test_a_buffer_on_the_device_is_looked_at_too() -> None:
    alone, watched = dreamer(buffer="device"), dreamer(buffer="device")
    for agent in (alone, watched):
        agent.train(60)
    assert watched.open_loop(context=3).truth.shape == (6, 8, 4)
    for agent in (alone, watched):
        agent.train(20)
    np.testing.assert_array_equal(weights(watched), weights(alone))


@pytest.mark.long
def test_what_follows_from_the_actions_is_predicted_exactly() -> None:
    sizes = {"deter": 32, "hidden": 32, "units": 32, "latents": 4, "classes": 8}
    exact = {"free_nats": 0.0, "unimix": 0.0, "policy_unimix": 0.0}
    pace = {"train_ratio": None, "gradient_steps": 1, "train_freq": 400, "learning_rate": 1e-2}
    batch = {"sequence_length": 16, "batch_size": 8, "imagination": 1, "warmup": 10}
    agent = dreamer(Ring, **sizes, **exact, **pace, **batch)
    agent.train(400)
    before = agent.open_loop(context=4)
    agent.learn(200)
    shown = agent.open_loop(context=4)
    assert (before.prediction != before.truth).any()
    np.testing.assert_array_equal(shown.prediction, shown.truth)
    assert not shown.error.any()
    np.testing.assert_allclose(shown.predicted_rewards, shown.rewards, atol=0.3)
    dream = agent.imagine([0] * 8, horizon=10)
    np.testing.assert_array_equal(dream.obs, (1 + dream.actions).cumsum(0) % 5)
    np.testing.assert_allclose(dream.rewards, dream.obs, atol=0.3)
