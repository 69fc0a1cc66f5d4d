"""Gradients by hand beside autograd, eager and compiled: python benchmarks/gpu/by_hand.py.

Whether gradients by hand (`nn/by_hand`) are worth a learner of their own on a GPU: one gradient
step of PPO and of SAC, on minibatches of 256 and 4,096 rows and networks of 2 x 64 and 2 x 256.
Without a GPU the same steps run once on the CPU, which shows that both ways agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import timing
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave import nn
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.replay import ReplayBatch

OBS, ACTIONS = spaces.Box(-1, 1, (17,), np.float32), spaces.Box(-1, 1, (6,), np.float32)
ROWS, WIDTHS = (256, 4096), (64, 256)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Step = Callable[[], object]


def learner(name: str, width: int, compiled: bool = False) -> Any:
    """A learner of torch's, whose loss may be compiled."""
    kind: Any = getattr(sw, f"{name}Learner")
    config = getattr(sw, f"{name}Config")(hidden=(width, width), compile=compiled)
    made = kind(config, OBS, ACTIONS, seeds=0, device=DEVICE)
    made.follow(1.0)
    if compiled:
        for loss in made.losses:
            setattr(made, loss, torch.compile(getattr(made, loss)))
    return made


def columns(rows: int, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(rows, generator=generator).to(DEVICE) for name in names}


def observations(rows: int, size: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def ppo_steps(rows: int, width: int) -> Iterator[tuple[str, Step, Any, str]]:
    """One step of PPO in every way."""
    batch = OnPolicyBatch(
        obs=observations(rows, 17, 1),
        actions=observations(rows, 6, 2),
        **columns(rows, ("log_probs", "values", "advantages", "returns")),  # type: ignore[arg-type]
    )
    every = torch.arange(rows, device=DEVICE)
    for name, compiled in (("autograd", False), ("compiled", True)):
        made = learner("PPO", width, compiled)
        yield name, partial(made.step, batch, every), made, "policy"

    made = learner("PPO", width)
    config = made.config
    by_hand = nn.ByHand(made.flat, rows)
    by_hand.load(
        batch.obs, batch.actions, batch.advantages, batch.returns, log_probs=batch.log_probs
    )

    def step() -> None:
        by_hand.ppo_gradient(
            every, clip=made.clip, vf_coef=config.vf_coef, ent_coef=config.ent_coef
        )
        made.flat.clip_grad_norm(made.config.max_grad_norm)
        made.optimizers["policy"].step()

    yield "by hand", step, made, "policy"


def sac_steps(rows: int, width: int) -> Iterator[tuple[str, Step, Any, str]]:
    """One step of SAC in every way."""
    batch = ReplayBatch(
        obs=observations(rows, 17, 1),
        next_obs=observations(rows, 17, 3),
        actions=observations(rows, 6, 2).tanh(),
        **columns(rows, ("rewards", "discounts")),  # type: ignore[arg-type]
    )
    for name, compiled in (("autograd", False), ("compiled", True)):
        made = learner("SAC", width, compiled)
        yield name, partial(made.update, batch), made, "critics"

    made = learner("SAC", width)
    by_hand = nn.SACByHand(made.policy, made.critics, made.target_critics)

    def step() -> None:
        _, log_probs = by_hand.sample(batch.obs, batch.next_obs, made.generator)
        alpha = made.alpha()
        made.step_alpha(-log_probs - made.wanted_entropy(None))
        targets = by_hand.soft_targets(batch.rewards, batch.discounts, alpha)
        by_hand.critic_gradient(batch.obs, batch.actions, targets, None, 0.5)
        made.optimizers["critics"].step()
        by_hand.actor_gradient(alpha)
        made.optimizers["actor"].step()
        made.follow_slowly("target_critics", "critics", made.config.tau)

    yield "by hand", step, made, "critics"


def main() -> None:
    print("| step | rows | width | way | eager, us | in a graph, us |\n|---|---|---|---|---|---|")
    for name, steps in (("PPO", ppo_steps), ("SAC", sac_steps)):
        for rows, width in product(ROWS, WIDTHS):
            for way, step, made, network in steps(rows, width):
                found = (
                    measured(step, made, network) if DEVICE == "cuda" or way != "compiled" else ""
                )
                print(f"| {name} | {rows} | {width} | {way} | {found} |", flush=True)


def measured(step: Step, made: Any, network: str) -> str:
    """Times of a step, or on the CPU the sum of the weights after one."""
    if DEVICE == "cpu":
        step()
        return f"sum {made.flats[network].data.sum():.6f} |"
    graph = timing.graph_ms(step, generator=made.generator)
    return f"{timing.eager_ms(step) * 1e3:.0f} | {graph * 1e3:.0f}"


if __name__ == "__main__":
    main()
