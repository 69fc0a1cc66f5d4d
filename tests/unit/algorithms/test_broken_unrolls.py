"""Each way to break actors and learners that is easily taken is found by a test of theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sharpwave.distributed import Block, ThreadFleet
from sharpwave.learners.unrolls import UnrollBatch
from tests.contract import test_fleets
from tests.contract.fleets import FLEETS
from tests.envs import resumable
from tests.unit.algorithms import test_appo, test_impala, test_recurrent_unrolls

BACKENDS = pytest.mark.parametrize("backend", ["native", "torch"])
Patch = pytest.MonkeyPatch
THREADS = FLEETS["threads"]


@pytest.fixture(autouse=True)
def no_threads() -> Iterator[None]:
    """A test that fails leaves its actors to whoever forgets it."""
    yield
    gc.collect()


@pytest.mark.long
@BACKENDS
def test_values_of_the_actors_are_found(backend: str, monkeypatch: Patch) -> None:
    made, corrected = UnrollBatch.of.__func__, UnrollBatch.corrected  # type: ignore[attr-defined]
    stale: list[Any] = []

    def of(cls: Any, rollouts: Any, own: Any) -> Any:
        stale.append(own(np.concatenate([one.values for one in rollouts], axis=1)))
        return made(cls, rollouts, own)

    def with_stale(self: Any, valued: Any, config: Any, **options: Any) -> Any:
        return corrected(self, valued._replace(values=stale[-1]), config, **options)

    monkeypatch.setattr(UnrollBatch, "of", classmethod(of))
    monkeypatch.setattr(UnrollBatch, "corrected", with_stale)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_impala.test_an_update_is_that_of_a2c_on_targets_of_the_values_that_learn(backend, {})
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_appo.test_an_update_is_that_of_ppo_on_targets_of_the_target_network(backend)
    assert len(stale) == 2


@pytest.mark.long
@BACKENDS
def test_truncation_that_counts_as_an_end_is_found(backend: str, monkeypatch: Patch) -> None:
    corrected = UnrollBatch.corrected

    def done(self: Any, *args: Any, **options: Any) -> Any:
        ended = replace(self, terminated=self.terminated | self.truncated)
        return corrected(ended, *args, **options)

    monkeypatch.setattr(UnrollBatch, "corrected", done)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_impala.test_an_update_is_that_of_a2c_on_targets_of_the_values_that_learn(backend, {})
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_appo.test_an_update_is_that_of_ppo_on_targets_of_the_target_network(backend)


@pytest.mark.long
def test_weights_that_never_arrive_are_found(monkeypatch: Patch) -> None:
    """Unrolls say a version that their actors never had."""
    follow, arrived = Block.follow_weights, set()

    def only_the_first(self: Block, weights: Any) -> None:
        if id(self) not in arrived:
            follow(self, weights)
        arrived.add(id(self))

    monkeypatch.setattr(Block, "follow_weights", only_the_first)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_fleets.test_unrolls_follow_each_other_and_their_weights(THREADS, "CartPole-v1")
    assert arrived


@pytest.mark.long
def test_weights_that_are_never_sent_are_found(monkeypatch: Patch) -> None:
    """Unrolls say their version, which is that of the start for ever."""
    monkeypatch.setattr(ThreadFleet, "publish", lambda *_: None)
    with pytest.raises(AssertionError, match="0 > 0"):
        test_fleets.test_unrolls_follow_each_other_and_their_weights(THREADS, "CartPole-v1")


@pytest.mark.long
def test_an_unroll_that_is_used_twice_is_found(monkeypatch: Patch) -> None:
    receive = ThreadFleet.receive
    kept: list[Any] = []

    def twice(self: ThreadFleet, timeout: float) -> Any:
        if kept:
            return kept.pop()
        kept.append(receive(self, timeout))
        return kept[-1]

    monkeypatch.setattr(ThreadFleet, "receive", twice)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        test_fleets.test_unrolls_follow_each_other_and_their_weights(THREADS, "CartPole-v1")


@pytest.mark.long
def test_memory_that_is_forgotten_at_every_unroll_is_found(monkeypatch: Patch) -> None:
    made = UnrollBatch.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, rollouts: Any, own: Any) -> Any:
        batch = made(cls, rollouts, own)
        return replace(batch, state=0 * batch.state)

    monkeypatch.setattr(UnrollBatch, "of", classmethod(of))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_recurrent_unrolls.test_without_lag_the_gradient_is_that_of_a2c("gru", resumable)
