"""A pass that does not fit into memory is cut once, and then the error says what would fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.llm import TokenBatch
from sharpwave.nn import Transformer

PROMPTS = [[1, 2, 3]] * 4


class Hungry(sw.GRPOLearner):
    """A learner on a device with little memory."""

    room = 0

    def loss(self, part: TokenBatch, totals: Any) -> Any:
        if len(part.tokens) > self.room:
            raise torch.OutOfMemoryError(f"tried to allocate {len(part.tokens)} tokens")
        return super().loss(part, totals)


def agent(room: int, max_tokens: int) -> sw.GRPO:
    def reward(completions: Any, prompts: Any) -> list[float]:
        return [float(one.sum()) for one in completions]

    learner = type("Hungry", (Hungry,), {"room": room})
    return sw.GRPO(
        Transformer(14, hidden=16, heads=2, layers=1, seed=1), reward_fn=reward, prompts=PROMPTS,
        n_prompts=4, max_new_tokens=5, max_tokens=max_tokens, learner=learner, seed=2,
    )  # fmt: skip


def weights(one: sw.GRPO) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in one.model.module.parameters()])


def test_passes_are_halved_once_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    one, wanted = agent(room=70, max_tokens=128), agent(room=70, max_tokens=64)
    one.train(n_updates=3)
    wanted.train(n_updates=3)
    said = capsys.readouterr().err
    assert said.count("a pass of 128 tokens does not fit into memory: max_tokens is 64 now") == 1
    assert torch.equal(weights(one), weights(wanted))
    assert one.learner.updates == 3


def test_what_does_not_fit_even_so_is_named() -> None:
    one = agent(room=10, max_tokens=128)
    before = weights(one)
    with pytest.raises(
        MemoryError, match=r"smaller than 64, .* weights and moments take 0\.\d+ GiB"
    ):
        one.train(n_updates=1)
    assert torch.equal(before, weights(one))
