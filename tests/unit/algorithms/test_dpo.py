"""DPO: what it learns from, what moves its weights, and that it goes on where it was."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sharpwave.algorithms.dpo import DPO, DPOLearner
from sharpwave.config.language import PreferenceKind
from sharpwave.llm import DigitTokenizer, TokenBatch
from sharpwave.losses import PREFERENCE_KINDS
from sharpwave.nn import Transformer
from sharpwave.runs.callbacks import Callback
from tests.unit.llm.models import hugging_face


def sorting(n: int, seed: int = 0) -> list[dict[str, str]]:
    """Four digits, which are to be sorted; the rejected answer has them in another order."""
    rng = np.random.Generator(np.random.Philox(seed))
    rows: list[dict[str, str]] = []
    while len(rows) < n:
        digits = "".join(map(str, rng.integers(10, size=4)))
        right, wrong = "".join(sorted(digits)), "".join(rng.permutation(list(digits)))
        if right != wrong:
            rows.append({"prompt": f"{digits}=", "chosen": right, "rejected": wrong})
    return rows


OPTIONS: dict[str, Any] = {
    "dataset": sorting(40),
    "tokenizer": DigitTokenizer(),
    "learning_rate": 2e-3,
    "n_pairs": 6,
    "max_new_tokens": 5,
    "seed": 3,
}


def transformer(seed: int = 0) -> Transformer:
    model = Transformer(14, hidden=32, seed=seed)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, ref_model: Any = None, **options: Any) -> DPO:
    model = transformer() if model is None else model
    return DPO(model, ref_model, **{**OPTIONS, **options})


def weights(one: DPO) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in one.model.module.parameters()]


def gradients(one: DPO) -> list[Tensor]:
    return [p.grad for p in one.model.module.parameters() if p.grad is not None]


def same(one: DPO, other: DPO) -> bool:
    return all(map(torch.equal, weights(one), weights(other)))


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(seed))


PAIRS = tokens(4, 3), tokens(4, 5, seed=1), tokens(4, 2, seed=2)


def log_prob(module: Any, prompt: Tensor, completion: Tensor) -> Tensor:
    """Of one completion, token by token."""
    found = module(torch.cat([prompt, completion])[None])[0, len(prompt) - 1 : -1].log_softmax(-1)
    total: Tensor = found.gather(1, completion[:, None]).sum()
    return total


def test_the_gradient_is_that_of_the_formula() -> None:
    policy, ref = transformer().double(), transformer(seed=4).double()
    one = agent(policy, ref, beta=0.3)
    margins = [
        log_prob(policy, p, c) - log_prob(ref, p, c) - log_prob(policy, p, r) + log_prob(ref, p, r)
        for p, c, r in zip(*PAIRS, strict=True)
    ]
    wanted = -logsigmoid(0.3 * torch.stack(margins)).mean()
    loss, metrics = one.compute_loss(*PAIRS)
    torch.testing.assert_close(loss, wanted, atol=1e-10, rtol=0)
    margin = 0.3 * torch.stack(margins).mean().detach()
    torch.testing.assert_close(metrics["reward_margin"], margin, atol=1e-10, rtol=0)
    parameters = list(policy.parameters())
    found, by_hand = (torch.autograd.grad(x, parameters) for x in (loss, wanted))
    for gradient, other in zip(found, by_hand, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-10, rtol=1e-8)


def test_padding_counts_for_nothing() -> None:
    one = agent(ref_model=transformer(seed=4), ld_alpha=0.5)
    plain, _ = one.compute_loss(*PAIRS)
    left = torch.cat([tokens(4, 2, seed=5), PAIRS[0]], 1)
    right = [torch.cat([x, tokens(4, 3, seed=6)], 1) for x in PAIRS[1:]]
    padded, _ = one.compute_loss(
        left,
        *right,
        prompt_mask=torch.arange(5).expand(4, 5) >= 2,
        chosen_mask=torch.arange(8).expand(4, 8) < 5,
        rejected_mask=torch.arange(5).expand(4, 5) < 2,
    )
    torch.testing.assert_close(padded, plain, atol=1e-6, rtol=0)
    # Rows of different lengths are the mean of what each gives alone.
    mask = torch.arange(5) < torch.tensor([5, 1, 3, 2])[:, None]
    ragged, _ = one.compute_loss(*PAIRS, chosen_mask=mask)
    rows = [
        one.compute_loss(p[None], c[None, valid], r[None])[0]
        for p, c, r, valid in zip(*PAIRS, mask, strict=True)
    ]
    torch.testing.assert_close(ragged, torch.stack(rows).mean(), atol=1e-6, rtol=0)


def test_a_policy_that_is_its_reference_prefers_nothing() -> None:
    metrics = agent().train_step(*PAIRS)
    assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-6)
    for name in ("chosen_reward", "rejected_reward", "reward_margin"):
        assert metrics[name] == pytest.approx(0, abs=1e-6)
    assert {"accuracy", "grad_norm"} <= metrics.keys()


@pytest.mark.long(but=["plain"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": {"sigmoid": 1.0, "simpo": 0.5}, "ld_alpha": 0.5},
        {"loss": "ipo", "divergence": "js"},
        {"wpo": True},
    ],
    ids=["plain", "several", "ipo", "wpo"],
)
def test_the_cut_into_micro_batches_changes_nothing(options: dict[str, Any]) -> None:
    agents = [
        agent(ref_model=transformer(seed=4), max_tokens=size, **options) for size in (1, 4096)
    ]
    batch = agents[0].examples(sorting(9, seed=8)).batch()
    assert len(list(batch.cut(1, 2))) == 9
    metrics = [one.update(batch) for one in agents]
    for one, other in zip(*map(gradients, agents), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    for name in metrics[0]:
        torch.testing.assert_close(metrics[0][name], metrics[1][name], atol=1e-5, rtol=1e-5)


@pytest.mark.long(but=["plain"])
@pytest.mark.parametrize("options", [{}, {"loss": "simpo"}], ids=["plain", "simpo"])
def test_a_run_goes_on_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    """`train` equals a loop of one's own, and a checkpoint goes on with it."""
    whole, own, first = (agent(**options) for _ in range(3))
    whole.train(n_updates=4)
    pairs = own.loop.examples
    assert pairs is not None
    for update in range(4):
        own.update(pairs.select(pairs.rows(6 * update, 6, seed=3)).batch())
    assert same(whole, own)
    first.train(n_updates=2)
    first.save(tmp_path / "two")
    given = {name: OPTIONS[name] for name in ("dataset", "tokenizer")}
    second = DPO.from_checkpoint(tmp_path / "two", model=transformer(seed=9), **given)
    metrics = second.train(n_updates=2)
    assert same(whole, second)
    assert second.timesteps == 4
    assert metrics["mean_accuracy"] == pytest.approx(whole.progress_metrics()["mean_accuracy"])
    assert ("reference" in second.learner.networks) == (not options)


@pytest.mark.long(but=["hinge", "orpo"])
@pytest.mark.parametrize("kind", PREFERENCE_KINDS)
def test_every_kind_of_loss_falls_and_widens_the_margin(kind: str) -> None:
    one = agent(loss=kind, label_smoothing=0.2, learning_rate=5e-3)
    metrics = [one.train_step(*PAIRS) for _ in range(8)]
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    # Two of them look at the chosen ones, too or alone; discopop falls to both sides of 0.
    if kind not in ("sft", "orpo", "discopop"):
        assert metrics[-1]["reward_margin"] > metrics[0]["reward_margin"]
    assert set(get_args(PreferenceKind)) == set(PREFERENCE_KINDS)


def test_wpo_weighs_pairs_by_both_completions() -> None:
    module = transformer()
    one = agent(module, wpo=True)
    products = []
    with torch.no_grad():
        for prompt, *both in zip(*PAIRS, strict=True):
            logs = []
            for completion in both:
                row = torch.cat([prompt, completion])[None]
                probs = module(row)[0, len(prompt) - 1 : -1].softmax(-1)
                drawn = probs.gather(1, completion[:, None])[:, 0]
                logs.append((drawn / probs.square().sum(1)).log().mean())
            products.append((logs[0] + logs[1]).exp())
    loss, _ = one.compute_loss(*PAIRS)
    wanted = math.log(2) * float(torch.stack(products).mean())
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


def test_an_override_is_what_learns() -> None:
    class Nothing(DPOLearner):
        calls = 0

        def loss(self, part: TokenBatch, n_pairs: int) -> Any:
            type(self).calls += 1
            loss, _ = super().loss(part, n_pairs)
            return loss * 0, {}

    one = agent(learner=Nothing)
    before = weights(one)
    one.train(n_updates=2)
    assert Nothing.calls == 2
    assert one.compute_loss(*PAIRS)[0].item() == 0
    assert all(map(torch.equal, before, weights(one)))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
@pytest.mark.parametrize("adapts", [False, True])
def test_models_of_hugging_face_learn(adapts: bool, tmp_path: Path) -> None:
    module = hugging_face(vocab_size=14, eos_token_id=13, tie_word_embeddings=True)
    if adapts:
        peft = pytest.importorskip("peft")
        module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    one = agent(module, learning_rate=1e-2)
    before = {name: x.clone() for name, x in module.state_dict().items()}
    metrics = one.train(n_updates=3)
    assert metrics["reward_margin"] != 0  # the reference did not move with the model
    moved = {name for name, x in module.state_dict().items() if not torch.equal(x, before[name])}
    assert moved
    assert not adapts or all("lora" in name for name in moved)
    assert ("reference" in one.learner.networks) == (not adapts)
    one.save(tmp_path / "model")


@pytest.mark.long
def test_evaluation_counts_pairs_and_prediction_writes() -> None:
    one = agent(eval_dataset=sorting(12, seed=2))
    pairs = one.examples(sorting(12, seed=2))
    with torch.no_grad():
        for parameter in one.model.module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    result = one.evaluate()
    rows = []
    for prompt, (chosen, rejected) in zip(pairs.prompts, pairs.completions, strict=True):
        metrics = one.compute_loss(prompt[None], chosen[None], rejected[None])[1]
        rows.append(metrics["accuracy"].item())
    assert list(result.returns) == rows
    assert result.lengths == (10,) * 12
    assert len(one.evaluate_in_run(5).returns) == 5
    assert isinstance(one.predict("1234=")[0], str)
    assert len(one.predict(["1234=", "5="], n=3, greedy=False)) == 6
    free = agent(loss="simpo")
    assert set(free.evaluate().returns) <= {0.0, 1.0}


@pytest.mark.long
def test_epochs_and_a_folder(tmp_path: Path) -> None:
    one = agent(dataset=None)
    metrics = one.train(sorting(13), run_dir=tmp_path / "run")
    assert metrics["timesteps"] == 3  # 13 pairs, 6 an update
    assert (tmp_path / "run" / "report.html").exists()
    assert one.train(n_epochs=2)["timesteps"] == 3 + 5


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="dataset must be given"):
        agent(dataset=None).train(n_updates=1)
    with pytest.raises(ValueError, match="dataset must be given"):
        agent(dataset=None).evaluate()
    with pytest.raises(TypeError, match="unknown option 'betta'"):
        agent(betta=0.1)
    with pytest.raises(ValueError, match="beta must be greater than 0"):
        agent(beta=0.0)
    with pytest.raises(ValueError, match=r"loss must be .*'sigmoid'"):
        agent(loss="sigmoyd")
    with pytest.raises(ValueError, match=r"loss must have kinds out of 'sigmoid'.*'sft2'"):
        agent(loss={"sigmoid": 1.0, "sft2": 0.1})
    one, (prompt, chosen, rejected) = agent(), PAIRS
    with pytest.raises(ValueError, match=r"chosen must have shape \[4, L\], got \(3, 5\)"):
        one.compute_loss(prompt, chosen[:3], rejected)
    with pytest.raises(ValueError, match=r"rejected_mask must have shape \(4, 2\), got \(4, 1\)"):
        one.train_step(*PAIRS, rejected_mask=torch.ones(4, 1))
    with pytest.raises(TypeError, match="masks must belong to prompt, chosen, rejected, got 'mask"):
        one.train_step(*PAIRS, mask=None)
    with pytest.raises(ValueError, match="prompts must not be empty"):
        one.compute_loss(prompt[:, :0], chosen, rejected)


@pytest.mark.long
def test_a_tiny_model_learns_to_prefer_sorted_digits() -> None:
    """Chance is 0.5; over the last 10 of 60 updates the accuracy is at least 0.95."""
    accuracies: list[float] = []

    class Watch(Callback):
        def on_train_batch(self, accuracy: float, **_: Any) -> None:
            accuracies.append(accuracy)

    one = DPO(
        Transformer(14, seed=1),
        dataset=sorting(4000, seed=1),
        tokenizer=DigitTokenizer(),
        learning_rate=1e-3,
        n_pairs=64,
        seed=1,
    )
    one.train(n_updates=60, callbacks=Watch())
    assert np.mean(accuracies[-10:]) >= 0.95
    assert one.evaluate(sorting(200, seed=2)).mean >= 0.95
