"""Completions of a language model in a run, as callbacks and folders get them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from sharpwave import llm
from sharpwave.algorithms.dpo import DPO
from sharpwave.algorithms.grpo import GRPO
from sharpwave.algorithms.sft import SFT
from sharpwave.nn.transformer import Transformer
from sharpwave.pages.report import write_report
from sharpwave.runs.callbacks import Callback, EarlyStoppingCallback, EvalCallback
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.unit.pages.report_pages import ReportPage

TASK = llm.TASKS["copy4"]
PROMPTS = TASK.prompts(20)
FIELDS = ["prompt", "completion", "reward", "advantage", "length", "finished"]


def small(**options: Any) -> GRPO:
    given: dict[str, Any] = {
        "reward_fn": TASK.reward,
        "prompts": TASK.prompts(20),
        "tokenizer": llm.DigitTokenizer(),
        "group_size": 4,
        "n_prompts": 3,
        "max_new_tokens": 4,
        "kl_coef": 0.0,
        "seed": 3,
    }
    return GRPO(Transformer(14), **(given | options))


class Hearing(Callback):
    def __init__(self) -> None:
        self.told: list[list[dict[str, Any]]] = []
        self.order: list[tuple[str, int, int]] = []

    def on_samples(self, algo: Any, step: int, rows: Any) -> None:
        self.told.append(list(rows))
        self.order.append(("samples", step, algo.learner.updates))

    def on_train_batch(self, algo: Any, step: int) -> None:
        self.order.append(("update", step, algo.learner.updates))


def test_rows_are_what_was_written_scored_and_learned_from() -> None:
    hearing = Hearing()
    small().train(n_updates=2, callbacks=hearing)
    assert hearing.order == [
        ("samples", 1, 0),
        ("update", 1, 1),
        ("samples", 2, 1),
        ("update", 2, 2),
    ]
    rows = hearing.told[0]
    assert len(rows) == 12
    for one in rows:
        assert list(one) == FIELDS
        assert one["reward"] == pytest.approx(TASK.score(one["prompt"], one["completion"]))
        assert 1 <= one["length"] <= 4
        assert one["finished"] or one["length"] == 4
    for first in range(0, 12, 4):
        group = rows[first : first + 4]
        assert len({one["prompt"] for one in group}) == 1
        assert sum(one["advantage"] for one in group) == pytest.approx(0, abs=1e-4)
        best = max(group, key=lambda one: one["reward"])
        assert best["advantage"] == max(one["advantage"] for one in group)


def test_several_rewards_are_told_by_name_and_none_where_unscored() -> None:
    def even(completions: list[str], **_: Any) -> list[float | None]:
        return [None if i == 0 else 1.0 for i, _ in enumerate(completions)]

    def odd(completions: list[str], **_: Any) -> list[float | None]:
        return [None if i == 0 else 0.5 for i, _ in enumerate(completions)]

    hearing = Hearing()
    metrics = small(reward_fn=[even, odd]).train(n_updates=1, callbacks=hearing)
    first, second, *_ = hearing.told[0]
    assert (first["reward"], first["rewards"]) == (None, {"even": None, "odd": None})
    assert (second["reward"], second["rewards"]) == (1.5, {"even": 1.0, "odd": 0.5})
    assert metrics["reward_even"] == 1.0


def test_without_a_tokenizer_rows_are_tokens() -> None:
    def length(completions: Any, prompts: Any) -> list[float]:
        return [float(len(one)) for one in completions]

    hearing = Hearing()
    agent = small(tokenizer=None, prompts=[[1, 2], [3, 4, 5]], reward_fn=length)
    metrics = agent.train(n_updates=1, callbacks=hearing)
    one = hearing.told[0][0]
    assert one["prompt"] in ([1, 2], [3, 4, 5])
    assert len(one["completion"]) == one["length"] == 4
    assert one["reward"] == len(one["prompt"]) + 4
    assert "reward_length" not in metrics


@pytest.mark.long
def test_listening_changes_nothing(tmp_path: Path) -> None:
    plain, heard = small(), small()
    plain.train(n_updates=3)
    heard.train(n_updates=3, callbacks=[Hearing(), RunRecorder(tmp_path / "run", report=False)])
    for a, b in zip(plain.model.module.parameters(), heard.model.module.parameters(), strict=True):
        assert a.equal(b)


@pytest.mark.long
def test_a_resumed_run_writes_the_same_samples(tmp_path: Path) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    small().train(n_updates=2, callbacks=RunRecorder(path, report=False))
    small().train(n_updates=4, callbacks=RunRecorder(other, report=False))
    with (path / "samples.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "rank": "best"}) + "\n")
    resumed = small()
    resumed.load_checkpoint(path / "checkpoints" / "latest.safetensors")
    resumed.train(n_updates=2, callbacks=RunRecorder(path, report=False))
    assert (path / "samples.jsonl").read_text() == (other / "samples.jsonl").read_text()
    assert list(RunFolder(path).samples()) == [1, 2, 3, 4]


@pytest.mark.long
@pytest.mark.parametrize("greedy", [True, False])
def test_evaluations_complete_prompts(tmp_path: Path, greedy: bool) -> None:
    held_out = TASK.prompts(8, seed=1)
    evaluate = EvalCallback(eval_freq=2, n_eval_episodes=5, deterministic=greedy)
    agent = small(eval_prompts=held_out)
    agent.train(n_updates=3, callbacks=[evaluate, RunRecorder(tmp_path / "run", report=False)])
    assert [one["step"] for one in evaluate.history] == [2, 3]
    written = (tmp_path / "run" / "evaluations.jsonl").read_text()
    kept = [json.loads(line) for line in written.splitlines()]
    for one in kept:
        assert [sample["prompt"] for sample in one["samples"]] == held_out[:5]
        assert [sample["reward"] for sample in one["samples"]] == one["returns"]
        assert [sample["length"] for sample in one["samples"]] == one["lengths"]
    again = agent.evaluate(held_out[:5], greedy=greedy)
    assert list(again.returns) == kept[-1]["returns"]
    given = EvalCallback(["1234="], eval_freq=1)
    agent.train(n_updates=1, callbacks=[given, RunRecorder(tmp_path / "own", report=False)])
    assert len(given.history) == 1


@pytest.mark.long
def test_evaluating_changes_nothing() -> None:
    plain, evaluated = small(), small()
    plain.train(n_updates=3)
    evaluated.train(n_updates=3, callbacks=EvalCallback(eval_freq=1, n_eval_episodes=2))
    for a, b in zip(
        plain.model.module.parameters(), evaluated.model.module.parameters(), strict=True
    ):
        assert a.equal(b)


@pytest.mark.long
def test_the_report_shows_how_the_writing_went_without_a_script(tmp_path: Path) -> None:
    small().train(n_updates=9, callbacks=RunRecorder(tmp_path / "run", report=False))
    folder = RunFolder(tmp_path / "run")
    stages, *_ = ReportPage(write_report(folder.path)).tables
    assert stages[0] == ["Update", "Prompt", "Median completion", "Reward"]
    assert [row[0] for row in stages[1:]] == ["1", "3", "4", "6", "7", "9"]
    for step, prompt, completion, reward in stages[1:]:
        kept = folder.samples()[int(step)]["median"]
        assert (prompt, completion) == (kept["prompt"], kept["completion"])
        assert float(reward) == pytest.approx(kept["reward"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "columns", "said"),
    [
        (DPO, ("chosen", "rejected"), {"Accuracy"}),
        (SFT, ("completion",), {"Loss", "Log-probability of a token"}),
    ],
)
def test_evaluations_have_the_name_of_what_they_measure(
    kind: Any, columns: tuple[str, ...], said: set[str], tmp_path: Path
) -> None:
    """They were returns of episodes, which a language model has not."""
    rows = [{"prompt": x, **{name: x[i:4] for i, name in enumerate(columns)}} for x in PROMPTS]
    agent = kind(Transformer(14, hidden=16), dataset=rows, tokenizer=llm.DigitTokenizer(), seed=1)
    evaluate = EvalCallback(eval_freq=1, n_eval_episodes=4)
    agent.train(n_updates=2, callbacks=[evaluate, RunRecorder(tmp_path / "run", report=False)])
    page = ReportPage(write_report(tmp_path / "run"))
    assert said <= page.labels.keys()
    assert "Episode return" not in page.labels


@pytest.mark.parametrize("kind", [DPO, SFT])
def test_runs_on_examples_stop_early(kind: Any) -> None:
    rows = [{"prompt": "12=", "completion": "1", "chosen": "1", "rejected": "2"}]
    agent = kind(Transformer(14, hidden=16), dataset=rows, tokenizer=llm.DigitTokenizer())
    agent.train(n_updates=50, callbacks=EarlyStoppingCallback(patience=2, min_delta=10.0))
    assert agent.timesteps == 3
    assert "mean_" in agent.stop_reason
