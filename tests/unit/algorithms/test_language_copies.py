"""Language agents are copied and pickled like all others, and go on as the original would."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.llm import TASKS, DigitTokenizer
from sharpwave.nn import Transformer

TASK = TASKS["copy4"]
TEXTS = TASK.prompts(24)
GIVEN: dict[str, Any] = {"tokenizer": DigitTokenizer(), "learning_rate": 1e-3, "seed": 3}


def first_is_higher(pairs: Any) -> list[int]:
    return [int(two.sum() > one.sum()) for one, two in pairs]


def model() -> Transformer:
    return Transformer(14, hidden=16, heads=2, layers=1)


AGENTS: dict[str, Callable[[], Any]] = {
    "grpo": lambda: sw.GRPO(model(), reward_fn=TASK.reward, prompts=TEXTS, n_prompts=4, **GIVEN),
    "dpo": lambda: sw.DPO(
        model(),
        dataset=[{"prompt": x, "chosen": x[:4], "rejected": x[3::-1] + "0"} for x in TEXTS],
        n_pairs=4,
        **GIVEN,
    ),
    "online_dpo": lambda: sw.OnlineDPO(
        model(), preference_fn=first_is_higher, prompts=TEXTS, n_prompts=4, **GIVEN
    ),
    "online_dpo_rewards": lambda: sw.OnlineDPO(
        model(), reward_fn=TASK.reward, prompts=TEXTS, n_prompts=4, **GIVEN
    ),
    "kto": lambda: sw.KTO(
        model(),
        dataset=[{"prompt": x, "completion": x[:4], "label": x > "5"} for x in TEXTS],
        **GIVEN,
    ),
    "sft": lambda: sw.SFT(
        model(), dataset=[{"prompt": x, "completion": x[:4]} for x in TEXTS], **GIVEN
    ),
}


def weights(agent: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in agent.model.module.parameters()])


@pytest.mark.long(but=["grpo"])
@pytest.mark.parametrize("name", AGENTS)
def test_a_copy_goes_on_as_the_original_would(name: str) -> None:
    agent = AGENTS[name]()
    agent.train(n_updates=2)
    copies = [copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
    before = weights(agent)
    agent.train(n_updates=2)
    assert not torch.equal(before, weights(agent))
    for one in copies:
        assert torch.equal(weights(one), before)
        assert one.timesteps == 2
        one.train(n_updates=2)
        assert torch.equal(weights(one), weights(agent))


def test_what_cannot_be_pickled_is_named() -> None:
    agent = sw.GRPO(model(), reward_fn=lambda completions, **_: [0.0] * len(completions), **GIVEN)
    with pytest.raises(TypeError, match="reward_fn of the agent cannot be pickled"):
        pickle.dumps(agent)
