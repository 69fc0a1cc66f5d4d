"""A replay buffer in plain Python: one list of slots per environment, and loops over it.

A slot is a step, or None for an observation that is not the start of a step. Stream rows keep an
observation once: the `next_obs` of a step lies in the slot after it, where the next step takes its
place if that goes on from there. What begins anew takes one slot per frame of its stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave import Hindsight, NStep, Schema, Sequence, Transition
from tests.reference.nests import Nest, assert_same, same, stacked, transform

BATCH_NAMES = {"action": "actions", "reward": "rewards"}
AnyView = Transition | NStep | Sequence | Hindsight | None
LEFT_OUT = ("terminated", "truncated", "next_obs")
"""The fields that arrivals do not have."""
NO_STEP = 2**64 - 1
"""The id of a row of arrivals where no step begins."""


@dataclass
class Step:
    """A step and where it stands in its episode."""

    id: int
    env: int
    row: dict[str, Nest]
    first: bool
    last: bool
    """The episode ends after it, or what is stored of the episode does."""
    priority: float = 1.0


class ReplayOracle:
    """The content of a buffer after some pushes, and its views.

    Args:
        capacity: Of the buffer.
        schema: Of the buffer.
        n_envs: Environments whose steps are kept in order; None for transition rows in no order.
    """

    def __init__(self, capacity: int, schema: Schema, n_envs: int | None = None) -> None:
        self.n_envs = n_envs
        self.streams = n_envs or 1
        self.share = capacity // self.streams
        self.observations = [leaf for leaf in schema.leaves if leaf.argument == "obs"]
        self.stack = max((leaf.field.stack for leaf in self.observations), default=1)
        self.slots: list[list[Step | None]] = [[] for _ in range(self.streams)]
        self.floor = [0] * self.streams
        self.pending: list[Nest | None] = [None] * self.streams
        self.open = [False] * self.streams
        self.max_priority = 1.0

    def push(self, row: dict[str, Nest], env: int = 0, priority: float | None = None) -> None:
        if priority is None:
            priority = self.max_priority
        self.max_priority = max(self.max_priority, priority)
        slots = self.slots[env]
        ended = bool(np.any(row["terminated"])) or bool(np.any(row["truncated"]))
        if self.n_envs is None:
            slots.append(Step(len(slots), env, row, True, True, priority))
            self.floor[env] = max(self.floor[env], len(slots) - self.share)
            return
        pending = self.pending[env]
        if pending is None or not same(pending, row["obs"]):
            previous = self.newest(env)
            if previous is not None:
                previous.last = True
            self.open[env] = False
            slots.extend([None] * self.stack)
        shifted = self.is_shifted(row)
        step_id = (len(slots) - 1) * self.streams + env
        slots[-1] = Step(step_id, env, row, not self.open[env], ended or not shifted, priority)
        slots.extend([None] * (1 if shifted else self.stack))
        self.pending[env] = row["next_obs"]
        self.open[env] = shifted and not ended
        # The newest next_obs has a slot of its own beside the share.
        self.floor[env] = max(self.floor[env], len(slots) - self.share - 1)

    def push_batch(self, rows: list[dict[str, Nest]], envs: list[int] | None = None) -> None:
        for i, row in enumerate(rows):
            self.push(row, envs[i] if envs is not None else i % self.streams)

    def newest(self, env: int) -> Step | None:
        for step in reversed(self.slots[env]):
            if step is not None:
                return step
        return None

    def is_shifted(self, row: dict[str, Nest]) -> bool:
        """True if next_obs is obs moved on by one frame."""
        for leaf in self.observations:
            obs, next_obs = row["obs"], row["next_obs"]
            for key in leaf.path:
                obs, next_obs = obs[key], next_obs[key]
            stack, axis = leaf.field.stack, leaf.field.axis
            if stack == 1:
                continue
            older = np.take(obs, range(1, stack), axis)
            newer = np.take(next_obs, range(stack - 1), axis)
            if not np.array_equal(older, newer):
                return False
        return True

    def clear(self) -> None:
        for env in range(self.streams):
            self.floor[env] = len(self.slots[env])
            self.pending[env] = None
            self.open[env] = False
        self.max_priority = 1.0

    def steps(self, env: int) -> Iterator[Step]:
        for step in self.slots[env][self.floor[env] :]:
            if step is not None:
                yield step

    def ids(self) -> list[int]:
        return [step.id for env in range(self.streams) for step in self.steps(env)]

    def __len__(self) -> int:
        return len(self.ids())

    def find(self, step_id: int) -> Step | None:
        """The step, or None when it is not in the buffer."""
        env, seq = step_id % self.streams, step_id // self.streams
        if not self.floor[env] <= seq < len(self.slots[env]):
            return None
        return self.slots[env][seq]

    def step(self, step_id: int) -> Step:
        found = self.find(step_id)
        assert found is not None, f"step {step_id} is not in the buffer"
        return found

    def update(self, ids: list[int], **fields: Nest) -> int:
        """Write over extra columns; the number of ids that are not in the buffer any more."""
        stale = 0
        for i, step_id in enumerate(ids):
            found = None if step_id == NO_STEP else self.find(step_id)
            if found is not None:
                new = {k: transform(lambda x, i=i: np.asarray(x)[i], v) for k, v in fields.items()}
                found.row = {**found.row, **new}
            elif step_id != NO_STEP:
                stale += 1
        return stale

    def update_priorities(self, ids: list[int], priorities: list[float]) -> int:
        """The number of ids that are not in the buffer any more."""
        stale = 0
        for step_id, priority in zip(ids, priorities, strict=True):
            found = self.find(step_id)
            if found is None:
                stale += 1
            else:
                found.priority = abs(priority)
                self.max_priority = max(self.max_priority, abs(priority))
        return stale

    def episode_from(self, step: Step) -> list[Step]:
        """The steps from this one to the last of its episode that is stored."""
        found = [step]
        while not found[-1].last:
            later = [s for s in self.steps(step.env) if s.id > found[-1].id]
            if not later:
                break
            found.append(later[0])
        return found

    def episode_before(self, step: Step) -> list[Step]:
        """The earlier steps of its episode that are stored, oldest first."""
        found = [step]
        while not found[0].first:
            earlier = [s for s in self.steps(step.env) if s.id < found[0].id]
            if not earlier:
                break
            found.insert(0, earlier[-1])
        return found[:-1]

    def window(self, step: Step, view: Sequence) -> list[Step | None]:
        """The steps of a window, None where there is none."""
        if view.cross:
            after = [s for s in self.steps(step.env) if s.id >= step.id]
            before = [s for s in self.steps(step.env) if s.id < step.id]
        else:
            after = self.episode_from(step)
            before = self.episode_before(step)
        backwards = range(view.burn_in, 0, -1)
        rows = [before[-back] if back <= len(before) else None for back in backwards]
        return rows + [after[i] if i < len(after) else None for i in range(view.length)]

    def arrivals(self, step: Step, view: Sequence) -> list[tuple[Step, bool] | None]:
        """The rows of a window: an observation with the step before or after it.

        The step begins there, or (True) it is the last of its episode and led there.
        """
        after = [s for s in self.steps(step.env) if s.id >= step.id]
        if not view.cross:
            after = self.episode_from(step)
        rows: list[tuple[Step, bool] | None] = []
        for one in after:
            rows += [(one, False), (one, True)] if one.last else [(one, False)]
        length = view.context + view.length
        return (rows + [None] * length)[:length]

    def leading_to(self, step: Step) -> Step | None:
        """The step that led to where this one begins, in the same episode."""
        return None if step.first else self.find(step.id - self.streams)

    def may_draw(self, step_id: int, view: AnyView) -> bool:
        step = self.find(step_id)
        if step is None:
            return False
        if not isinstance(view, Sequence):
            return True
        earlier = len(self.episode_before(step))
        if earlier % view.stride != 0:
            return False
        if view.arrivals and not step.first and self.leading_to(step) is None:
            return False
        rows: list[Any] = self.arrivals(step, view) if view.arrivals else self.window(step, view)
        if view.pad is True or None not in rows:
            return True
        if view.arrivals:
            return view.pad == "whole" and step.first
        return view.pad == "whole" and earlier == 0 and rows[-1] is None

    def drawable(self, view: AnyView) -> list[int]:
        return [step_id for step_id in self.ids() if self.may_draw(step_id, view)]

    def expected(self, step_id: int, view: AnyView = None) -> dict[str, Any]:
        """The row of a batch that this id becomes, field by field."""
        step = self.step(step_id)
        if isinstance(view, NStep):
            return self.n_step(step, view)
        if isinstance(view, Sequence):
            return self.arrived(step, view) if view.arrivals else self.sequence(step, view)
        return in_batch(step.row)

    def n_step(self, step: Step, view: NStep) -> dict[str, Any]:
        taken = self.episode_from(step)[: view.n]
        last = taken[-1].row
        total = 0.0
        for i, s in enumerate(taken):
            total += view.gamma**i * float(s.row["reward"])
        row = dict(step.row)
        row["reward"] = np.asarray(total, np.asarray(step.row["reward"]).dtype)
        row["next_obs"] = last["next_obs"]
        row["terminated"] = last["terminated"]
        row["truncated"] = last["truncated"]
        discount = 0.0 if np.any(last["terminated"]) else view.gamma ** len(taken)
        return {**in_batch(row), "discounts": np.float32(discount)}

    def sequence(self, step: Step, view: Sequence) -> dict[str, Any]:
        rows = self.window(step, view)
        nothing = transform(np.zeros_like, step.row)
        batch: dict[str, Any] = in_batch(stacked([nothing if s is None else s.row for s in rows]))
        batch["mask"] = np.array([s is not None for s in rows])
        batch["is_first"] = np.array([s is not None and s.first for s in rows])
        if view.gamma is not None:
            batch["discounts"] = np.array(
                [0.0 if s is None or np.any(s.row["terminated"]) else view.gamma for s in rows],
                np.float32,
            )
        return batch

    def arrived(self, step: Step, view: Sequence) -> dict[str, Any]:
        rows = self.arrivals(step, view)
        nothing = transform(np.zeros_like, step.row)
        extra = [k for k in step.row if k not in ("obs", "action", "reward", *LEFT_OUT)]
        made: list[dict[str, Any]] = []
        for one in rows:
            found, is_end = one or (None, False)
            led_here = found if is_end or found is None else self.leading_to(found)
            begins = None if is_end else found
            obs = nothing["obs"]
            if found is not None:
                obs = found.row["next_obs"] if is_end else found.row["obs"]
            made.append(
                {
                    "obs": obs,
                    "prev_actions": (nothing if led_here is None else led_here.row)["action"],
                    "rewards": (nothing if led_here is None else led_here.row)["reward"],
                    **{k: (nothing if begins is None else begins.row)[k] for k in extra},
                    "mask": np.bool_(found is not None),
                    "is_first": np.bool_(begins is not None and begins.first),
                    "is_last": np.bool_(is_end),
                    "is_terminal": np.bool_(
                        is_end and found is not None and np.any(found.row["terminated"])
                    ),
                    "indices": np.uint64(NO_STEP if begins is None else begins.id),
                }
            )
        batch: dict[str, Any] = stacked(made)
        return batch

    def goal_ids(self, step_id: int, strategy: str) -> list[int]:
        """The steps whose achieved goal a drawn step may take."""
        step = self.step(step_id)
        after = self.episode_from(step)
        if strategy == "final":
            return [after[-1].id]
        if strategy == "episode":
            return [s.id for s in [*self.episode_before(step), *after]]
        return [s.id for s in after]

    def check_batch(self, batch: dict[str, Any], view: AnyView = None) -> None:
        """Every row of a batch with `indices` is what its id should become."""
        ids = batch["indices"]
        rest = {k: v for k, v in batch.items() if k not in ("indices", "weights")}
        if isinstance(view, Sequence) and view.arrivals:  # every row of a window has an id
            ids, rest["indices"] = ids[:, 0], ids
        for i, step_id in enumerate(ids.tolist()):
            assert self.may_draw(step_id, view), f"step {step_id} must not be drawn"
            got = transform(lambda array, i=i: array[i], rest)
            expected = self.expected(step_id, view)
            if isinstance(view, NStep):  # the order of summation is the buffer's own
                np.testing.assert_allclose(got.pop("rewards"), expected.pop("rewards"), rtol=1e-6)
                np.testing.assert_allclose(got.pop("discounts"), expected.pop("discounts"))
            assert_same(got, expected)


def in_batch(row: dict[str, Nest]) -> dict[str, Nest]:
    """A row under the names of a batch."""
    return {BATCH_NAMES.get(name, name): value for name, value in row.items()}
