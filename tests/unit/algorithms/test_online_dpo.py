"""Online DPO: pairs out of what the model writes, and the rule of DPO on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.algorithms.online_dpo import OnlineDPO, OnlineDPOLearner
from sharpwave.llm import (
    TASKS,
    CausalModel,
    Completions,
    DigitTokenizer,
    RewardFailed,
    Sampler,
    Scored,
)
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face

TASK = TASKS["copy4"]
OPTIONS: dict[str, Any] = {"max_new_tokens": 4, "n_prompts": 6, "learning_rate": 2e-3, "seed": 3}
PROMPTS = torch.randint(10, (8, 3), generator=torch.Generator().manual_seed(0))


def higher(pairs: list[tuple[Tensor, Tensor]]) -> list[int]:
    return [int(other.sum() > one.sum()) for one, other in pairs]


def sevens(pairs: list[tuple[Tensor, Tensor]]) -> list[int | None]:
    counts = [((one[3:] == 7).sum(), (other[3:] == 7).sum()) for one, other in pairs]
    return [None if one == other else int(other > one) for one, other in counts]


KINDS: dict[str, dict[str, Any]] = {
    "preferences": {"preference_fn": higher, "prompts": PROMPTS},
    "rewards": {
        "reward_fn": TASK.reward,
        "prompts": TASK.prompts(20),
        "tokenizer": DigitTokenizer(),
        "loss": "simpo",
    },
}


def transformer(seed: int = 0) -> Transformer:
    model = Transformer(14, hidden=32, seed=seed)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, kind: str = "preferences", **options: Any) -> OnlineDPO:
    return OnlineDPO(model or transformer(), **{**OPTIONS, **KINDS[kind], **options})


def weights(one: OnlineDPO) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in one.model.module.parameters()]


def same(one: OnlineDPO, other: OnlineDPO) -> bool:
    return all(map(torch.equal, weights(one), weights(other)))


@pytest.mark.long(but=["preferences"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    """`train` equals a loop of one's own, and a checkpoint goes on with it."""
    whole, own, first = (agent(kind=kind) for _ in range(3))
    metrics = whole.train(n_updates=4)
    prompts = own.loop.prompts
    assert prompts is not None
    for update in range(4):
        own.update(own.rollout(prompts.select(prompts.rows(6 * update, 6, seed=3))))
    assert same(whole, own)
    first.train(n_updates=2)
    first.save(tmp_path / "two")
    given = {x: KINDS[kind][x] for x in KINDS[kind] if x != "loss"}
    second = OnlineDPO.from_checkpoint(tmp_path / "two", model=transformer(seed=9), **given)
    again = second.train(n_updates=2)
    assert same(whole, second)
    name = "mean_accuracy" if kind == "preferences" else "mean_reward"
    assert again[name] == pytest.approx(metrics[name])
    assert ("reward" in metrics) == (kind == "rewards")


def written(*rows: list[int]) -> Completions:
    lengths = torch.tensor([0, *map(len, rows)])
    tokens = torch.tensor([token for row in rows for token in row])
    zeros = torch.zeros(len(tokens))
    return Completions(
        [torch.tensor([1, 2]), torch.tensor([3])] * 3,
        torch.arange(len(rows)) // 2,
        tokens,
        lengths.cumsum(0),
        zeros,
        zeros,
        torch.ones(len(rows), dtype=torch.bool),
    )


def test_ties_unscored_and_equal_completions_say_nothing() -> None:
    learner = agent().learner
    rows = [[4, 5], [6], [7], [8, 9], [5], [6], [5], [6], [5], [5]]
    rewards = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, 0.5, math.nan, 1.0, 1.0, 0.0])
    batch, metrics = learner.batch(written(*rows), Scored(rewards, {}))
    found = [x.tolist() for x in batch.tokens.split(batch.lengths.tolist())]
    assert found == [[1, 2, 4, 5], [1, 2, 6], [3, 8, 9], [3, 7]]  # the better one first
    assert metrics["dropped_fraction"].item() == pytest.approx(3 / 5)


@pytest.mark.parametrize("preference", [None, 0])
def test_where_all_pairs_are_dropped_nothing_moves(preference: int | None) -> None:
    """Nothing is preferred, or the model writes the same twice."""
    model = CausalModel.of(transformer())
    sampler = None if preference is None else Sampler(model, temperature=0)
    one = agent(model, preference_fn=lambda pairs: [preference] * len(pairs), sampler=sampler)
    before = weights(one)
    told = [one.train_step(PROMPTS), one.train(n_updates=2)]
    for metrics in told:
        assert metrics["dropped_fraction"] == 1
        assert metrics["loss"] == metrics["grad_norm"] == 0
        assert not any(math.isnan(value) for value in metrics.values())
    assert all(map(torch.equal, before, weights(one)))
    unscored = agent(kind="rewards", reward_fn=lambda completions, **_: [None] * len(completions))
    metrics = unscored.train(n_updates=1)
    assert metrics["loss"] == 0
    assert "mean_reward" not in metrics


def test_what_is_compared_has_the_prompt_first() -> None:
    told: list[tuple[Tensor, Tensor]] = []

    def watch(pairs: list[tuple[Tensor, Tensor]]) -> list[int]:
        told.extend(pairs)
        return [1] * len(pairs)

    one = OnlineDPO(transformer(), None, watch, 0.5, 1e-3, 5, seed=1)
    assert (one.config.beta, one.config.learning_rate, one.config.max_new_tokens) == (0.5, 1e-3, 5)
    batch = one.rollout(PROMPTS)
    assert len(told) == 8
    for (first, second), prompt in zip(told, PROMPTS, strict=True):
        assert first.shape == second.shape == (8,)
        assert torch.equal(first[:3], prompt)
    assert torch.equal(batch.tokens[:8], told[0][1])
    assert torch.equal(batch.tokens[8:16], told[0][0])


def test_an_override_is_what_learns() -> None:
    class Nothing(OnlineDPOLearner):
        def loss(self, part: Any, n_pairs: int) -> Any:
            return super().loss(part, n_pairs)[0] * 0, {}

    one = agent(learner=Nothing)
    before = weights(one)
    one.train(n_updates=2)
    assert all(map(torch.equal, before, weights(one)))


@pytest.mark.long
def test_a_tiny_model_learns_what_is_preferred() -> None:
    """One token in 14 is a seven at first; most are after 60 updates."""
    one = OnlineDPO(Transformer(14, seed=1), None, sevens, 0.1, 3e-3, 5, n_prompts=32, seed=1)
    prompts = torch.randint(10, (200, 3), generator=torch.Generator().manual_seed(0))
    one.train(prompts, n_updates=60)
    share = torch.stack(one.predict(prompts[:50], greedy=False)).eq(7).float().mean()
    assert share > 0.6
    wins = one.evaluate(prompts[:50])
    assert wins.mean > 0.9
    assert len(one.evaluate_in_run(7).returns) <= 7


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_adapters_are_compared_with_the_model_without_them() -> None:
    peft = pytest.importorskip("peft")
    module = hugging_face(vocab_size=14, eos_token_id=13)
    module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    one = agent(module, learning_rate=1e-2)
    assert one.train(n_updates=3)["grad_norm"] > 0
    assert one.evaluate(n=4).returns


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match="either preference_fn or reward_fn must be given, got nei"):
        OnlineDPO(transformer())
    with pytest.raises(TypeError, match="got both"):
        OnlineDPO(transformer(), None, higher, reward_fn=higher)
    with pytest.raises(TypeError, match="preference_fn must be callable, got 3"):
        OnlineDPO(transformer(), None, 3)
    with pytest.raises(ValueError, match="prompts must be given"):
        agent(prompts=None).train(n_updates=1)
    with pytest.raises(ValueError, match="loss must have a reference to compare with"):
        agent(loss="simpo").evaluate()
    wrong = {
        "a number for each of 8 pairs, got 1": lambda _: [1],
        "0, 1 or None, got 2 in row 0": lambda pairs: [2] * len(pairs),
        "raised ZeroDivisionError": lambda _: 1 / 0,
    }
    for message, function in wrong.items():
        with pytest.raises(RewardFailed, match=message):
            agent(preference_fn=function).train_step(PROMPTS)
