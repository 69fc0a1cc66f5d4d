"""Several learners: a gradient step of two processes beside one of a learner that shares nothing.

Run as a program it is one of the processes, which time all contenders by turns: in seconds of its
processor, since they compete for cores.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import OURS, Measurement, Ratio, Result

LEARNERS = 2
ROWS = 256
STEPS = 20
ROUNDS = 25
ANCHOR = "one learner + all-reduce"


def rows() -> Iterator[Result]:
    from sharpwave.cli.learners import launch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.json"
        if launch(LEARNERS, [__file__, str(path)]) != 0:
            raise RuntimeError("the learners failed")
        times = json.loads(path.read_text())
    for name, contenders in times.items():
        yield Result(
            f"gradient step of {name}, 2 x 256, {ROWS} rows in each of {LEARNERS} processes",
            {contender: Measurement.of(values) for contender, values in contenders.items()},
            [Ratio(ANCHOR, 1 / 1.1)],
            unit="CPU-s",
            note="the anchor steps without the others, and then reduces as many numbers once for"
            " each network that learned; both run in as many processes; seconds of one of them",
        )


def main(path: Path) -> None:
    """Time the steps in one of the processes; the first one writes what it measured."""
    import torch

    from sharpwave.core.ranks import Ranks

    torch.set_num_threads(1)
    ranks = Ranks.join()
    found = {}
    for name, make in {"PPO": ppo_steps, "SAC": sac_steps}.items():
        steps = {OURS: make(ranks), ANCHOR: make(None)}
        times: dict[str, list[float]] = {contender: [] for contender in steps}
        order, shuffle = list(steps), random.Random(0).shuffle  # the same in all processes
        for number in range(ROUNDS + 1):
            shuffle(order)
            for contender in order:
                ranks.gather(None)  # all begin together
                began = time.process_time()
                for _ in range(STEPS):
                    steps[contender]()
                if number:  # after one to warm up
                    times[contender].append((time.process_time() - began) / STEPS)
        found[name] = times
    if ranks.leads:
        path.write_text(json.dumps(found))


def ppo_steps(ranks: Any) -> Callable[[], object]:
    import torch

    import sharpwave as sw
    from sharpwave.learners.batch import OnPolicyBatch

    learner = made(sw.PPO("CartPole-v1", **options(n_envs=2 * LEARNERS)), ranks)
    numbers = torch.as_tensor(np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32))
    log_probs, values, advantages, returns = numbers[:, 4:].unbind(1)
    actions = torch.zeros(ROWS, dtype=torch.int64)
    batch = OnPolicyBatch(numbers[:, :4], actions, log_probs, values, advantages, returns)
    every = torch.arange(ROWS)
    return reducing(lambda: learner.step(batch, every), learner, ranks, ("policy",))


def sac_steps(ranks: Any) -> Callable[[], object]:
    import torch

    import sharpwave as sw
    from sharpwave.learners.replay import ReplayBatch

    learner = made(sw.SAC("Pendulum-v1", **options(n_envs=LEARNERS)), ranks)
    numbers = torch.as_tensor(np.random.default_rng(0).normal(size=(ROWS, 9)).astype(np.float32))
    batch = ReplayBatch(
        numbers[:, :3], numbers[:, 3:4].tanh(), numbers[:, 4], numbers[:, 5:8], numbers[:, 8].tanh()
    )
    networks = ("temperature", "critics", "actor")
    return reducing(lambda: learner.update(batch), learner, ranks, networks)


def options(n_envs: int) -> dict[str, Any]:
    return {
        "seed": 0,
        "n_envs": n_envs,
        "hidden": (256, 256),
        "batch_size": ROWS * LEARNERS,
        "backend": "torch",
    }


def made(agent: Any, ranks: Any) -> Any:
    """The learner of an agent, which shares nothing where `ranks` is None."""
    from sharpwave.core.ranks import ALONE

    learner = agent.learner
    if ranks is None:
        learner.ranks = ALONE
        for flat in learner.flats.values():
            flat.reduce = None
    return learner


def reducing(
    step: Callable[[], object], learner: Any, ranks: Any, networks: tuple[str, ...]
) -> Callable[[], object]:
    """A step, and after one that shares nothing the reductions alone."""
    import torch

    if ranks is not None:
        return step
    blocks = [torch.zeros_like(learner.flats[name].grad) for name in networks]

    def step_and_reduce() -> None:
        step()
        for block in blocks:
            torch.distributed.all_reduce(block)

    return step_and_reduce


if __name__ == "__main__":
    main(Path(sys.argv[1]))
