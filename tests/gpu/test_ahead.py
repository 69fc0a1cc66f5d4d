"""Rollouts ahead of the learner on a CUDA device: in a stream of their own, by settled weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from sharpwave.llm import Follower, Sampler
from tests.unit.llm.models import hugging_face
from tests.unit.loops.test_ahead import agent

PROMPTS = [[1, 2, 3], [4, 5], [6] * 7] * 8


def model() -> Any:
    torch.manual_seed(3)
    return hugging_face(hidden_size=64).cuda()


def test_a_follower_draws_what_its_sampler_drew() -> None:
    policy = model()
    sampler = Sampler(policy, seed=1)
    wanted = sampler.generate(PROMPTS, 4, 20)
    follower = Follower(sampler)
    follower.take(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(-1)  # while the copy has its weights
    found = follower.generate(PROMPTS, 4, 20)
    assert torch.equal(found.tokens, wanted.tokens)
    assert found.tokens.device == wanted.tokens.device
    assert found.version == 1


@pytest.mark.parametrize("staleness", [1, 2])
def test_batches_are_written_by_the_weights_they_should_be(staleness: int) -> None:
    policy = model()
    one = agent(
        policy,
        max_staleness=staleness,
        max_new_tokens=24,
        n_prompts=8,
        prompts=PROMPTS,
        reward_fn=lambda completions, _: [float(x.sum() % 7) for x in completions],
        tokenizer=None,
    )
    one.train(n_updates=6)
    learner: Any = one.learner
    assert [batch.version for batch in learner.batches] == [max(0, u - staleness) for u in range(6)]
    for batch in learner.batches:
        policy.load_state_dict(learner.before[batch.version])
        scored = learner._score(learner.model, batch)
        torch.testing.assert_close(scored, batch.old_log_probs, atol=2e-3, rtol=2e-3)
