"""Fifty updates of language models on sequences that nobody sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import sharpwave as sw
from sharpwave.llm import TokenBatch
from sharpwave.nn import Transformer
from tests.learning.trajectories import UPDATES, Trajectory

VOCABULARY = 12
SEQUENCES = 16
OPTIONS: dict[str, Any] = {"learning_rate": 1e-3, "weight_decay": 0.1, "max_tokens": 64}


def grpo(model: Any, **options: Any) -> Any:
    """GRPO; nothing is sampled, so nothing is scored."""
    return sw.GRPO(model, reward_fn=lambda completions, _: [0.0] * len(completions), **options)


CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "grpo": (
        partial(grpo, n_iterations=2, kl_coef=0.05, entropy_coef=0.01),
        ("loss", "kl", "entropy", "ratio", "clip_fraction", "grad_norm"),
    ),
    "dpo": (
        partial(sw.DPO, beta=0.2),
        ("loss", "accuracy", "reward_margin", "chosen_reward", "grad_norm"),
    ),
}


def trajectory(case: str) -> Trajectory:
    """The measurements of each of the updates.

    Args:
        case: One of `CASES`.
    """
    make, metrics = CASES[case]
    agent = make(Transformer(VOCABULARY, hidden=16, heads=2, seed=1), seed=1, **OPTIONS)
    rows = []
    for update, batch in enumerate(batches()):
        agent.learner.follow(1 - update / UPDATES)
        batch = agent.learner.referenced(batch)
        if case == "grpo":
            batch = batch.replace(old_log_probs=agent.learner._score(agent.model, batch))
        measured = agent.update(batch)
        rows.append({name: float(f"{float(measured[name]):.6g}") for name in metrics})
    return rows


def batches() -> Iterator[TokenBatch]:
    """Sequences with something to learn: completions that go on as their prompts do are better."""
    rng = np.random.default_rng(1)
    for _ in range(UPDATES):
        sequences, lengths, better = [], [], []
        for number in range(SEQUENCES):
            length = int(rng.integers(1, 4))
            first, step = rng.integers(VOCABULARY), 1 + rng.integers(3)
            prompt = (first + step * np.arange(length)) % VOCABULARY
            follows = number % 2 == 0  # of a pair, the first is preferred
            ahead = step * np.arange(length, length + int(rng.integers(1, 6)))
            completion = (first + ahead) % VOCABULARY
            if not follows:
                completion = rng.integers(VOCABULARY, size=len(completion))
            sequences.append(torch.from_numpy(np.concatenate([prompt, completion])))
            lengths.append(length)
            better.append(1.0 if follows else -1.0)
        yield TokenBatch.of_sequences(
            sequences, torch.tensor(lengths), advantages=torch.tensor(better)
        )
