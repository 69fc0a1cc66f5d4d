"""Algorithms of replay whose buffer lies in shards."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.distributed.replay import LocalShard, ReplayServer, ShardOptions

OPTIONS: dict[str, Any] = {
    "n_envs": 2,
    "hidden": (8,),
    "batch_size": 16,
    "learning_starts": 40,
    "seed": 0,
}


@pytest.fixture
def addresses(request: Any) -> Iterator[list[str]]:
    options = ShardOptions(capacity=500, prioritized=getattr(request, "param", False))
    servers = [ReplayServer(options) for _ in range(2)]
    yield [server.address for server in servers]
    for server in servers:
        server.stop()


@pytest.mark.long
@pytest.mark.parametrize("addresses", [True], indirect=True)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_dqn_sets_the_priorities_of_its_shards(addresses: list[str], prefetch: int) -> None:
    with sw.ShardedReplay(addresses, seed=1, prefetch=prefetch) as replay:
        agent = sw.DQN("CartPole-v1", buffer=replay, prioritized=True, n_step=3, **OPTIONS)
        agent.train(160)
        assert agent.gradient_steps > 30
        assert replay.beta > 0.7
        replay.update_priorities([], [])  # waits for the last ones
        batch = replay.sample(64, seed=1)
        assert len(np.unique(batch["weights"])) > 5
        assert replay.stats()["ignored_updates"] == 0


@pytest.mark.long
def test_a_checkpoint_goes_on_with_the_steps_in_the_shards(
    addresses: list[str], tmp_path: Path
) -> None:
    with sw.ShardedReplay(addresses, seed=1) as replay:
        agent = sw.SAC("Pendulum-v1", buffer=replay, **OPTIONS)
        agent.train(80)
        agent.save(tmp_path / "agent")
        with pytest.raises(TypeError, match="lies in shards"):
            copy.deepcopy(agent)
    with sw.ShardedReplay(addresses, seed=1) as replay:
        assert len(replay) == 80
        again = sw.SAC.from_checkpoint(tmp_path / "agent", buffer=replay)
        before = again.gradient_steps
        again.train(40)
        assert len(replay) == 120
        assert again.gradient_steps - before == 20
        # It does not begin with the draws of the first run.
        assert replay.state_dict()["draws"] == again.gradient_steps


def test_what_shards_cannot_do_is_refused() -> None:
    def shards(prioritized: bool = False, capacity: int = 500) -> sw.ShardedReplay:
        options = ShardOptions(capacity=capacity, prioritized=prioritized)
        plan = (capacity, 0.6 if prioritized else None)
        return sw.ShardedReplay([LocalShard(make=options.make, plan=plan) for _ in range(2)])

    with pytest.raises(ValueError, match="prioritized needs a buffer with priorities"):
        sw.DQN("CartPole-v1", buffer=shards(), prioritized=True, **OPTIONS)
    with pytest.raises(ValueError, match="must hold a batch of 16 steps, got capacity 8"):
        sw.DQN("CartPole-v1", buffer=shards(capacity=4), **OPTIONS)
    with pytest.raises(ValueError, match="n_envs must be at least 2, a stream for each shard"):
        sw.DQN("CartPole-v1", buffer=shards(), **{**OPTIONS, "n_envs": 1}).train(10)
    used = shards()
    used.create(sw.Schema.from_env(sw.make_vec_env("CartPole-v1", 2)), 2)
    with pytest.raises(ValueError, match="obs has shape"):
        sw.SAC("Pendulum-v1", buffer=used, **OPTIONS).train(10)
    with pytest.raises(ValueError, match="n_envs=4 like env, got 2"):
        sw.DQN("CartPole-v1", buffer=used, **{**OPTIONS, "n_envs": 4}).train(10)
