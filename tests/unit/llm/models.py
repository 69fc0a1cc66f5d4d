"""Small language models for tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sharpwave.nn.transformer import Transformer

VOCABULARY = 16


def spread(model: nn.Module, scale: float = 8.0) -> nn.Module:
    """The model with larger weights, so that its tokens are not all about as likely."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    return model


class Plain(nn.Module):
    """A module with `forward(ids) -> logits` and nothing else."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Any:
        """Logits."""
        return self.inner(ids)


def hugging_face(kind: str = "Llama", **options: Any) -> Any:
    """A causal model of Hugging Face with its first weights."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")(
        **{
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 128,
            "bos_token_id": None,
            "eos_token_id": 1,
            "pad_token_id": 0,
            **options,
        }
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    return spread(model.eval(), 4.0)


def make(kind: str) -> nn.Module:
    """A model of a kind: `transformer`, `plain`, or one of Hugging Face."""
    if kind == "transformer":
        return spread(Transformer(VOCABULARY, hidden=32, seed=1))
    if kind == "plain":
        return Plain(make("transformer"))
    return hugging_face(kind)  # type: ignore[no-any-return]
