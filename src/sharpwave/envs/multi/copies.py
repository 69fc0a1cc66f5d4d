"""One copy of a multi-agent environment, which writes into its rows of a block."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from sharpwave.core.tree import map_leaves
from sharpwave.envs.batching import fitting
from sharpwave.envs.multi.form import Block, Form
from sharpwave.envs.multi.seats import Seat
from sharpwave.envs.multi.state import MULTI_GETTERS, MULTI_SETTERS
from sharpwave.types import Array

__all__ = ["EnvCopy"]


class EnvCopy:
    """Steps one environment, checks what it returns and writes it into a block.

    Args:
        env: With PettingZoo's parallel interface, or TurnBased.
        index: Row of the block.
        form: Of the environment.
        block: Memory that actions are read from and everything else is written to.

    Attributes:
        env: The environment.
    """

    def __init__(self, env: Any, index: int, form: Form, block: Block) -> None:
        self.env = env
        self._index = index
        self._block = block
        self._seats = {
            form.keys[agent]: Seat(form.keys[agent], group, row, index, block.groups[name])
            for name, group in form.groups.items()
            for row, agent in enumerate(group.agents)
        }
        self._agents = list(form.keys.values())
        self._has_own_states = form.has_own_states
        self._takes_turns = hasattr(env, "acting")
        self._players: list[Seat] = []  # in the episode, acting or waiting
        self._acting: list[Seat] = []
        self._listed: list[Any] = []  # what the environment's `agents` said
        self._dead: set[Any] = set()
        self._has_stale_rows = True  # of agents that are gone, or flags of a step before
        self._doing: Any = ""

    @property
    def doing(self) -> str:
        """Current command in words, for the report of an error."""
        return self._doing if isinstance(self._doing, str) else f"step({reprlib.repr(self._doing)})"

    def reset(self, seed: int | None, options: Any) -> dict[str, Any]:
        """Begin an episode; returns its infos by agent."""
        self._doing = f"reset(seed={seed})"
        self._clear()
        self._forget_masks()
        infos = self._begin(seed, options, is_next=True)
        self._block.changed[self._index] = self._block.ended[self._index] = False
        self._has_stale_rows = True
        return infos

    def step(self) -> dict[str, Any]:
        """Step with the actions in the block; returns the infos by agent."""
        if self._has_stale_rows:
            self._clear()
        self._doing = actions = {seat.key: seat.chosen() for seat in self._acting}
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        has_end = False
        key: Any = None
        try:
            for seat in self._players:
                key = seat.key
                seat.write(obs[key], is_next=True)
                seat.reward[seat.row] = rewards[key]
                if terminated[key] or truncated[key]:
                    seat.terminated[seat.row] = terminated[key]
                    seat.truncated[seat.row] = truncated[key]
                    has_end = True
        except KeyError as error:
            raise _missing(key, obs, rewards, terminated, truncated) from error
        sizes = {len(obs), len(rewards), len(terminated), len(truncated)}
        is_same = self.env.agents == self._listed and sizes == {len(self._players)}
        if has_end or self._takes_turns or not is_same:
            self._change_players(obs, rewards, terminated, truncated)
        if self._block.next_state is not None:
            self._write_state(self._block.next_state, obs)
        return self._finish(obs, infos, has_end)

    def _finish(self, obs: Any, infos: dict[str, Any], has_end: bool) -> dict[str, Any]:
        """Write what to act on next; of a new episode where nobody is left."""
        block, i = self._block, self._index
        self._has_stale_rows = has_end
        block.changed[i] = has_end
        block.ended[i] = not self._players
        if not self._players:
            self._doing = "reset()"
            for arrays in block.groups.values():
                map_leaves(lambda leaf: _clear_row(leaf, i), arrays.obs)
            return {**self._begin(None, None, is_next=False), "final_info": infos}
        if has_end:
            self._leave_out_the_gone()
        self._write_masks(obs, infos)
        return infos

    def _begin(self, seed: int | None, options: Any, *, is_next: bool) -> dict[str, Any]:
        obs, infos = self.env.reset(seed=seed, options=options)
        self._check_possible(obs)
        self._dead = set()
        self._seat_players()
        if not self._players:
            raise ValueError("agents must have somebody after a reset, got nobody")
        for seat in self._players:
            if seat.key not in obs:
                raise _missing(seat.key, obs)
            seat.write(obs[seat.key], is_next=is_next)
        state = self._block.next_state if is_next else self._block.state
        if state is not None:
            self._write_state(state, obs)
        self._write_masks(obs, infos)
        return dict(infos)

    def _change_players(self, obs: Any, rewards: Any, terminated: Any, truncated: Any) -> None:
        """Let those go that ended, and those in that came."""
        for told in (obs, rewards, terminated, truncated, self.env.agents):
            self._check_possible(told)
        before = {seat.key for seat in self._players}
        self._check_ends(before, terminated, truncated)
        over = {key for key in before if terminated[key] or truncated[key]}
        present = set(self.env.agents) - over
        for key in present & self._dead:
            raise ValueError(f"{key!r} is in agents again after its end, but an agent lives once")
        for key in before - over - present:
            raise ValueError(f"{key!r} left agents and was neither terminated nor truncated")
        self._dead |= over
        self._seat_players()
        for seat in self._players:
            if seat.key not in before:
                if seat.key not in obs:
                    raise _missing(seat.key, obs)
                seat.write(obs[seat.key], is_next=True)

    def _check_ends(self, before: set[Any], terminated: Any, truncated: Any) -> None:
        for name, flags in (("terminated", terminated), ("truncated", truncated)):
            for key in flags.keys() - before:
                if flags[key]:
                    why = "was dead already" if key in self._dead else "was not there"
                    raise ValueError(f"{name} must not be True for {key!r}, which {why}")

    def _seat_players(self) -> None:
        """Read from the environment who is there and who acts next."""
        self._listed = list(self.env.agents)
        self._check_possible(self._listed)
        present = set(self._listed) - self._dead
        self._players = [seat for key, seat in self._seats.items() if key in present]
        self._acting = self._players
        if self._takes_turns:
            self._acting = [self._seats[key] for key in self.env.acting]
        for arrays in self._block.groups.values():
            arrays.alive[self._index] = False
        for seat in self._acting:
            seat.alive[seat.row] = True

    def _leave_out_the_gone(self) -> None:
        """To act on next is what the actions led to, without those who are gone."""
        i = self._index
        for arrays in self._block.groups.values():
            map_leaves(lambda new, old: _copy_row(new, old, i), arrays.obs, arrays.next_obs)
        for key in self._dead:
            self._seats[key].clear()
        if self._block.state is not None:
            _copy_row(self._block.state, self._block.next_state, i)

    def _clear(self) -> None:
        i = self._index
        for arrays in self._block.groups.values():
            map_leaves(lambda leaf: _clear_row(leaf, i), arrays.next_obs)
            for array in (arrays.rewards, arrays.terminated, arrays.truncated):
                _clear_row(array, i)

    def _write_state(self, into: Array, obs: Any) -> None:
        state = self.env.state()
        if isinstance(state, Mapping) != self._has_own_states:
            wanted = "a dict by agent" if self._has_own_states else "one array"
            got = reprlib.repr(state)
            raise ValueError(f"the state must be {wanted} like state_space, got {got}")
        if not self._has_own_states:
            _write_array(into, self._index, state, "the state")
            return
        self._check_possible(state)
        into[self._index] = 0  # of the gone, of whom it may not tell
        for row, key in enumerate(self._agents):
            if key in state:
                _write_array(into[self._index], row, state[key], f"the state of {key!r}")
            elif key in obs:
                raise ValueError(f"the state must have an entry for {key!r}, got {list(state)}")

    def _forget_masks(self) -> None:
        """There are none until the environment gives one."""
        for arrays in self._block.groups.values():
            arrays.has_masks[self._index] = False
            if arrays.masks is not None:
                arrays.masks[self._index] = True

    def _write_masks(self, obs: Any, infos: Any) -> None:
        i = self._index
        for arrays in self._block.groups.values():
            if arrays.masks is not None and arrays.has_masks[i]:
                arrays.masks[i] = True
        for seat in self._acting:
            if seat.write_mask(obs[seat.key], infos.get(seat.key)):
                seat.arrays.has_masks[i] = True

    def _check_possible(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if key not in self._seats:
                possible = list(self._seats)
                raise ValueError(f"agents must be among possible_agents {possible}, got {key!r}")

    def render(self) -> Any:
        """The frame of the environment."""
        self._doing = "render()"
        return self.env.render()

    def get_state(self, kind: str) -> Any:
        """The "state" or "random" state of the environment with its wrappers."""
        state = MULTI_GETTERS[kind](self.env)
        if kind == "random" or state is None:
            return state
        return {**state, "dead": sorted(self._seats[key].agent for key in self._dead)}

    def set_state(self, kind: str, state: Any) -> None:
        """Take over what `get_state` gave of an environment made alike."""
        MULTI_SETTERS[kind](self.env, state)
        if kind == "state":
            dead = set(state["dead"])
            self._dead = {key for key, seat in self._seats.items() if seat.agent in dead}
            if self._takes_turns:
                self.env.go_on(self._dead)
            self._seat_players()
            self._forget_masks()
            self._has_stale_rows = True


def _write_array(into: Array, row: int, value: Any, name: str) -> None:
    shape = into.shape[1:]
    if getattr(value, "shape", None) != shape or value.dtype != into.dtype:
        value = fitting(value, shape, into.dtype, name)
    into[row] = value


def _clear_row(array: Array, i: int) -> None:
    array[i] = 0


def _copy_row(into: Array, array: Any, i: int) -> None:
    into[i] = array[i]


def _missing(key: Any, obs: Any, *others: Any) -> ValueError:
    names = ("observations", "rewards", "terminations", "truncations")
    for name, told in zip(names, (obs, *others), strict=False):
        if key not in told:
            return ValueError(f"{name} must have an entry for {key!r}, got {list(told)}")
    return ValueError(f"the step must tell of {key!r}")  # one of them raises for what it has
