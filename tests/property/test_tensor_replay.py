"""Tensor buffers against a list of steps, whatever is done to them in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharpwave import (
    NStep,
    SharedReplayBuffer,
    TensorPrioritizedReplayBuffer,
    TensorReplayBuffer,
)
from tests.contract.tensor_cases import EXTRAS, ColumnBuffer, PrioritizedColumnBuffer
from tests.examples import examples
from tests.reference.tensors import RingOracle, Steps

CLASSES: list[type[Any]] = [
    TensorReplayBuffer,
    TensorPrioritizedReplayBuffer,
    SharedReplayBuffer,
    ColumnBuffer,
    PrioritizedColumnBuffer,
]


class TensorBufferMachine(RuleBasedStateMachine):
    """Adds, draws, clears and moves a buffer, beside an oracle that does the same."""

    buffer: Any
    make_again: Callable[[], Any]

    @initialize(cls=st.sampled_from(CLASSES), size=st.integers(1, 6), num_envs=st.integers(1, 4))
    def make(self, cls: type[Any], size: int, num_envs: int) -> None:
        self.make_again = lambda: cls(size, num_envs, **EXTRAS)
        self.buffer = self.make_again()
        self.steps = Steps(self.buffer.fields, num_envs)
        self.oracle = RingOracle(size, num_envs)
        self.priorities: dict[int, float] = {}
        self.highest = 1.0

    @property
    def prioritized(self) -> bool:
        return isinstance(self.buffer, TensorPrioritizedReplayBuffer)

    @rule(count=st.integers(1, 4))
    def add(self, count: int) -> None:
        for _ in range(count):
            step = self.steps.step()
            begin = self.buffer.position * self.buffer.num_envs
            self.buffer.add(**step)
            self.oracle.add(self.buffer.fields, step)
            for index in range(begin, begin + self.buffer.num_envs):
                self.priorities[index] = self.highest

    @precondition(lambda self: len(self.buffer) > 0)
    @rule(data=st.data())
    def draw(self, data: Any) -> None:
        count = data.draw(st.integers(1, self.buffer.total_current_size))
        known = {float(row[self.place]) for row in self.oracle.rows()}
        batch = self.buffer.get(count)
        assert set(batch.rewards.tolist()) <= known
        if self.prioritized:
            rows = [self.oracle.row(index) for index in batch.indices.tolist()]
            assert batch.rewards.tolist() == [float(row[self.place]) for row in rows]

    @precondition(lambda self: self.prioritized and len(self.buffer) > 0)
    @rule(data=st.data())
    def set_priorities(self, data: Any) -> None:
        index = st.integers(0, self.buffer.total_current_size - 1)
        indices = data.draw(st.lists(index, min_size=1, max_size=6))
        errors = data.draw(
            st.lists(st.floats(-50, 50, width=32), min_size=len(indices), max_size=len(indices))
        )
        self.buffer.update_priorities(np.array(indices), np.array(errors, np.float32))
        for place, error in zip(indices, errors, strict=True):
            self.priorities[place] = (abs(error) + self.buffer.epsilon) ** self.buffer.alpha
            self.highest = max(self.highest, self.priorities[place])

    @rule()
    def cut(self) -> None:
        self.buffer.cut()
        self.oracle.cut()

    @precondition(lambda self: len(self.buffer) > 0)
    @rule(n=st.integers(1, 7))
    def look_ahead(self, n: int) -> None:
        if isinstance(self.buffer, SharedReplayBuffer):
            return  # which refuses
        indices = range(self.buffer.total_current_size)
        batch = self.buffer.gather(list(indices), view=NStep(n, 0.9))
        fields = self.buffer.fields
        wanted = [self.oracle.n_step(fields, index, n, 0.9) for index in indices]
        np.testing.assert_allclose(batch.rewards, [row[self.place] for row, _ in wanted], 1e-5)
        np.testing.assert_allclose(batch.discounts, [discount for _, discount in wanted], 1e-5)
        last = torch.stack([row[fields.names.index("next_obs")] for row, _ in wanted])
        assert torch.equal(batch.next_observations, last)

    @rule()
    def move(self) -> None:
        if isinstance(self.buffer, SharedReplayBuffer):
            return  # whose slots begin anew
        other = self.make_again()
        other.load_state_dict(self.buffer.state_dict())
        self.buffer = other

    @rule()
    def reset(self) -> None:
        if isinstance(self.buffer, SharedReplayBuffer):
            return
        self.buffer.reset()
        self.oracle = RingOracle(self.buffer.buffer_size, self.buffer.num_envs)
        self.priorities, self.highest = {}, 1.0

    @property
    def place(self) -> int:
        names: tuple[str, ...] = self.buffer.fields.names
        return names.index("reward")

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "buffer"):
            return
        assert len(self.buffer) == len(self.oracle)
        assert self.buffer.position == self.oracle.position
        fields = self.buffer.state_dict()["fields"]
        if not isinstance(self.buffer, SharedReplayBuffer) and len(self.buffer):
            stored = fields["reward"].flatten().tolist()
            assert stored == [float(row[self.place]) for row in self.oracle.rows()]
            last = self.buffer.fields.names.index("memory.h")
            expected = torch.stack([row[last] for row in self.oracle.rows()])
            assert torch.equal(fields["memory.h"].flatten(0, 1), expected)
        if self.prioritized and len(self.buffer):
            found = self.buffer.state_dict()["priorities"]
            expected_ones = [self.priorities[i] for i in range(len(found))]
            np.testing.assert_allclose(found, expected_ones, rtol=1e-4)


TestTensorBuffers = TensorBufferMachine.TestCase
TestTensorBuffers.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None
)
