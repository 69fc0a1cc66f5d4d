"""Updates of GRPO on a policy whose completions can all be counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sharpwave as sw

VOCABULARY = 3
RETURNS = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(5))


class Table(nn.Module):
    """All completions of two tokens: logits of the first, and of the second by the first."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(VOCABULARY, generator=generator))
        self.second = nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=generator))

    def forward(self, ids: Tensor) -> Tensor:
        """The prompt is one token, whatever it is."""
        after = self.second[ids[:, 1:]]
        return torch.cat([self.first.expand(len(ids), 1, VOCABULARY), after], 1)

    def log_probs(self) -> Tensor:
        """[3, 3] of all completions."""
        return self.first.log_softmax(-1)[:, None] + self.second.log_softmax(-1)


def reward(completions: list[Tensor], prompts: Tensor) -> list[float]:
    return [float(RETURNS[one[1], one[2]]) for one in completions]


def agent(model: Table, **options: Any) -> sw.GRPO:
    given: dict[str, Any] = {"advantage": "rloo", "learning_rate": 0.05, "seed": 2, **options}
    return sw.GRPO(
        model, reward_fn=reward, prompts=[[0]], max_new_tokens=2, max_grad_norm=None, **given
    )


@pytest.mark.long
@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_gradients_of_updates_are_that_of_what_is_expected(kl_coef: float) -> None:
    """Their mean, over batches that the sampler drew, within three standard errors.

    The loss is a mean over tokens, of which each completion has two.
    """
    model, reference = Table(), Table(seed=1)
    one = agent(model, ref_model=reference, kl_coef=kl_coef, group_size=4, n_prompts=1)
    found = []
    for _ in range(150):
        batch = one.rollout([[0]] * 8)
        model.zero_grad()
        totals = sw.losses.grpo_totals(sw.losses.Sequences.of(batch.completion_lengths))
        loss, _ = one.learner.loss(batch, totals)
        loss.backward()
        assert model.first.grad is not None
        assert model.second.grad is not None
        found.append(torch.cat([model.first.grad, model.second.grad.flatten()]))
    rows = torch.stack(found)
    model.zero_grad()
    log_probs = model.log_probs()
    expected = (log_probs.exp() * RETURNS).sum()
    # A token's divergence is that of its distribution, wherever it was reached by.
    own = [
        model.first.log_softmax(-1),
        *model.second.log_softmax(-1),
    ]
    theirs = [reference.first.log_softmax(-1), *reference.second.log_softmax(-1)]
    apart = torch.stack(
        [(x.exp() * (x - y.detach())).sum() for x, y in zip(own, theirs, strict=True)]
    )
    reached = torch.cat([torch.ones(1), model.first.softmax(-1).detach()])
    objective = -expected + kl_coef * (reached * apart).sum()
    (objective / 2).backward()
    assert model.first.grad is not None
    assert model.second.grad is not None
    wanted = torch.cat([model.first.grad, model.second.grad.flatten()])
    error = rows.std(0) / len(rows) ** 0.5
    assert ((rows.mean(0) - wanted).abs() < 3 * error + 1e-6).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:10 updates in a row")
@pytest.mark.parametrize(
    "options", [{}, {"kl": "k1"}, {"advantage": "reinforce++"}], ids=["k3", "k1", "reinforce++"]
)
def test_the_true_divergence_falls_with_its_weight(options: dict[str, Any]) -> None:
    found = []
    for kl_coef in (0.0, 0.1, 1.0):
        model = Table()
        agent(model, kl_coef=kl_coef, n_prompts=8, group_size=8, **options).train(n_updates=80)
        policy, start = model.log_probs().detach(), Table().log_probs().detach()
        found.append(float((policy.exp() * (policy - start)).sum()))
    assert found[0] > found[1] > found[2] > 0
    assert found[2] < found[0] / 3
