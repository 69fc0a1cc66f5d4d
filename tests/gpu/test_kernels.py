"""The kernels on a CUDA device: the tests of the CPU, large sizes, graphs and no waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from sharpwave import primitives as sp
from sharpwave.primitives import backend
from sharpwave.primitives.priorities.tensors import PrioritySums
from sharpwave.primitives.returns import plain as typed_in_torch
from sharpwave.primitives.returns import tensors as typed_returns
from sharpwave.primitives.rows.tensors import RowTable
from tests.gpu.host_sync import no_host_sync
from tests.unit.primitives.calls import NAMES, calls, of_ones
from tests.unit.primitives.test_ahead import *  # noqa: F403
from tests.unit.primitives.test_episodes import *  # noqa: F403
from tests.unit.primitives.test_llm_tensors import *  # noqa: F403
from tests.unit.primitives.test_log_probs import *  # noqa: F403
from tests.unit.primitives.test_packing_tensors import *  # noqa: F403
from tests.unit.primitives.test_ppo_loss import *  # noqa: F403
from tests.unit.primitives.test_priorities import *  # noqa: F403
from tests.unit.primitives.test_returns_tensors import *  # noqa: F403
from tests.unit.primitives.test_rows import *  # noqa: F403
from tests.unit.primitives.test_small_policy import *  # noqa: F403
from tests.unit.primitives.test_small_ppo import *  # noqa: F403
from tests.unit.primitives.test_transformer import *  # noqa: F403

Call = Callable[[], Any]
on_cuda: Any = typed_returns  # arguments come in lists here
in_torch: Any = typed_in_torch


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def tensors(result: Any) -> list[torch.Tensor]:
    if result is None:
        return []
    return [result] if isinstance(result, torch.Tensor) else list(result)


def test_triton_is_what_runs() -> None:
    assert backend.uses_triton(torch.zeros(1, device="cuda"))


@pytest.mark.parametrize("name", NAMES)
def test_kernels_never_wait_and_replay_in_graphs(name: str) -> None:
    call = calls("cuda")[name]
    eager = [x.clone() for x in tensors(call())]
    torch.cuda.synchronize()
    with no_host_sync():
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = tensors(call())
    for tensor in captured:
        tensor.zero_()
    graph.replay()
    torch.cuda.synchronize()
    for a, b in zip(captured, eager, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "shape", [(128, 4096), (1024, 1024), (64, 40_000), (5000, 7), (33, 20_001)], ids=str
)
def test_gae_of_every_way_to_cut_a_rollout(shape: tuple[int, int]) -> None:
    rewards, values, following = (torch.randn(shape, device="cuda") for _ in range(3))
    ends: Any = [torch.rand(shape, device="cuda") < 0.02 for _ in range(2)]
    found = on_cuda.gae(
        rewards, values, next_values=following, terminated=ends[0], truncated=ends[1]
    )
    wanted = tuple(torch.empty(shape, dtype=torch.float64, device="cuda") for _ in range(2))
    doubles: Any = [x.double() for x in (rewards, values, following)]
    in_torch.gae(*doubles, *ends, 0.99, 0.95, wanted)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_envs", [1, 16, 17, 300])
@pytest.mark.parametrize("n_steps", [1, 2, 16, 17])
def test_a_kernel_started_again_computes_what_it_did(n_steps: int, n_envs: int) -> None:
    for beginning in (0, 0, 1, 0):  # the tensors lie at multiples of 16 bytes, or do not
        flat: Any = [torch.randn(n_steps * n_envs + beginning, device="cuda") for _ in range(3)]
        steps = [x[beginning:].view(n_steps, n_envs) for x in flat]
        ends: Any = [torch.rand(n_steps, n_envs, device="cuda") < 0.2 for _ in range(2)]
        found = on_cuda.gae(*steps[:2], next_values=steps[2], terminated=ends[0], truncated=ends[1])
        wanted = tuple(torch.empty_like(steps[0], dtype=torch.float64) for _ in range(2))
        in_torch.gae(*[x.double() for x in steps], *ends, 0.99, 0.95, wanted)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
        column = torch.randn(n_steps, n_envs, device="cuda")
        index = torch.randint(n_steps, (n_envs + beginning,), device="cuda")[beginning:]
        assert torch.equal(RowTable([column]).gather(index)[0], column[index])


def test_kernels_take_sizes_of_one() -> None:
    """Triton compiles a 1 into a kernel, where it is no tensor."""
    for a, b in zip(of_ones("cuda"), of_ones("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_numbers_of_every_size_reach_a_kernel_that_was_started_before() -> None:
    columns = [torch.zeros(600, 2, device="cuda"), torch.zeros(600, device="cuda")]
    table = RowTable(columns)
    for _ in range(2):
        for slot in (0, 1, 2, 15, 16, 17, 99):
            rows = [torch.randn(6, 2, device="cuda"), torch.randn(6, device="cuda")]
            table.push(rows, slot)
            for column, row in zip(columns, rows, strict=True):
                assert torch.equal(column[6 * slot : 6 * slot + 6], row)
    before = [column.clone() for column in columns]
    for slot in (100, 2**31, 2**40, -1):  # outside
        table.push(rows, slot)
    assert all(map(torch.equal, columns, before))


def test_a_tensor_of_the_host_is_refused_also_the_second_time() -> None:
    sums, chances = PrioritySums(100, "cuda"), torch.rand(10)
    sums.weights(chances.cuda(), 0.5)
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be accessed from Triton"):
            sums.weights(chances, 0.5)


def test_every_discount_reaches_a_kernel_that_was_started_before() -> None:
    rewards = torch.randn(20, 30, device="cuda")
    last = torch.zeros(30, device="cuda")
    ends = torch.zeros(20, 30, device="cuda", dtype=torch.bool)
    for discount in (0.9, 0.0, 1.0, 0.5, 1, 0):
        wanted = torch.empty_like(rewards, dtype=torch.float64)
        in_torch.discounted_returns(rewards.double(), ends, discount, last.double(), wanted)
        found = on_cuda.discounted_returns(rewards, ends, discount, last)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_primitives_take_cuda_tensors() -> None:
    rewards, values = (torch.randn(6, 40, device="cuda") for _ in range(2))
    dones = torch.rand(6, 40, device="cuda") < 0.1
    last = torch.randn(6, device="cuda")
    found = sp.compute_gae_batched_f32(rewards, values, dones, last, 40, 0.99, 0.95)
    assert found[0].is_cuda
    assert found[0].dtype == torch.float32
    for env in range(6):
        alone = sp.compute_gae(rewards[env], values[env], dones[env], last[env], 0.99, 0.95)
        torch.testing.assert_close(found[0][env], alone[0], rtol=1e-4, atol=1e-4)
    assert sp.gae(rewards, values, bootstrap=rewards[0], terminated=dones)[0].is_cuda
    assert sp.compute_token_kl(rewards[0], values[0]).shape == ()
    assert sp.compute_group_advantages(rewards).shape == rewards.shape
    options: Any = {"ddof": 1, "eps": 1e-4, "leave_one_out": True, "scale": "batch"}
    torch.testing.assert_close(
        sp.compute_batch_group_advantages(rewards, 40, mask=dones, **options).cpu(),
        sp.compute_batch_group_advantages(rewards.cpu(), 40, mask=dones.cpu(), **options),
    )
    with pytest.raises(ValueError, match="values must be on cuda:0 like rewards, got cpu"):
        sp.gae(rewards, values.cpu(), bootstrap=rewards[0], terminated=dones)
    with pytest.raises(TypeError, match="values must be a tensor"):
        sp.gae(rewards, [[0.0]], bootstrap=rewards[0], terminated=dones)
    target = [torch.zeros(3, device="cuda")]
    sp.polyak(target, [torch.ones(3, device="cuda")], 0.25)
    assert target[0].tolist() == [0.25] * 3
