"""Rollouts made ahead: which weights write them, that they repeat, and that nothing is left."""

from __future__ import annotations

import copy
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.algorithms.grpo import GRPO, GRPOLearner
from sharpwave.algorithms.online_dpo import OnlineDPO
from sharpwave.llm import TASKS, DigitTokenizer, RewardFailed, Sampler, SamplerFailed
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face, make

TASK = TASKS["copy4"]


class Watching(GRPOLearner):
    """Keeps what it was given, and the weights before each update."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.before: list[dict[str, torch.Tensor]] = []
        self.batches: list[Any] = []

    def update(self, batch: Any) -> Any:
        """Learn from a batch."""
        self.before.append({k: v.clone() for k, v in self.model.module.state_dict().items()})
        self.batches.append(batch)
        return super().update(batch)


def transformer() -> Transformer:
    model = Transformer(14, hidden=32, seed=0)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, **options: Any) -> GRPO:
    given: dict[str, Any] = {
        "reward_fn": TASK.reward,
        "prompts": TASK.prompts(40),
        "tokenizer": DigitTokenizer(),
        "max_new_tokens": 4,
        "n_prompts": 3,
        "learning_rate": 5e-3,
        "kl_coef": 0.0,
        "seed": 3,
        "learner": Watching,
    }
    return GRPO(transformer() if model is None else model, **{**given, **options})


def weights(one: GRPO) -> torch.Tensor:
    return torch.cat([x.detach().reshape(-1) for x in one.model.module.parameters()])


class Log(sw.Callback):
    """Keeps the metrics of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def on_train_batch(self, **metrics: Any) -> bool:
        """Keep them."""
        self.rows.append(metrics)
        return True


@pytest.mark.long(but=["1"])
@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_each_batch_is_written_by_the_weights_it_should_be(staleness: int) -> None:
    one, log = agent(max_staleness=staleness), Log()
    one.train(n_updates=6, callbacks=log)
    learner: Any = one.learner
    versions = [max(0, update - staleness) for update in range(6)]
    assert [batch.version for batch in learner.batches] == versions
    assert [row["staleness"] for row in log.rows] == [min(u, staleness) for u in range(6)]
    assert log.rows[-1]["staleness_max"] == staleness
    assert (one.loop.drawn, one.loop.sampler.drawn, one.loop.sampler.version) == (18, 18, 6)
    prompts = one.loop.prompts
    assert prompts is not None
    for update, (batch, version) in enumerate(zip(learner.batches, versions, strict=True)):
        model = transformer()
        model.load_state_dict(learner.before[version])
        sampler = Sampler(model, seed=3, tokenizer=DigitTokenizer())
        rows = prompts.rows(3 * update, 3, seed=3)
        keys = range(3 * update, 3 * update + 3)
        written = sampler.generate([prompts.tokens[row] for row in rows], 4, 4, keys=keys)
        assert torch.equal(batch.completion_tokens, written.tokens)
        # What the ratio is taken to is who wrote, also where that is the policy of now.
        assert torch.equal(batch.old_log_probs, written.plain_log_probs)
        assert torch.equal(batch.sampler_log_probs, written.plain_log_probs)


@pytest.mark.long(but=["1"])
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_a_run_repeats_whatever_takes_how_long(staleness: int) -> None:
    chance = random.Random(staleness)

    def dawdling(**given: Any) -> list[float]:
        time.sleep(chance.random() * 0.01)
        return TASK.reward(**given)

    class Dawdling(Watching):
        def update(self, batch: Any) -> Any:
            time.sleep(chance.random() * 0.01)
            return super().update(batch)

    quick = agent(max_staleness=staleness)
    quick.train(n_updates=5)
    for _ in range(2):
        slow = agent(max_staleness=staleness, reward_fn=dawdling, learner=Dawdling)
        slow.train(n_updates=5)
        assert torch.equal(weights(quick), weights(slow))
        assert slow.loop.timings["reward"] > 0


def test_without_staleness_nothing_is_new() -> None:
    one, log = agent(), Log()
    before = threading.active_count()
    one.train(n_updates=2, callbacks=log)
    assert threading.active_count() == before
    learner: Any = one.learner
    assert [batch.old_log_probs for batch in learner.batches] == [None, None]
    assert not any(name.startswith("staleness") for name in log.rows[0])


def test_sampling_goes_on_while_the_learner_updates() -> None:
    updating, rewarding = threading.Event(), threading.Event()
    rewarded = 0

    class Meeting(Watching):
        def update(self, batch: Any) -> Any:
            updating.set()
            assert rewarding.wait(30)  # the next rollout has come to its rewards
            return super().update(batch)

    def meeting(**given: Any) -> list[float]:
        nonlocal rewarded
        rewarded += 1
        if rewarded == 2:
            assert updating.wait(30)  # the first update has begun
            rewarding.set()
        return TASK.reward(**given)

    agent(max_staleness=1, reward_fn=meeting, learner=Meeting).train(n_updates=3)
    assert rewarded == 3  # none beyond the end of the run


def rollout_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("sharpwave rollouts")]


@pytest.mark.long(but=["done"])
@pytest.mark.parametrize("end", ["done", "callback", "learner", "reward"])
def test_no_thread_is_left(end: str) -> None:
    class Stop(sw.Callback):
        def on_train_batch(self, **_: Any) -> bool:
            return end != "callback"

    class Failing(Watching):
        def update(self, batch: Any) -> Any:
            if end == "learner" and self.updates == 1:
                raise ZeroDivisionError("in the learner")
            return super().update(batch)

    def failing(**given: Any) -> list[float]:
        if end == "reward" and threading.current_thread() in rollout_threads():
            raise ZeroDivisionError("in the thread")
        return TASK.reward(**given)

    one = agent(max_staleness=2, reward_fn=failing, learner=Failing)
    if end in ("learner", "reward"):
        with pytest.raises((ZeroDivisionError, RewardFailed)) as caught:
            one.train(n_updates=5, callbacks=Stop())
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        if end == "reward":
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            assert "collect" in names  # where it was raised, not only where it came out
    else:
        one.train(n_updates=5, callbacks=Stop())
    assert rollout_threads() == []
    # It goes on with the prompts that were not learned from.
    assert one.loop.drawn == 3 * one.learner.updates + (3 if end == "learner" else 0)
    end = "done"
    one.train(n_updates=2)
    assert rollout_threads() == []


@pytest.mark.long
def test_what_was_in_flight_is_drawn_anew_after_resume(tmp_path: Path) -> None:
    whole = agent(max_staleness=2)
    whole.train(n_updates=3)
    whole.save(tmp_path / "three")
    given = {"reward_fn": TASK.reward, "prompts": TASK.prompts(40), "tokenizer": DigitTokenizer()}
    runs = []
    for _ in range(2):
        one = GRPO.from_checkpoint(
            tmp_path / "three", model=transformer(), learner=Watching, **given
        )
        one.train(n_updates=3)
        runs.append(one)
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    learner: Any = runs[0].learner
    # The first rollouts are of the weights that were saved, so none is staler than it may be.
    assert [batch.version for batch in learner.batches] == [3, 3, 3]
    assert runs[0].loop.drawn == 18
    prompts = runs[0].loop.prompts
    assert prompts is not None
    rows = prompts.rows(9, 3, seed=3)
    group = learner.batches[0].select(torch.arange(0, 12, 4))
    begun = group.tokens.split(group.lengths.tolist())
    for row, sequence in zip(rows, begun, strict=True):
        assert sequence[: len(prompts.tokens[row])].tolist() == prompts.tokens[row].tolist()


@pytest.mark.long
def test_stop_in_the_middle_keeps_what_was_learned_from(tmp_path: Path) -> None:
    class Stop(sw.Callback):
        def on_train_batch(self, **metrics: Any) -> bool:
            return bool(metrics["timesteps"] < 3)

    one = agent(max_staleness=1)
    one.train(n_updates=9, callbacks=Stop(), run_dir=tmp_path / "run")
    assert (one.learner.updates, one.loop.drawn, one.loop.sampler.drawn) == (3, 9, 9)
    two = agent(max_staleness=1)
    two.train(n_updates=5, run_dir=tmp_path / "run", resume=True)
    assert (two.learner.updates, two.loop.drawn) == (5, 15)


def test_frozen_weights_are_not_copied() -> None:
    from sharpwave.llm import Follower

    model = transformer()
    frozen, learning = (
        model.embedding,
        next(x for name, x in model.named_parameters() if name != "embedding"),
    )
    frozen.requires_grad_(False)
    follower = Follower(Sampler(model))
    twin = dict(follower._sampler.model.module.named_parameters())
    assert twin["embedding"] is frozen
    names = {id(x): name for name, x in model.named_parameters()}
    copied = twin[names[id(learning)]]
    assert copied.data_ptr() != learning.data_ptr()
    with torch.no_grad():
        learning.add_(1)
    assert not torch.equal(copied, learning)
    follower.take(1)
    assert torch.equal(copied, learning)


def test_a_follower_draws_what_its_sampler_drew() -> None:
    model = transformer()
    sampler = Sampler(model, seed=1, top_p=0.9, stop=["="], tokenizer=DigitTokenizer())
    wanted = sampler.generate([[1, 2], [3]], 8, 6)
    follower = sw.llm.Follower(sampler)
    follower.take(4)
    with torch.no_grad():
        model.embedding.mul_(-1)
    found = follower.generate([[1, 2], [3]], 8, 6)
    assert torch.equal(found.tokens, wanted.tokens)
    assert torch.equal(found.finished, wanted.finished)
    assert (found.version, follower.version, follower.drawn) == (4, 4, 2)


@pytest.mark.long
def test_online_dpo_samples_ahead() -> None:
    def more_sevens(pairs: Any) -> list[int]:
        return [int((other == 7).sum() > (one == 7).sum()) for one, other in pairs]

    found = []
    for _ in range(2):
        log = Log()
        one = OnlineDPO(
            transformer(), preference_fn=more_sevens, max_staleness=1, seed=1, learning_rate=1e-3
        )
        one.train([[1, 2], [3, 4]], n_updates=4, callbacks=log)
        found.append(torch.cat([x.detach().reshape(-1) for x in one.model.module.parameters()]))
        assert [row["staleness"] for row in log.rows] == [0, 1, 1, 1]
    assert torch.equal(*found)


@pytest.mark.long(but=["1"])
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_a_server_samples_as_the_agent_would(staleness: int, tmp_path: Path) -> None:
    local = agent(max_staleness=staleness)
    local.train(n_updates=4)
    model = transformer()
    there = sw.llm.CausalModel.of(transformer(), DigitTokenizer())
    server = sw.llm.ModelServer(there, "policy", weights=tmp_path)
    with server, server.running():
        sampler = sw.llm.RemoteSampler(
            server.url, "policy", weights=model, folder=tmp_path, seed=3, retries=0
        )
        remote = agent(model, max_staleness=staleness, sampler=sampler)
        remote.train(n_updates=4)
        assert torch.equal(weights(local), weights(remote))
        assert server.engine.version == max(0, 3 - staleness)
    with pytest.raises(SamplerFailed, match="refused"):
        remote.train(n_updates=1)
    assert rollout_threads() == []


def test_what_cannot_be_followed_is_named() -> None:
    class Own(Sampler):
        pass

    with pytest.raises(TypeError, match="sampler must be a Sampler or a RemoteSampler"):
        agent(max_staleness=1, sampler=Own(make("transformer"))).train(n_updates=1)
    frozen = sw.llm.RemoteSampler("http://127.0.0.1:1", "policy")
    with pytest.raises(ValueError, match="sampler must be given the weights that learn"):
        agent(sampler=frozen).train(n_updates=1)
    with pytest.raises(ValueError, match="max_staleness must be"):
        agent(max_staleness=-1)
    with pytest.raises(ValueError, match="sampling_device needs max_staleness"):
        agent(sampling_device="cpu")


def test_a_rollout_of_ones_own_is_made_ahead() -> None:
    def rollout(prompts: Any, sampler: Any, n: int) -> Any:
        written = sampler.generate(prompts.tokens, n, 3)
        return sw.llm.TokenBatch.of(written)

    one, log = agent(max_staleness=1, rollout_fn=rollout, max_new_tokens=3), Log()
    one.train(n_updates=3, callbacks=log)
    assert [row["staleness"] for row in log.rows] == [0, 1, 1]


@pytest.mark.long
def test_rollouts_that_take_more_prompts_repeat_too() -> None:
    """The number of prompts of a rollout is known only when the one before it is there."""
    found = []
    for pause in (0.0, 0.01):

        def slowly(pause: float = pause, **given: Any) -> list[float]:
            time.sleep(pause)
            return TASK.reward(**given)

        one = agent(max_staleness=2, reward_fn=slowly, filter_metric="reward", filter_tries=4)
        one.train(n_updates=5)
        assert one.loop.drawn == one.loop.sampler.drawn > 15
        found.append(weights(one))
    assert torch.equal(*found)


KILLED = """
import os, signal, sys, threading
from sharpwave.runs.recorder import RunRecorder
from tests.unit.loops.test_ahead import TASK, agent

place, made = sys.argv[2], [0]

def reward(**given):
    made[0] += 1
    if place == "reward" and made[0] == 5:
        assert threading.current_thread().name.startswith("sharpwave rollouts")
        os.kill(os.getpid(), signal.SIGKILL)
    return TASK.reward(**given)

one = agent(max_staleness=1, reward_fn=reward)
update = one.learner.update

def deadly(batch):
    if place == "update" and one.learner.updates == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return update(batch)

one.learner.update = deadly
one.train(n_updates=9, callbacks=RunRecorder(sys.argv[1], checkpoint_freq=1, report=False))
"""


@pytest.mark.long
@pytest.mark.parametrize("place", ["reward", "update"])
def test_a_run_that_was_killed_goes_on_with_its_prompts(place: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), place]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    runs = []
    for name in ("run", "copy"):
        if name == "run":
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
        one = agent(max_staleness=1)
        one.train(n_updates=6, run_dir=tmp_path / name, resume=True)
        learner: Any = one.learner
        begun = 6 - len(learner.batches)
        assert begun in (2, 3)
        assert [batch.version for batch in learner.batches][:2] == [begun, begun]
        assert (learner.updates, one.loop.drawn, one.loop.sampler.drawn) == (6, 18, 18)
        runs.append(weights(one))
    assert torch.equal(*runs)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_an_adapter_is_followed_without_a_copy_of_its_model() -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    base = hugging_face(vocab_size=14, eos_token_id=13)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    found = []
    for _ in range(2):
        one = agent(copy.deepcopy(model), max_staleness=1)
        one.train(n_updates=3)
        learner: Any = one.learner
        assert [batch.version for batch in learner.batches] == [0, 0, 1]
        found.append(torch.cat([x.reshape(-1) for x in one.model.module.parameters()]))
    assert torch.equal(*found)
    follower = sw.llm.Follower(one.loop.sampler)
    twin = dict(follower._sampler.model.module.named_parameters())
    for name, parameter in one.model.module.named_parameters():
        assert (twin[name] is parameter) == ("lora" not in name)
