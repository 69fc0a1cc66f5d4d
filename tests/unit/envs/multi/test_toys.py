"""Toys keep PettingZoo's rules, and their best return is what they say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Mortal, Roles, Switch, Toy

TOYS: dict[str, Any] = {
    "climbing": lambda: MatrixGame(CLIMBING),
    "repeated": lambda: MatrixGame(np.arange(24).reshape(2, 3, 4), horizon=3),
    "general_sum": lambda: MatrixGame([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], shared=False),
    "roles": Roles,
    "mortal": Mortal,
    "generations": Generations,
    "switch": Switch,
}
toys = pytest.mark.parametrize("make", TOYS.values(), ids=TOYS)


def episode(env: Toy, choose: Any) -> float:
    """The sum of all rewards of an episode."""
    obs, _ = env.reset(seed=0)
    total = 0.0
    while env.agents:
        actions = {agent: choose(env, agent, obs[agent]) for agent in env.agents}
        obs, rewards, *_ = env.step(actions)
        total += sum(rewards.values())
    return total


@toys
@pytest.mark.filterwarnings("ignore")  # of what PettingZoo would like to see in any environment
def test_toys_pass_pettingzoos_own_test(make: Any, capsys: Any) -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(make(), num_cycles=50)


@toys
def test_the_seed_decides_everything(make: Any) -> None:
    first, second = make(), make()
    for env in (first, second):
        env.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(40):
        if not first.agents:
            first.reset()
            second.reset()
        acts = {x: rng.integers(first.action_space(x).n) for x in first.agents}
        one, other = first.step(acts), second.step(acts)
        assert one[1:4] == other[1:4]
        for agent, obs in one[0].items():
            assert np.array_equal(obs, other[0][agent])
            assert first.observation_space(agent).contains(obs)
        assert np.array_equal(first.state(), second.state())


def test_matrix_games_pay_every_agent_its_own() -> None:
    env = TOYS["general_sum"]()
    env.reset()
    _, rewards, terminated, _, _ = env.step({"agent_0": 1, "agent_1": 0})
    assert rewards == {"agent_0": 5.0, "agent_1": 0.0}
    assert terminated == {"agent_0": True, "agent_1": True}
    assert env.optimum == 6.0


def test_every_outcome_of_a_matrix_game_is_its_entry() -> None:
    payoff = np.arange(24).reshape(2, 3, 4)
    for outcome in itertools.product(range(2), range(3), range(4)):
        env = MatrixGame(payoff)
        env.reset()
        _, rewards, *_ = env.step({f"agent_{i}": action for i, action in enumerate(outcome)})
        assert set(rewards.values()) == {float(payoff[outcome])}


def test_roles_without_a_name_are_worth_a_quarter() -> None:
    chances = np.linspace(0, 1, 11)
    env = Roles()
    values = []
    for chance in chances:  # of action 1, the same for both agents as they observe the same
        value = 0.0
        for first, second in itertools.product(range(2), range(2)):
            env.reset()
            _, rewards, *_ = env.step({"agent_0": first, "agent_1": second})
            weight = np.prod([chance if action else 1 - chance for action in (first, second)])
            value += weight * rewards["agent_0"]
        values.append(value)
    assert max(values) == pytest.approx(0.25)
    assert episode(env, lambda _, agent, __: int(agent[-1])) == env.optimum == 2.0


def test_who_repeats_its_bit_reaches_the_optimum() -> None:
    for env in (Mortal(), Generations()):
        assert episode(env, lambda _, __, obs: int(obs[0])) == env.optimum
    assert Mortal().optimum == 8.0


def test_generations_come_and_go() -> None:
    env = Generations(n_agents=5, life=3, horizon=5)
    env.reset(seed=0)
    present = [list(env.agents)]
    ends: list[tuple[dict[str, bool], dict[str, bool]]] = []
    while env.agents:
        _, _, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 0))
        present.append(list(env.agents))
        ends.append((terminated, truncated))
    assert [[int(agent[-1]) for agent in agents] for agents in present] == [
        [0, 1], [0, 1, 2], [0, 1, 2, 3], [2, 3, 4], [3, 4], [],
    ]  # fmt: skip
    assert ends[-1][0] == {"agent_3": True, "agent_4": False}
    assert ends[-1][1] == {"agent_3": False, "agent_4": True}


def best_return(env: Switch) -> float:
    """The largest sum of rewards, by looking at every joint state."""
    env.reset()
    frontier = {_key(env): 0.0}
    found = -np.inf
    for _ in range(env.max_steps):
        reached: dict[Any, float] = {}
        for key, value in frontier.items():
            agents = list(key[0])
            for moves in itertools.product(range(5), repeat=len(agents)):
                env.set_state({"time": key[2], "agents": agents, "positions": list(key[1])})
                _, rewards, *_ = env.step(dict(zip(agents, moves, strict=True)))
                total = value + sum(rewards.values())
                if not env.agents:
                    found = max(found, total)
                else:
                    reached[_key(env)] = max(reached.get(_key(env), -np.inf), total)
        frontier = reached
    return found


def _key(env: Switch) -> Any:
    return tuple(env.agents), tuple(env.positions.values()), env.time


@pytest.mark.parametrize("bridge", [1, 3])
def test_the_optimum_of_the_switch_is_the_best_of_all_plays(bridge: int) -> None:
    env = Switch(bridge, max_steps=2 * bridge + 4)
    assert best_return(env) == pytest.approx(env.optimum)


def test_the_bridge_is_for_one_at_a_time() -> None:
    env = Switch(bridge=3)
    env.reset()
    for _ in range(env.max_steps):
        assert env.agents
        env.step({"agent_0": 2, "agent_1": 1})  # straight at each other
    assert not env.agents
    assert env.positions == {"agent_0": (0, 2), "agent_1": (0, 3)}


@toys
def test_a_saved_toy_goes_on_exactly(make: Any) -> None:
    env, other = make(), make()
    rng = np.random.default_rng(0)
    env.reset(seed=1)
    other.reset(seed=2)
    if getattr(env, "horizon", 2) > 1:
        env.step({x: rng.integers(env.action_space(x).n) for x in env.agents})
    other.set_state(env.get_state())
    other.np_random.bit_generator.state = env.np_random.bit_generator.state
    assert env.agents == other.agents
    assert np.array_equal(env.state(), other.state())
    while env.agents:
        acts = {x: rng.integers(env.action_space(x).n) for x in env.agents}
        one, two = env.step(acts), other.step(acts)
        assert one[1:4] == two[1:4]
        assert np.array_equal(env.state(), other.state())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatrixGame(3.0), "payoff must have one dimension"),
        (lambda: MatrixGame(np.zeros((3, 2, 2)), shared=False), "each of 2 agents, got 3"),
        (lambda: MatrixGame(CLIMBING, horizon=0), "horizon must be at least 1, got 0"),
        (lambda: Mortal(horizon=1), "horizon must be at least 2"),
        (lambda: Generations(n_agents=1), "n_agents and life must be at least 2"),
        (lambda: Switch(bridge=0), "bridge must be at least 1"),
        (lambda: Switch(bridge=3, max_steps=5), "max_steps must be at least 9"),
    ],
)
def test_arguments_that_do_not_fit_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"agent_0": 0}, "must have one of 'agent_1', got \\['agent_0'\\]"),
        ({"agent_0": 0, "agent_1": 7}, "of 'agent_1' must be in Discrete\\(2\\), got 7"),
    ],
)
def test_actions_that_do_not_fit_are_named(actions: Any, message: str) -> None:
    env = Mortal()
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.step(actions)
