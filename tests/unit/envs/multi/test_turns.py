"""Environments whose agents take turns: one acts at a time, and nothing is lost of the others."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.envs import PettingZooVectorEnv
from sharpwave.envs.multi.turns import TurnBased, as_parallel
from tests.unit.envs.multi.multi_envs import assert_same_steps, play

pettingzoo: Any = pytest.importorskip("pettingzoo")


def tictactoe() -> Any:
    return pettingzoo.make("aec", "classic/tictactoe-v3")


class Rounds(pettingzoo.AECEnv):  # type: ignore[misc]
    """Three agents in turn: whoever acts pays its action to the next one.

    The second one dies when the first acts in the second round, while it waits; all others are
    truncated at the end of the third round.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "rounds", "is_parallelizable": False}
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["p_0", "p_1", "p_2"]

    def observation_space(self, agent: Any) -> Any:
        return spaces.Box(0, 99, (2,), np.float32)

    def action_space(self, agent: Any) -> Any:
        return spaces.Discrete(5)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.turns = 0
        self.order = pettingzoo.utils.AgentSelector(self.agents)
        self.agent_selection = self.order.reset()

    def observe(self, agent: Any) -> Any:
        return np.array([self.turns, self.possible_agents.index(agent)], np.float32)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            self.order.reinit(self.agents)
            if self.agents and agent == "p_1":
                self.agent_selection = "p_2"
                self.order.reset()
                self.order.next()
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.turns += 1
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self.rewards[following] = float(action)
        if self.turns == 4:
            self.terminations["p_1"] = True
        if self.turns == 7:
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self.agent_selection = self.order.next()


def test_one_agent_acts_at_a_time_and_the_others_wait() -> None:
    env = PettingZooVectorEnv([Rounds])
    step = env.reset(seed=0)
    group = step.groups["p"]
    assert group.alive.tolist() == [[True, False, False]]
    np.testing.assert_array_equal(group.obs[0], [[0, 0], [0, 1], [0, 2]])
    acting, rewards, ends = [], [], []
    for turn in range(7):
        step = env.step({"p": np.full((1, 3), turn % 5)})
        group = step.groups["p"]
        acting.append(group.alive[0].tolist())
        rewards.append(group.rewards[0].tolist())
        ends.append((group.terminated[0].tolist(), group.truncated[0].tolist()))
    none = [False] * 3
    # A reward comes with the step that brought it, also to those who wait.
    assert rewards == [[0, 0, 0], [0, 0, 1], [2, 0, 0], [0, 3, 0], [4, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert acting == [
        [False, True, False], [False, False, True], [True, False, False],
        [False, False, True], [True, False, False], [False, False, True],
        [True, False, False],  # of the next episode
    ]  # fmt: skip
    assert ends[3] == ([False, True, False], none)
    assert ends[6] == (none, [True, False, True])
    assert [ends[i] for i in (0, 1, 2, 4, 5)] == [(none, none)] * 5
    assert step.ended.tolist() == [True]
    np.testing.assert_array_equal(group.next_obs[0], [[7, 0], [0, 0], [7, 2]])
    np.testing.assert_array_equal(group.obs[0], [[0, 0], [0, 1], [0, 2]])


def test_a_dead_agent_has_zeros_while_the_others_go_on() -> None:
    env = PettingZooVectorEnv([Rounds])
    env.reset()
    steps = [env.step({"p": np.zeros((1, 3), int)}).groups["p"] for _ in range(6)]
    np.testing.assert_array_equal(steps[3].next_obs[0], [[4, 0], [4, 1], [4, 2]])
    np.testing.assert_array_equal(steps[3].obs[0], [[4, 0], [0, 0], [4, 2]])
    np.testing.assert_array_equal(steps[5].next_obs[0], [[6, 0], [0, 0], [6, 2]])


def test_tictactoe_is_played_by_its_masks() -> None:
    env = PettingZooVectorEnv([tictactoe] * 3)
    assert env.groups == {"player": ("player_1", "player_2")}
    assert env.observation_spaces["player"] == spaces.Box(0, 1, (3, 3, 2), np.int8)
    assert env.state_space is None
    steps = play(env, 60)
    games = 0
    for before, step in itertools.pairwise(steps):
        old, new = before.groups["player"], step.groups["player"]
        assert old.masks is not None
        assert (old.alive.sum(axis=1) == 1).all()
        for i in range(3):
            mover = int(np.argmax(old.alive[i]))
            taken = old.obs[i, mover].any(axis=-1).reshape(-1)
            np.testing.assert_array_equal(old.masks[i, mover], ~taken)
            assert old.masks[i, 1 - mover].all()
            games += check_move(new, i, mover, bool(step.ended[i]))
    assert games > 10


def check_move(new: Any, i: int, mover: int, has_ended: bool) -> int:
    """A win pays both players in the same step, and both leave."""
    assert new.rewards[i].sum() == 0
    if not has_ended:
        assert not new.rewards[i].any()
        assert new.alive[i].tolist() == [mover == 1, mover == 0]
        return 0
    board = new.next_obs[i, mover, :, :, 0].astype(bool)
    lines = [*board, *board.T, board.diagonal(), board[::-1].diagonal()]
    has_won = any(line.all() for line in lines)
    assert new.rewards[i, mover] == float(has_won)
    assert new.terminated[i].all()
    assert not new.obs[i].any()  # an empty board
    assert new.alive[i].tolist() == [True, False]
    return 1


def test_an_action_that_is_not_allowed_ends_the_game_as_the_environment_says() -> None:
    env = PettingZooVectorEnv([tictactoe])
    env.reset()
    env.step({"player": np.array([[4, 0]])})
    step = env.step({"player": np.array([[0, 4]])})  # which is taken
    assert step.groups["player"].rewards.tolist() == [[0.0, -1.0]]
    assert step.ended.all()


@pytest.mark.long
@pytest.mark.parametrize("make", [tictactoe, Rounds])
def test_processes_give_the_same_turns(make: Any) -> None:
    here, there = (PettingZooVectorEnv([make] * 2, mode=mode) for mode in ("sync", "async"))
    assert_same_steps(play(here, 30), play(there, 30))
    there.close()


def test_all_act_at_once_where_the_environment_declares_that_it_is_the_same() -> None:
    env = as_parallel(pettingzoo.make("aec", "classic/rps-v2"))
    assert not isinstance(env, TurnBased)
    assert isinstance(as_parallel(tictactoe()), TurnBased)
    vector = PettingZooVectorEnv([lambda: env])
    assert vector.reset().groups["player"].alive.all()
    assert vector.step({"player": np.array([[0, 1]])}).groups["player"].rewards.tolist() == [
        [-1, 1]
    ]
