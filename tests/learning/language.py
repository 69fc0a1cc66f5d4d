"""Language models of tests, and what they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import sharpwave as sw
from sharpwave.nn import Transformer

TOKENIZER = sw.llm.DigitTokenizer()
GRPO = {"n_prompts": 16, "group_size": 16, "learning_rate": 2e-3, "kl_coef": 0.0, "loss": "dapo"}
"""Options that all tasks are learned with."""


def llama(seed: int, *, hidden: int = 64, layers: int = 2) -> nn.Module:
    """A Llama with its first weights, of 83,520 parameters unless told otherwise."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        vocab_size=TOKENIZER.vocab_size,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=TOKENIZER.eos_token_id,
        pad_token_id=TOKENIZER.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model.eval()


def transformer(seed: int, **sizes: int) -> nn.Module:
    """The library's own transformer, of about as many parameters."""
    return Transformer(TOKENIZER.vocab_size, seed=seed, **sizes)


MODELS: dict[str, Any] = {"llama": llama, "transformer": transformer}


def agent_of(task: str, model: nn.Module, seed: int, **options: Any) -> Any:
    """GRPO on a task."""
    found = sw.llm.TASKS[task]
    return sw.GRPO(
        model,
        reward_fn=found.reward,
        prompts=found.prompts(20_000, seed),
        tokenizer=TOKENIZER,
        seed=seed,
        **{**GRPO, "max_new_tokens": found.n_tokens, **options},
    )


class Curve(sw.Callback):
    """A metric of every update."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[float] = []

    def on_train_batch(self, **metrics: Any) -> None:
        """Keeps it."""
        self.values.append(float(metrics[self.name]))

    def last(self, n: int) -> float:
        """Mean of the last updates."""
        return sum(self.values[-n:]) / len(self.values[-n:])


def exact_share(agent: Any, task: str, n: int = 256) -> float:
    """The number of prompts unseen in training that the most likely completion answers right."""
    found = sw.llm.TASKS[task]
    assert found.answer is not None
    prompts = found.prompts(n, seed=987_654)
    written: list[str] = agent.predict(prompts)
    return sum(a == found.answer(p) for p, a in zip(prompts, written, strict=True)) / n
