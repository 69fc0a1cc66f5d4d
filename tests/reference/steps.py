"""Steps of environments whose content is unique, so that any mix-up shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave import Field, Schema
from tests.reference.nests import Array, Nest, stacked

ENDINGS = ("", "terminated", "truncated", "both")


def unique_value(field: Field, shape: tuple[int, ...], key: tuple[int, ...]) -> Array:
    """Bits of the field's dtype that depend on the key alone; floats are finite."""
    dtype = np.dtype(field.dtype)
    size = int(np.prod(shape))
    mixed = np.arange(1, size + 1, dtype=np.uint64)
    for number in key:
        mixed = (mixed + np.uint64(number + 1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    if dtype == np.bool_:
        return (mixed % np.uint64(2)).astype(dtype).reshape(shape)
    if dtype.kind == "f":
        return (
            ((mixed % np.uint64(2000003)).astype(np.float64) / 1000 - 1000)
            .astype(dtype)
            .reshape(shape)
        )
    return mixed.astype(dtype).reshape(shape)


class Steps:
    """Endless steps of `n_envs` environments after a schema.

    Observation number i of an environment is a function of i; a stack holds the last numbers, and
    the first one repeated after a reset.
    """

    def __init__(self, schema: Schema, n_envs: int = 1, *, squeeze: bool = False) -> None:
        self.schema = schema
        self.squeeze = squeeze
        self.depth = max(leaf.field.stack for leaf in schema.leaves)
        self.count = 0
        self.frames = [self.fresh() for _ in range(n_envs)]

    def fresh(self) -> list[int]:
        """The frames of a first observation."""
        self.count += 1
        return [self.count] * self.depth

    def moved_on(self, frames: list[int]) -> list[int]:
        self.count += 1
        return [*frames[1:], self.count]

    def observation(self, frames: list[int]) -> Nest:
        return self.fill(self.schema.fields["obs"], (1,), frames)

    def fill(self, node: Any, key: tuple[int, ...], frames: list[int]) -> Nest:
        if isinstance(node, dict):
            return {
                name: self.fill(child, (*key, i), frames)
                for i, (name, child) in enumerate(node.items())
            }
        if isinstance(node, tuple):
            return tuple(self.fill(child, (*key, i), frames) for i, child in enumerate(node))
        if node.stack == 1:
            return unique_value(node, node.shape, (*key, frames[-1]))
        shape = tuple(n for axis, n in enumerate(node.shape) if axis != node.axis)
        newest = frames[-node.stack :]
        values = [unique_value(node, shape, (*key, number)) for number in newest]
        return np.stack(values, axis=node.axis)

    def step(
        self, env: int = 0, ending: str = "", *, reset: bool = False, jump: bool = False
    ) -> dict[str, Nest]:
        """One more step of an environment.

        Args:
            env: The environment.
            ending: One of ENDINGS: which flags are set.
            reset: Begin at a new observation although the last step did not end.
            jump: The next observation shares no frame with this one.
        """
        if reset:
            self.frames[env] = self.fresh()
        frames = self.frames[env]
        after = self.fresh() if jump else self.moved_on(frames)
        number = self.count
        row: dict[str, Nest] = {}
        for i, (name, node) in enumerate(self.schema.fields.items()):
            if name == "obs":
                row[name] = self.observation(frames)
            elif name == "next_obs":
                row[name] = self.observation(after)
            elif name in ("terminated", "truncated"):
                assert isinstance(node, Field)
                row[name] = np.asarray(ending in (name, "both"), np.dtype(node.dtype))
            else:
                row[name] = self.fill(node, (2, i), [number])
        if self.squeeze and row["action"].shape == (1,):
            row["action"] = row["action"][0]
        self.frames[env] = self.fresh() if ending else after
        return row

    def take(self, n: int) -> list[dict[str, Nest]]:
        """n steps, the environments in turn, with ends and cuts of all kinds."""
        rows = []
        for i in range(n):
            roll = (self.count * 7919) % 23
            ending = {3: "terminated", 5: "truncated", 7: "both"}.get(roll, "")
            rows.append(self.step(i % len(self.frames), ending, reset=roll == 11, jump=roll == 13))
        return rows


def as_batch(rows: list[dict[str, Nest]]) -> dict[str, Nest]:
    """Rows as the keyword arguments of push_batch."""
    names = {"action": "actions", "reward": "rewards"}
    joined = stacked(rows)
    return {names.get(name, name): value for name, value in joined.items()}
