"""The compiled parts of DreamerV3 compute what they do without torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw

OF_DRAWS = ("actor_loss", "critic_loss", "replay_value_loss")
"""Losses of imagination, which goes elsewhere where rounding turns one of its draws over."""


def compare(plain: Any, quick: Any, *, same_start: bool) -> None:
    """Fifty gradient steps of both on the same batches, from the same weights each or on and on."""
    for step in range(50):
        batch = plain.loop.sample()
        if same_start:
            quick.learner.load_state_dict(plain.learner.state_dict())
        found: list[Any] = []
        for agent in (plain, quick):
            agent.learner.follow(1.0)
            found.append(agent.learner.update(batch))
        eager, compiled = found
        for name, loss in eager.items():
            if name.endswith("_loss") and (same_start or name not in OF_DRAWS):
                same = pytest.approx(loss.item(), rel=1e-3, abs=1e-4)
                assert compiled[name].item() == same, (step, name)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # it is the compiler that takes long
@pytest.mark.filterwarnings("default")  # torch warns of itself where it compiles
def test_compiled_losses_are_those_of_the_definition_over_fifty_steps() -> None:
    """Measured 1e-5 on and on, in losses of the model, and 2e-6 from the same weights in all."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, quick = (
        sw.DreamerV3("CartPole-v1", seed=3, train_ratio=1e-6, compile=x, device="cpu")
        for x in (False, True)
    )
    plain.train(600)
    compare(plain, quick, same_start=False)
    compare(plain, quick, same_start=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
