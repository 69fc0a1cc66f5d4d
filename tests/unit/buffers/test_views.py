"""Views of stream rows: what a drawn step becomes, with every selector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave import (
    Hindsight,
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
from tests.reference.nests import assert_same
from tests.reference.replay import ReplayOracle
from tests.reference.steps import Steps, as_batch

FIELDS: dict[str, Any] = {
    "obs": "float32",
    "action": "int32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
}
GOALS: dict[str, Any] = {
    **FIELDS,
    "obs": {
        "observation": ("float32", (3,)),
        "achieved_goal": ("float32", (2,)),
        "desired_goal": ("float32", (2,)),
    },
}
VIEWS = [
    *(Transition(), NStep(1), NStep(3, 0.9), NStep(5, 1.0), NStep(100, 0.5), NStep(3, 0.0)),
    *(Sequence(1), Sequence(3), Sequence(3, burn_in=2), Sequence(4, stride=2), Sequence(20)),
    *(Sequence(3, pad=True), Sequence(3, burn_in=4, pad=True, gamma=0.9), Sequence(9, pad=True)),
    *(Sequence(3, pad="whole"), Sequence(4, burn_in=1, pad="whole"), Sequence(30, pad="whole")),
    *(Sequence(3, cross=True), Sequence(5, burn_in=3, cross=True), Sequence(8, 8, 3, True, True)),
    *(Sequence(1, arrivals=True), Sequence(4, arrivals=True), Sequence(3, stride=2, arrivals=True)),
    Sequence(3, context=2, arrivals=True, cross=True),
    Sequence(6, context=1, arrivals=True, cross=True, pad=True),
    *(Sequence(5, arrivals=True, pad=True), Sequence(9, arrivals=True, pad="whole")),
]
positive = Where(lambda batch: batch["rewards"] > 0)
negative = Where(lambda batch: batch["rewards"] < 0)
SELECTORS = {
    "default": None,
    "uniform": Uniform(),
    "prioritized": Prioritized(),
    "recent": Recent(7),
    "without replacement": WithoutReplacement(),
    "where": positive,
    "mixture": Mixture(((0.5, Uniform()), (0.25, Recent(9)), (0.25, WithoutReplacement()))),
    "mixture with priorities": Mixture(((0.5, Prioritized()), (0.5, negative))),
}


def life(
    n_envs: int, steps: int, capacity: int = 40, fields: dict[str, Any] = FIELDS
) -> tuple[PrioritizedReplayBuffer, ReplayOracle]:
    """A buffer of streams with ends of every kind, and its oracle."""
    buffer = PrioritizedReplayBuffer(capacity, fields=fields, n_envs=n_envs)
    oracle = ReplayOracle(capacity, buffer.schema, n_envs)
    rows = Steps(buffer.schema, n_envs).take(steps)
    buffer.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    return buffer, oracle


def counting(
    steps: int, ends: dict[int, str], n_envs: int = 1, capacity: int = 100
) -> ReplayBuffer:
    """Environment e observes 100 e + t at step t and is rewarded with 100 e + t + 1."""
    buffer = ReplayBuffer(capacity, fields=FIELDS, n_envs=n_envs)
    base = 100.0 * np.arange(n_envs)
    for t in range(steps):
        buffer.push_batch(
            obs=base + t,
            next_obs=base + t + (0.5 if t in ends else 1),  # the true end is no one's beginning
            actions=np.full(n_envs, t),
            rewards=base + t + 1,
            terminated=np.full(n_envs, ends.get(t) == "terminated"),
            truncated=np.full(n_envs, ends.get(t) == "truncated"),
        )
    return buffer


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("steps", [9, 60, 201])
@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_every_step_becomes_what_the_oracle_says(view: Any, steps: int, n_envs: int) -> None:
    buffer, oracle = life(n_envs, steps)
    ids = oracle.ids()
    drawable = oracle.drawable(view)
    assert buffer.indices(view).tolist() == drawable
    batch = buffer.batch(len(drawable), view=view, selector=Uniform(), indices=True)
    assert_same(buffer.gather(drawable, view=view, out=batch), batch)
    batch_ids = batch["indices"] if batch["indices"].ndim == 1 else batch["indices"][:, 0]
    assert batch_ids.tolist() == drawable
    oracle.check_batch(batch, view)
    if drawable:
        for selector in (Uniform(), Prioritized()):
            drawn = buffer.sample(len(ids), seed=3, view=view, selector=selector, indices=True)
            oracle.check_batch(drawn, view)
    else:
        with pytest.raises(ValueError, match="fits the view"):
            buffer.sample(1, view=view)


@pytest.mark.long(but=["prioritized"])
@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("view", VIEWS[1:], ids=repr)
def test_any_selector_works_with_any_view(view: Any, name: str) -> None:
    selector = SELECTORS[name]
    buffer, oracle = life(2, 200, capacity=60)
    how: dict[str, Any] = {"view": view, "selector": selector, "indices": True}
    if view == Sequence(20) or (view == Sequence(5, burn_in=3, cross=True) and name == "recent"):
        with pytest.raises(ValueError, match=r"fit|fulfil|batch_size"):
            buffer.sample(4, **how)
        return
    for seed in range(5):
        batch = buffer.sample(4, seed, **how)
        oracle.check_batch(batch, view)
        assert_same(batch, buffer.sample(4, seed, **how))


@pytest.mark.long(but=["default"])
@pytest.mark.parametrize("name", SELECTORS)
def test_unseeded_draws_of_any_selector_follow_the_seed_of_the_buffer(name: str) -> None:
    how: dict[str, Any] = {"selector": SELECTORS[name], "indices": True}
    (first, _), (second, _) = life(2, 200), life(2, 200)
    batches = [first.sample(7, **how) for _ in range(3)]
    for batch in batches:
        assert_same(second.sample(7, **how), batch)
    drawn = [batch["indices"].tolist() for batch in batches]
    assert drawn[0] != drawn[1] != drawn[2]


def test_an_epoch_of_windows_visits_every_valid_start_once() -> None:
    buffer, oracle = life(2, 200, capacity=60)
    view = Sequence(3)
    firsts = np.concatenate([batch["rewards"][:, 0] for batch in buffer.epoch(8, view=view)])
    expected = [float(oracle.step(i).row["reward"]) for i in oracle.drawable(view)]
    assert sorted(firsts.tolist()) == sorted(expected)


def test_n_step_returns_stop_at_termination_and_bootstrap_at_truncation() -> None:
    buffer = counting(10, {3: "terminated", 7: "truncated"})
    batch = buffer.gather(buffer.indices(), view=NStep(3, 0.5))
    assert batch["obs"].tolist() == list(range(10))
    rewards = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    taken = [3, 3, 2, 1, 3, 3, 2, 1, 2, 1]
    for t, m in enumerate(taken):
        assert batch["rewards"][t] == sum(0.5**i * rewards[t + i] for i in range(m))
        last = t + m - 1
        assert batch["discounts"][t] == (0.0 if last == 3 else 0.5**m)
        assert batch["next_obs"][t] == (last + 0.5 if last in (3, 7) else last + 1)
        assert batch["terminated"][t] == (last == 3)
        assert batch["truncated"][t] == (last == 7)
        assert batch["actions"][t] == t


def test_next_obs_and_n_steps_stay_in_their_environment() -> None:
    buffer = counting(6, {}, n_envs=2)
    batch = buffer.gather(buffer.indices())
    assert_same(batch["next_obs"], batch["obs"] + np.float32(1))
    steps = buffer.gather(buffer.indices(), view=NStep(3, 1.0))
    for obs, total in zip(steps["obs"], steps["rewards"], strict=True):
        env, t = divmod(int(obs), 100)
        assert total == sum(100 * env + i + 1 for i in range(t, min(t + 3, 6)))


def test_a_truncated_step_bootstraps_from_the_observation_after_it() -> None:
    buffer = counting(6, {2: "truncated"})
    batch = buffer.gather(buffer.indices())
    assert batch["next_obs"].tolist() == [1, 2, 2.5, 4, 5, 6]
    assert batch["obs"].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_observation_that_does_not_follow_starts_a_segment() -> None:
    buffer = ReplayBuffer(20, fields=FIELDS, n_envs=1)
    for obs, next_obs in [(0, 1), (1, 2), (10, 11), (11, 12)]:
        buffer.push(obs, 0, 1.0, False, False, next_obs)
    batch = buffer.gather(buffer.indices(), view=NStep(4, 0.5))
    assert batch["rewards"].tolist() == [1.5, 1.0, 1.5, 1.0]
    assert batch["next_obs"].tolist() == [2, 2, 12, 12]
    assert batch["discounts"].tolist() == [0.25, 0.5, 0.25, 0.5]
    windows = buffer.gather(buffer.indices(), view=Sequence(2, pad=True))
    assert windows["is_first"].tolist() == [[1, 0], [0, 0], [1, 0], [0, 0]]
    assert windows["mask"].tolist() == [[1, 1], [1, 0], [1, 1], [1, 0]]


def test_an_episode_may_begin_where_the_last_one_ended() -> None:
    buffer = ReplayBuffer(20, fields=FIELDS, n_envs=1)
    for obs, ended in [(0, False), (1, True), (2, False), (3, False)]:
        buffer.push(obs, 0, 1.0, ended, False, obs + 1)
    batch = buffer.gather(buffer.indices(), view=NStep(4, 0.5))
    assert batch["rewards"].tolist() == [1.5, 1.0, 1.5, 1.0]
    assert batch["discounts"].tolist() == [0.0, 0.0, 0.25, 0.5]
    first = buffer.gather(buffer.indices(), view=Sequence(1))["is_first"]
    assert first[:, 0].tolist() == [True, False, True, False]


def test_negative_zero_and_nan_observations_are_told_apart_by_their_bits() -> None:
    buffer = ReplayBuffer(20, fields=FIELDS, n_envs=1)
    for obs, next_obs in [(1.0, 0.0), (-0.0, np.nan), (np.nan, 3.0)]:
        buffer.push(obs, 0, 1.0, False, False, next_obs)
    batch = buffer.gather(buffer.indices(), view=NStep(3, 1.0))
    assert batch["rewards"].tolist() == [1.0, 2.0, 1.0]
    assert_same(buffer.gather(buffer.indices())["obs"], np.array([1.0, -0.0, np.nan], np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_n_step_sums_every_entry_of_a_reward(dtype: str) -> None:
    buffer = ReplayBuffer(6, fields={**FIELDS, "reward": (dtype, (2, 2))}, n_envs=1)
    rewards = np.arange(40, dtype=dtype).reshape(10, 2, 2)
    for t in range(10):
        buffer.push(t, 0, rewards[t], False, False, t + 1)
    batch = buffer.gather(buffer.indices(), view=NStep(3, 0.5))
    for row, t in enumerate(range(4, 10)):
        expected = sum(0.5**i * rewards[t + i] for i in range(min(3, 10 - t)))
        assert_same(batch["rewards"][row], np.asarray(expected, dtype))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "float16"])
def test_n_step_refuses_rewards_that_cannot_hold_a_sum(dtype: str) -> None:
    buffer = ReplayBuffer(6, fields={**FIELDS, "reward": dtype}, n_envs=1)
    buffer.push(0, 0, 1, False, False, 1)
    for read in (buffer.sample, lambda n, view: buffer.gather([n - 1], view=view), buffer.batch):
        with pytest.raises(ValueError, match=f"rewards of float32 or float64, got {dtype}"):
            read(1, view=NStep(3))
    assert buffer.sample(1)["rewards"].dtype == np.dtype(dtype)


def test_views_and_selectors_are_not_taken_for_each_other() -> None:
    buffer, _ = life(1, 20)
    goals = Hindsight(distance_reward)
    for wrong in (Uniform(), Recent(3), WithoutReplacement(), 3, "obs"):
        with pytest.raises(TypeError, match="view must be a sharpwave view"):
            buffer.sample(1, view=wrong)
    for wrong_selector in (Transition(), NStep(3), goals, 3, "uniform"):
        with pytest.raises(TypeError, match="selector must be a sharpwave selector"):
            buffer.sample(1, selector=wrong_selector)


def test_windows_end_at_the_newest_step_and_begin_at_the_oldest() -> None:
    buffer = counting(25, {}, capacity=10)
    oldest = 25 - len(buffer)
    batch = buffer.gather(buffer.indices(), view=Sequence(3, burn_in=2, pad=True))
    for row, t in enumerate(range(oldest, 25)):
        inside = [oldest <= t + k < 25 for k in range(-2, 3)]
        assert batch["mask"][row].tolist() == inside
        expected = [float(t + k) if there else 0.0 for k, there in zip(range(-2, 3), inside)]  # noqa: B905
        assert batch["obs"][row].tolist() == expected
    assert not batch["is_first"].any()  # the episode's beginning was overwritten


def test_views_need_steps_in_order() -> None:
    buffer = ReplayBuffer(10, 2, 1)
    buffer.push(np.zeros(2), 0, 0, False, False, np.zeros(2))
    for view in (NStep(2), Sequence(2)):
        with pytest.raises(ValueError, match="n_envs"):
            buffer.sample(1, view=view)
        with pytest.raises(ValueError, match="n_envs"):
            buffer.gather([0], view=view)
        with pytest.raises(ValueError, match="n_envs"):
            buffer.indices(view)
    with pytest.raises(ValueError, match="n_envs"):
        buffer.sample(1, view=Hindsight(distance_reward))


@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize("view", [VIEWS[2], VIEWS[12]], ids=repr)
def test_reused_batches_hold_what_a_view_makes(view: Any, torch: bool) -> None:
    buffer, _ = life(2, 200)
    out = buffer.batch(5, view=view, torch=torch)
    for seed in range(3):
        assert buffer.sample(5, seed, view=view, out=out) is out
        assert_same(dict(out), buffer.sample(5, seed, view=view))
    with pytest.raises(ValueError, match="out"):
        buffer.sample(4, view=view, out=out)


def distance_reward(achieved: Any, desired: Any, info: Any) -> Any:
    assert info == {"scale": 2}
    return -2 * np.abs(achieved - desired).sum(axis=1)


@pytest.mark.long(but=["future-1-None"])
@pytest.mark.parametrize("selector", [None, Uniform(), Recent(20), WithoutReplacement()], ids=repr)
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_hindsight_goals_are_achieved_in_the_same_episode(
    strategy: Any, n_envs: int, selector: Any
) -> None:
    buffer, oracle = life(n_envs, 201, capacity=60, fields=GOALS)
    view = Hindsight(distance_reward, n_goals=4, strategy=strategy, info={"scale": 2})
    relabeled = total = 0
    seen: dict[int, set[int]] = {}
    for seed in range(60):
        batch = buffer.sample(20, seed, view=view, selector=selector, indices=True)
        for i, step_id in enumerate(batch["indices"].tolist()):
            row = oracle.expected(step_id)
            total += 1
            goal = batch["obs"]["desired_goal"][i]
            for part in ("observation", "achieved_goal"):
                assert_same(batch["obs"][part][i], row["obs"][part])
                assert_same(batch["next_obs"][part][i], row["next_obs"][part])
            if np.array_equal(goal, row["obs"]["desired_goal"]):
                assert_same(batch["next_obs"]["desired_goal"][i], row["next_obs"]["desired_goal"])
                assert batch["rewards"][i] == row["rewards"]
                continue
            relabeled += 1
            assert_same(batch["next_obs"]["desired_goal"][i], goal)
            candidates = {
                g: oracle.step(g).row["next_obs"]["achieved_goal"]
                for g in oracle.goal_ids(step_id, strategy)
            }
            (source,) = [g for g, value in candidates.items() if np.array_equal(value, goal)]
            seen.setdefault(step_id, set()).add(source)
            reward = distance_reward(row["next_obs"]["achieved_goal"][None], goal, {"scale": 2})
            np.testing.assert_allclose(batch["rewards"][i], reward[0], rtol=1e-6)
    assert abs(relabeled / total - 0.8) < 0.05
    if strategy != "final":
        assert max(len(sources) for sources in seen.values()) > 1


def test_hindsight_is_a_function_of_the_seed() -> None:
    buffer, _ = life(2, 100, fields=GOALS)
    view = Hindsight(distance_reward, info={"scale": 2})
    assert_same(buffer.sample(9, 4, view=view), buffer.sample(9, 4, view=view))
    first, second = buffer.sample(9, view=view), buffer.sample(9, view=view)
    assert first["rewards"].tolist() != second["rewards"].tolist()
    assert "indices" in first
    assert "weights" in first


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NStep(0), "n must be"),
        (lambda: NStep(2, 1.5), "gamma must be"),
        (lambda: NStep(True), "n must be"),
        (lambda: Sequence(0), "length must be"),
        (lambda: Sequence(2, burn_in=-1), "burn_in must be"),
        (lambda: Sequence(2, stride=0), "stride must be"),
        (lambda: Sequence(2, pad="half"), "pad must be"),  # type: ignore[arg-type]
        (lambda: Hindsight(distance_reward, n_goals=-1), "n_goals must be"),
        (lambda: Hindsight(distance_reward, strategy="past"), "strategy must be"),  # type: ignore[arg-type]
        (lambda: Recent(0), "window must be"),
        (lambda: Mixture(()), "shares"),
        (lambda: Mixture(((0.5, Uniform()),)), "shares"),
    ],
)
def test_views_and_selectors_refuse_what_makes_no_sense(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
