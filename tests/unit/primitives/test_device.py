"""The way of CUDA tensors, on CPU tensors: the same results as the native functions."""

from typing import Any

import pytest
import torch

from sharpwave import primitives as sp
from sharpwave.primitives.llm import tensors as llm
from sharpwave.primitives.returns import tensors as typed_returns
from sharpwave.primitives.stats import _polyak_of_tensors

GAMMA, LAM = 0.99, 0.95
returns: Any = typed_returns  # arguments come in tuples here


def steps(*shape: int) -> Any:
    flags = (torch.rand(shape) < 0.2, torch.rand(shape) < 0.2)
    return *(torch.randn(shape) for _ in range(3)), *flags


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(tuple(found), tuple(wanted), rtol=1e-4, atol=1e-4)


def test_trajectories_and_batches_agree() -> None:
    rewards, values, log_rhos, dones, _ = steps(30)
    arguments: Any = (rewards, values, dones, 0.5, GAMMA, LAM)
    close(returns.gae_trajectory(*arguments, None), sp.compute_gae(*arguments))
    trace: Any = (log_rhos, rewards, values, dones, 0.5, GAMMA, 1.0, 1.0)
    close(returns.vtrace_trajectory(*trace), sp.compute_vtrace(*trace))
    flat: Any = (rewards, values, dones, torch.randn(3), 10, GAMMA, LAM)
    close(returns.gae_batched(*flat, None, torch.float64), sp.compute_gae_batched(*flat))
    with pytest.raises(ValueError, match="rewards must hold"):
        returns.gae_batched(rewards, values, dones, torch.randn(3), 9, GAMMA, LAM, None, None)


def test_rollouts_agree() -> None:
    rewards, values, following, *ends = steps(30, 4)
    last = torch.randn(4)
    options: Any = {"gamma": GAMMA, "lam": LAM}
    wanted = sp.gae(rewards, values, bootstrap=last, terminated=ends[0], **options)
    close(returns.gae(rewards, values, bootstrap=last, terminated=ends[0], **options), wanted)
    walks: Any = (rewards, following, *ends, 3, GAMMA)
    close([returns.n_step_returns(*walks)], [sp.n_step_returns(*walks)])
    sums: Any = (rewards, ends[0], GAMMA, last)
    close([returns.discounted_returns(*sums)], [sp.discounted_returns(*sums)])
    with pytest.raises(ValueError, match="exactly one of next_values and bootstrap"):
        returns.gae(rewards, values, terminated=ends[0])


def test_language_model_operations_agree() -> None:
    p, q = -torch.rand(4, 6), -torch.rand(4, 6)
    close(
        [llm.batch_token_kl(p, q, 6, "k3", None, None)],
        [sp.compute_batch_token_kl_schulman(p, q, 6)],
    )
    assert float(llm.trajectory_token_kl(p[0], q[0], "k1", None)) == pytest.approx(
        sp.compute_token_kl(p[0], q[0])
    )
    close([llm.group_advantages(p, 6)], [sp.compute_batch_group_advantages(p, 6)])
    options: Any = {"mask": p < q, "ddof": 1, "eps": 1e-4, "scale": "batch"}
    close(
        [llm.group_advantages(p, 6, **options)],
        [sp.compute_batch_group_advantages(p, 6, **options)],
    )
    with pytest.raises(ValueError, match="seq_len must divide"):
        llm.batch_token_kl(p, q, 5, "k1", None, None)


def test_polyak_moves_every_tensor() -> None:
    target = [torch.zeros(2), torch.zeros(3)]
    _polyak_of_tensors(target, [torch.ones(2), torch.ones(3)], 0.25)
    assert [x.tolist() for x in target] == [[0.25] * 2, [0.25] * 3]
    with pytest.raises(ValueError, match="source 0 must have shape"):
        _polyak_of_tensors(target, [torch.ones(3), torch.ones(3)], 0.25)
