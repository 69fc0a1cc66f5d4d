"""Arrays in shared memory: over the same bytes everywhere, without torch, and without a name."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sharpwave.buffers.shared_memory import SharedArrays, SharedBlock, unnamed_file
from sharpwave.tensors.buffers import ResetStrategy, SharedReplayBuffer


def fill(shared: SharedArrays) -> None:
    for number, array in enumerate(shared.arrays):
        array[...] = number + 1


@pytest.mark.long
def test_another_process_writes_into_the_same_arrays() -> None:
    shared = SharedArrays([(np.float32, (3, 2)), (np.bool_, ()), (np.int16, (0, 4)), ("u1", (65,))])
    process = multiprocessing.get_context("spawn").Process(target=fill, args=(shared,))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert [array.shape for array in shared.arrays] == [(3, 2), (), (0, 4), (65,)]
    np.testing.assert_array_equal(shared.arrays[0], np.ones((3, 2)))
    assert shared.arrays[1] == np.True_
    np.testing.assert_array_equal(shared.arrays[3], np.full(65, 4))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system lists no descriptors")
def test_the_memory_has_no_name() -> None:
    shared = SharedArrays([(np.float32, (3,))])
    assert str(Path(f"/proc/self/fd/{shared.descriptor}").readlink()).endswith("(deleted)")


def test_too_much_memory_is_refused_at_once() -> None:
    with pytest.raises(MemoryError, match=f"cannot share {2**62} bytes"):
        unnamed_file(2**62)


def test_rows_are_gathered_from_all_columns() -> None:
    block = SharedBlock([(np.int64, ()), (np.float32, (2,))], capacity=3, n_rows=2)
    numbers, pairs = block.columns
    numbers[:] = np.arange(6)
    pairs[:] = np.arange(12).reshape(6, 2)
    found = block.gather(np.array([4, 1]))
    np.testing.assert_array_equal(found[0], [4, 1])
    np.testing.assert_array_equal(found[1], [[8, 9], [2, 3]])
    assert not any(
        np.shares_memory(one, mine) for one, mine in zip(found, block.columns, strict=True)
    )


@pytest.mark.long
def test_it_needs_no_torch() -> None:
    code = "import sys, sharpwave.buffers.shared_memory; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2, torch.bool])
def test_tensors_of_any_dtype_are_views(dtype: torch.dtype) -> None:
    buffer = SharedReplayBuffer(
        4,
        num_envs=2,
        obs_shape=(3,),
        action_shape=(),
        obs_dtype=dtype,
        reset_strategy=ResetStrategy.RECURRENT,
    )
    obs = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 2.0]]).to(dtype)
    ones = torch.ones(2)
    buffer.add(obs, ones, ones, ones.bool(), obs)
    batch = buffer.get(1)
    assert batch.observations.dtype is dtype
    assert any(torch.equal(batch.observations[0].float(), row.float()) for row in obs)
