from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.kernels.log_probs import linear_log_probs, selected_log_probs

TOLERANCES: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


def exactly(logits: torch.Tensor, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
    found = torch.log_softmax(logits / temperature, 1).gather(1, tokens.clamp(min=0)[:, None])
    return torch.where(tokens >= 0, found[:, 0], 0.0)


@dtypes
@pytest.mark.parametrize(("n_rows", "n_vocab"), [(3, 5), (7, 4097), (2, 20_000)])
@pytest.mark.parametrize("in_place", [False, True])
def test_selected_log_probs_and_their_gradient(
    dtype: torch.dtype, n_rows: int, n_vocab: int, in_place: bool, device: torch.device
) -> None:
    logits = (torch.randn(n_rows, n_vocab) * 3).to(dtype)
    logits[0, 1] = -torch.inf
    tokens = torch.randint(2, n_vocab, (n_rows,))
    tokens[-1] = -100
    gradients = torch.randn(n_rows)
    exact = logits.double().requires_grad_()
    wanted = exactly(exact, tokens, 0.7)
    wanted.backward(gradients.double())
    leaf = logits.to(device).requires_grad_()
    found = selected_log_probs(leaf, tokens.to(device), temperature=0.7, in_place=in_place)
    found.backward(gradients.to(device))
    assert found.dtype == torch.float32
    assert leaf.grad is not None
    assert exact.grad is not None
    np.testing.assert_allclose(found.detach().cpu(), wanted.detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(leaf.grad.float().cpu(), exact.grad, **TOLERANCES[dtype])
    assert not leaf.grad[-1].any()


@dtypes
def test_linear_log_probs_and_their_gradients(dtype: torch.dtype, device: torch.device) -> None:
    hidden, weight = torch.randn(6, 16).to(dtype), (torch.randn(700, 16) / 4).to(dtype)
    tokens = torch.randint(0, 700, (6,))
    tokens[2] = -1
    gradients = torch.randn(6)
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    wanted = exactly(exact[0] @ exact[1].T, tokens, 1.3)
    wanted.backward(gradients.double())
    leaves = [x.to(device).requires_grad_() for x in (hidden, weight)]
    found = linear_log_probs(leaves[0], leaves[1], tokens.to(device), temperature=1.3, slice_size=1)
    found.backward(gradients.to(device))
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(found.detach().cpu(), wanted.detach(), **tolerance)
    for leaf, correct in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        assert correct.grad is not None
        np.testing.assert_allclose(leaf.grad.float().cpu(), correct.grad, **tolerance)


def test_leading_axes_stay(device: torch.device) -> None:
    logits, tokens = torch.zeros(2, 3, 4, device=device), torch.zeros(2, 3, device=device).long()
    assert selected_log_probs(logits, tokens).shape == (2, 3)
    assert linear_log_probs(logits, torch.zeros(9, 4, device=device), tokens).shape == (2, 3)


def test_arguments_that_do_not_fit_raise(device: torch.device) -> None:
    logits, tokens = torch.zeros(2, 4, device=device), torch.zeros(2, device=device).long()
    with pytest.raises(ValueError, match=r"tokens must be int64 of shape \(2,\)"):
        selected_log_probs(logits, tokens[:1])
    with pytest.raises(ValueError, match="temperature must be positive"):
        selected_log_probs(logits, tokens, temperature=0.0)
    with pytest.raises(ValueError, match=r"weight must be torch.float32 of shape \[V, 4\]"):
        linear_log_probs(logits, torch.zeros(9, 5, device=device), tokens)
