"""Draws follow the promised probabilities, and weights the formula of the paper."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from sharpwave import (
    Mixture,
    NStep,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Sequence,
    Uniform,
    Where,
    WithoutReplacement,
)
from tests.reference.chance import assert_fits
from tests.reference.replay import ReplayOracle
from tests.reference.steps import Steps, as_batch

FIELDS: dict[str, Any] = {
    "obs": ("float32", (2,)),
    "next_obs": ("float32", (2,)),
    "action": "float32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
}
Kind = Literal["proportional", "rank"]


def streams(n_envs: int, steps: int, capacity: int) -> tuple[ReplayBuffer, ReplayOracle]:
    buffer = ReplayBuffer(capacity, fields=FIELDS, n_envs=n_envs)
    oracle = ReplayOracle(capacity, buffer.schema, n_envs)
    rows = Steps(buffer.schema, n_envs).take(steps)
    buffer.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    return buffer, oracle


def counted(buffer: ReplayBuffer, ids: list[int], draws: int, batch: int, **how: Any) -> list[int]:
    """The counts of each id in draws, over batches of their own seeds."""
    found = [
        buffer.sample(batch, seed=i, indices=True, **how)["indices"] for i in range(draws // batch)
    ]
    counts = dict(zip(*np.unique(np.concatenate(found), return_counts=True), strict=True))
    assert set(counts) <= set(ids)
    return [int(counts.get(i, 0)) for i in ids]


def numbered(
    buffer: PrioritizedReplayBuffer, n: int, priorities: npt.ArrayLike | None = None
) -> None:
    """n transitions whose obs is their number."""
    obs = np.repeat(np.arange(n, dtype=np.float32), 2).reshape(n, 2)
    buffer.push_batch(obs, obs + 1, np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n),
                      **({} if priorities is None else {"priorities": priorities}))  # fmt: skip


@pytest.mark.parametrize("pushed", [60, 100, 1234])
def test_transition_rows_are_drawn_uniformly(pushed: int) -> None:
    buffer = ReplayBuffer(100, 1, 1)
    numbers = np.arange(pushed, dtype=np.float32)
    buffer.push_batch(numbers, numbers, numbers, numbers, numbers * 0, numbers * 0)
    ids = list(range(max(0, pushed - 100), pushed))
    assert_fits(counted(buffer, ids, 50_000, 50), np.ones(len(ids)))


def test_unseeded_draws_are_uniform() -> None:
    buffer = ReplayBuffer(100, 1, 1, seed=5)
    numbers = np.arange(100, dtype=np.float32)
    buffer.push_batch(numbers, numbers, numbers, numbers, numbers * 0, numbers * 0)
    drawn = np.concatenate([buffer.sample(10)["obs"][:, 0] for _ in range(5000)]).astype(int)
    assert_fits(np.bincount(drawn, minlength=100), np.ones(100))


@pytest.mark.parametrize(("n_envs", "steps"), [(1, 40), (1, 500), (3, 90), (3, 501)])
def test_stream_rows_are_drawn_uniformly_past_bare_observations(n_envs: int, steps: int) -> None:
    buffer, oracle = streams(n_envs, steps, capacity=60)
    ids = oracle.ids()
    assert_fits(counted(buffer, ids, 40_000, 20), np.ones(len(ids)))


@pytest.mark.long(but=["NStep(n=3, gamma=0.99, fields=None)"])
@pytest.mark.parametrize(
    "view",
    [
        *(NStep(3), Sequence(3), Sequence(4, burn_in=1), Sequence(3, cross=True)),
        *(Sequence(3, pad=True), Sequence(5, pad="whole"), Sequence(2, stride=2), Sequence(9)),
    ],
    ids=repr,
)
def test_windows_are_drawn_uniformly_over_valid_starts(view: Any) -> None:
    buffer, oracle = streams(2, 400, capacity=80)
    ids = oracle.drawable(view)
    assert len(ids) > 1
    assert_fits(counted(buffer, ids, 20_000, 20, view=view), np.ones(len(ids)))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_recent_steps_are_drawn_uniformly(n_envs: int) -> None:
    buffer, oracle = streams(n_envs, 300, capacity=60)
    share = 12 // n_envs
    ids = [step.id for env in range(n_envs) for step in list(oracle.steps(env))[-share:]]
    assert_fits(counted(buffer, ids, 20_000, 10, selector=Recent(12)), np.ones(len(ids)))


@pytest.mark.parametrize("view", [None, Sequence(3)], ids=repr)
def test_selectors_in_python_are_uniform(view: Any) -> None:
    buffer, oracle = streams(2, 200, capacity=40)
    ids = oracle.drawable(view)
    chosen = [i for i in ids if oracle.step(i).row["reward"] > 0]
    where = Where(lambda batch: batch["rewards"] > 0)
    assert_fits(
        counted(buffer, chosen, 10_000, 10, selector=where, view=view), np.ones(len(chosen))
    )
    assert_fits(
        counted(buffer, ids, 10_000, 5, selector=WithoutReplacement(), view=view),
        np.ones(len(ids)),
    )


@pytest.mark.long
def test_a_mixture_takes_fixed_shares() -> None:
    buffer, oracle = streams(1, 200, capacity=40)
    ids = oracle.ids()
    mixture = Mixture(((0.75, Uniform()), (0.25, Recent(5))))
    expected = np.full(len(ids), 0.75 / len(ids))
    expected[-5:] += 0.25 / 5
    assert_fits(counted(buffer, ids, 20_000, 8, selector=mixture), expected)
    batch = buffer.sample(8, seed=1, selector=mixture, indices=True)
    assert set(batch["indices"][6:].tolist()) <= set(ids[-5:])


PRIORITIES = {
    "plain": np.linspace(0.1, 3.0, 40),
    "tiny": np.linspace(1, 5, 40) * 1e-12,
    "huge": np.linspace(1, 5, 40) * 1e12,
    "mixed": np.where(np.arange(40) < 20, 1e-12, np.linspace(1, 5, 40)),
    "zeros": np.where(np.arange(40) % 3 == 0, 0.0, np.linspace(1, 5, 40)),
    "equal": np.ones(40),
}


def probabilities(priorities: npt.ArrayLike, alpha: float, kind: Kind) -> npt.NDArray[np.float64]:
    """P(i) of the paper; priority 0 is never drawn."""
    given = np.asarray(priorities, np.float64)
    values = np.zeros(len(given))
    if kind == "proportional":
        values[given > 0] = given[given > 0] ** alpha
    else:
        order = sorted(np.flatnonzero(given > 0), key=lambda i: -given[i])
        for rank, i in enumerate(order, start=1):
            values[i] = (1 / rank) ** alpha
    chances: npt.NDArray[np.float64] = values / values.sum()
    return chances


@pytest.mark.parametrize("kind", ["proportional", "rank"])
@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("name", PRIORITIES)
def test_draws_follow_priorities(name: str, stratified: bool, kind: Kind) -> None:
    given = PRIORITIES[name]
    buffer = PrioritizedReplayBuffer(40, fields=FIELDS, alpha=0.7, kind=kind, stratified=stratified)
    numbered(buffer, 40, given)
    expected = probabilities(given, 0.7, kind)
    if name == "mixed" and kind == "proportional":  # 1e-12 ** 0.7 is too rare to count
        expected[:20] = 0
    assert_fits(counted(buffer, list(range(40)), 20_000, 16), expected)


@pytest.mark.parametrize("kind", ["proportional", "rank"])
def test_draws_follow_priorities_after_wrap_and_updates(kind: Kind) -> None:
    buffer = PrioritizedReplayBuffer(40, fields=FIELDS, alpha=1.0, kind=kind)
    numbered(buffer, 100, np.linspace(1, 2, 100))
    ids = list(range(60, 100))
    given = np.linspace(1, 2, 100)[60:]
    assert_fits(counted(buffer, ids, 20_000, 16), probabilities(given, 1.0, kind))
    for round_ in range(3):
        changed = np.arange(round_, 40, 3)
        given[changed] = (changed * 7 + round_) % 11 * (1 + changed / 1000)  # no ties
        buffer.update_priorities(np.array(ids, np.uint64)[changed], given[changed])
        assert_fits(counted(buffer, ids, 20_000, 16), probabilities(given, 1.0, kind))


def test_of_equal_indices_the_last_priority_counts() -> None:
    buffer = PrioritizedReplayBuffer(4, fields=FIELDS, alpha=1.0)
    numbered(buffer, 4, np.ones(4))
    buffer.update_priorities([0, 0, 1, 0], [100.0, 50.0, -2.0, 3.0])
    assert_fits(counted(buffer, [0, 1, 2, 3], 10_000, 4), [3, 2, 1, 1])
    assert buffer.max_priority == 100.0


def test_new_steps_get_the_highest_priority_so_far() -> None:
    buffer = PrioritizedReplayBuffer(10, fields=FIELDS, alpha=1.0)
    numbered(buffer, 4)
    assert buffer.max_priority == 1.0
    buffer.update_priorities([1], [5.0])
    numbered(buffer, 1)
    buffer.update_priorities([1], [1.0])  # the maximum stays
    buffer.push(np.zeros(2), 0, 0, False, False, np.zeros(2))
    assert_fits(counted(buffer, list(range(6)), 20_000, 5), [1, 1, 1, 1, 5, 5])


def test_streams_of_prioritized_steps_forget_the_priorities_of_overwritten_ones() -> None:
    buffer = PrioritizedReplayBuffer(30, fields=FIELDS, n_envs=3, alpha=1.0, stratified=False)
    oracle = ReplayOracle(30, buffer.schema, 3)
    steps = Steps(buffer.schema, 3)
    for number in range(200):
        row = steps.take(1)[0] if number % 3 == 0 else steps.step(number % 3)
        priority = float(number % 7)
        buffer.push(**row, stream=number % 3, priority=priority)
        oracle.push(row, number % 3, priority)
    ids = oracle.ids()
    expected = [oracle.step(i).priority for i in ids]
    assert_fits(counted(buffer, ids, 20_000, 10), expected)
    view = Sequence(3)
    allowed = [oracle.step(i).priority if oracle.may_draw(i, view) else 0.0 for i in ids]
    assert 0 < np.count_nonzero(allowed) < len(ids)
    assert_fits(counted(buffer, ids, 20_000, 10, view=view), allowed)


@pytest.mark.parametrize("norm", ["buffer", "batch"])
@pytest.mark.parametrize("kind", ["proportional", "rank"])
@pytest.mark.parametrize("name", PRIORITIES)
def test_weights_are_those_of_the_paper(
    name: str, kind: Kind, norm: Literal["buffer", "batch"]
) -> None:
    given = PRIORITIES[name]
    buffer = PrioritizedReplayBuffer(
        50, fields=FIELDS, alpha=0.6, beta=0.5, kind=kind, weight_norm=norm
    )
    numbered(buffer, 40, given)
    for beta in (0.0, 0.5, 1.0):
        buffer.set_beta(beta)
        assert buffer.beta == beta
        chance = probabilities(given, 0.6, kind)
        every = np.zeros(40)
        every[chance > 0] = (40 * chance[chance > 0]) ** -beta
        batch = buffer.sample(32, seed=9)
        drawn = batch["indices"].astype(int)
        highest = every[drawn].max() if norm == "batch" else every.max()
        np.testing.assert_allclose(batch["weights"], every[drawn] / highest, rtol=2e-5)
        assert batch["weights"].max() <= 1.0
        assert batch["weights"].dtype == np.float32


def test_a_zero_priority_does_not_push_weights_above_one() -> None:
    buffer = PrioritizedReplayBuffer(4, fields=FIELDS, alpha=1.0, beta=1.0)
    numbered(buffer, 4, [1e-3, 1, 1, 0])
    highest = max(float(buffer.sample(4, seed=seed)["weights"].max()) for seed in range(3000))
    assert highest == 1.0


def test_all_priorities_zero_is_an_error_and_not_a_crash() -> None:
    buffer = PrioritizedReplayBuffer(4, fields=FIELDS)
    numbered(buffer, 4, np.zeros(4))
    with pytest.raises(ValueError, match="priorities"):
        buffer.sample(2)
    buffer.update_priorities([2], [1e-30])
    assert buffer.sample(2)["indices"].tolist() == [2, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_refused_update_changes_nothing(bad: float) -> None:
    buffer = PrioritizedReplayBuffer(4, fields=FIELDS, alpha=1.0)
    numbered(buffer, 2, [1, 1])
    with pytest.raises(ValueError, match="priorities"):
        buffer.update_priorities([0, 1], [100.0, bad])
    with pytest.raises(IndexError, match="indices"):
        buffer.update_priorities([0, 9999], [100.0, 1.0])
    with pytest.raises(IndexError, match="indices"):
        buffer.update_priorities(np.array([0, 2**64 - 1], np.uint64), [100.0, 1.0])
    with pytest.raises(ValueError, match="priorities"):
        buffer.update_priorities([0, 1], [100.0])
    with pytest.raises(ValueError, match="priority"):
        buffer.push(np.zeros(2), 0, 0, False, False, np.zeros(2), priority=bad)
    assert buffer.max_priority == 1.0
    assert_fits(counted(buffer, [0, 1], 2000, 2), [1, 1])


@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("number", [np.float16, np.float32, np.float64, np.int64])
def test_updates_take_any_integers_and_numbers(index: Any, number: Any) -> None:
    buffer = PrioritizedReplayBuffer(4, fields=FIELDS, alpha=1.0)
    numbered(buffer, 3)
    assert buffer.update_priorities(np.arange(3, dtype=index), np.array([1, 2, 3], number)) == 0
    assert_fits(counted(buffer, [0, 1, 2], 6000, 3), [1, 2, 3])


def test_priorities_of_overwritten_steps_are_dropped_and_counted() -> None:
    buffer = PrioritizedReplayBuffer(10, fields=FIELDS, alpha=1.0)
    numbered(buffer, 10)
    drawn = buffer.sample(10, seed=0)["indices"]
    numbered(buffer, 9)
    stale = int(np.count_nonzero(drawn < 9))
    assert buffer.update_priorities(drawn, np.full(10, 1000.0)) == stale
    assert buffer.stats()["stale_updates"] == stale
    counts = counted(buffer, list(range(9, 19)), 10_000, 10)
    assert (counts[0] > 9000) == (stale < 10)


@pytest.mark.parametrize("priority", [1e38, 3.4e38])
@pytest.mark.parametrize("kind", ["proportional", "rank"])
def test_the_largest_priorities_survive_a_copy(kind: Kind, priority: float) -> None:
    import copy

    buffer = PrioritizedReplayBuffer(4, fields=FIELDS, kind=kind)
    numbered(buffer, 3, [1.0, priority, priority])
    twin = copy.deepcopy(buffer)
    for _ in range(3):
        assert twin.sample(3)["indices"].tolist() == buffer.sample(3)["indices"].tolist()
