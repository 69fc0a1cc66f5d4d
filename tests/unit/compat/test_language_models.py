"""The language-model classes of rlox: their names, arguments, defaults, and what they give."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sharpwave.compat.rlox as rlox
from sharpwave.compat.rlox.algorithms.best_of_n import BestOfN
from sharpwave.compat.rlox.algorithms.dpo import DPO
from sharpwave.compat.rlox.algorithms.grpo import GRPO
from sharpwave.compat.rlox.algorithms.online_dpo import OnlineDPO

PROMPTS = torch.tensor([[1, 2], [3, 4], [5, 6]])


class TinyModel(nn.Module):
    """A language model as programs for rlox write it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(8, 16), nn.Linear(16, 8)
        self.generated = 0

    def forward(self, input_ids: Tensor) -> Any:
        return self.head(self.embedding(input_ids))

    def generate(self, prompt_ids: Tensor, max_new_tokens: int) -> Tensor:
        self.generated += 1
        for _ in range(max_new_tokens):
            probs = self(prompt_ids)[:, -1].softmax(-1)
            prompt_ids = torch.cat([prompt_ids, torch.multinomial(probs, 1)], 1)
        return prompt_ids


def sevens(completions: list[Tensor], prompts: Tensor) -> list[float]:
    assert prompts.shape[0] == len(completions)
    return [float((one[prompts.shape[1] :] == 7).float().mean()) for one in completions]


@pytest.mark.parametrize(
    ("kind", "names", "defaults"),
    [
        (
            GRPO,
            "model ref_model reward_fn group_size learning_rate kl_coef max_new_tokens callbacks"
            " logger",
            {"group_size": 4, "learning_rate": 1e-4, "kl_coef": 0.1, "max_new_tokens": 8},
        ),
        (
            DPO,
            "model ref_model beta learning_rate callbacks logger",
            {"beta": 0.1, "learning_rate": 1e-4},
        ),
        (
            OnlineDPO,
            "model ref_model preference_fn beta learning_rate max_new_tokens",
            {"beta": 0.1, "learning_rate": 1e-4, "max_new_tokens": 8},
        ),
        (BestOfN, "model reward_fn n max_new_tokens", {"n": 4, "max_new_tokens": 8}),
    ],
)
def test_arguments_have_their_order_and_defaults(
    kind: Any, names: str, defaults: dict[str, Any]
) -> None:
    plain = kind.__mro__[1]  # whose signature programs see by name
    parameters = inspect.signature(plain).parameters
    assert " ".join(parameters).startswith(names)
    assert {name: parameters[name].default for name in defaults} == defaults


def test_names_are_found_where_rlox_has_them() -> None:
    assert rlox.algorithms.GRPO is GRPO
    assert rlox.algorithms.grpo.GRPO is GRPO
    assert rlox.algorithms.online_dpo.OnlineDPO is OnlineDPO
    assert rlox.algorithms.DPO is DPO
    assert rlox.algorithms.BestOfN is BestOfN


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:10 updates in a row")  # all is learned before the end
def test_grpo_learns_by_the_generate_of_the_model(tmp_path: Path) -> None:
    model = TinyModel()
    reference = copy.deepcopy(model)
    trainer = GRPO(model, reference, sevens, 8, 5e-2, 0.01, 4)
    metrics = trainer.train_step(PROMPTS)
    assert {"loss", "mean_reward", "kl"} <= metrics.keys()
    assert model.generated == 1
    learned = trainer.train(PROMPTS.repeat(8, 1), n_epochs=40)
    assert model.generated == 41
    assert learned["mean_reward"] > metrics["mean_reward"]
    assert trainer.evaluate(PROMPTS.repeat(8, 1)) > 0.8
    trainer.save(str(tmp_path / "grpo"))
    assert all(map(torch.equal, reference.parameters(), TinyModel().parameters()))


def test_without_a_weight_there_is_no_divergence() -> None:
    assert GRPO(TinyModel(), None, sevens, kl_coef=0.0).train_step(PROMPTS)["kl"] == 0.0


@pytest.mark.long
def test_dpo_prefers_the_chosen() -> None:
    model = TinyModel()
    trainer = DPO(model, copy.deepcopy(model), 0.5, 1e-2)
    chosen, rejected = torch.full((3, 2), 7), torch.full((3, 3), 1)
    loss, metrics = trainer.compute_loss(PROMPTS, chosen, rejected)
    assert loss.item() == pytest.approx(0.6931, abs=1e-3)
    assert {"chosen_reward", "rejected_reward"} <= metrics.keys()
    assert all(isinstance(value, float) for value in metrics.values())
    steps = [trainer.train_step(PROMPTS, chosen, rejected) for _ in range(20)]
    assert steps[-1]["loss"] < 0.3
    assert steps[-1]["chosen_reward"] > steps[-1]["rejected_reward"]


@pytest.mark.long
def test_online_dpo_asks_for_preferences() -> None:
    def more_sevens(pairs: list[tuple[Tensor, Tensor]]) -> list[int]:
        return [int((b == 7).sum() > (a == 7).sum()) for a, b in pairs]

    model = TinyModel()
    trainer = OnlineDPO(model, copy.deepcopy(model), more_sevens, 0.1, 5e-2, 4)
    prompts = PROMPTS.repeat(12, 1)
    for _ in range(40):
        metrics = trainer.train_step(prompts)
    assert "loss" in metrics
    assert model.generated == 40
    assert (model.generate(prompts, 4)[:, 2:] == 7).float().mean() > 0.5


def test_best_of_n_gives_prompt_and_completion() -> None:
    model = TinyModel()
    best = BestOfN(model, sevens, 64, 2).generate(PROMPTS)
    assert best.shape == (3, 4)
    assert torch.equal(best[:, :2], PROMPTS)
    assert (best[:, 2:] == 7).float().mean() >= 0.5
    assert model.generated == 1


def test_a_generate_that_forgets_the_prompt_is_named() -> None:
    class Forgetful(TinyModel):
        def generate(self, prompt_ids: Tensor, max_new_tokens: int) -> Tensor:
            return super().generate(prompt_ids, max_new_tokens)[:, prompt_ids.shape[1] :]

    with pytest.raises(
        ValueError, match=r"generate must give prompt and completion \[12, 2 \+ T\]"
    ):
        GRPO(Forgetful(), None, sevens, kl_coef=0.0).train_step(PROMPTS)
