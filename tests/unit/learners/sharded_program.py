"""The program of each process in a test of several.

Its argument is a list, in JSON, of what to do one after another: a case, a folder, an algorithm, a
kind of model, and a number of updates.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import sharpwave as sw
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face, spread

RANK = int(os.environ.get("RANK", "0"))
PROMPTS = [[3 + (7 * i + k * k) % 11 for k in range(2 + i % 4)] for i in range(64)]


def model(kind: str) -> Any:
    """A model with odd sizes, so that shards differ in length; weights differ by process."""
    torch.manual_seed(RANK)
    if kind == "transformer":
        return spread(Transformer(15, hidden=24, layers=2, seed=RANK), 4.0)
    return hugging_face(kind, vocab_size=15, tie_word_embeddings=True)


def grpo(kind: str, **options: Any) -> Any:
    """GRPO with a reference, micro-batches, and rewards of its own."""
    return sw.GRPO(
        model(kind),
        reward_fn=lambda completions, _: [float((x % 5 == 2).sum()) for x in completions],
        prompts=PROMPTS,
        seed=3,
        **{
            "n_prompts": 5,
            "group_size": 4,
            "max_new_tokens": 6,
            "max_tokens": 60,
            "learning_rate": 1e-4,
            "weight_decay": 0.1,
            "kl_coef": 0.1,
            "n_iterations": 2,
            "max_grad_norm": 0.1,
            **options,
        },
    )


def dpo(kind: str, **options: Any) -> Any:
    """DPO on pairs of different lengths."""
    pairs = [
        {"prompt": x, "chosen": [*x[::-1], 2], "rejected": [1 + i % 9] * (1 + i % 3)}
        for i, x in enumerate(PROMPTS)
    ]
    return sw.DPO(
        model(kind),
        dataset=pairs,
        seed=3,
        **{"n_pairs": 7, "max_tokens": 40, "learning_rate": 1e-4, **options},
    )


AGENTS = {"grpo": grpo, "dpo": dpo}


def weights(agent: Any) -> dict[str, torch.Tensor]:
    """The whole weights."""
    with agent.learner.whole() as found:
        return {k: x.clone() for k, x in found.module.state_dict().items()}


def learn(folder: Path, name: str, kind: str, n: int) -> None:
    """Train, and leave weights and metrics."""
    agent = AGENTS[name](kind)
    metrics = [agent.train(n_updates=1) for _ in range(n)]
    found = weights(agent)
    judged = agent.evaluate().mean
    if RANK == 0:
        torch.save(found, folder / "weights.pt")
    kept = [{k: x for k, x in one.items() if k != "sps"} for one in metrics]
    (folder / f"metrics{RANK}.json").write_text(json.dumps([*kept, {"judged": judged}]))


def record(folder: Path, name: str, kind: str, n: int) -> None:
    """Train with a run folder, loggers and evaluations, going on with what is there."""
    told = folder / f"told{RANK}.txt"

    class Tell(sw.Callback):
        def on_train_batch(self, **_: Any) -> None:
            with told.open("a") as file:
                file.write("x")

    agent = AGENTS[name](kind)
    callbacks = [sw.EvalCallback(eval_freq=2, n_eval_episodes=4), Tell()]
    agent.train(n_updates=n, run_dir=folder / "run", callbacks=callbacks, resume=True)
    found = weights(agent)
    if RANK == 0:
        torch.save(found, folder / f"weights{n}.pt")


def die(folder: Path, name: str, kind: str, n: int) -> None:
    """The last process ends in the midst of a run."""

    class Die(sw.GRPOLearner):
        def update(self, batch: Any) -> Any:
            if self.updates == 1 and RANK == 1:
                os._exit(9)
            return super().update(batch)

    agent = AGENTS[name](kind, learner=Die)
    (folder / f"began{RANK}").touch()
    began = time.monotonic()
    try:
        agent.train(n_updates=n, run_dir=folder / "run")
    except RuntimeError as error:
        told = {"seconds": time.monotonic() - began, "error": str(error)}
        (folder / "ended.json").write_text(json.dumps(told))
        raise


CASES: dict[str, Any] = {"learn": learn, "record": record, "die": die}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for case, path, algorithm, kind, count in json.loads(sys.argv[1]):
        CASES[case](Path(path), algorithm, kind, count)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
