"""Layers that are computed again in the backward pass: the same gradients, less in between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import sharpwave as sw
from sharpwave.nn import layers_of, recomputing
from tests.unit.llm.models import make


def gradients(model: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    found: Any = model(ids)
    getattr(found, "logits", found).log_softmax(-1)[..., 2].sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.long(but=["transformer"])
@pytest.mark.parametrize("kind", ["transformer", "plain", "Llama"])
def test_gradients_are_the_same(kind: str) -> None:
    model = make(kind)
    ids = torch.arange(30).reshape(3, 10) % 16
    wanted = gradients(model, ids)
    calls = []
    hook = layers_of(model)[0].register_forward_hook(lambda *_: calls.append(1))
    saved: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        gradients(model, ids)
    before, saved[:] = sum(saved), []
    with recomputing(model), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model(ids)
    assert sum(saved) < before / 2
    with recomputing(model):
        found = gradients(model, ids)
    hook.remove()
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], atol=1e-6, rtol=1e-6)
    assert "forward" not in vars(layers_of(model)[0])


def test_a_forward_of_ones_own_comes_back() -> None:
    model = make("transformer")
    layer = layers_of(model)[0]
    own = layer.forward
    layer.forward = own
    with recomputing(model):
        assert vars(layer)["forward"] is not own
    assert vars(layer)["forward"] is own


def test_a_model_without_layers_is_named() -> None:
    with pytest.raises(ValueError, match=r"gradient_checkpointing must be False for Linear"):
        recomputing(nn.Linear(2, 2)).__enter__()


@pytest.mark.long
def test_the_switch_of_layers_is_set_and_set_back() -> None:
    model = make("Llama")
    layer: Any = layers_of(model)[0]
    before = dict(vars(layer))
    with recomputing(model, by_switch=True):
        assert layer.gradient_checkpointing
    assert vars(layer) == before
    ids = torch.arange(30).reshape(3, 10) % 16
    wanted = gradients(model, ids)
    with recomputing(model.train(), by_switch=True):
        found = gradients(model, ids)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], atol=1e-6, rtol=1e-6)


@pytest.mark.long(but=["transformer"])
@pytest.mark.parametrize("kind", ["transformer", "Llama", "GPTNeoX"])
def test_learning_is_the_same(kind: str) -> None:
    pairs = [{"prompt": [3, 4, i], "chosen": [5, i], "rejected": [i, 6, 7]} for i in range(8, 14)]
    learned = []
    for option in (False, True):
        torch.manual_seed(0)
        model = make(kind)
        agent = sw.DPO(
            model, dataset=pairs, n_pairs=4, max_tokens=16, gradient_checkpointing=option, seed=0
        )
        agent.train(n_updates=2)
        learned.append([p.detach().clone() for p in model.parameters()])
    for one, other in zip(*learned, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
