"""Completions are kept in a folder, looked at, and learned from again."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.llm import (
    TASKS,
    Completions,
    CompletionStore,
    Demonstrations,
    DigitTokenizer,
    Pairs,
    Prompts,
    Scored,
    Written,
)
from sharpwave.nn import Transformer

TASK = TASKS["copy4"]


def written(rewards: list[float], mask: torch.Tensor | None = None) -> Written:
    """Two prompts with two completions of two tokens each."""
    prompts = Prompts.of([[1, 2, 3], [4]])
    completions = Completions(
        prompts=prompts.tokens,
        prompt=torch.tensor([0, 0, 1, 1]),
        tokens=torch.tensor([5, 5, 6, 6, 7, 7, 8, 8]),
        offsets=torch.tensor([0, 2, 4, 6, 8]),
        log_probs=-torch.arange(8.0),
        plain_log_probs=torch.zeros(8),
        finished=torch.tensor([True, False, True, True]),
        version=3,
        mask=mask,
    )
    return Written(prompts, completions, Scored(torch.tensor(rewards), {}))


def agent(store: Any = None, reward_fn: Any = TASK.reward) -> sw.GRPO:
    model = Transformer(14, hidden=16, heads=2, layers=1, seed=1)
    with torch.no_grad():
        model.embedding.mul_(10)
    return sw.GRPO(
        model, reward_fn=reward_fn, prompts=TASK.prompts(24), tokenizer=DigitTokenizer(),
        n_prompts=4, group_size=4, max_new_tokens=4, seed=3, store=store,
    )  # fmt: skip


def rows_of(store: CompletionStore) -> list[tuple[Any, ...]]:
    """Everything that a store holds, in order."""
    table = store.buffer.episodes()
    return [
        (
            *(table.meta[name][i].item() for name in ("number", "group", "version", "reward")),
            store.buffer.gather(table.starts[i] + np.arange(table.lengths[i]))["token"].tolist(),
        )
        for i in range(len(table))
    ]


def test_what_was_added_is_there_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "all")
    store.add(written([1.0, 0.0, math.nan, 2.0]))
    store.close()
    again = CompletionStore(tmp_path / "all")
    again.add(written([0.5, 0.5, 1.0, 3.0]))
    table = again.buffer.episodes()
    assert table.lengths.tolist() == [5, 5, 3, 3] * 2
    assert table.meta["group"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.meta["number"].tolist() == list(range(8))
    assert table.meta["finished"].tolist() == [True, False, True, True] * 2
    assert set(table.meta["version"].tolist()) == {3}
    first = again.buffer.gather(np.arange(5))
    assert first["token"].tolist() == [1, 2, 3, 5, 5]
    np.testing.assert_array_equal(first["log_prob"], [math.nan] * 3 + [0.0, -1.0])


def test_tokens_that_the_model_did_not_write_have_no_log_probability(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path)
    store.add(written([1.0] * 4, torch.tensor([True, False] * 4)))
    assert np.isnan(store.buffer.gather(np.arange(5))["log_prob"]).tolist() == [True] * 3 + [
        False,
        True,
    ]


def test_preferences_and_demonstrations_come_out(tmp_path: Path) -> None:
    store = CompletionStore(tmp_path / "all")
    store.add(written([1.0, 0.0, math.nan, 2.0]))  # the second prompt has one scored completion
    store.add(written([0.5, 0.5, 1.0, 3.0]))  # the first has nothing to prefer
    pairs = [{name: row[name].tolist() for name in row} for row in store.pairs()]
    assert pairs == [
        {"prompt": [1, 2, 3], "chosen": [5, 5], "rejected": [6, 6]},
        {"prompt": [4], "chosen": [8, 8], "rejected": [7, 7]},
    ]
    best = [row["completion"].tolist() for row in store.best()]
    assert best == [[5, 5], [8, 8], [5, 5], [8, 8]]
    assert [row["completion"].tolist() for row in store.best(at_least=2)] == [[8, 8], [8, 8]]
    assert len(Pairs.of(store)) == len(Pairs.of(tmp_path / "all")) == 2
    assert len(Demonstrations.of(str(tmp_path / "all"))) == 4


def test_runs_store_what_they_write_and_others_learn_from_it(tmp_path: Path) -> None:
    one = agent(tmp_path / "all")
    one.train(n_updates=3)
    store = one.loop.store
    assert store is not None
    assert len(store) == 3 * 16
    found = rows_of(store)
    assert [row[1] for row in found] == [i // 4 for i in range(48)]
    assert [row[2] for row in found] == [i // 16 for i in range(48)]
    decode = DigitTokenizer().decode
    for *_, reward, tokens in found:
        assert reward == pytest.approx(TASK.reward([decode(tokens[:5])], [decode(tokens[5:])])[0])
    model = Transformer(14, hidden=16, heads=2, layers=1)
    dpo = sw.DPO(model, dataset=tmp_path / "all", n_pairs=4, seed=0)
    assert dpo.train(n_updates=1)["grad_norm"] > 0
    sft = sw.SFT(model, dataset=store, n_examples=4, seed=0)
    assert sft.train(n_updates=1)["grad_norm"] > 0


def test_the_folder_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = CompletionStore(tmp_path / "all")
    store.add(written([1.0, 0.0, math.nan, 2.0]))
    assert main(["inspect", str(tmp_path / "all"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "log_prob" in json.dumps(found)
    assert "prompt_length" in json.dumps(found)


@pytest.mark.long
def test_a_run_that_goes_on_stores_nothing_twice(tmp_path: Path) -> None:
    whole = agent(tmp_path / "whole")
    whole.train(n_updates=3)
    first = agent(tmp_path / "cut")
    first.train(n_updates=1)
    first.save(tmp_path / "one")
    first.train(n_updates=1)  # its completions will come again
    assert first.loop.store is not None
    first.loop.store.close()
    given = {"reward_fn": TASK.reward, "prompts": TASK.prompts(24), "tokenizer": DigitTokenizer()}
    second = sw.GRPO.from_checkpoint(
        tmp_path / "one", model=agent().model.module, store=tmp_path / "cut", **given
    )
    second.train(n_updates=2)
    assert second.loop.store is not None
    assert whole.loop.store is not None
    assert rows_of(second.loop.store) == rows_of(whole.loop.store)


def train_until_killed(folder: str, ready: Any) -> None:
    calls = 0

    def reward(prompts: list[str], completions: list[str]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 3:
            ready.send(None)
            signal.pause()
        return TASK.reward(prompts, completions)

    agent(folder, reward).train(n_updates=10)


@pytest.mark.long
def test_completions_outlive_a_killed_process(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=train_until_killed, args=(str(tmp_path / "all"), theirs))
    process.start()
    assert ours.poll(120)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    store = CompletionStore(tmp_path / "all")
    whole = agent(tmp_path / "whole")
    whole.train(n_updates=2)
    assert whole.loop.store is not None
    assert rows_of(store) == rows_of(whole.loop.store)
    store.add(written([1.0] * 4))  # and more is stored
    assert len(store) == 36


def test_other_folders_are_refused(tmp_path: Path) -> None:
    sw.EpisodeBuffer(tmp_path / "others", 4, 4, {"obs": "float"}).close()
    with pytest.raises(ValueError, match=r"must hold completions, got episodes of \['obs'\]"):
        CompletionStore(tmp_path / "others")
