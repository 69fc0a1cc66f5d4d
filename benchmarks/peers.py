"""Buffers of every contender, made and filled in the way its own documentation shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from data import ACT_DIM, IMAGE, OBS_DIM, Transitions

IMAGE_FIELDS = {
    "obs": ("uint8", IMAGE),
    "action": ("int64", ()),
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "next_obs": ("uint8", IMAGE),
}


def one(rows: Transitions) -> tuple[Any, ...]:
    """The first row in the order of `push`, as an environment hands it out."""
    action: Any = rows.actions[0]
    if rows.actions.ndim == 1:
        action = int(action)
    return rows.obs[0], action, float(rows.rewards[0]), False, False, rows.next_obs[0]


def chunks(rows: Transitions, size: int = 20_000) -> Iterator[Transitions]:
    """Slices of `rows`, for filling."""
    for start in range(0, len(rows), size):
        yield Transitions(*(column[start : start + size] for column in rows.columns()))


def fill(buffer: Any, rows: Iterable[Transitions]) -> Any:
    """Push chunks into a buffer of sharpwave."""
    for chunk in rows:
        buffer.push_batch(*chunk.columns())
    return buffer


def fill_rlox(buffer: Any, rows: Iterable[Transitions]) -> Any:
    """Push chunks into a replay buffer of rlox."""
    for chunk in rows:
        buffer.push_batch(*chunk.flat())
    return buffer


def fill_rlox_one_by_one(push: Callable[..., object], rows: Transitions, order: str) -> None:
    """Push rows into a buffer of rlox that has no push_batch; `order` names its arguments."""
    columns = {
        "obs": rows.obs,
        "next_obs": rows.next_obs,
        "action": rows.actions,
        "reward": rows.rewards.tolist(),
        "terminated": rows.terminated.tolist(),
        "truncated": rows.truncated.tolist(),
    }
    for row in zip(*(columns[name] for name in order.split()), strict=True):
        push(*row)


def sb3(capacity: int, rows: Transitions | None = None, n_envs: int = 1, **options: Any) -> Any:
    """A replay buffer of Stable-Baselines3; its columns are filled directly.

    `options` may name another class of buffer as `kind`.
    """
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common import buffers

    image = rows is not None and rows.obs.dtype == np.uint8
    obs_space = Box(0, 255, IMAGE, np.uint8) if image else Box(-9, 9, (OBS_DIM,), np.float32)
    action_space = Discrete(6) if image else Box(-9, 9, (ACT_DIM,), np.float32)
    kind = getattr(buffers, options.pop("kind", "ReplayBuffer"))
    buffer = kind(capacity, obs_space, action_space, device="cpu", n_envs=n_envs, **options)
    if rows is not None:
        n = capacity // n_envs
        for column, values in (
            (buffer.observations, rows.obs),
            (buffer.next_observations, rows.next_obs),
            (buffer.actions, rows.actions),
            (buffer.rewards, rows.rewards),
            (buffer.dones, rows.dones()),
            (buffer.timeouts, rows.truncated),
        ):
            column[:] = values[: n * n_envs].reshape(column.shape)
        buffer.full = True
    return buffer


def sb3_arguments(rows: Transitions) -> tuple[Any, ...]:
    """The arguments of its `add` for one step of as many environments as there are rows."""
    infos: list[dict[str, Any]] = [{} for _ in range(len(rows))]
    return (rows.obs, rows.next_obs, rows.actions, rows.rewards, rows.dones(), infos)


def cpprb(capacity: int, kind: str = "ReplayBuffer", image: bool = False, **options: Any) -> Any:
    """A buffer of cpprb with the same fields; `options` are those of its constructor."""
    import cpprb as library

    obs: dict[str, Any] = {"shape": IMAGE, "dtype": np.uint8} if image else {"shape": OBS_DIM}
    fields: dict[str, dict[str, Any]] = {
        "obs": obs,
        "act": {"dtype": np.int64} if image else {"shape": ACT_DIM},
        "rew": {},
        "done": {"dtype": np.bool_},
        "truncated": {"dtype": np.bool_},
    }
    if "next_of" not in options:
        fields["next_obs"] = obs
    return getattr(library, kind)(capacity, fields, **options)


def cpprb_arguments(rows: Transitions) -> dict[str, np.ndarray]:
    """The keywords of its `add`."""
    return {
        "obs": rows.obs,
        "next_obs": rows.next_obs,
        "act": rows.actions,
        "rew": rows.rewards,
        "done": rows.terminated,
        "truncated": rows.truncated,
    }


def fill_cpprb(buffer: Any, rows: Iterable[Transitions]) -> Any:
    """Add chunks of rows."""
    for chunk in rows:
        buffer.add(**cpprb_arguments(chunk))
    return buffer


def tianshou(rows: Transitions) -> Any:
    """A full replay buffer of tianshou."""
    from tianshou.data import ReplayBuffer

    return ReplayBuffer.from_data(
        obs=rows.obs,
        act=rows.actions,
        rew=rows.rewards,
        terminated=rows.terminated,
        truncated=rows.truncated,
        done=rows.dones(),
        obs_next=rows.next_obs,
    )


def tianshou_step(rows: Transitions) -> Any:
    """One transition as tianshou's `add` takes it."""
    from tianshou.data import Batch

    return Batch(
        obs=rows.obs[0],
        act=rows.actions[0],
        rew=rows.rewards[0],
        terminated=rows.terminated[0],
        truncated=rows.truncated[0],
        obs_next=rows.next_obs[0],
        info={},
    )


class NumpyColumns:
    """A ring of six NumPy columns, as one writes it by hand."""

    def __init__(self, rows: Transitions) -> None:
        self.columns = tuple(np.array(column) for column in rows.columns())
        self.capacity = len(rows)
        self.cursor = 0
        self.rng = np.random.default_rng(0)

    def push(
        self,
        obs: np.ndarray,
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: np.ndarray,
    ) -> None:
        """Store one transition."""
        at = self.cursor
        columns = self.columns
        columns[0][at] = obs
        columns[1][at] = next_obs
        columns[2][at] = action
        columns[3][at] = reward
        columns[4][at] = terminated
        columns[5][at] = truncated
        self.cursor = (at + 1) % self.capacity

    def push_batch(self, *values: np.ndarray) -> None:
        """Store rows, given as columns."""
        n = len(values[3])
        end = self.cursor + n
        where = (
            slice(self.cursor, end)
            if end <= self.capacity
            else np.arange(self.cursor, end) % self.capacity
        )
        for column, rows in zip(self.columns, values, strict=True):
            column[where] = rows
        self.cursor = end % self.capacity

    def sample(self, batch_size: int) -> tuple[np.ndarray, ...]:
        """Uniform rows, as six fresh arrays."""
        rows = self.rng.integers(0, self.capacity, batch_size)
        return tuple(column.take(rows, axis=0) for column in self.columns)


class Uniform:
    """The same transitions in a full uniform buffer of every contender, made when asked for."""

    def __init__(self, rows: Transitions) -> None:
        self.rows = rows

    @cached_property
    def ours(self) -> Any:
        """Ours, as transition rows."""
        import sharpwave as sw

        return fill(sw.ReplayBuffer(len(self.rows), OBS_DIM, ACT_DIM), chunks(self.rows))

    @cached_property
    def rlox(self) -> Any:
        """The one of rlox."""
        import rlox

        return fill_rlox(rlox.ReplayBuffer(len(self.rows), OBS_DIM, ACT_DIM), chunks(self.rows))

    @cached_property
    def sb3(self) -> Any:
        """The one of Stable-Baselines3."""
        return sb3(len(self.rows), self.rows)

    @cached_property
    def cpprb(self) -> Any:
        """The one of cpprb."""
        return fill_cpprb(cpprb(len(self.rows)), chunks(self.rows))

    @cached_property
    def tianshou(self) -> Any:
        """The one of tianshou."""
        return tianshou(self.rows)

    @cached_property
    def numpy(self) -> NumpyColumns:
        """Six columns, by hand."""
        return NumpyColumns(self.rows)

    @cached_property
    def records(self) -> np.ndarray:
        """Records for the floor."""
        return records(self.rows)


def seeded(sample: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    """Call `sample` with a new seed every time: the same seed would find its rows in the cache."""
    seeds = count(1)
    return lambda: sample(*arguments, next(seeds))


def records(rows: Transitions) -> np.ndarray:
    """The transitions as contiguous records, in bytes: what the floor works on."""
    packed = np.empty(
        len(rows),
        dtype=[
            ("obs", "f4", OBS_DIM),
            ("next_obs", "f4", OBS_DIM),
            ("action", "f4", ACT_DIM),
            ("reward", "f4"),
            ("terminated", "u1"),
            ("truncated", "u1"),
        ],
    )
    for name, column in zip(packed.dtype.names or (), rows.columns(), strict=True):
        packed[name] = column
    return packed.view(np.uint8)
