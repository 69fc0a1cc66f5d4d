"""A ring buffer as a user might write it, and the ways in which it might be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")


class Ring:
    """Keeps the contract."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows: list[Any] = [None] * capacity
        self.pushes = 0

    def push(self, *row: Any) -> None:
        self.check(*row)
        self.rows[self.slot()] = self.stored(row)
        self.pushes += 1

    def check(self, obs: Any, action: Any, reward: float, *rest: Any) -> None:
        self.check_shape(obs)
        self.check_reward(reward)

    def check_shape(self, obs: Any) -> None:
        if np.shape(obs) != (4,):
            raise ValueError(f"obs must have shape (4,), got {np.shape(obs)}")

    def check_reward(self, reward: float) -> None:
        if not np.isfinite(reward):
            raise ValueError(f"reward must be finite, got {reward}")

    def slot(self) -> int:
        return self.pushes % self.capacity

    def stored(self, row: Any) -> Any:
        return tuple(np.array(x) for x in row)

    def __len__(self) -> int:
        return min(self.pushes, self.capacity)

    def draw(self, n: int, seed: int) -> Any:
        if not len(self):
            raise ValueError("the buffer is empty")
        return np.random.default_rng(seed).integers(0, len(self), n)

    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        return self.batch(self.draw(batch_size, seed))

    def batch(self, slots: Any) -> dict[str, Any]:
        columns = zip(*(self.rows[i] for i in slots), strict=True)
        return {name: np.array(column) for name, column in zip(NAMES, columns, strict=True)}


class WithPriorities(Ring):
    """Keeps the contract, too."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.priorities = np.ones(capacity)

    def draw(self, n: int, seed: int) -> Any:
        super().draw(n, seed)
        shares = self.priorities[: len(self)]
        return np.random.default_rng(seed).choice(len(self), n, p=shares / shares.sum())

    def batch(self, slots: Any) -> dict[str, Any]:
        weights = self.priorities[: len(self)].min() / self.priorities[slots]
        return {**super().batch(slots), "indices": slots, "weights": weights}

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        self.priorities[indices] = priorities


class WithoutSample:
    push = Ring.push
    __len__ = Ring.__len__


class NeverEmpty(Ring):
    def __len__(self) -> int:
        return max(1, super().__len__())


class EmptyBatches(Ring):
    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        return super().sample(batch_size, seed) if len(self) else {name: [] for name in NAMES}


class CountsForever(Ring):
    def __len__(self) -> int:
        return self.pushes

    def draw(self, n: int, seed: int) -> Any:
        return super().draw(n, seed) % self.capacity


class OneShort(Ring):
    def __len__(self) -> int:
        return min(self.pushes, self.capacity - 1)


class WithoutNextObs(Ring):
    def batch(self, slots: Any) -> dict[str, Any]:
        return {k: v for k, v in super().batch(slots).items() if k != "next_obs"}


class FewRows(Ring):
    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        return super().sample(max(1, batch_size - 1), seed)


class ColumnOfRewards(Ring):
    def batch(self, slots: Any) -> dict[str, Any]:
        batch = super().batch(slots)
        return {**batch, "rewards": batch["rewards"][:, None]}


class IntegerObservations(Ring):
    def batch(self, slots: Any) -> dict[str, Any]:
        batch = super().batch(slots)
        return {**batch, "obs": batch["obs"].astype(np.int64)}


class MixesRows(Ring):
    def batch(self, slots: Any) -> dict[str, Any]:
        return {**super().batch(slots), "actions": super().batch(slots[::-1])["actions"]}


class NextObsOfTheNextRow(Ring):
    """Saves memory by taking the observation of the next row, also where an episode ended."""

    def batch(self, slots: Any) -> dict[str, Any]:
        after = super().batch((slots + 1) % len(self))
        return {**super().batch(slots), "next_obs": after["obs"]}


class MergesFlags(Ring):
    def stored(self, row: Any) -> Any:
        obs, action, reward, terminated, truncated, next_obs = super().stored(row)
        return obs, action, reward, terminated | truncated, truncated, next_obs


class DiscountsOfMergedFlags(MergesFlags):
    def batch(self, slots: Any) -> dict[str, Any]:
        batch = super().batch(slots)
        return {**batch, "discounts": 0.99 * (1.0 - batch.pop("terminated"))}


class OverwritesNewest(Ring):
    def slot(self) -> int:
        return min(self.pushes, self.capacity - 1)


class NeverDrawsTheNewest(Ring):
    def draw(self, n: int, seed: int) -> Any:
        newest = (self.pushes - 1) % self.capacity
        slots = super().draw(n, seed)
        return np.where(slots == newest, (newest - 1) % len(self), slots)


class IgnoresTheSeed(Ring):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.draws = 0

    def draw(self, n: int, seed: int) -> Any:
        self.draws += 1
        return super().draw(n, self.draws)


class SameRowsForAllSeeds(Ring):
    def draw(self, n: int, seed: int) -> Any:
        return super().draw(n, 0)


class DrawsGlobally(Ring):
    def draw(self, n: int, seed: int) -> Any:
        super().draw(n, seed)
        return np.random.randint(0, len(self), n)  # noqa: NPY002


class KeepsReferences(Ring):
    def stored(self, row: Any) -> Any:
        return row


class ReusesBatches(Ring):
    memory: Any = None

    def batch(self, slots: Any) -> dict[str, Any]:
        batch = super().batch(slots)
        if self.memory is None or len(self.memory["rewards"]) != len(slots):
            self.memory = batch
        for name, column in batch.items():
            self.memory[name][...] = column
        return dict(self.memory)


class TakesNaN(Ring):
    def check_reward(self, reward: float) -> None:
        pass


class TakesAnyShape(Ring):
    def check_shape(self, obs: Any) -> None:
        pass


class StoresWhatItRefuses(Ring):
    def push(self, *row: Any) -> None:
        self.rows[self.slot()] = self.stored(row)
        self.pushes += 1
        self.check(*row)


class IgnoresPriorities(WithPriorities):
    def update_priorities(self, indices: Any, priorities: Any) -> None:
        pass


class WeightsAboveOne(WithPriorities):
    def batch(self, slots: Any) -> dict[str, Any]:
        batch = super().batch(slots)
        return {**batch, "weights": 2 * batch["weights"]}


class TakesFewPushes(Ring):
    def check(self, *row: Any) -> None:
        super().check(*row)
        if self.pushes == 45:
            raise RuntimeError("enough")


BROKEN: dict[type, str] = {
    WithoutSample: "has_push_sample_and_a_length",
    NeverEmpty: "is_empty_at_first",
    EmptyBatches: "refuses_to_sample_when_empty",
    CountsForever: "length_counts_rows_up_to_the_capacity",
    OneShort: "length_counts_rows_up_to_the_capacity",
    WithoutNextObs: "batches_have_all_entries",
    FewRows: "batches_have_the_rows_asked_for",
    ColumnOfRewards: "shapes_and_dtypes_are_those_of_the_spaces",
    IntegerObservations: "shapes_and_dtypes_are_those_of_the_spaces",
    MixesRows: "rows_stay_together",
    NextObsOfTheNextRow: "next_obs_is_what_the_action_led_to",
    MergesFlags: "termination_and_truncation_stay_apart",
    DiscountsOfMergedFlags: "termination_and_truncation_stay_apart",
    OverwritesNewest: "oldest_rows_are_overwritten_first",
    NeverDrawsTheNewest: "every_row_can_be_drawn",
    IgnoresTheSeed: "same_seed_gives_the_same_batch",
    SameRowsForAllSeeds: "same_seed_gives_the_same_batch",
    DrawsGlobally: "draws_leave_global_generators_alone",
    KeepsReferences: "pushed_arrays_are_copied",
    ReusesBatches: "batches_are_not_overwritten",
    TakesNaN: "refuses_rewards_that_are_not_finite",
    StoresWhatItRefuses: "refuses_rewards_that_are_not_finite",
    TakesAnyShape: "refuses_observations_of_another_shape",
    IgnoresPriorities: "priorities_are_followed",
    WeightsAboveOne: "priorities_are_followed",
    TakesFewPushes: "an_algorithm_learns_from_it",
}
"""Broken buffers, and the rule that finds each."""
