"""Small multi-agent environments whose best return is known.

They have the parallel interface of PettingZoo and do not need it to be installed: examples of what
`make_multi_env` takes, and the ground that algorithms are tested on. All offer their state.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from sharpwave.types import Floats

__all__ = ["CLIMBING", "Generations", "MatrixGame", "Mortal", "Roles", "Switch"]

Stepped = tuple[
    dict[str, Floats], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]

CLIMBING = ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))
"""The payoff of the climbing game: the best outcome, 11, is beside the worst ones."""


class Toy(ABC):
    """Base class of the toys: their clock, their generator and their spaces.

    Attributes:
        possible_agents: All agents that there may be.
        agents: Those that act next.
        optimum: Sum of all agents' rewards in an episode that is played as well as possible; where
            all are paid the same, each has an equal part of it.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "toy", "is_parallelizable": True}
    render_mode = None
    possible_agents: list[str]
    agents: list[str]
    optimum: float
    observations: spaces.Box
    actions: spaces.Discrete

    def __init__(self, n_agents: int) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(n_agents)]
        self.agents = []
        self.time = 0
        self.np_random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The observation space of one agent."""
        del agent
        return self.observations

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The action space of one agent."""
        del agent
        return self.actions

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Floats], dict[str, dict[str, Any]]]:
        """Begin an episode; without a seed the generator goes on."""
        del options
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.time = 0
        self.agents = self.begin()
        return self._observed(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Stepped:
        """Step all agents that are there."""
        acted = list(self.agents)
        self.time += 1
        taken = {agent: self._checked(agent, actions) for agent in acted}
        rewards, terminated, truncated = self.play(taken)
        ended = {agent for agent in acted if terminated[agent] or truncated[agent]}
        born = self.born()
        self.agents = [agent for agent in acted if agent not in ended] + born
        rewards |= dict.fromkeys(born, 0.0)
        terminated |= dict.fromkeys(born, False)
        truncated |= dict.fromkeys(born, False)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in (*acted, *born)}
        return self._observed([*acted, *born]), rewards, terminated, truncated, infos

    def close(self) -> None:  # noqa: B027
        """Nothing is open."""

    @property
    def unwrapped(self) -> Toy:
        """The environment itself."""
        return self

    def begin(self) -> list[str]:
        """Put everything to its beginning; the agents that are there."""
        return list(self.possible_agents)

    @abstractmethod
    def play(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, float], dict[str, bool], dict[str, bool]]:
        """Rewards, terminated and truncated of one step, by agent."""

    def born(self) -> list[str]:
        """Agents that come after this step."""
        return []

    @abstractmethod
    def observe(self, agent: str) -> Floats:
        """The observation of one agent."""

    def state(self) -> Floats:
        """Everything there is to know, for a critic."""
        return np.concatenate([self.observe(agent) for agent in self.possible_agents])

    def get_state(self) -> dict[str, Any]:
        """State of the environment, without that of the generator."""
        return {"time": self.time, "agents": list(self.agents)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        self.time = state["time"]
        self.agents = list(state["agents"])

    def _observed(self, agents: Sequence[str]) -> dict[str, Floats]:
        return {agent: self.observe(agent) for agent in agents}

    def _checked(self, agent: str, actions: Mapping[str, Any]) -> int:
        if agent not in actions:
            raise ValueError(f"actions must have one of {agent!r}, got {list(actions)}")
        if not self.action_space(agent).contains(actions[agent]):
            raise ValueError(
                f"the action of {agent!r} must be in {self.action_space(agent)}, "
                f"got {actions[agent]!r}"
            )
        return int(actions[agent])


class MatrixGame(Toy):
    """A matrix of payoffs, in which every agent chooses along one dimension.

    Args:
        payoff: One dimension for each agent; every agent is paid it. Or one such array for each
            agent, [n_agents, ...], with `shared=False`.
        horizon: Games in an episode.
        shared: True if all agents are paid the same.

    Example:
        >>> env = MatrixGame(CLIMBING)
        >>> obs, infos = env.reset(seed=0)
        >>> obs, rewards, terminated, truncated, infos = env.step({"agent_0": 0, "agent_1": 0})
        >>> rewards, terminated, env.agents
        ({'agent_0': 11.0, 'agent_1': 11.0}, {'agent_0': True, 'agent_1': True}, [])
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "matrix_game", "is_parallelizable": True}

    def __init__(self, payoff: Any, horizon: int = 1, *, shared: bool = True) -> None:
        payoffs = np.asarray(payoff, np.float64)
        n_agents = payoffs.ndim if shared else payoffs.ndim - 1
        if n_agents < 1 or payoffs.size == 0:
            raise ValueError(f"payoff must have one dimension for each agent, got {payoffs.shape}")
        if not shared and len(payoffs) != n_agents:
            raise ValueError(
                f"payoff must have one array for each of {n_agents} agents, got {len(payoffs)}"
            )
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        super().__init__(n_agents)
        self.payoffs = np.broadcast_to(payoffs, (n_agents, *payoffs.shape)) if shared else payoffs
        self.horizon = horizon
        self.optimum = float(self.payoffs.sum(axis=0).max()) * horizon
        self.observations = spaces.Box(0, 1, (1,), np.float32)
        choices = [spaces.Discrete(n) for n in self.payoffs.shape[1:]]
        self.choices = dict(zip(self.possible_agents, choices, strict=True))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Rows for the first agent, columns for the second, and so on."""
        return self.choices[agent]

    def play(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, float], dict[str, bool], dict[str, bool]]:
        """Pay what the matrix says."""
        outcome = tuple(actions.values())
        rewards = {x: float(own[outcome]) for x, own in zip(actions, self.payoffs, strict=True)}
        over = self.time >= self.horizon
        return rewards, dict.fromkeys(actions, over), dict.fromkeys(actions, False)

    def observe(self, agent: str) -> Floats:
        """The share of the episode that is over, the same for all."""
        del agent
        return np.array([self.time / self.horizon], np.float32)

    def state(self) -> Floats:
        """The share of the episode that is over."""
        return np.array([self.time / self.horizon], np.float32)


class Roles(MatrixGame):
    """Every agent must take the action of its own number, and all observe the same.

    All are paid 1 where everyone does. A policy that the agents share solves it only if it is told
    which agent it acts for; otherwise `n_agents ** -n_agents` is the best that it can do.

    Args:
        n_agents: As many as there are actions.
        horizon: Steps of an episode.

    Example:
        >>> env = Roles()
        >>> obs, infos = env.reset()
        >>> env.step({"agent_0": 0, "agent_1": 1})[1]
        {'agent_0': 1.0, 'agent_1': 1.0}
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "roles", "is_parallelizable": True}

    def __init__(self, n_agents: int = 2, horizon: int = 1) -> None:
        payoff = np.zeros((n_agents,) * n_agents)
        payoff[tuple(range(n_agents))] = 1.0
        super().__init__(payoff, horizon)


class Mortal(Toy):
    """Two agents, one of which dies after its first step.

    The survivor is paid 1 for every step in which it repeats the bit that it observes, 8 in all;
    the other one is paid nothing. A careless environment goes on paying the dead agent, -5 for
    every later step, and whoever learns from that is wrong.

    Args:
        horizon: Steps of an episode, after which the survivor has reached its end.
        careless: True to list rewards for the dead agent too, against PettingZoo's rules.

    Example:
        >>> env = Mortal(careless=True)
        >>> obs, infos = env.reset(seed=0)
        >>> env.step({"agent_0": 0, "agent_1": 0})[2]
        {'agent_0': False, 'agent_1': True}
        >>> env.step({"agent_0": 0})[1]["agent_1"]
        -5.0
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "mortal", "is_parallelizable": True}
    observations = spaces.Box(0, 1, (2,), np.float32)
    actions = spaces.Discrete(2)

    def __init__(self, horizon: int = 8, *, careless: bool = False) -> None:
        if horizon < 2:
            raise ValueError(f"horizon must be at least 2, got {horizon}")
        super().__init__(2)
        self.horizon = horizon
        self.careless = careless
        self.optimum = float(horizon)
        self.bit = 0

    def begin(self) -> list[str]:
        """Draw the first bit."""
        self.bit = int(self.np_random.integers(2))
        return list(self.possible_agents)

    def play(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, float], dict[str, bool], dict[str, bool]]:
        """Pay the survivor and draw the next bit."""
        survivor, mortal = self.possible_agents
        rewards = {survivor: float(actions[survivor] == self.bit)}
        terminated = {survivor: self.time >= self.horizon}
        if mortal in actions:
            rewards[mortal], terminated[mortal] = 0.0, True
        elif self.careless:
            rewards[mortal] = -5.0
        self.bit = int(self.np_random.integers(2))
        return rewards, terminated, dict.fromkeys(actions, False)

    def observe(self, agent: str) -> Floats:
        """The bit, and how much of the episode is over."""
        del agent
        return np.array([self.bit, self.time / self.horizon], np.float32)

    def state(self) -> Floats:
        """The observation of both."""
        return self.observe("agent_0")

    def get_state(self) -> dict[str, Any]:
        """State with the bit."""
        return {**super().get_state(), "bit": self.bit}

    def set_state(self, state: dict[str, Any]) -> None:
        """State with the bit."""
        super().set_state(state)
        self.bit = state["bit"]


class Generations(Toy):
    """Agents come one after the other, live for a while and die.

    At the beginning the first two are there, and in every step another one comes until all have
    been there. Each is paid 1 for every step in which it repeats the bit that it observes. It dies
    after `life` steps; time is up for those that are left after `horizon` steps.

    Args:
        n_agents: Maximum number of agents.
        life: Steps of one.
        horizon: Steps of an episode.

    Example:
        >>> env = Generations()
        >>> obs, infos = env.reset(seed=0)
        >>> obs, *_ = env.step({"agent_0": 0, "agent_1": 1})
        >>> list(obs), env.agents
        (['agent_0', 'agent_1', 'agent_2'], ['agent_0', 'agent_1', 'agent_2'])
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "generations", "is_parallelizable": True}
    observations = spaces.Box(0, 1, (2,), np.float32)
    actions = spaces.Discrete(2)

    def __init__(self, n_agents: int = 5, life: int = 3, horizon: int = 5) -> None:
        if n_agents < 2 or life < 2 or horizon < 1:
            raise ValueError(
                "n_agents and life must be at least 2 and horizon at least 1, "
                f"got {n_agents}, {life} and {horizon}"
            )
        super().__init__(n_agents)
        self.life = life
        self.horizon = horizon
        self.bits = np.zeros(n_agents, np.int64)
        births = [max(i - 1, 0) for i in range(n_agents)]
        self.births = dict(zip(self.possible_agents, births, strict=True))
        self.optimum = float(sum(min(life, max(horizon - birth, 0)) for birth in births))

    def begin(self) -> list[str]:
        """The first two, with the first bits."""
        self._draw()
        return self.possible_agents[:2]

    def play(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, float], dict[str, bool], dict[str, bool]]:
        """Pay those that are there, and let the oldest go."""
        rewards = {agent: float(act == self._bit(agent)) for agent, act in actions.items()}
        terminated = {agent: self.time - self.births[agent] >= self.life for agent in actions}
        late = self.time >= self.horizon
        truncated = {agent: late and not terminated[agent] for agent in actions}
        self._draw()
        return rewards, terminated, truncated

    def born(self) -> list[str]:
        """The agent whose time it is to come."""
        if self.time >= self.horizon:
            return []
        return [agent for agent, birth in self.births.items() if birth == self.time]

    def observe(self, agent: str) -> Floats:
        """The agent's bit, and how much of the episode is over."""
        return np.array([self._bit(agent), self.time / self.horizon], np.float32)

    def state(self) -> Floats:
        """The bits of all, and how much of the episode is over."""
        return np.array([*self.bits, self.time / self.horizon], np.float32)

    def get_state(self) -> dict[str, Any]:
        """State with the bits."""
        return {**super().get_state(), "bits": self.bits.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """State with the bits."""
        super().set_state(state)
        self.bits = np.array(state["bits"], np.int64)

    def _bit(self, agent: str) -> int:
        return int(self.bits[self.possible_agents.index(agent)])

    def _draw(self) -> None:
        self.bits = self.np_random.integers(2, size=len(self.possible_agents))


class Switch(Toy):
    """Two agents, each of which must get to where the other one begins, over one narrow bridge.

    ```
    0 = = = 1      The bridge is wide enough for one. Beside each of its ends lies one field more,
    .       .      in which an agent can let the other one pass.
    ```

    An agent observes its own position and the time, not the other agent; the state has both. It is
    paid 1 when it arrives, which ends its life, and each step costs it `step_cost`. Who moves onto
    a field that is taken stays where it is; the first agent moves first. Actions are stay, left,
    right, up and down.

    Args:
        bridge: Fields of the bridge.
        max_steps: Time limit.
        step_cost: Cost of every step of an agent.

    Example:
        >>> env = Switch(bridge=1)
        >>> obs, infos = env.reset()
        >>> for moves in [(2, 4), (2, 0)]:
        ...     rewards = env.step(dict(zip(env.agents, moves)))[1]
        >>> env.agents, round(rewards["agent_0"], 2)
        (['agent_1'], 0.98)
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "switch", "is_parallelizable": True}
    observations = spaces.Box(0, 1, (3,), np.float32)
    actions = spaces.Discrete(5)
    MOVES: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))

    def __init__(self, bridge: int = 3, max_steps: int = 20, step_cost: float = 0.02) -> None:
        if bridge < 1:
            raise ValueError(f"bridge must be at least 1, got {bridge}")
        super().__init__(2)
        last = bridge + 1
        fastest = [last, 2 * last + 1]  # the second waits aside until the first one has arrived
        if max_steps < fastest[1]:
            raise ValueError(
                f"max_steps must be at least {fastest[1]} with a bridge of {bridge}, "
                f"got {max_steps}"
            )
        self.bridge = bridge
        self.max_steps = max_steps
        self.step_cost = step_cost
        self.optimum = 2.0 - step_cost * sum(fastest)
        self.starts = {"agent_0": (0, 0), "agent_1": (0, last)}
        self.goals = {"agent_0": (0, last), "agent_1": (0, 0)}
        self.fields = {(0, column) for column in range(last + 1)} | {(1, 0), (1, last)}
        self.positions = dict(self.starts)

    def begin(self) -> list[str]:
        """Both at their ends of the bridge."""
        self.positions = dict(self.starts)
        return list(self.possible_agents)

    def play(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, float], dict[str, bool], dict[str, bool]]:
        """Move one after the other."""
        for agent, action in actions.items():
            (row, column), (down, right) = self.positions[agent], self.MOVES[action]
            field = (row + down, column + right)
            taken = [self.positions[other] for other in actions if other != agent]
            if field in self.fields and field not in taken:
                self.positions[agent] = field
        terminated = {agent: self.positions[agent] == self.goals[agent] for agent in actions}
        late = self.time >= self.max_steps
        truncated = {agent: late and not terminated[agent] for agent in actions}
        rewards = {agent: float(terminated[agent]) - self.step_cost for agent in actions}
        return rewards, terminated, truncated

    def observe(self, agent: str) -> Floats:
        """The agent's row and column and the time, each between 0 and 1."""
        row, column = self.positions[agent]
        return np.array([row, column / (self.bridge + 1), self._clock()], np.float32)

    def state(self) -> Floats:
        """Positions of both agents, flags of those still there, and the time."""
        places = [
            (row, column / (self.bridge + 1), agent in self.agents)
            for agent, (row, column) in self.positions.items()
        ]
        return np.array([*itertools.chain(*places), self._clock()], np.float32)

    def get_state(self) -> dict[str, Any]:
        """State with the positions."""
        return {**super().get_state(), "positions": [list(x) for x in self.positions.values()]}

    def set_state(self, state: dict[str, Any]) -> None:
        """State with the positions."""
        super().set_state(state)
        places = [(int(row), int(column)) for row, column in state["positions"]]
        self.positions = dict(zip(self.possible_agents, places, strict=True))

    def _clock(self) -> float:
        return self.time / self.max_steps
