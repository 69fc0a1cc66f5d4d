"""VDN and QMIX learn what is known to be learned by them, on seeds that nobody chose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Roles, Toy

KINDS = {"vdn": sw.VDN, "qmix": sw.QMIX}
SMALL: dict[str, Any] = {
    "n_envs": 8,
    "hidden": (64, 64),
    "learning_starts": 500,
    "target_update_freq": 500,
    "exploration_fraction": 0.5,
}
BOTH = pytest.mark.parametrize("kind", ["vdn", "qmix"])


class TwoSteps(Toy):
    """The two-step game of Rashid et al., 2018.

    The first agent chooses the game of the second step: in one all outcomes are paid 7, in the
    other all but the last 1 or less, and that 8.
    """

    observations = spaces.Box(0, 1, (3,), np.float32)
    actions = spaces.Discrete(2)
    optimum = 16.0

    def __init__(self) -> None:
        super().__init__(2)
        self.game = 0

    def begin(self) -> list[str]:
        self.game = 0
        return super().begin()

    def play(self, actions: dict[str, int]) -> Any:
        first, second = (actions[agent] for agent in self.possible_agents)
        paid = 0.0
        if self.time == 1:
            self.game = 1 + first
        elif self.game == 1:
            paid = 7.0
        else:
            paid = 8.0 if first and second else float(first or second)
        over = dict.fromkeys(actions, self.time == 2)
        return dict.fromkeys(actions, paid), over, dict.fromkeys(actions, False)

    def observe(self, agent: str) -> Any:
        del agent
        return np.eye(3, dtype=np.float32)[self.game]


class Recall(Toy):
    """Each agent sees a bit once, and is paid for naming that of the other three steps later.

    It sees the other's bit; without a memory half of them are guessed.
    """

    observations = spaces.Box(-1, 1, (2,), np.float32)
    actions = spaces.Discrete(2)
    optimum = 2.0
    horizon = 4

    def __init__(self) -> None:
        super().__init__(2)
        self.bits = [0, 0]

    def begin(self) -> list[str]:
        self.bits = self.np_random.integers(0, 2, 2).tolist()
        return super().begin()

    def play(self, actions: dict[str, int]) -> Any:
        is_last = self.time == self.horizon
        hits = [actions[f"agent_{i}"] == self.bits[1 - i] for i in range(2)]
        paid = {f"agent_{i}": float(is_last and hit) for i, hit in enumerate(hits)}
        return paid, dict.fromkeys(actions, is_last), dict.fromkeys(actions, False)

    def observe(self, agent: str) -> Any:
        bit = 2.0 * self.bits[1 - int(agent[-1])] - 1.0
        return np.array([bit if self.time == 0 else 0.0, self.time / self.horizon], np.float32)


def trained(kind: str, env: Any, steps: int, **options: Any) -> Any:
    agent = KINDS[kind](env, **{**SMALL, **options})
    agent.train(steps)
    return agent


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_sum_takes_what_is_safe_and_a_mixer_what_is_best(seed: int) -> None:
    """From random actions alone: a sum cannot say that 8 needs both agents, and takes 7.

    Its best fit of that game is worth 6.5. A run is the same bit for bit on one thread or two.
    """
    found = {}
    for kind in KINDS:
        options = {"exploration_final_eps": 1.0, "gamma": 0.99, "loss": "mse", "seed": seed}
        agent = trained(kind, TwoSteps, 12_000, **options)
        found[kind] = agent.evaluate(4).mean
        agent.close()
    assert found == {"vdn": 7.0, "qmix": 8.0}


SPREAD = "mpe2/simple_spread_v3"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_agents_spread_out(seed: int) -> None:
    agent = sw.VDN.preset(SPREAD, seed=seed)
    agent.train()
    result = agent.evaluate(100)
    assert result.mean >= -18.0  # random -26.2; measured -16.2 to -16.8
    theirs = agent.evaluate(64, env=sw.envs.make_multi_env(SPREAD, 8, mode="sync"))
    noise = 3 * np.hypot(result.std / 10, theirs.std / 8)
    assert abs(result.mean - theirs.mean) < noise
    agent.close()


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_roles_need_to_know_who_one_is(kind: str, seed: int) -> None:
    """Without an agent id both take the same action for ever, and are never paid."""
    for agent_id, expected in ((True, 1.0), (False, 0.0)):
        agent = trained(kind, Roles, 6_000, agent_id=agent_id, seed=seed)
        assert agent.evaluate(20).mean == expected
        agent.close()


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_generations_come_learn_and_go(kind: str, recurrent: Any) -> None:
    options = {} if recurrent is None else {"batch_size": 32, "sequence_length": 8}
    agent = trained(kind, Generations, 8_000, recurrent=recurrent, seed=11, gamma=0.9, **options)
    assert agent.evaluate(40).mean >= 0.95 * Generations().optimum / 5
    agent.close()


@pytest.mark.long
@pytest.mark.timeout(900)
@BOTH
@pytest.mark.parametrize("recurrent", ["gru", pytest.param("lstm", marks=pytest.mark.slow)])
def test_what_was_seen_is_remembered(kind: str, recurrent: Any) -> None:
    options = {"batch_size": 32, "sequence_length": 10, "recurrent": recurrent, "train_freq": 2}
    agent = trained(kind, Recall, 20_000, seed=11, **options)
    assert agent.evaluate(100).mean >= 0.95
    agent.close()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_without_a_memory_it_is_guessed() -> None:
    agent = trained("qmix", Recall, 10_000, seed=11)
    assert agent.evaluate(400).mean <= 0.65
    agent.close()


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_climbing_game_settles_beside_its_best(kind: str, seed: int) -> None:
    """No monotonic function of two values has 11 between two losses of 30."""
    agent = trained(kind, lambda: MatrixGame(CLIMBING), 8_000, seed=seed)
    assert 5.0 <= agent.evaluate(5).mean <= 7.0
    agent.close()
