"""Updates after a number of episodes, and runs that count from 0 again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw

OPTIONS: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "learning_starts": 10}


class Updates(sw.Callback):
    """The steps at which learning had happened."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self._before = 0

    def on_step(self, algo: Any, step: int) -> None:
        if algo.learner.updates > self._before:
            self._before = algo.learner.updates
            self.at.append(step - algo.config.n_envs)


def test_updates_come_when_episodes_end() -> None:
    updates = Updates()
    agent = sw.TD3("Pendulum-v1", train_episodes=1, gradient_steps=-1, callbacks=updates, **OPTIONS)
    agent.train(1000)
    assert updates.at == [200, 400, 600, 800]  # Pendulum's episodes have 200 steps
    assert agent.gradient_steps == 1000


def test_several_episodes() -> None:
    updates = Updates()
    agent = sw.TD3("Pendulum-v1", train_episodes=2, gradient_steps=3, callbacks=updates, **OPTIONS)
    agent.train(850)
    assert updates.at == [400, 800]
    assert agent.gradient_steps == 6 or agent.timesteps > 850


def test_a_checkpoint_goes_on_within_the_episodes(tmp_path: Path) -> None:
    agents = [sw.TD3("Pendulum-v1", seed=3, train_episodes=2, save_buffer=True, **OPTIONS)]
    agents[0].train(400)
    agents[0].save(tmp_path / "half")
    agents.append(sw.TD3.from_checkpoint(tmp_path / "half"))
    for agent in agents:
        agent.train(400)
    assert agents[0].gradient_steps == agents[1].gradient_steps == 2
    obs = np.eye(3, dtype=np.float32)
    assert np.array_equal(agents[0].predict(obs), agents[1].predict(obs))


def test_only_one_of_the_two() -> None:
    with pytest.raises(ValueError, match="train_episodes and train_freq exclude each other"):
        sw.SAC.Config(train_freq=4, train_episodes=1)
    with pytest.raises(ValueError, match="train_episodes must be greater than 0"):
        sw.SAC.Config(train_episodes=0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (sw.PPO, {"n_envs": 2, "n_steps": 16}),
        (sw.PPO, {"n_envs": 2, "n_steps": 16, "env_mode": "sync"}),
        (sw.DQN, OPTIONS),
    ],
)
def test_a_run_that_is_restarted_counts_from_zero(kind: Any, options: Any) -> None:
    agent = (
        kind("CartPole-v1", seed=0, anneal_lr=True, **options)
        if kind is sw.PPO
        else kind("CartPole-v1", seed=0, **options)
    )
    agent.train(320)
    updates, episodes = agent.learner.updates, agent.episodes.count
    assert agent.run.progress_remaining == 0.0
    agent.run.restart()
    assert (agent.timesteps, agent.run.progress_remaining) == (0, 1.0)
    agent.train(320)
    assert agent.timesteps == 320
    assert agent.learner.updates > updates
    assert agent.episodes.count > episodes


def test_episodes_begin_anew_with_a_restarted_run() -> None:
    starts: list[Any] = []

    class Looks(sw.Callback):
        def on_step(self, transitions: Any) -> None:
            starts.append(transitions.obs[0])

    agent = sw.A2C("CartPole-v1", n_envs=1, seed=0, callbacks=Looks())
    agent.train(5)
    agent.run.restart()
    agent.train(5)
    assert np.abs(starts[5]).max() < 0.05  # where CartPole begins
