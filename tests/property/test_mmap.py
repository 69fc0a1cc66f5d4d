"""Random lives of replay buffers in folders: pushes, reopenings, crashes, readers."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharpwave import MmapReplayBuffer
from tests.examples import examples
from tests.reference.mapped import (
    KINDS,
    assert_same_content,
    assert_same_state,
    in_memory,
    make,
    steps_of,
)
from tests.reference.nests import assert_same
from tests.reference.steps import ENDINGS, as_batch

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Lives(RuleBasedStateMachine):
    """A buffer that is closed, killed and reopened, beside one that is not, and one in memory."""

    @initialize(kind=st.sampled_from(sorted(KINDS)), capacity=st.sampled_from([12, 36, 90]))
    def begin(self, kind: str, capacity: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.kind = kind
        self.copies = 0
        self.mapped = make(kind, self.folder / "a", capacity)
        self.twin = make(kind, self.folder / "twin", capacity)
        self.plain = in_memory(kind, capacity)
        self.reader = copy.deepcopy(self.mapped)
        self.steps = steps_of(self.plain)
        self.envs = self.plain.n_envs or 1

    @rule(
        env=st.integers(0, 2),
        ending=st.sampled_from(ENDINGS),
        reset=st.booleans(),
        jump=st.booleans(),
    )
    def push(self, env: int, ending: str, reset: bool, jump: bool) -> None:
        env %= self.envs
        row = self.steps.step(env, ending, reset=reset, jump=jump)
        where = {"stream": env} if self.envs > 1 else {}
        for buffer in (self.mapped, self.twin, self.plain):
            buffer.push(**row, **where)

    @rule(rounds=st.sampled_from([1, 2, 7, 30]))
    def push_batch(self, rounds: int) -> None:
        rows = as_batch(self.steps.take(rounds * self.envs))
        for buffer in (self.mapped, self.twin, self.plain):
            buffer.push_batch(**rows)

    @precondition(lambda self: len(self.plain) > 0)
    @rule(data=st.data())
    def sample(self, data: Any) -> None:
        n = data.draw(st.integers(1, min(len(self.plain), 9)))
        assert_same(self.mapped.sample(n, indices=True), self.twin.sample(n, indices=True))

    @precondition(lambda self: "prioritized" in self.kind and len(self.plain) > 0)
    @rule(priorities=st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.5, 40.0]), min_size=1, max_size=5))
    def update_priorities(self, priorities: list[float]) -> None:
        ids = self.plain.indices()[: len(priorities)]
        given = np.array([1.0, *priorities][: len(ids)])  # not all of them 0
        for buffer in (self.mapped, self.twin):
            buffer.update_priorities(ids, given)

    @rule()
    def clear(self) -> None:
        for buffer in (self.mapped, self.twin, self.plain):
            buffer.clear()

    @rule(flushed=st.booleans())
    def close_and_open(self, flushed: bool) -> None:
        if flushed:
            self.mapped.flush()
        self.mapped.close(delete=False)
        self.mapped = MmapReplayBuffer.open(self.folder / "a", continue_episodes=True, verify=True)

    @rule()
    def crash(self) -> None:
        """The files at some moment are what a killed process leaves."""
        self.mapped.flush()  # no file comes or goes while it is copied
        self.copies += 1
        copied = self.folder / f"copy-{self.copies}"
        shutil.copytree(self.folder / "a", copied)
        again = MmapReplayBuffer.open(copied, continue_episodes=True, verify=True)
        assert_same_state(again, copy.deepcopy(self.mapped))
        again.close()

    @rule()
    def read(self) -> None:
        assert_same_content(self.reader, self.plain)

    @rule()
    def open_a_reader(self) -> None:
        self.reader.close()
        self.reader = MmapReplayBuffer.open(self.folder / "a", read_only=True)

    @invariant()
    def holds_what_the_one_in_memory_holds(self) -> None:
        if hasattr(self, "plain"):
            assert len(self.mapped) == len(self.plain) == len(self.reader)
            assert_same_content(self.mapped, self.plain)

    def teardown(self) -> None:
        if hasattr(self, "plain"):
            for buffer in (self.reader, self.mapped, self.twin):
                buffer.close()
            shutil.rmtree(self.folder)


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=examples(25),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
