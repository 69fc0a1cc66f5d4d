"""Several agents learn what is known to be learned, on seeds that nobody chose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Mortal, Roles, Switch

SPREAD = "mpe2/simple_spread_v3"


class Returns(sw.Callback):
    """The mean return of every rollout's episodes, by the step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch(self, mean_return: float, **_: Any) -> None:
        self.seen.append(mean_return)


def spread(seed: int, steps: int, **options: Any) -> tuple[Any, float]:
    agent = sw.MAPPO.preset(SPREAD, seed=seed, **options)
    returns = Returns()
    agent.train(steps, callbacks=returns)
    return agent, float(np.mean(returns.seen[-10:]))


def test_agents_spread_out() -> None:
    agent, last = spread(11, 50_000)
    assert agent.backend == "native"
    assert last >= -23.0  # random -26.2; measured -20.9 to -21.8
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_agents_spread_out_as_well_as_is_known(seed: int, backend: str) -> None:
    agent, last = spread(seed, 400_000, backend=backend)
    assert last >= -20.5  # measured -17.9 to -18.6
    ours = agent.evaluate(64)
    theirs = agent.evaluate(64, env=sw.envs.make_multi_env(SPREAD, 8, mode="sync"))
    noise = 3 * np.hypot(ours.std, theirs.std) / 8
    assert abs(ours.mean - theirs.mean) < noise
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_roles_need_to_know_who_one_is(seed: int) -> None:
    """Without an agent id both draw from one policy, which earns at most a quarter of it all."""
    # A quarter of 1600 episodes has a standard deviation of 0.011.
    for agent_id, low, high in ((True, 0.95, 1.0), (False, 0.18, 0.3)):
        agent = sw.MAPPO(Roles, n_envs=16, n_steps=16, seed=seed, agent_id=agent_id)
        agent.train(10_000)
        assert low <= agent.evaluate(1600, deterministic=False).mean <= high
        agent.close()


@pytest.mark.long
@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_generations_come_learn_and_go(recurrent: Any) -> None:
    """Agents are born and die within an episode, and what they remember with them."""
    agent = sw.MAPPO(Generations, n_envs=16, n_steps=16, recurrent=recurrent, seed=11)
    agent.train(8_000)
    assert agent.evaluate(40).mean >= 0.95 * Generations().optimum / 5
    agent.close()


@pytest.mark.long
def test_two_agents_share_a_bridge() -> None:
    """One of 46 seeds gave way for ever, which rounding may make of any: two of three must not.

    A critic that sees one agent only is not known to fail: at this entropy it got there, too.
    """
    found = []
    for seed in (11, 12, 13):
        agent = sw.MAPPO(Switch, n_steps=20, ent_coef=0.03, seed=seed)
        agent.train(80_000)
        found.append(agent.evaluate(20).mean)
        agent.close()
    assert np.median(found) >= 0.9 * Switch().optimum / 2


@pytest.mark.long
def test_a_survivor_reaches_its_optimum() -> None:
    agent = sw.MAPPO(lambda: Mortal(careless=True), n_envs=16, n_steps=16, seed=11)
    agent.train(10_000)
    assert set(agent.evaluate(20).agents["agent_0"]) == {8.0}
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_climbing_game_settles_beside_its_best(seed: int) -> None:
    """Two agents that explore at the same time do not find 11 between two losses of 30."""
    agent = sw.MAPPO(lambda: MatrixGame(CLIMBING), n_envs=16, n_steps=16, seed=seed)
    agent.train(10_000)
    assert 5.0 <= agent.evaluate(5).mean <= 7.0
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, *(pytest.param(x, marks=pytest.mark.slow) for x in (12, 13))])
def test_who_begins_a_game_of_turns_wins_it(seed: int) -> None:
    """Tic-tac-toe against somebody who plays at random, whom beginners at random beat to 0.58."""
    rng = np.random.default_rng(seed)

    def at_random(_: Any, action_masks: Any) -> Any:
        return np.where(action_masks, rng.random(action_masks.shape), -1.0).argmax(1)

    agent = sw.IPPO(
        "pettingzoo.classic.tictactoe_v3",
        n_envs=32,
        n_steps=32,
        seed=seed,
        groups={"first": ["player_1"], "second": ["player_2"]},
        opponents={"second": at_random},
    )
    agent.train(50_000)
    won = np.array(agent.evaluate(200).agents["player_1"]) > 0
    assert won.mean() >= 0.85  # measured 0.93 to 0.97 on six seeds
    agent.close()
