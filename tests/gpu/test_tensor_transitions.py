"""Replay of environments on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.collect import NonFiniteError
from sharpwave.tensors import TensorTransitionCollector
from sharpwave.tensors.steps import FiniteWatch
from tests.gpu.host_sync import no_host_sync
from tests.unit.envs.tensor_envs import NamedPoints, Points
from tests.unit.tensors.test_transitions import Chosen, Wide

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Trusting(Chosen):
    """One that does not look at the actions it gets, for which it would have to wait."""

    def step(self, actions: Any) -> Any:
        return super(Chosen, self).step((actions[:, None] - 6).float())


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [(sw.SAC, NamedPoints), (sw.TD3, Wide), (sw.DQN, Trusting)],
    ids=["sac", "td3", "dqn"],
)
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_steps_and_learning_never_wait_for_the_device(
    algorithm: Any, env: Any, prioritized: bool, n_step: int
) -> None:
    agent = algorithm(
        env(64, "cuda"),
        device="cuda",
        buffer="device",
        learning_starts=128,
        prioritized=prioritized,
        n_step=n_step,
        log_interval=640,
    )
    assert isinstance(agent.collector, TensorTransitionCollector)
    agent.train(1280)
    torch.cuda.synchronize()
    with no_host_sync():
        for rows, _ in (agent.collector.step(agent.loop._choose_tensors) for _ in range(40)):
            agent.loop._store_round(rows)
    for name, column in agent.buffer.state_dict()["fields"].items():
        assert column.device.type == "cuda", name
    with no_host_sync():
        agent.loop._learn(64)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_seen(number: float) -> None:
    watch = FiniteWatch("cuda")
    good = torch.full((1000, 3), 3e38, device="cuda")
    with no_host_sync():
        watch.look({"obs": good, "flags": good > 0})
    watch.check("it", 5)
    good[700, 1] = number
    with no_host_sync():
        watch.look((good, -good))
        watch.look(torch.zeros(3, device="cuda"))
    with pytest.raises(NonFiniteError, match="it must give finite numbers"):
        watch.check("it", 5)


def test_an_agent_learns_without_leaving_the_device() -> None:
    sac = sw.SAC(
        Points(64, "cuda"),
        device="cuda",
        buffer="device",
        gamma=0.9,
        learning_starts=1000,
        hidden=(32,),
        learning_rate=3e-3,
        gradient_steps=2,
    )
    before = sac.evaluate(64, env=Points(64, "cuda")).mean
    sac.train(50_000)
    assert sac.evaluate(64, env=Points(64, "cuda")).mean > before / 3
