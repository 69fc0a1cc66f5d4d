from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.primitives import backend
from sharpwave.primitives.log_probs import plain as plain
from sharpwave.primitives.log_probs.tensors import linear_log_probs, selected_log_probs

TOLERANCES: dict[torch.dtype, Any] = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
entropies = pytest.mark.parametrize("entropy", [False, True], ids=["alone", "entropy"])


def exactly(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies by the book, in the dtype of the logits."""
    known = (tokens >= 0) & (tokens < logits.shape[1])
    all_of_them = torch.log_softmax(logits / temperature, 1)
    found = all_of_them.gather(1, torch.where(known, tokens, 0)[:, None])[:, 0]
    probabilities = all_of_them.exp()
    possible = torch.where(probabilities == 0, 0.0, all_of_them)
    entropy = -(probabilities * possible).sum(1)
    return torch.where(known, found, 0.0), torch.where(known, entropy, 0.0)


def assert_equal_with_gradients(
    found: Any, leaves: list[torch.Tensor], wanted: Any, exact: list[torch.Tensor], tolerance: Any
) -> None:
    """Compare results, and what arbitrary gradients of them become."""
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted[: len(found)]
    gradients = [torch.randn(x.shape, dtype=torch.float64) for x in found]
    torch.autograd.backward(found, [g.to(x) for g, x in zip(gradients, found, strict=True)])
    torch.autograd.backward(wanted, gradients)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.detach().cpu(), theirs.detach(), **tolerance)
    for leaf, correct in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        assert correct.grad is not None
        np.testing.assert_allclose(leaf.grad.double().cpu(), correct.grad, **tolerance)


@dtypes
@entropies
@pytest.mark.parametrize(("n_rows", "n_vocab"), [(3, 5), (7, 4097), (2, 20_000)])
@pytest.mark.parametrize("in_place", [False, True])
def test_selected_log_probs_and_their_gradient(
    dtype: torch.dtype,
    n_rows: int,
    n_vocab: int,
    in_place: bool,
    entropy: bool,
    device: torch.device,
) -> None:
    logits = (torch.randn(n_rows, n_vocab) * 3).to(dtype)
    logits[0, 1] = -torch.inf
    tokens = torch.randint(2, n_vocab, (n_rows,))
    tokens[-1] = -100
    exact = logits.clone().double().requires_grad_()
    leaf = logits.to(device).requires_grad_()
    options: Any = {"temperature": 0.7, "in_place": in_place, "entropy": entropy}
    found: Any = selected_log_probs(leaf, tokens.to(device), **options)
    wanted = exactly(exact, tokens, 0.7)
    for ours in found if entropy else (found,):
        assert ours.dtype == (dtype if dtype == torch.float64 else torch.float32)
        assert ours[-1] == 0
    assert_equal_with_gradients(found, [leaf], wanted, [exact], TOLERANCES[dtype])
    assert leaf.grad is not None
    assert not leaf.grad[-1].any()


@dtypes
@entropies
def test_linear_log_probs_and_their_gradients(
    dtype: torch.dtype, entropy: bool, device: torch.device
) -> None:
    hidden, weight = torch.randn(6, 16).to(dtype), (torch.randn(700, 16) / 4).to(dtype)
    tokens = torch.randint(0, 700, (6,))
    tokens[2] = -1
    exact = [x.clone().double().requires_grad_() for x in (hidden, weight)]
    leaves = [x.to(device).requires_grad_() for x in (hidden, weight)]
    options: Any = {"temperature": 1.3, "slice_size": 1, "entropy": entropy}
    found = linear_log_probs(leaves[0], leaves[1], tokens.to(device), **options)
    wanted = exactly(exact[0] @ exact[1].T, tokens, 1.3)
    assert_equal_with_gradients(found, leaves, wanted, exact, TOLERANCES[dtype])


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_needs_no_gradient_gets_none(frozen: str, device: torch.device) -> None:
    given: dict[str, Any] = {"hidden": torch.randn(4, 8), "weight": torch.randn(300, 8)}
    exact = {k: x.double().requires_grad_(k != frozen) for k, x in given.items()}
    leaves = {k: x.to(device).requires_grad_(k != frozen) for k, x in given.items()}
    tokens = torch.tensor([0, 299, 255, 256])  # on both sides of where slices meet
    (other,) = given.keys() - {frozen}
    found = linear_log_probs(
        leaves["hidden"], leaves["weight"], tokens.to(device), slice_size=1, entropy=True
    )
    wanted = exactly(exact["hidden"] @ exact["weight"].T, tokens, 1.0)
    tolerance = TOLERANCES[torch.float32]
    assert_equal_with_gradients(found, [leaves[other]], wanted, [exact[other]], tolerance)
    assert leaves[frozen].grad is None


@pytest.mark.long
@pytest.mark.skipif(backend.INTERPRETED, reason="Triton takes no float64")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_numerical_derivatives_agree(temperature: float, device: torch.device) -> None:
    tokens = torch.tensor([2, -100, 0], device=device)
    options: Any = {"temperature": temperature, "entropy": True}
    logits = torch.randn(3, 5, dtype=torch.float64, device=device).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: selected_log_probs(x, tokens, **options), logits)
    hidden = torch.randn(3, 2, dtype=torch.float64, device=device).requires_grad_()
    weight = torch.randn(300, 2, dtype=torch.float64, device=device).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, w: linear_log_probs(h, w, tokens, slice_size=1, **options), (hidden, weight)
    )


def test_impossible_tokens_leave_no_nan(device: torch.device) -> None:
    """Most of a vocabulary is masked in constrained decoding."""
    logits = torch.full((5, 3000), -torch.inf)
    logits[0, 2999] = 4.0  # one token is sure
    logits[1, 5:7] = -7.0
    logits[2] = torch.randn(3000)
    logits[2, ::2] = -torch.inf
    tokens = torch.tensor([2999, 6, 1, -100, 3000])  # the last rows have no token at all
    exact = logits.double()[:3].requires_grad_()
    wanted = [torch.cat((x, x.new_zeros(2))) for x in exactly(exact, tokens[:3], 2.0)]
    leaf = logits.to(device).requires_grad_()
    found = selected_log_probs(leaf, tokens.to(device), temperature=2.0, entropy=True)
    assert found[1][0] == 0
    assert found[1][1].item() == pytest.approx(np.log(2))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.detach().cpu(), theirs.detach(), rtol=1e-5, atol=1e-6)
    (found[0].sum() + 3 * found[1].sum()).backward()
    (wanted[0].sum() + 3 * wanted[1].sum()).backward()
    assert leaf.grad is not None
    assert exact.grad is not None
    np.testing.assert_allclose(leaf.grad[:3].cpu(), exact.grad, rtol=1e-4, atol=1e-6)
    assert not leaf.grad[3:].any()


def test_slices_without_a_possible_token_are_passed_over(device: torch.device) -> None:
    weight = torch.full((1024, 1), -torch.inf)
    weight[600:700] = torch.randn(100, 1)  # in the third of four slices
    hidden, tokens = torch.ones(2, 1), torch.tensor([650, 699])
    found = linear_log_probs(
        hidden.to(device), weight.to(device), tokens.to(device), slice_size=1, entropy=True
    )
    wanted = exactly((hidden @ weight.T).double(), tokens, 1.0)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.cpu(), theirs, rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_entropies_keep_their_digits_beside_large_logits(
    offset: float, device: torch.device
) -> None:
    shape = torch.tensor([[0.0, 1.0, 2.0, 4.0]])
    tokens = torch.zeros(1, dtype=torch.int64)
    _, found = selected_log_probs((shape + offset).to(device), tokens.to(device), entropy=True)
    _, wanted = exactly(shape.double(), tokens, 1.0)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_vocabulary_of_one_token_is_sure(device: torch.device) -> None:
    logits = torch.randn(4, 1, device=device, requires_grad=True)
    tokens = torch.tensor([0, 0, 1, -1], device=device)
    for found in (
        selected_log_probs(logits, tokens, entropy=True),
        linear_log_probs(logits, torch.ones(1, 1, device=device), tokens, entropy=True),
    ):
        assert not found[0].any()
        assert not found[1].any()
        logits.grad = None
        (found[0].sum() + found[1].sum()).backward()
        assert logits.grad is not None
        assert (logits.grad.abs() < 1e-6).all()  # type: ignore[unreachable]


@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
def test_no_rows_give_no_results(shape: tuple[int, ...], device: torch.device) -> None:
    tokens = torch.zeros(shape, dtype=torch.int64, device=device)
    logits = torch.zeros(*shape, 7, device=device, requires_grad=True)
    weight = torch.randn(9, 7, device=device, requires_grad=True)
    for found in (
        selected_log_probs(logits, tokens, entropy=True),
        linear_log_probs(logits, weight, tokens, entropy=True),
    ):
        assert [x.shape for x in found] == [shape, shape]
        (found[0].sum() + found[1].sum()).backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def in_strange_layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype, device=x.device)
    wide[..., ::2] = x
    return {
        "transposed": x.transpose(0, 1).contiguous().transpose(0, 1),
        "columns": x.transpose(0, -1).contiguous().transpose(0, -1),
        "every other": wide[..., ::2],
    }


@pytest.mark.parametrize("layout", ["transposed", "columns", "every other"])
def test_strides_do_not_matter(layout: str, device: torch.device) -> None:
    logits, weight = torch.randn(3, 4, 16, device=device), torch.randn(300, 16, device=device)
    tokens = torch.randint(0, 16, (4, 3), device=device).T
    usual = [x.clone().requires_grad_() for x in (logits, weight)]
    strange = [in_strange_layouts(x)[layout].requires_grad_() for x in (logits, weight[None])]
    for leaves in (usual, strange):
        head = leaves[1].reshape(300, 16)
        options: Any = {"entropy": True, "temperature": 1.1}
        results = [
            *selected_log_probs(leaves[0], tokens, **options),
            *linear_log_probs(leaves[0], head, tokens, slice_size=1, **options),
        ]
        sum((n * x).sum() for n, x in enumerate(results, 1)).backward()
    for a, b in zip(usual, strange, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        np.testing.assert_allclose(a.grad.cpu(), b.grad.view_as(a).cpu(), rtol=1e-4, atol=1e-4)


def test_in_place_gradients_of_rows_that_share_their_memory(device: torch.device) -> None:
    row = torch.randn(1, 9, device=device)
    tokens = torch.tensor([3, 4, 5], device=device)
    gradients = []
    for in_place in (False, True):
        leaf = row.clone().requires_grad_()
        selected_log_probs(leaf.expand(3, 9), tokens, in_place=in_place).sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.cpu())
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


def test_the_backward_pass_in_place_runs_once_and_leaves_the_gradient(
    device: torch.device,
) -> None:
    leaf = torch.randn(3, 9, device=device, requires_grad=True)
    logits = leaf * 1
    found = selected_log_probs(logits, torch.tensor([3, 4, 5], device=device), in_place=True)
    found.sum().backward(retain_graph=True)
    assert leaf.grad is not None
    assert torch.equal(logits.detach(), leaf.grad)
    with pytest.raises(RuntimeError, match="the backward pass runs only once"):
        found.sum().backward()


def test_only_entropies_are_asked_for(device: torch.device) -> None:
    """Gradients flow where one of the results is not used."""
    logits = torch.randn(3, 50)
    tokens = torch.tensor([3, -1, 5])
    for which in (0, 1):
        exact = logits.double().requires_grad_()
        leaf = logits.clone().to(device).requires_grad_()
        selected_log_probs(leaf, tokens.to(device), entropy=True)[which].sum().backward()
        exactly(exact, tokens, 1.0)[which].sum().backward()
        assert leaf.grad is not None
        assert exact.grad is not None
        np.testing.assert_allclose(leaf.grad.cpu(), exact.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(backend.INTERPRETED, reason="plain torch has the blocks")
def test_blocks_of_rows_join(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, tokens = torch.randn(11, 7), torch.randint(-1, 8, (11,))
    whole = selected_log_probs(logits, tokens, entropy=True)
    monkeypatch.setattr(plain, "CPU_BLOCK", 20)
    for a, b in zip(whole, selected_log_probs(logits, tokens, entropy=True), strict=True):
        assert torch.equal(a, b)


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
    with pytest.raises(ValueError, match=r"logits must have a token at least, got shape \(2, 0\)"):
        selected_log_probs(logits[:, :0], tokens)
    with pytest.raises(ValueError, match=r"weight must have a token at least, got shape \(0, 4\)"):
        linear_log_probs(logits, torch.zeros(0, 4, device=device), tokens)
