"""Random lives of replay buffers against the oracle: pushes, draws, updates, copies."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sharpwave import (
    Field,
    Mixture,
    NStep,
    Prioritized,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Sequence,
    Transition,
    Uniform,
    Where,
    WithoutReplacement,
)
from tests.examples import examples
from tests.reference.replay import NO_STEP, ReplayOracle
from tests.reference.steps import ENDINGS, Steps, as_batch

# Saving waits for the disk, again and again: a folder in memory, where the system has one.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

FLAGS: dict[str, Any] = {"reward": "float32", "terminated": "bool", "truncated": "uint8"}
PLAIN: dict[str, Any] = {
    "obs": ("float32", (2,)),
    "next_obs": ("float32", (2,)),
    "action": "int32",
    "note": ("uint16", (3,)),
    **FLAGS,
}
STACKED: dict[str, Any] = {
    "obs": {"screen": Field("uint8", (2, 3, 2), stack=3, axis=1), "speed": "float16"},
    "action": "int32",
    "note": ("uint16", (3,)),
    **FLAGS,
}

transition_views = st.sampled_from([None, Transition(), Transition(("obs", "rewards"))])
neighbor_views = st.one_of(
    transition_views,
    st.builds(NStep, st.integers(1, 6), st.sampled_from([1.0, 0.9, 0.0])),
    st.builds(
        Sequence,
        length=st.integers(1, 4),
        burn_in=st.integers(0, 3),
        stride=st.integers(1, 3),
        pad=st.sampled_from([False, True, "whole"]),
        cross=st.booleans(),
        gamma=st.sampled_from([None, 0.9]),
    ),
    st.builds(
        Sequence,
        length=st.integers(1, 4),
        context=st.integers(0, 2),
        stride=st.integers(1, 3),
        pad=st.sampled_from([False, True, "whole"]),
        cross=st.booleans(),
        arrivals=st.just(True),
    ),
)
endings = st.sampled_from([*ENDINGS, "", "", ""])
priorities = st.one_of(st.just(0.0), st.floats(2.0**-20, 2.0**20, width=32))


def positive_rewards(batch: dict[str, Any]) -> Any:
    return batch["rewards"] > 0


class Life(RuleBasedStateMachine):
    """One buffer and its oracle."""

    n_envs: int | None = None
    fields = PLAIN
    options: dict[str, Any] | None = None  # of a prioritized buffer

    @initialize(capacity=st.integers(3, 14))
    def start(self, capacity: int) -> None:
        streams = self.n_envs or 1
        capacity = max(capacity, 3 * streams)
        if self.options is None:
            self.buffer = ReplayBuffer(capacity, fields=self.fields, n_envs=self.n_envs)
        else:
            self.buffer = PrioritizedReplayBuffer(
                capacity, fields=self.fields, n_envs=self.n_envs, **self.options
            )
        self.oracle = ReplayOracle(capacity, self.buffer.schema, self.n_envs)
        self.steps = Steps(self.buffer.schema, streams)
        self.past: list[int] = []

    @rule(data=st.data(), ending=endings, reset=st.booleans(), jump=st.sampled_from([0, 0, 1]))
    def push(self, data: st.DataObject, ending: str, reset: bool, jump: int) -> None:
        env = data.draw(st.integers(0, (self.n_envs or 1) - 1))
        row = self.steps.step(env, ending, reset=reset, jump=bool(jump))
        given: dict[str, Any] = {} if self.n_envs in (None, 1) else {"stream": env}
        priority = None
        if self.options is not None:
            priority = data.draw(st.none() | priorities)
            given["priority"] = priority
        self.buffer.push(**row, **given)
        self.oracle.push(row, env, priority)

    @rule(data=st.data(), n=st.integers(1, 9))
    def push_many(self, data: st.DataObject, n: int) -> None:
        streams = self.n_envs or 1
        given: dict[str, Any] = {}
        envs = [i % streams for i in range(n * streams)]
        if self.n_envs is not None and data.draw(st.booleans()):
            envs = data.draw(st.lists(st.integers(0, streams - 1), min_size=1, max_size=12))
            given["streams"] = envs
        rows = []
        for env in envs:
            roll = self.steps.count % 7
            rows.append(self.steps.step(env, data.draw(endings), reset=roll == 3, jump=roll == 5))
        self.buffer.push_batch(**as_batch(rows), **given)
        self.oracle.push_batch(rows, envs)

    @rule()
    def clear(self) -> None:
        self.past += self.oracle.ids()
        self.buffer.clear()
        self.oracle.clear()

    def views(self) -> st.SearchStrategy[Any]:
        return transition_views if self.n_envs is None else neighbor_views

    @rule(data=st.data(), seed=st.none() | st.integers(0, 2**64 - 1))
    def sample(self, data: st.DataObject, seed: int | None) -> None:
        view = data.draw(self.views())
        kinds: list[Any] = [
            *(None, Uniform(), Recent(data.draw(st.integers(1, 8)))),
            *(WithoutReplacement(), Where(positive_rewards)),
            Mixture(((0.5, Uniform()), (0.25, Recent(3)), (0.25, WithoutReplacement()))),
        ]
        selector = data.draw(st.sampled_from(kinds + [Prioritized()] * (self.options is not None)))
        by_priority = self.options is not None and (selector is None or selector == Prioritized())
        fitting = self.candidates(view, selector, by_priority)
        most = len(self.oracle)
        if isinstance(selector, Recent):
            most = min(most, selector.window)
        if isinstance(selector, WithoutReplacement):
            most = min(most, len(fitting))
        if isinstance(selector, Mixture):
            most = min(most, 3, len(fitting))
        batch_size = data.draw(st.integers(0, most))
        asked = asked_parts(selector, batch_size) if isinstance(selector, Mixture) else [selector]
        if batch_size > 0 and not all(self.candidates(view, one, by_priority) for one in asked):
            try:
                self.buffer.sample(batch_size, seed, view=view, selector=selector)
            except ValueError:
                return
            raise AssertionError("a batch came although no step can be drawn")
        batch = self.buffer.sample(batch_size, seed, view=view, selector=selector, indices=True)
        drawn = batch["indices"] if batch["indices"].ndim == 1 else batch["indices"][:, 0]
        assert set(drawn.tolist()) <= fitting
        self.check(batch, view)
        if isinstance(selector, WithoutReplacement):
            assert len(set(drawn.tolist())) == batch_size
        if by_priority:
            assert np.all(batch["weights"] <= 1.0 + 1e-6)
            assert np.all(batch["weights"] > 0.0)

    def candidates(self, view: Any, selector: Any, by_priority: bool) -> set[int]:
        """The steps that may be drawn."""
        ids = self.oracle.drawable(view)
        if by_priority:
            ids = [i for i in ids if self.oracle.step(i).priority > 0]
        if isinstance(selector, Where):
            ids = [i for i in ids if self.oracle.step(i).row["reward"] > 0]
        if isinstance(selector, Recent):
            share = -(-selector.window // self.oracle.streams)
            ids = [
                i
                for i in ids
                if self.oracle.step(i) in list(self.oracle.steps(i % self.oracle.streams))[-share:]
            ]
        return set(ids)

    def check(self, batch: dict[str, Any], view: Any) -> None:
        if isinstance(view, Transition) and view.fields is not None:
            assert set(batch) - {"indices", "weights"} == set(view.fields)
            for i, step_id in enumerate(batch["indices"].tolist()):
                expected = self.oracle.expected(step_id)
                assert batch["rewards"][i] == expected["rewards"]
            return
        self.oracle.check_batch(batch, view)

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        known = sorted({*self.oracle.ids(), *self.past[-5:], NO_STEP})
        ids = data.draw(st.lists(st.sampled_from(known), max_size=10))
        values = [data.draw(st.integers(0, 2**16 - 1)) for _ in ids]
        notes = np.array(values, np.uint16).reshape(-1, 1) + np.arange(3, dtype=np.uint16)
        stale = self.oracle.update(ids, note=notes)
        assert self.buffer.update(np.array(ids, np.uint64), note=notes) == stale

    @precondition(lambda self: self.options is not None)
    @rule(data=st.data())
    def update_priorities(self, data: st.DataObject) -> None:
        assert isinstance(self.buffer, PrioritizedReplayBuffer)
        known = sorted({*self.oracle.ids(), *self.past[-5:]})
        if not known:
            return
        ids = data.draw(st.lists(st.sampled_from(known), max_size=10))
        values = [data.draw(priorities) * data.draw(st.sampled_from([1, -1])) for _ in ids]
        stale = self.oracle.update_priorities(ids, values)
        assert self.buffer.update_priorities(np.array(ids, np.uint64), values) == stale

    @rule()
    def pickle(self) -> None:
        self.replace(pickle.loads(pickle.dumps(self.buffer)))

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            self.buffer.save(folder)
            self.replace(type(self.buffer).load(folder))

    def replace(self, other: ReplayBuffer) -> None:
        """Go on with a copy, which draws what the original would."""
        drawable = self.options is None or any(
            self.oracle.step(i).priority > 0 for i in self.oracle.ids()
        )
        if drawable:
            mine = self.buffer.sample(len(self.oracle), indices=True)["indices"]
            assert other.sample(len(self.oracle), indices=True)["indices"].tolist() == mine.tolist()
        self.buffer = other

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "buffer"):
            return
        ids = self.oracle.ids()
        assert len(self.buffer) == len(ids)
        assert self.buffer.indices().tolist() == ids
        notes = [self.oracle.step(step_id).row["note"].tolist() for step_id in ids]
        assert self.buffer.gather(ids)["note"].tolist() == notes
        if isinstance(self.buffer, PrioritizedReplayBuffer):
            assert np.isclose(self.buffer.max_priority, self.oracle.max_priority, rtol=1e-6)


def asked_parts(mixture: Mixture, batch_size: int) -> list[Any]:
    """The selectors whose share of a batch is a step or more."""
    ends = np.round(np.cumsum([share for share, _ in mixture.parts]) * batch_size)
    counts = np.diff(ends, prepend=0)
    return [one for (_, one), count in zip(mixture.parts, counts, strict=True) if count > 0]


def lives(**attributes: Any) -> Any:
    """The test of a kind of buffer."""
    machine: Any = type("Life", (Life,), attributes)
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples(80),
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    return test


TestRowsInNoOrder = lives()
TestOneStream = lives(n_envs=1)
TestTwoStreams = lives(n_envs=2)
TestFrameStacks = lives(n_envs=1, fields=STACKED)
TestFrameStacksOfThreeStreams = lives(n_envs=3, fields=STACKED)
TestPrioritizedRowsInNoOrder = pytest.mark.long(lives(options={}))
TestPrioritizedRank = pytest.mark.long(lives(options={"kind": "rank", "stratified": False}))
TestPrioritizedStreams = lives(n_envs=3, options={"stratified": False})
TestPrioritizedFrameStacks = pytest.mark.long(
    lives(n_envs=2, fields=STACKED, options={"kind": "rank"})
)
