"""Windows of arrivals of tensor buffers, and fields that are written over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sharpwave import ReplayBuffer, Sequence
from sharpwave.tensors.buffers import (
    SharedReplayBuffer,
    TensorPrioritizedReplayBuffer,
    TensorReplayBuffer,
)
from sharpwave.tensors.buffers.rows import TensorColumns
from tests.reference.replay import NO_STEP

EXTRAS: dict[str, Any] = {"deter": (torch.float16, (3,)), "stoch": (torch.uint8, (2,))}
FIELDS: dict[str, Any] = {
    "obs": {"image": ("uint8", (2, 2)), "speed": "float32"},
    "action": ("float32", (2,)),
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "deter": ("float16", (3,)),
    "stoch": ("uint8", (2,)),
}


class ColumnsOnHost(TensorReplayBuffer):
    """Keeps steps as tensors, as on a CUDA device."""

    def _make_rows(self) -> Any:
        places = (self.fields, self.buffer_size, self.num_envs)
        return TensorColumns(*places, self.store_device, self.device)


def make(size: int, n_envs: int, kind: Any = TensorReplayBuffer, **options: Any) -> Any:
    return kind(
        size,
        n_envs,
        obs_shape={"image": (2, 2), "speed": ()},
        obs_dtype={"image": torch.uint8, "speed": torch.float32},
        action_shape=(2,),
        extra_fields=EXTRAS,
        **options,
    )


class Lives:
    """Steps of environments, pushed to a tensor buffer and to a native one that is the oracle."""

    def __init__(self, size: int, n_envs: int, kind: Any = TensorReplayBuffer) -> None:
        self.n_envs = n_envs
        self.tensors = make(size, n_envs, kind)
        # All steps, so that those of the ring are among them.
        self.native = ReplayBuffer(n_envs * 100, fields=FIELDS, n_envs=n_envs)
        self.count = 0
        self.numbers = np.arange(n_envs) * 1000.0

    def observation(self, numbers: Any) -> dict[str, Any]:
        image = (numbers[:, None, None] + np.arange(4).reshape(2, 2)).astype(np.int64) % 251
        return {"image": image.astype(np.uint8), "speed": numbers.astype(np.float32)}

    def step(self, ends: Any, *, cut: bool = False) -> None:
        """One step of every environment, each of which may end: "", "terminated", "truncated"."""
        if cut:
            self.tensors.cut()
            self.numbers += 0.25  # which the native buffer sees by the observations
        n, obs = self.n_envs, self.observation(self.numbers)
        next_obs = self.observation(self.numbers + 1)
        terminated = np.array([end == "terminated" for end in ends])
        truncated = np.array([end == "truncated" for end in ends])
        self.count += 1
        row = {
            "actions": np.stack([self.numbers + 0.5, np.full(n, self.count)], 1).astype(np.float32),
            "rewards": (self.numbers + 0.125).astype(np.float32),
            "deter": np.repeat(self.numbers[:, None] % 512, 3, 1).astype(np.float16),
            "stoch": np.stack([np.full(n, self.count % 250), np.arange(n)], 1).astype(np.uint8),
        }
        self.native.push_batch(
            obs=obs, next_obs=next_obs, terminated=terminated, truncated=truncated, **row
        )
        self.tensors.add(
            obs,
            row["actions"],
            row["rewards"],
            terminated | truncated,
            next_obs,
            truncated,
            deter=row["deter"],
            stoch=row["stoch"],
        )
        self.numbers = self.numbers + np.where(terminated | truncated, 1.5, 1.0)

    def native_id(self, tensor_id: int) -> int:
        env, time = tensor_id % self.n_envs, tensor_id // self.n_envs
        ids = self.native.indices()
        return int(ids[ids % self.n_envs == env][time])

    def check(self, batch: Any, view: Sequence) -> None:
        ids = [self.native_id(i) for i in batch.indices[:, 0].tolist()]
        out = self.native.batch(len(ids), view=view, indices=True)
        expected = self.native.gather(ids, view=view, out=out)
        for name, got in (
            ("prev_actions", batch.prev_actions),
            ("rewards", batch.rewards),
            ("is_first", batch.is_first),
            ("is_last", batch.is_last),
            ("is_terminal", batch.is_terminal),
            ("deter", batch.extras["deter"]),
            ("stoch", batch.extras["stoch"]),
        ):
            np.testing.assert_array_equal(got.numpy(), expected[name], err_msg=name)
            assert got.numpy().dtype == expected[name].dtype
        for name, got in batch.observations.items():
            np.testing.assert_array_equal(got.numpy(), expected["obs"][name], err_msg=name)
        assert expected["mask"].all()
        native_ids = [
            [NO_STEP if i == -1 else self.native_id(i) for i in row]
            for row in batch.indices.tolist()
        ]
        np.testing.assert_array_equal(np.array(native_ids, np.uint64), expected["indices"])


ENDS = st.sampled_from(["", "", "", "terminated", "truncated"])


@given(
    data=st.data(),
    n_envs=st.integers(1, 3),
    size=st.integers(4, 12),
    steps=st.integers(5, 30),
    rows=st.integers(1, 4),
    kind=st.sampled_from([TensorReplayBuffer, ColumnsOnHost]),
)
def test_windows_are_those_of_the_native_buffer(
    data: st.DataObject, n_envs: int, size: int, steps: int, rows: int, kind: Any
) -> None:
    lives = Lives(size, n_envs, kind)
    for _ in range(steps):
        lives.step([data.draw(ENDS) for _ in range(n_envs)], cut=data.draw(st.integers(0, 9)) == 0)
    view = Sequence(rows, arrivals=True, cross=True)
    least = rows + (steps > size)
    if min(steps, size) < least:
        with pytest.raises(ValueError, match=f"there must be {least} steps"):
            lives.tensors.get_windows(1, view)
        return
    seen: set[int] = set()
    for _ in range(4):
        batch = lives.tensors.get_windows(32, view)
        lives.check(batch, view)
        seen |= set(batch.indices[:, 0].tolist())
    oldest = max(steps - size, 0) + (steps > size)
    assert min(seen) >= oldest * n_envs


def test_all_windows_are_equally_likely() -> None:
    lives = Lives(12, 2)
    for t in range(40):
        lives.step(["terminated" if t % 5 == 4 else "", "truncated" if t % 7 == 6 else ""])
    view = Sequence(3, context=1, arrivals=True, cross=True)
    drawn = torch.cat([lives.tensors.get_windows(500, view).indices[:, 0] for _ in range(40)])
    ids, counts = drawn.unique(return_counts=True)
    native = {lives.native_id(i) for i in ids.tolist()}
    fitting = set(lives.native.indices(view).tolist())
    in_ring = {lives.native_id(t * 2 + e) for t in range(29, 40) for e in range(2)}
    assert native == fitting & in_ring
    expected = len(drawn) / len(ids)
    assert float(((counts - expected) ** 2 / expected).sum()) < 60  # χ² of about 18 degrees


@pytest.mark.parametrize("kind", [TensorReplayBuffer, ColumnsOnHost, TensorPrioritizedReplayBuffer])
def test_fields_are_written_over_by_id(kind: Any) -> None:
    lives = Lives(10, 2, kind)
    for t in range(8):
        lives.step(["terminated" if t % 4 == 3 else ""] * 2)
    buffer, view = lives.tensors, Sequence(4, arrivals=True, cross=True)
    batch = buffer.get_windows(16, view)
    ids = batch.indices
    assert (ids == -1).any()
    deter = ids[..., None].expand(-1, -1, 3).to(torch.float16)
    buffer.update(ids, deter=deter, stoch=torch.full((*ids.shape, 2), 9))
    rows = buffer.gather(torch.arange(16))
    written = ids[ids >= 0].unique()
    torch.testing.assert_close(rows.extras["deter"][written, 0].long(), written)
    assert (rows.extras["stoch"][written] == 9).all()
    untouched = torch.tensor(sorted(set(range(16)) - set(written.tolist())), dtype=torch.int64)
    assert (rows.extras["stoch"][untouched] != 9).any(1).all()
    again = buffer.get_windows(16, view)
    known = again.indices >= 0
    assert not again.extras["deter"][~known].any()


@pytest.mark.parametrize("kind", [TensorReplayBuffer, ColumnsOnHost])
def test_of_equal_ids_the_last_counts_and_overwritten_ones_are_dropped(kind: Any) -> None:
    lives = Lives(5, 1, kind)
    for _ in range(12):
        lives.step([""])
    buffer = lives.tensors
    before = buffer.gather(torch.arange(5)).extras["stoch"].clone()
    buffer.update([0, 6, 3], stoch=[[7, 7]] * 3)
    assert buffer.stale_updates == 3
    torch.testing.assert_close(buffer.gather(torch.arange(5)).extras["stoch"], before)
    buffer.update([[8, 9], [8, -1]], stoch=torch.arange(8).reshape(2, 2, 2))
    assert buffer.gather([8 % 5]).extras["stoch"].tolist() == [[4, 5]]
    assert buffer.gather([9 % 5]).extras["stoch"].tolist() == [[2, 3]]
    for wrong in ([12], [-2]):
        with pytest.raises(IndexError, match="indices must be of steps that were added"):
            buffer.update(wrong, stoch=[[1, 1]])


def test_what_happened_is_refused() -> None:
    lives = Lives(5, 1)
    lives.step([""])
    for name in ("obs", "action", "reward", "done", "truncated", "next_obs"):
        with pytest.raises(ValueError, match=f"got '{name}'"):
            lives.tensors.update([0], **{name: [0]})
    with pytest.raises(TypeError, match="the extra columns are"):
        lives.tensors.update([0], deterr=[[0, 0, 0]])
    with pytest.raises(ValueError, match="begins like that of indices"):
        lives.tensors.update([0], deter=torch.zeros(2, 3))
    with pytest.raises(ValueError, match="deter must have shape"):
        lives.tensors.update([0], deter=torch.zeros(1, 4))


@pytest.mark.parametrize(
    "view",
    [
        Sequence(3),
        Sequence(3, arrivals=True),
        Sequence(3, arrivals=True, cross=True, pad=True),
        Sequence(3, arrivals=True, cross=True, stride=2),
        None,
    ],
)
def test_other_views_are_refused(view: Any) -> None:
    with pytest.raises(TypeError, match="view must be Sequence"):
        make(5, 1).get_windows(1, view)


def test_shared_buffers_refuse() -> None:
    buffer = SharedReplayBuffer(4, 1, obs_shape=(), action_shape=(), extra_fields=EXTRAS)
    with pytest.raises(TypeError, match="in order"):
        buffer.get_windows(1, Sequence(1, arrivals=True, cross=True))
    with pytest.raises(TypeError, match="one process"):
        buffer.update([0], stoch=[[0, 0]])


def test_a_saved_buffer_goes_on(tmp_path: Path) -> None:
    lives = Lives(6, 2)
    for t in range(10):
        lives.step(["terminated" if t == 7 else ""] * 2, cut=t == 6)
    view = Sequence(3, arrivals=True, cross=True)
    lives.tensors.get_windows(2, view)
    lives.tensors.update(torch.arange(12, 18), stoch=torch.full((6, 2), 77))
    lives.tensors.save(tmp_path / "saved")
    loaded = TensorReplayBuffer.load(tmp_path / "saved")
    mine, other = (buffer.get_windows(20, view) for buffer in (lives.tensors, loaded))
    assert torch.equal(mine.indices, other.indices)
    assert torch.equal(mine.extras["stoch"], other.extras["stoch"])
    assert torch.equal(mine.is_first, other.is_first)
    assert mine.is_first.any()
    loaded.update([12], stoch=[[1, 2]])
    place = 12 // 2 % 6 * 2
    assert loaded.gather([place]).extras["stoch"].tolist() == [[1, 2]]
