"""The offline dataset: steps, windows, returns and statistics."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sharpwave import OfflineDatasetBuffer
from tests.reference.chance import assert_fits
from tests.reference.nests import assert_same, same

Arrays = dict[str, Any]


def dataset(
    lengths: list[int], *, obs_dim: int = 3, act_dim: int = 2, kinds: str = "terminated"
) -> Arrays:
    """Episodes of these lengths; every number in it tells its step."""
    n = sum(lengths)
    ends = np.zeros(n, np.bool_)
    ends[np.cumsum(lengths) - 1] = True
    number = np.arange(n, dtype=np.float32)
    obs = number[:, None] + np.arange(obs_dim, dtype=np.float32) / 8
    return {
        "obs": obs,
        "next_obs": obs + np.float32(0.5),
        "actions": number[:, None] * 2 + np.arange(act_dim, dtype=np.float32),
        "rewards": number % 7 + 1,
        "terminated": ends & (kinds == "terminated"),
        "truncated": ends & (kinds == "truncated"),
    }


def returns_to_go(data: Arrays) -> npt.NDArray[np.float64]:
    """Undiscounted, to the end of the episode, in a plain loop."""
    found = np.zeros(len(data["rewards"]))
    total = 0.0
    for t in reversed(range(len(found))):
        if data["terminated"][t] or data["truncated"][t]:
            total = 0.0
        total += float(data["rewards"][t])
        found[t] = total
    return found


def episode_of(lengths: list[int]) -> list[tuple[int, int]]:
    """(episode, time in it) by step."""
    return [(e, t) for e, length in enumerate(lengths) for t in range(length)]


def test_sampled_rows_are_rows_of_the_data() -> None:
    data = dataset([5, 1, 9])
    buffer = OfflineDatasetBuffer(**data)
    batch = buffer.sample(64, seed=1)
    assert list(batch) == ["obs", "next_obs", "actions", "rewards", "terminated", "truncated"]
    rows = batch["obs"][:, 0].astype(int)
    for name, array in batch.items():
        assert array.dtype == np.float32
        assert_same(array, data[name][rows].astype(np.float32))


@pytest.mark.parametrize("kinds", ["terminated", "truncated", "neither"])
def test_flags_come_back_as_given(kinds: str) -> None:
    data = dataset([3, 4, 2], kinds=kinds)
    data["truncated"][0] = data["terminated"][0] = True
    buffer = OfflineDatasetBuffer(**data)
    batch = buffer.sample(100, seed=1)
    rows = batch["obs"][:, 0].astype(int)
    assert_same(batch["terminated"], data["terminated"][rows].astype(np.float32))
    assert_same(batch["truncated"], data["truncated"][rows].astype(np.float32))


def test_flat_and_shaped_arrays_of_any_kind_are_the_same_data() -> None:
    data = dataset([5, 9])
    expected = OfflineDatasetBuffer(**data)
    forms: list[Any] = [
        np.ravel,
        lambda a: a.tolist(),
        torch.from_numpy,
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a.astype(np.float64),
    ]
    for form in forms:
        other = OfflineDatasetBuffer(**{name: form(array) for name, array in data.items()})
        assert_same(other.sample(20, seed=3), expected.sample(20, seed=3))
        assert_same(
            other.sample_trajectories(9, 4, seed=3), expected.sample_trajectories(9, 4, seed=3)
        )
        assert other.stats() == expected.stats()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float32, np.float64])
def test_flags_of_any_dtype_are_the_same_data(dtype: Any) -> None:
    data = dataset([5, 9])
    flags = {name: data[name].astype(dtype) for name in ("terminated", "truncated")}
    other = OfflineDatasetBuffer(**{**data, **flags})
    assert_same(other.sample(20, seed=3), OfflineDatasetBuffer(**data).sample(20, seed=3))
    assert other.n_episodes() == 2


def test_one_action_dimension_is_squeezed_in_steps_and_kept_in_windows() -> None:
    buffer = OfflineDatasetBuffer(**dataset([6], act_dim=1))
    assert buffer.sample(5, seed=0)["actions"].shape == (5,)
    assert buffer.sample_trajectories(5, 3, seed=0)["actions"].shape == (5, 3, 1)


def test_images_keep_their_shape() -> None:
    data = dataset([6])
    images = np.arange(6 * 24).reshape(6, 2, 3, 4).astype(np.uint8)
    buffer = OfflineDatasetBuffer(**{**data, "obs": images, "next_obs": images})
    batch = buffer.sample(20, seed=0)
    rows = batch["rewards"].astype(int) - 1
    assert_same(batch["obs"], images[rows].astype(np.float32))
    assert buffer.stats()["obs_dim"] == 24


@pytest.mark.parametrize("by", ["step", "episode"])
@pytest.mark.parametrize("seq_len", [1, 3, 5, 12, 40])
@pytest.mark.parametrize("kinds", ["terminated", "truncated"])
def test_windows_are_consecutive_steps_of_one_episode(by: Any, seq_len: int, kinds: str) -> None:
    lengths = [5, 1, 9, 3, 12]
    data = dataset(lengths, kinds=kinds)
    buffer = OfflineDatasetBuffer(**data)
    where = episode_of(lengths)
    to_go = returns_to_go(data)
    batch = buffer.sample_trajectories(200, seq_len, seed=2, by=by)
    assert list(batch) == ["obs", "actions", "rewards", "returns_to_go", "timesteps", "mask"]
    assert batch["obs"].shape == (200, seq_len, 3)
    assert batch["actions"].shape == (200, seq_len, 2)
    assert batch["mask"].dtype == np.uint8
    assert batch["timesteps"].dtype == np.uint32
    for row in range(200):
        start = int(batch["obs"][row, 0, 0])
        episode, time = where[start]
        there = min(seq_len, lengths[episode] - time)
        assert there == seq_len or time == 0  # shorter only as a whole episode
        steps = np.arange(start, start + there)
        assert batch["mask"][row].tolist() == [1] * there + [0] * (seq_len - there)
        for name in ("obs", "actions", "rewards"):
            assert_same(batch[name][row, :there], data[name][steps])
            assert not batch[name][row, there:].any()
        assert_same(batch["returns_to_go"][row, :there], to_go[steps].astype(np.float32))
        assert batch["timesteps"][row, :there].tolist() == list(range(time, time + there))
        assert not batch["returns_to_go"][row, there:].any()


def test_returns_to_go_reach_to_the_end_of_the_episode_and_not_of_the_window() -> None:
    data = {**dataset([10]), "rewards": np.ones(10)}
    batch = OfflineDatasetBuffer(**data).sample_trajectories(50, 3, seed=0)
    starts = batch["obs"][:, 0, 0]
    assert_same(batch["returns_to_go"][:, 0], (10 - starts).astype(np.float32))
    assert len(set(starts.tolist())) == 8


def test_returns_to_go_do_not_see_other_episodes() -> None:
    data = {**dataset([3, 3]), "rewards": np.array([1, 1, 1, 1e17, 1e17, 1e17])}
    batch = OfflineDatasetBuffer(**data).sample_trajectories(40, 3, seed=0)
    first = batch["returns_to_go"][batch["obs"][:, 0, 0] == 0]
    assert len(first) > 0
    assert first.tolist() == [[3.0, 2.0, 1.0]] * len(first)


def test_windows_are_uniform_over_starts_or_over_episodes() -> None:
    lengths = [10, 190]
    buffer = OfflineDatasetBuffer(**dataset(lengths))
    windows = buffer.sample_trajectories(40_000, 10, seed=5)["obs"][:, 0, 0].astype(int)
    starts = [0, *range(10, 10 + 181)]
    assert_fits(np.bincount(windows, minlength=200)[starts], np.ones(182))
    by_episode = buffer.sample_trajectories(40_000, 10, seed=5, by="episode")
    begins = by_episode["obs"][:, 0, 0].astype(int)
    assert_fits(np.bincount(begins, minlength=200)[starts], [181, *[1] * 181])


def test_steps_are_drawn_uniformly_and_more_than_there_are() -> None:
    buffer = OfflineDatasetBuffer(**dataset([1, 99]))
    drawn = buffer.sample(50_000, seed=3)["obs"][:, 0].astype(int)
    assert_fits(np.bincount(drawn, minlength=100), np.ones(100))
    assert buffer.sample(0, seed=0)["obs"].shape == (0, 3)


def test_normalized_observations_have_mean_zero_and_deviation_one() -> None:
    data = dataset([50, 50])
    data["obs"][:, 1] = 7.0
    buffer = OfflineDatasetBuffer(**data, normalize=True)
    np.testing.assert_allclose(buffer.obs_mean, data["obs"].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(buffer.obs_std, data["obs"].std(axis=0) + 1e-3, rtol=1e-6)
    expected = (data["obs"] - buffer.obs_mean) / buffer.obs_std
    next_expected = (data["next_obs"] - buffer.obs_mean) / buffer.obs_std
    batch = buffer.sample(300, seed=1)
    rows = (batch["actions"][:, 0] / 2).astype(int)
    np.testing.assert_allclose(batch["obs"], expected[rows], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch["next_obs"], next_expected[rows], rtol=1e-5, atol=1e-5)
    windows = buffer.sample_trajectories(30, 4, seed=1)
    rows = (windows["actions"][..., 0] / 2).astype(int)
    np.testing.assert_allclose(windows["obs"], expected[rows], rtol=1e-5, atol=1e-5)


def test_without_normalizing_the_statistics_change_nothing() -> None:
    buffer = OfflineDatasetBuffer(**dataset([5]))
    assert_same(buffer.obs_mean, np.zeros(3, np.float32))
    assert_same(buffer.obs_std, np.ones(3, np.float32))


def test_stats_describe_the_episodes() -> None:
    data = {**dataset([4, 2, 3]), "rewards": np.array([1, 1, 1, 1, 5, 5, 0, 0, 1])}
    buffer = OfflineDatasetBuffer(**data)
    returns = [4.0, 10.0, 1.0]
    assert buffer.stats() == pytest.approx(
        {
            "n_transitions": 9,
            "n_episodes": 3,
            "obs_dim": 3,
            "act_dim": 2,
            "mean_return": 5.0,
            "std_return": float(np.std(returns, ddof=1)),
            "min_return": 1.0,
            "max_return": 10.0,
            "mean_episode_length": 3.0,
        }
    )
    assert len(buffer) == 9
    assert buffer.n_episodes() == 3
    assert OfflineDatasetBuffer(**dataset([4])).stats()["std_return"] == 0.0


def test_an_unfinished_last_episode_counts() -> None:
    data = dataset([4, 3])
    data["terminated"][-1] = False
    buffer = OfflineDatasetBuffer(**data)
    assert buffer.n_episodes() == 2
    starts = buffer.sample_trajectories(100, 3, seed=0)["obs"][:, 0, 0]
    assert set(starts.tolist()) == {0, 1, 4}


def test_draws_follow_the_seed() -> None:
    first, second = (OfflineDatasetBuffer(**dataset([9, 9]), seed=3) for _ in range(2))
    for by in ("step", "episode"):
        draw: Any = {"batch_size": 6, "seq_len": 3, "by": by}
        assert_same(
            first.sample_trajectories(**draw, seed=5), second.sample_trajectories(**draw, seed=5)
        )
        mine, again = (first.sample_trajectories(**draw) for _ in range(2))
        assert not same(mine, again)
        assert_same(second.sample_trajectories(**draw), mine)
        second.sample_trajectories(**draw)
    assert not same(first.sample(6), first.sample(6))


def test_a_dataset_can_be_pickled() -> None:
    buffer = OfflineDatasetBuffer(**dataset([9, 9]), normalize=True)
    other = pickle.loads(pickle.dumps(buffer))
    assert_same(other.sample(5), buffer.sample(5))
    assert other.stats() == buffer.stats()


def test_long_datasets_are_read_whole() -> None:
    n = 150_000
    data = dataset([n // 2, n // 2], obs_dim=1, act_dim=1)
    buffer = OfflineDatasetBuffer(**data)
    batch = buffer.sample(5000, seed=0)
    rows = (batch["actions"] / 2).astype(int)
    assert rows.max() > 140_000
    assert_same(batch["obs"], data["obs"][rows])
    assert_same(batch["rewards"], data["rewards"][rows])


@pytest.mark.parametrize("name", ["obs", "next_obs", "actions", "rewards", "terminated"])
def test_missing_arrays_are_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} "):
        OfflineDatasetBuffer(**{**dataset([4]), name: None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": np.zeros((3, 3))}, "obs must have 4 rows"),
        ({"obs": np.zeros(13)}, "obs must have 4 rows"),
        ({"next_obs": np.zeros((4, 2))}, "next_obs must have shape"),
        ({"actions": np.zeros((5, 1))}, "actions must have 4 rows"),
        ({"truncated": np.zeros(3)}, "truncated must have shape"),
        ({"rewards": np.zeros((4, 1))}, "rewards must have one dimension"),
        ({"rewards": np.zeros(0)}, "rewards must hold at least one"),
        ({"rewards": np.array([1, np.nan, 1, 1])}, "rewards? must be finite"),
        ({"rewards": np.array([1, 1e40, 1, 1])}, "rewards? must fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OfflineDatasetBuffer(**{**dataset([4]), **changes})


def test_windows_refuse_what_makes_no_sense() -> None:
    buffer = OfflineDatasetBuffer(**dataset([4]))
    with pytest.raises(ValueError, match="seq_len must be"):
        buffer.sample_trajectories(2, 0)
    with pytest.raises(ValueError, match="batch_size"):
        buffer.sample_trajectories(-1, 2)
    with pytest.raises(ValueError, match="by must be"):
        buffer.sample_trajectories(2, 2, by="window")  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError), match="batch_size"):
        buffer.sample(-1)
