import pickle
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sharpwave import primitives as sp
from tests.reference.stats import moments


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5)])
def test_many_updates_equal_the_moments_of_everything(
    dtype: npt.DTypeLike, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    stats = sp.RunningStats(shape)
    seen = []
    for n in (1, 7, 64, 300):
        batch = (rng.normal(size=(n, *shape)) * 10).astype(dtype)
        stats.update(batch)
        seen.append(batch)
    stats.update(seen[0][0])
    seen.append(seen[0])
    samples = np.concatenate(seen).astype(float)
    assert stats.count == len(samples)
    for index in np.ndindex(shape):
        mean, var = moments([row[index] for row in samples])
        assert stats.mean[index] == pytest.approx(mean, rel=1e-12)
        assert stats.var[index] == pytest.approx(var, rel=1e-10)
    np.testing.assert_allclose(stats.std, np.sqrt(stats.var))


def test_large_offsets_cost_no_digits() -> None:
    stats = sp.RunningStats((2,))
    batch = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]) + 1e9
    for row in batch:
        stats.update(row)
    np.testing.assert_allclose(stats.var, 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_batch_that_is_not_finite_raises_and_changes_nothing(bad: float, position: int) -> None:
    stats = sp.RunningStats((2,))
    stats.update([[1.0, 2.0], [3.0, 4.0]])
    before = pickle.dumps(stats)
    batch = np.ones((3, 2))
    batch[position, 1] = bad
    with pytest.raises(ValueError, match="batch must be finite"):
        stats.update(batch)
    assert pickle.dumps(stats) == before


def test_empty_batch_changes_nothing() -> None:
    stats = sp.RunningStats((2,))
    stats.update(np.zeros((0, 2)))
    assert stats.count == 0
    np.testing.assert_array_equal(stats.mean, 0.0)
    np.testing.assert_array_equal(stats.var, 1.0)


def test_merge_equals_one_instance_that_saw_both() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(20, 3)), rng.normal(size=(30, 3)) + 5
    parts = [sp.RunningStats(3), sp.RunningStats(3)]
    parts[0].update(first)
    parts[1].update(second)
    parts[0].merge(parts[1])
    parts[0].merge(sp.RunningStats(3))
    whole = sp.RunningStats(3)
    whole.update(np.concatenate([first, second]))
    assert parts[0].count == whole.count == 50
    np.testing.assert_allclose(parts[0].mean, whole.mean)
    np.testing.assert_allclose(parts[0].var, whole.var)
    with pytest.raises(ValueError, match=r"other must have shape \(3,\)"):
        whole.merge(sp.RunningStats(2))


@pytest.mark.parametrize("clip", [None, 0.5])
def test_normalize_keeps_dtype_and_bounds(clip: float | None) -> None:
    stats = sp.RunningStats((2,))
    stats.update([[0.0, 0.0], [2.0, 20.0]])
    x = np.array([[[0.0, 20.0]], [[3.0, 10.0]]], np.float32)
    got = stats.normalize(x, clip=clip)
    want = (x - stats.mean) / np.sqrt(stats.var + 1e-8)
    if clip is not None:
        want = np.clip(want, -clip, clip)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)
    tensor = stats.normalize(torch.from_numpy(x), clip=clip)
    np.testing.assert_array_equal(tensor.numpy(), got)


def test_state_survives_dict_and_pickle() -> None:
    stats = sp.RunningStats((2,))
    stats.update(np.random.default_rng(0).normal(size=(9, 2)))
    other = sp.RunningStats((2,))
    other.load_state_dict(stats.state_dict())
    for copy in (other, pickle.loads(pickle.dumps(stats))):
        assert copy.count == 9
        np.testing.assert_array_equal(copy.mean, stats.mean)
        np.testing.assert_array_equal(copy.var, stats.var)
        copy.update(np.ones((1, 2)))
    assert stats.count == 9


def test_statistics_go_on_bit_for_bit_from_their_state() -> None:
    rng = np.random.default_rng(0)
    for count in range(1, 50):
        stats = sp.RunningStats((3,))
        stats.update(rng.normal(size=(count, 3)))
        other = sp.RunningStats((3,))
        other.load_state_dict(stats.state_dict())
        more = rng.normal(size=(2, 3))
        stats.update(more)
        other.update(more)
        np.testing.assert_array_equal(other.var, stats.var)
        np.testing.assert_array_equal(other.mean, stats.mean)


def test_statistics_of_elsewhere_need_no_m2() -> None:
    stats = sp.RunningStats((2,))
    stats.load_state_dict({"mean": [1.0, 2.0], "var": [4.0, 9.0], "count": 10})
    np.testing.assert_allclose(stats.var, [4.0, 9.0])
    with pytest.raises(ValueError, match="m2 must be var times count"):
        stats.load_state_dict({**stats.state_dict(), "var": [1.0, 1.0]})


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.zeros(3)},
        {"var": np.array([1.0, -1.0])},
        {"count": -1},
        {"mean": np.array([0.0, np.nan])},
    ],
)
def test_state_that_cannot_be_raises_and_changes_nothing(change: dict[str, Any]) -> None:
    stats = sp.RunningStats((2,))
    stats.update(np.ones((3, 2)))
    before = pickle.dumps(stats)
    with pytest.raises(ValueError, match="must"):
        stats.load_state_dict({**stats.state_dict(), **change})
    assert pickle.dumps(stats) == before


@pytest.mark.parametrize("batch", [np.zeros(3), np.zeros((2, 3)), 1.0])
def test_batch_of_another_shape_raises(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"batch must have shape"):
        sp.RunningStats((2,)).update(batch)


def test_mean_is_a_copy() -> None:
    stats = sp.RunningStats((2,))
    stats.mean[...] = 5.0
    np.testing.assert_array_equal(stats.mean, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_polyak_moves_the_target_in_place(dtype: npt.DTypeLike) -> None:
    rng = np.random.default_rng(0)
    target, source = rng.normal(size=(2, 7, 11)).astype(dtype)
    want = target + 0.1 * (source - target)
    sp.polyak(target, source, 0.1)
    np.testing.assert_allclose(target, want, rtol=1e-5)


def test_polyak_of_modules_and_strided_arrays() -> None:
    target, source = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    want = [
        t + 0.25 * (s - t) for t, s in zip(target.parameters(), source.parameters(), strict=True)
    ]
    sp.polyak(target.parameters(), source.parameters(), 0.25)
    for got, expected in zip(target.parameters(), want, strict=True):
        torch.testing.assert_close(got, expected)
    grid = np.zeros((4, 4))
    sp.polyak(grid[::2, ::2], np.ones((2, 2)), 0.5)
    assert grid.sum() == 2.0
    assert grid[2, 2] == 0.5


@pytest.mark.parametrize(
    ("target", "source", "tau", "error"),
    [
        ([np.zeros(2), np.zeros(3)], [np.ones(2), np.ones(2)], 0.5, ValueError),
        ([np.zeros(2)], [np.ones(2), np.ones(2)], 0.5, ValueError),
        ([np.zeros(2)], [np.ones(2)], 1.5, ValueError),
        ([np.zeros(2, np.int64)], [np.ones(2)], 0.5, TypeError),
        ([[0.0, 0.0]], [np.ones(2)], 0.5, TypeError),
        (3, np.ones(2), 0.5, TypeError),
    ],
)
def test_polyak_that_does_not_fit_raises_and_changes_nothing(
    target: Any, source: Any, tau: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        sp.polyak(target, source, tau)
    if isinstance(target, list) and isinstance(target[0], np.ndarray):
        np.testing.assert_array_equal(target[0], 0)


def test_polyak_refuses_memory_it_may_not_write() -> None:
    target = np.zeros(2)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="target must be writable"):
        sp.polyak(target, np.ones(2), 0.5)
    with pytest.raises(TypeError, match="target must have a dtype"):
        sp.polyak(torch.zeros(2, dtype=torch.bfloat16), np.ones(2), 0.5)


def test_updates_from_many_threads_all_count() -> None:
    stats = sp.RunningStats((4,))
    batch = np.random.default_rng(0).normal(size=(20_000, 4))

    def update_often() -> None:
        for _ in range(20):
            stats.update(batch)

    threads = [threading.Thread(target=update_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats.count == 80 * len(batch)
    np.testing.assert_allclose(stats.mean, batch.mean(0), atol=1e-12)
    np.testing.assert_allclose(stats.var, batch.var(0), rtol=1e-10)
