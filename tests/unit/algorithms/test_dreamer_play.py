"""DreamerV3 plays: images after a checkpoint, and actions within bounds of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.testing.bits import state_of
from tests.contract.learners import DREAMER
from tests.envs import Catch, ResumablePush

SMALL: dict[str, Any] = {**DREAMER, "n_envs": 1, "learning_starts": 0, "seed": 3}
LOW, HIGH = (np.array(x, np.float32) for x in ((0.0, -5.0), (1.0, 5.0)))


@pytest.mark.long
def test_an_agent_of_images_goes_on_after_a_checkpoint(tmp_path: Path) -> None:
    options = {**SMALL, "depth": 2, "sequence_length": 4, "save_buffer": True}
    agent = sw.DreamerV3(Catch, **options)
    agent.train(24)
    assert agent.gradient_steps > 0
    agent.save(tmp_path / "images")
    again = sw.DreamerV3.from_checkpoint(tmp_path / "images", Catch)
    assert state_of(again) == state_of(agent)
    image = Catch().reset(seed=1)[0]
    for deterministic in (True, False):
        mine = [each.predict(image, deterministic=deterministic) for each in (agent, again)]
        assert mine[0] == mine[1]
    _, state = agent.predict(image, episode_start=True)
    _, other = again.predict(image, episode_start=True)
    assert torch.equal(torch.as_tensor(state), torch.as_tensor(other))
    found = [each.learner.update(each.loop.sample()) for each in (agent, again)]
    assert torch.equal(found[0]["reconstruction_loss"], found[1]["reconstruction_loss"])


def test_actions_are_within_bounds_of_their_own_and_reach_both_ends() -> None:
    agent = sw.DreamerV3(ResumablePush, **SMALL, train_ratio=1e-6, min_std=1.0, max_std=1.0)
    agent.train(200)  # the environment asserts that it contains every action
    stored = agent.buffer.gather(agent.buffer.indices())["actions"]
    np.testing.assert_array_equal(stored.min(0), LOW)
    np.testing.assert_array_equal(stored.max(0), HIGH)
    actions = torch.cat([agent.loop.sample().prev_actions.flatten(0, 1) for _ in range(9)])
    assert torch.equal(actions.amin(0), torch.tensor([-1.0, -1.0]))
    assert torch.equal(actions.amax(0), torch.tensor([1.0, 1.0]))
    obs = np.zeros((200, 3), np.float32)
    drawn = agent.predict(obs, deterministic=False)
    np.testing.assert_array_equal(drawn.min(0), LOW)
    np.testing.assert_array_equal(drawn.max(0), HIGH)
    output = agent.learner.actor.head.output
    for way, bound in ((-50.0, LOW), (50.0, HIGH)):
        with torch.no_grad():
            output.bias[:2] = way
        np.testing.assert_array_equal(agent.predict(obs[0]), bound)


def test_a_recurrent_policy_that_is_handed_its_state_plays_as_one_that_keeps_it() -> None:
    options: dict[str, Any] = {"n_envs": 1, "n_steps": 8, "recurrent": "lstm", "hidden": 8}
    agent = sw.PPO("CartPole-v1", seed=3, **options)
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(6, 4)).astype(np.float32)
    player, state = agent.player(1, deterministic=True), None
    for t, obs in enumerate(seen):
        start = t in (0, 4)
        action, state = agent.predict(obs, state=state, episode_start=start)
        kept = player.play(obs[None], np.array([start]))
        assert action == kept[0]
        mine, theirs = (torch.as_tensor(np.asarray(one)) for one in (state, player.state))
        assert torch.equal(mine, theirs)
    _, forgotten = agent.predict(seen[-1], episode_start=True)
    assert not np.array_equal(np.asarray(forgotten), np.asarray(state))
    _, kept = agent.predict(seen[-1], state=state)
    assert not np.array_equal(np.asarray(kept), np.asarray(forgotten))


def test_a_memory_may_be_an_array_and_must_be_that_of_as_many() -> None:
    agent = sw.DreamerV3("CartPole-v1", **SMALL)
    obs = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    _, state = agent.predict(obs, episode_start=True)
    for start in (False, [True, False]):
        found = [
            agent.predict(obs, state=one, episode_start=start) for one in (state, state.numpy())
        ]
        np.testing.assert_array_equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])
    for wrong in (state[:, :1], state.numpy()[..., :-1], np.zeros(3, np.float32)):
        with pytest.raises(ValueError, match="memory of the policy must have shapes"):
            agent.predict(obs, state=wrong)
    feedforward = sw.PPO("CartPole-v1", n_envs=1, n_steps=8, batch_size=8, seed=3)
    action, none = feedforward.predict(obs, state=state)
    assert none is None
    np.testing.assert_array_equal(action, feedforward.predict(obs))
