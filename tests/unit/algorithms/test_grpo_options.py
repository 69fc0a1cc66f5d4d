"""Each option of GRPO has the effect that it names."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.algorithms.grpo import GRPO
from sharpwave.llm import Completions, Sampler
from tests.unit.algorithms.test_grpo import OPTIONS, TASK, agent, same, transformer, weights
from tests.unit.llm.models import hugging_face


class Biased(Sampler):
    """A sampler that thinks its tokens twice as likely as the trainer does."""

    def generate(self, *args: Any, **options: Any) -> Completions:
        found = super().generate(*args, **options)
        return replace(found, plain_log_probs=found.plain_log_probs + math.log(2))


def test_the_sampler_is_compared_with_the_trainer() -> None:
    metrics = agent().train(n_updates=1)
    assert 0 <= metrics["sampler_mismatch"] <= metrics["sampler_mismatch_max"] < 1e-5
    module = transformer()
    options = {"sampler": Biased(module), "max_tokens": 40, "n_iterations": 2, "reward_fn": shaped}
    metrics = agent(module, **options).train(n_updates=1)
    assert metrics["sampler_mismatch"] == pytest.approx(math.log(2), rel=1e-4)
    assert metrics["sampler_mismatch_max"] == pytest.approx(math.log(2), rel=1e-4)


@pytest.mark.long(but=["none-3.0-1.0"])
@pytest.mark.parametrize(
    ("correction", "cap", "weight"),
    [
        ("none", 3.0, 1.0),
        ("token_truncate", 3.0, 0.5),
        ("token_truncate", 0.25, 0.25),
        ("token_mask", 0.25, 0.0),
        ("sequence_truncate", 3.0, 0.5**4),
        ("sequence_mask", 0.01, 0.0),
    ],
)
def test_weights_make_up_for_a_sampler_that_disagrees(
    correction: str, cap: float, weight: float
) -> None:
    """All completions have four tokens, each of which the sampler thinks twice as likely."""

    def step(**options: Any) -> tuple[Any, Any]:
        module = transformer()
        one = agent(
            module, sampler=Biased(module, seed=3), tokenizer=None, prompts=[[1, 2]] * 6,
            reward_fn=lambda rows, _: [float(row.sum()) for row in rows], kl_coef=0.0, **options,
        )  # fmt: skip
        metrics = one.train(n_updates=1)
        return metrics, weights(one)

    plain, _ = step()
    found, after = step(is_correction=correction, is_cap=cap)
    assert found["grad_norm"] == pytest.approx(weight * plain["grad_norm"], rel=1e-3, abs=1e-9)
    if correction != "none":
        assert found["importance_weight"] == pytest.approx(weight, rel=1e-4, abs=1e-9)
    if weight == 0:
        assert all(map(torch.equal, after, weights(agent())))


@pytest.mark.long
def test_weights_make_up_for_completions_of_older_weights() -> None:
    """Completions from before an update are weighted by the change of their probabilities."""
    options = {"reward_fn": shaped, "kl_coef": 0.0, "max_staleness": 1, "learning_rate": 2e-2}
    plain = agent(**options).train(n_updates=2)
    assert plain["ratio"] != pytest.approx(1, abs=1e-3)  # of the policy to the sampler
    found = agent(is_correction="sequence_truncate", **options).train(n_updates=2)
    assert found["ratio"] == 1.0  # of the policy to itself; the weights have the difference
    assert found["importance_weight"] != pytest.approx(1, abs=1e-3)
    assert found["sampler_mismatch_max"] == pytest.approx(plain["sampler_mismatch_max"], rel=1e-4)


def test_long_completions_are_worth_less_to_learning_and_not_in_the_metrics() -> None:
    options: dict[str, Any] = {
        "reward_fn": lambda completions, **_: [0.5] * len(completions),
        "max_new_tokens": 8,
        "kl_coef": 0.0,
        "group_size": 16,
    }
    one = agent(overlong_buffer=6, overlong_penalty=2.0, **options)
    batch, metrics = one.loop.rollout(one.loop.prompts)  # type: ignore[arg-type]
    assert metrics["reward"] == 0.5
    assert metrics["reward_std"] == 0
    assert batch.advantages is not None
    lengths = batch.completion_lengths.view(-1, 16)
    advantages = batch.advantages.view(-1, 16)
    assert (lengths.min(1).values < lengths.max(1).values).any()
    for row, group in zip(lengths, advantages, strict=True):
        shaped = -2.0 * ((row - 2) / 6).clamp(0, 1)
        torch.testing.assert_close(group, (shaped - shaped.mean()) / (shaped.std() + 1e-4))


def exact(prompts: list[str], completions: list[str]) -> list[float]:
    """A measure that few groups differ in."""
    return [
        float(text[:1] == prompt[:1]) for text, prompt in zip(completions, prompts, strict=True)
    ]


def shaped(completions: list[str]) -> list[float]:
    """Another that nearly all of them do."""
    return [float(sum(map(int, filter(str.isdigit, text)))) for text in completions]


def test_groups_are_filtered_by_a_raw_measure() -> None:
    one = agent(reward_fn=[exact, shaped], filter_metric="exact")
    prompts = one.loop.prompts
    assert prompts is not None
    written = one.loop._write(prompts)
    raw = written.scored.by_name["exact"].view(-1, 4)
    differs = raw.amin(1) < raw.amax(1)
    assert 0 < differs.sum() < len(differs)
    batch, metrics = one.loop._batch(written)
    assert batch.group is not None
    assert batch.group.unique().tolist() == differs.nonzero()[:, 0].tolist()
    assert metrics["filtered_fraction"] == pytest.approx(1 - differs.float().mean().item())
    bounded = agent(reward_fn=[exact, shaped], filter_metric="exact", filter_low=0.5)
    batch, _ = bounded.loop._batch(written)
    assert batch.group is not None
    assert batch.group.unique().tolist() == (raw.mean(1) > 0.5).nonzero()[:, 0].tolist()


@pytest.mark.long
def test_prompts_are_drawn_until_enough_groups_differ(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(prompts: list[str], completions: list[str]) -> list[float]:
        calls.append(len(completions))
        return exact(prompts, completions)

    options = {"reward_fn": counted, "filter_metric": "reward", "filter_tries": 50, "n_prompts": 3}
    one = agent(**options)
    written = one.loop.collect()
    batch, _ = one.loop._batch(written)
    assert len(batch) == 3 * 4
    assert len(calls) > 1
    assert one.loop.drawn == 3 * len(calls)
    assert batch.row is not None
    assert batch.row[-1] == len(written.completions) - 1  # nothing after the last useful group
    texts = written.prompts.texts
    assert texts is not None
    assert len(texts) == len(written.prompts) == len(written.completions) // 4
    decode = OPTIONS["tokenizer"].decode
    completions = [decode(x.tolist(), skip_special_tokens=True) for x in written.completions]
    given = [texts[i] for i in written.completions.prompt.tolist()]
    assert exact(given, completions) == written.scored.rewards.tolist()

    calls.clear()
    never = agent(**{**options, "filter_low": 2.0, "filter_tries": 4})
    before = weights(never)
    metrics = never.train(n_updates=1, run_dir=tmp_path / "run")
    assert len(calls) == 4
    assert metrics["filtered_fraction"] == 1.0
    assert metrics["skipped_updates"] == 1
    assert all(map(torch.equal, before, weights(never)))


@pytest.mark.long
def test_a_run_with_dynamic_sampling_goes_on_exactly(tmp_path: Path) -> None:
    options = {"reward_fn": exact, "filter_metric": "reward", "filter_tries": 5, "n_prompts": 3}
    whole = agent(**options)
    whole.train(n_updates=2)
    first = agent(**options)
    first.train(n_updates=1)
    first.save(tmp_path / "one")
    given = {"reward_fn": exact, "prompts": OPTIONS["prompts"], "tokenizer": OPTIONS["tokenizer"]}
    second = GRPO.from_checkpoint(tmp_path / "one", model=transformer(seed=9), **given)
    second.train(n_updates=1)
    assert same(whole, second)
    assert second.loop.drawn == whole.loop.drawn


def test_the_reference_follows_the_model() -> None:
    one = agent(ref_sync_every=2, ref_sync_weight=0.25)
    reference = one.learner.networks["reference"]
    start = [parameter.clone() for parameter in reference.parameters()]
    one.train(n_updates=1)
    assert all(map(torch.equal, start, reference.parameters()))
    metrics = one.train(n_updates=1)
    for old, new, ours in zip(start, reference.parameters(), weights(one), strict=True):
        torch.testing.assert_close(new.detach(), old + 0.25 * (ours - old))
    assert metrics["kl"] > 0
    copied = agent(ref_sync_every=1)
    copied.train(n_updates=2)
    assert all(map(torch.equal, weights(copied), copied.learner.networks["reference"].parameters()))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_a_reference_without_weights_of_its_own_cannot_follow() -> None:
    peft = pytest.importorskip("peft")
    module = hugging_face(vocab_size=14, eos_token_id=13)
    module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ValueError, match=r"ref_sync_every must be 0 .*an adapter"):
        agent(module, ref_sync_every=1)
    with pytest.raises(ValueError, match=r"ref_sync_every must be 0 .*kl_coef=0, got 1"):
        agent(ref_sync_every=1, kl_coef=0.0)


@pytest.mark.long
def test_updates_without_anything_to_compare_are_skipped_and_counted(tmp_path: Path) -> None:
    options = {"reward_fn": lambda completions, **_: [0.5] * len(completions), "kl_coef": 0.5}
    one = agent(**options)
    before = weights(one)
    metrics = one.train(n_updates=9)
    assert metrics["groups_without_spread"] == 1.0
    assert metrics["loss"] == metrics["grad_norm"] == 0.0
    assert metrics["skipped_updates"] == 9
    assert all(map(torch.equal, before, weights(one)))
    one.save(tmp_path / "nine")
    given = {name: OPTIONS[name] for name in ("prompts", "tokenizer")}
    again = GRPO.from_checkpoint(
        tmp_path / "nine", model=transformer(), reward_fn=options["reward_fn"], **given
    )
    with pytest.warns(UserWarning, match="10 updates in a row had nothing to learn from"):
        again.train(n_updates=1)
    assert again.train(n_updates=2)["skipped_updates"] == 12  # it is said once


def test_unscored_completions_teach_nothing() -> None:
    one = agent(reward_fn=lambda completions, **_: [None] * len(completions))
    before = weights(one)
    metrics = one.train(n_updates=1)
    assert metrics["unscored_fraction"] == 1.0
    assert metrics["skipped_updates"] == 1
    assert all(map(torch.equal, before, weights(one)))


def test_reinforce_compares_tokens_of_all_prompts() -> None:
    one = agent(advantage="reinforce++", group_size=1, kl_coef=0.2, n_prompts=12)
    metrics = one.train(n_updates=3)
    assert metrics["grad_norm"] > 0
    assert metrics["kl"] > 0
    batch = one.rollout(TASK.prompts(12, seed=8))
    found = batch.token_advantages
    assert found is not None
    assert found.mean().item() == pytest.approx(0, abs=1e-5)
    assert found.std().item() == pytest.approx(1, abs=1e-2)
    assert batch.old_log_probs is not None
    assert batch.ref_log_probs is not None
    # Tokens of one completion differ by what the divergence costs between them.
    costs = 0.2 * (batch.old_log_probs - batch.ref_log_probs)
    first = int(batch.completion_lengths[0])
    scale = (found[1:first] - found[: first - 1]) / costs[: first - 1]
    torch.testing.assert_close(scale, scale[:1].expand_as(scale), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_correction": "tokens"}, "is_correction must be one of .*got 'tokens'"),
        ({"is_cap": 0.0}, "is_cap must be"),
        ({"overlong_buffer": 5}, "overlong_buffer must be"),
        ({"filter_low": 0.5}, "filter_metric must be given with filter_low"),
        ({"filter_tries": 0}, "filter_tries must be"),
        ({"ref_sync_weight": 1.5}, "ref_sync_weight must be"),
        ({"advantage": "gruop"}, "advantage must be one of .*got 'gruop'"),
        ({"kl": "k1", "kl_correction": False}, "kl_correction must be True for kl 'k1'"),
    ],
)
def test_impossible_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent(**options)


def test_a_measure_that_nobody_gives_is_named() -> None:
    with pytest.raises(ValueError, match="filter_metric must be one of reward, exact, got 'exakt'"):
        agent(reward_fn=exact, filter_metric="exakt").train(n_updates=1)
