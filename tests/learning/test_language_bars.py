"""Language models learn small tasks: a quick bar in the long tests, the others at night."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.learners.devices import torch_threads
from tests.learning.language import MODELS, TOKENIZER, Curve, agent_of, exact_share

SEEDS = (11, 12, 13)
"""Not those that settings were chosen with."""

slow = [pytest.mark.slow, pytest.mark.timeout(3600)]


def told(request: pytest.FixtureRequest, **found: Any) -> None:
    """Keep what was reached in the report of the tests."""
    for name, value in found.items():
        request.node.user_properties.append((name, value))


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_copying_is_learned_in_seconds(kind: str, request: pytest.FixtureRequest) -> None:
    curve = Curve("reward")
    agent = agent_of("copy4", MODELS[kind](11), 11)
    began = time.process_time()
    agent.train(n_updates=90, callbacks=curve)
    seconds = time.process_time() - began
    told(request, reward=curve.last(20), seconds=seconds)
    assert curve.last(20) >= 0.60
    assert seconds <= 12


@pytest.mark.parametrize("kind", MODELS)
class TestThreeSeeds:
    pytestmark = slow

    def test_copying_is_learned(self, kind: str, request: pytest.FixtureRequest) -> None:
        rewards, later, exact = [], [], []
        for seed in SEEDS:
            curve = Curve("reward")
            agent = agent_of("copy4", MODELS[kind](seed), seed)
            agent.train(n_updates=120, callbacks=curve)
            rewards.append(curve.last(20))
            agent.train(n_updates=80, callbacks=curve)
            later.append(curve.last(20))
            exact.append(exact_share(agent, "copy4"))
        told(request, rewards=rewards, later=later, exact=exact)
        assert sum(rewards) / 3 >= 0.80
        if kind == "llama":
            assert sum(share >= 0.95 for share in exact) >= 2
            assert sum(exact) / 3 >= 0.85
        else:  # one of four positions may take longer, by which exact shares are 1 or about 0.65
            assert sum(later) / 3 >= 0.85

    def test_even_digits_are_learned_in_twelve_updates(
        self, kind: str, request: pytest.FixtureRequest
    ) -> None:
        rewards = []
        for seed in SEEDS:
            curve = Curve("reward")
            model = MODELS[kind](seed, hidden=128, layers=4)
            agent = agent_of("even", model, seed, n_prompts=32, learning_rate=1e-3)
            agent.train(n_updates=12, callbacks=curve)
            rewards.append(curve.values[-1])
        told(request, rewards=rewards)
        assert sum(rewards) / 3 >= 0.75

    def test_sorting_is_learned(self, kind: str, request: pytest.FixtureRequest) -> None:
        greedy = greedy_rewards("sort3", kind, 300, request)
        assert sum(greedy) / 3 >= 0.80

    def test_preferences_are_learned(self, kind: str, request: pytest.FixtureRequest) -> None:
        accuracies, margins = [], []
        for seed in SEEDS:
            accuracy, margin = Curve("accuracy"), Curve("reward_margin")
            agent = sw.DPO(
                MODELS[kind](seed),
                dataset=sorting_pairs(60 * 64, seed),
                tokenizer=TOKENIZER,
                learning_rate=1e-3,
                n_pairs=64,
                seed=seed,
            )
            agent.train(n_updates=60, callbacks=[accuracy, margin])
            accuracies.append(accuracy.last(10))
            margins.append(margin.last(10))
        told(request, accuracies=accuracies, margins=margins)
        assert min(accuracies) >= 0.87
        assert min(margins) >= 0.45

    def test_preferences_improve_what_examples_taught(
        self, kind: str, request: pytest.FixtureRequest
    ) -> None:
        """A model that copies half of the prompts right copies more after preferences."""
        before, after = [], []
        for seed in SEEDS:
            model = MODELS[kind](seed)
            warm_up(model, seed)
            task = sw.llm.TASKS["copy4"]
            agent = sw.OnlineDPO(
                model,
                reward_fn=task.reward,
                prompts=task.prompts(20_000, seed),
                tokenizer=TOKENIZER,
                max_new_tokens=4,
                n_prompts=64,
                learning_rate=5e-4,
                seed=seed,
            )
            before.append(exact_share(agent, "copy4"))
            agent.train(n_updates=300)
            after.append(exact_share(agent, "copy4"))
        told(request, before=before, after=after)
        assert max(before) <= 0.65
        assert min(after) >= 0.70


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sums_are_learned(request: pytest.FixtureRequest) -> None:
    """Of most seeds: right answers are found by chance before they are learned from."""
    assert sorted(greedy_rewards("mod10", "llama", 400, request))[1] >= 0.85


def greedy_rewards(
    task: str, kind: str, n_updates: int, request: pytest.FixtureRequest
) -> list[float]:
    """The value of the most likely completions after so many updates, for each seed."""
    prompts = sw.llm.TASKS[task].prompts(256, seed=987_654)
    greedy = []
    for seed in SEEDS:
        agent = agent_of(task, MODELS[kind](seed), seed, learning_rate=1e-3)
        agent.train(n_updates=n_updates)
        greedy.append(agent.evaluate(prompts, greedy=True).mean)
    told(request, greedy=greedy)
    return greedy


def sorting_pairs(n: int, seed: int) -> list[dict[str, str]]:
    """Four digits sorted are preferred to other digits in their place."""
    rng = torch.Generator().manual_seed(seed)
    pairs: list[dict[str, str]] = []
    while len(pairs) < n:
        digits = torch.randint(10, (4,), generator=rng).tolist()
        order = torch.randperm(4, generator=rng).tolist()
        chosen = "".join(map(str, sorted(digits)))
        rejected = "".join(str(digits[i]) for i in order)
        if chosen != rejected:
            prompt = "".join(map(str, digits)) + "="
            pairs.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return pairs


def warm_up(model: Any, seed: int) -> None:
    """Fine-tune until half of the prompts are copied right."""
    task = sw.llm.TASKS["copy4"]
    assert task.answer is not None
    rows = [{"prompt": x, "completion": task.answer(x)} for x in task.prompts(20_000, seed)]
    agent = sw.SFT(
        model,
        learning_rate=1e-3,
        dataset=rows,
        tokenizer=TOKENIZER,
        n_examples=64,
        max_new_tokens=4,
        seed=seed,
    )
    for _ in range(100):
        agent.train(n_updates=5)
        if exact_share(agent, "copy4", 128) >= 0.45:
            return
    raise AssertionError("half of the prompts were never copied right")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_more_completions_have_a_better_best(request: pytest.FixtureRequest) -> None:
    """Means rise with n, as the maximum of so many rewards of plain samples does."""
    task, means = sw.llm.TASKS["copy4"], []
    prompts = task.prompts(512, seed=3)
    model = MODELS["transformer"](11)
    base = sw.BestOfN(model, task.reward, n=64, max_new_tokens=4, tokenizer=TOKENIZER, seed=1)
    rewards = base.sample(prompts).scores  # [512, 64]
    for n in (1, 2, 4, 8, 16):
        best = sw.BestOfN(model, task.reward, n=n, max_new_tokens=4, tokenizer=TOKENIZER, seed=2)
        reached = best.sample(prompts).scores.amax(1)
        expected = rewards.view(512, -1, n).amax(2).mean(1)
        sigma = float((reached.var() + expected.var()) / 512) ** 0.5
        means.append(float(reached.mean()))
        assert abs(means[-1] - float(expected.mean())) <= 3 * sigma
    told(request, means=means)
    assert means == sorted(means)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_many_updates(request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(11)  # rewards that cannot be learned go on to differ
    agent = sw.GRPO(
        MODELS["transformer"](11),
        reward_fn=lambda completions, _: rng.random(len(completions)).tolist(),
        prompts=[[1, 2, 3, 4], [5, 6]],
        group_size=4,
        n_prompts=4,
        max_new_tokens=4,
        seed=11,
    )
    held = []
    with torch_threads(1, [agent.model.module], 16):
        for _ in range(20):
            agent.train(n_updates=100)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            held.append(pages * os.sysconf("SC_PAGESIZE") / 2**20)
    told(request, held=held)
    assert agent.timesteps == 2000
    assert max(held[10:]) - held[4] <= 8  # MiB
