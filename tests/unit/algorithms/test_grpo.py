"""GRPO: what it learns from, what moves its weights, and that it goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.algorithms.grpo import GRPO, GRPOLearner
from sharpwave.llm import TASKS, DigitTokenizer, RewardFailed, TokenBatch
from sharpwave.losses import Sequences, grpo_loss
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face

TASK = TASKS["copy4"]
OPTIONS: dict[str, Any] = {
    "reward_fn": TASK.reward,
    "prompts": TASK.prompts(40),
    "tokenizer": DigitTokenizer(),
    "max_new_tokens": 4,
    "n_prompts": 6,
    "learning_rate": 2e-3,
    "seed": 3,
}


def transformer(seed: int = 0) -> Transformer:
    model = Transformer(14, hidden=32, seed=seed)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, **options: Any) -> GRPO:
    return GRPO(transformer() if model is None else model, **{**OPTIONS, **options})


def weights(one: GRPO) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in one.model.module.parameters()]


def same(one: GRPO, other: GRPO) -> bool:
    return all(map(torch.equal, weights(one), weights(other)))


@pytest.mark.long(but=["iterations"])
@pytest.mark.parametrize(
    "options",
    [
        {"kl_coef": 0.0},
        {"n_iterations": 2, "kl_coef": 0.2},
        {"loss": "grpo", "ratio_level": "sequence", "n_iterations": 2},
        {"entropy_coef": 0.1, "loss": "dr_grpo"},
        {"mask_cut": True, "temperature": 0.8, "top_k": 5},
    ],
    ids=["plain", "iterations", "sequences", "entropy", "cut"],
)
def test_one_call_of_train_is_rollout_and_update(options: dict[str, Any], tmp_path: Path) -> None:
    """The loop of one's own equals `train` bit for bit, and a checkpoint goes on with it."""
    whole, own = agent(**options), agent(**options)
    whole.train(n_updates=4)
    prompts = own.loop.prompts
    assert prompts is not None
    for update in range(4):
        rows = prompts.rows(6 * update, 6, seed=3)
        own.update(own.rollout(prompts.select(rows)))
    assert same(whole, own)
    assert own.learner.updates == whole.learner.updates == 4

    first = agent(**options)
    first.train(n_updates=2)
    first.save(tmp_path / "two")
    given = {name: OPTIONS[name] for name in ("reward_fn", "prompts", "tokenizer")}
    second = GRPO.from_checkpoint(tmp_path / "two", model=transformer(seed=9), **given)
    second.train(n_updates=2)
    assert same(whole, second)
    assert second.timesteps == 4


@pytest.mark.long(but=["dapo"])
@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "luspo"])
def test_the_cut_into_micro_batches_changes_nothing(loss: str) -> None:
    agents = [agent(loss=loss, max_tokens=tokens, kl_coef=0.1) for tokens in (20, 4096)]
    batch = agents[0].rollout(TASK.prompts(6, seed=8))
    assert len(list(batch.cut(20))) > 4
    metrics = [one.update(batch) for one in agents]
    for one, other in zip(*map(weights, agents), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    for name in ("loss", "kl", "grad_norm"):
        torch.testing.assert_close(metrics[0][name], metrics[1][name], atol=1e-6, rtol=1e-5)


def test_an_update_follows_the_gradient_of_the_loss() -> None:
    one = agent(kl_coef=0.3, max_grad_norm=None)
    batch = one.rollout(TASK.prompts(6, seed=8))
    module = one.model.module
    module.zero_grad()
    sequences = list(batch.tokens.split(batch.lengths.tolist()))
    log_probs = []
    for row, prompt in zip(sequences, batch.prompt_lengths.tolist(), strict=True):
        found = module(row[None])[0, prompt - 1 : -1].log_softmax(-1)
        log_probs.append(found.gather(1, row[prompt:, None])[:, 0])
    assert batch.advantages is not None
    loss, _ = grpo_loss(
        torch.cat(log_probs),
        None,
        batch.advantages,
        Sequences.of(batch.completion_lengths),
        ref_log_probs=torch.cat(log_probs).detach(),
        kl_coef=0.3,
    )
    loss.backward()
    wanted = {
        name: torch.clone(p.grad) for name, p in module.named_parameters() if p.grad is not None
    }
    metrics = one.update(batch)
    torch.testing.assert_close(metrics["loss"], loss.detach(), atol=1e-6, rtol=1e-5)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-6, rtol=1e-3)
    assert metrics["kl"] == pytest.approx(0, abs=1e-7)


@pytest.mark.long
def test_a_reference_holds_the_model_near() -> None:
    """The divergence from the reference after some updates falls with its weight."""
    batches = []
    for kl_coef in (0.0, 1.0):
        one = agent(kl_coef=kl_coef, learning_rate=5e-3)
        one.train(n_updates=12)
        batch = one.rollout(TASK.prompts(20, seed=8))
        start = GRPO(transformer(), **{**OPTIONS, "kl_coef": 0.0}).learner
        of_start = start._score(start.model, batch)
        batches.append((one.learner._score(one.model, batch) - of_start).mean())
    assert batches[1] < batches[0] / 2


def test_an_override_is_what_learns() -> None:
    class Nothing(GRPOLearner):
        calls = 0

        def loss(self, part: TokenBatch, totals: Any) -> Any:
            type(self).calls += 1
            loss, metrics = super().loss(part, totals)
            return loss * 0, metrics

    one = agent(learner=Nothing, kl_coef=0.0)
    before = weights(one)
    one.train(n_updates=2)
    assert Nothing.calls >= 2
    assert all(map(torch.equal, before, weights(one)))
    with pytest.raises(TypeError, match="loss is a method of the learner"):
        type("Mine", (GRPO,), {"loss": GRPOLearner.loss})


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
@pytest.mark.parametrize("adapts", [False, True])
def test_models_of_hugging_face_learn(adapts: bool, tmp_path: Path) -> None:
    module = hugging_face(vocab_size=14, eos_token_id=13, tie_word_embeddings=True)
    if adapts:
        peft = pytest.importorskip("peft")
        module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    one = agent(module)
    before = {name: x.clone() for name, x in module.state_dict().items()}
    metrics = one.train(n_updates=2)
    assert metrics["grad_norm"] > 0
    moved = {name for name, x in module.state_dict().items() if not torch.equal(x, before[name])}
    assert moved
    assert not adapts or all("lora" in name for name in moved)
    assert ("reference" in one.learner.networks) == (not adapts)
    one.save(tmp_path / "model")


@pytest.mark.long
def test_train_step_and_the_tokens_of_a_plain_model() -> None:
    """As the programs of others have it: a model, tokens, no text."""

    def wants_sevens(completions: list[torch.Tensor], prompts: torch.Tensor) -> list[float]:
        return [float((row[prompts.shape[1] :] == 7).float().mean()) for row in completions]

    one = GRPO(transformer(), None, wants_sevens, 4, 1e-2, 0.0, 5, seed=1)
    prompts = torch.randint(10, (8, 3), generator=torch.Generator().manual_seed(0))
    metrics = [one.train_step(prompts) for _ in range(15)]
    assert {"loss", "mean_reward", "reward", "grad_norm"} <= metrics[0].keys()
    assert metrics[-1]["mean_reward"] > metrics[0]["mean_reward"] + 0.3
    result = one.evaluate(prompts, greedy=True)
    assert result.mean > 0.9
    assert result.lengths == (5,) * 8
    assert [x.tolist() for x in one.predict(prompts[:1])] == [[7] * 5]
    assert one.train(prompts, n_epochs=2)["timesteps"] == 15 + 1  # 16 prompts an update


def test_text_in_and_out() -> None:
    one = agent()
    texts = one.predict(["1234=", "5="])
    assert len(texts) == 2
    assert all(isinstance(text, str) for text in texts)
    assert len(one.predict("1234=", n=3, greedy=False)) == 3
    assert one.evaluate().mean == one.evaluate().mean  # an evaluation draws the same each time


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match="reward_fn must be given"):
        GRPO(transformer())
    with pytest.raises(TypeError, match="unknown option 'gruop_size'"):
        agent(gruop_size=3)
    with pytest.raises(ValueError, match="group_size must be at least 2"):
        agent(group_size=1)
    with pytest.raises(TypeError, match="tokenizer must be given"):
        agent(tokenizer=None)
    with pytest.raises(ValueError, match="prompts must be given"):
        agent(prompts=None).train(n_updates=1)
    with pytest.raises(ValueError, match=r"loss must be one of .*'dapo', .*, got 'dpao'"):
        agent(loss="dpao")

    def broken(**_: Any) -> list[float]:
        raise ZeroDivisionError

    with pytest.raises(RewardFailed, match="broken"):
        agent(reward_fn=broken).train(n_updates=1)


@pytest.mark.long
def test_a_tiny_model_learns_to_copy() -> None:
    """Chance is 0.1; after 120 updates the mean reward of the last 20 is at least 0.6."""
    one = GRPO(
        Transformer(14, seed=1),
        reward_fn=TASK.reward,
        prompts=TASK.prompts(20_000, seed=1),
        tokenizer=DigitTokenizer(),
        group_size=16,
        max_new_tokens=4,
        kl_coef=0.0,
        learning_rate=2e-3,
        seed=1,
    )
    metrics = one.train(n_updates=120)
    assert metrics["mean_reward"] >= 0.6
