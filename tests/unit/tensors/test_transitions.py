"""Replay of environments on a device is what it is of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import sharpwave as sw
from sharpwave.collect import NonFiniteError, OffPolicyCollector
from sharpwave.core.tree import leaves
from sharpwave.envs import TensorVectorEnv
from sharpwave.tensors import TensorTransitionCollector
from sharpwave.tensors.steps import FiniteWatch
from tests.unit.envs.tensor_envs import NamedPoints, Points, ReusingPoints

OPTIONS: dict[str, Any] = {
    "buffer": "device",
    "backend": "torch",
    "learning_starts": 60,
    "batch_size": 32,
    "hidden": (8,),
    "log_interval": 100,
}


class Wide(Points):
    """Actions in other bounds than [-1, 1]."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.single_action_space = spaces.Box(np.array([-3.0], "f"), np.array([0.5], "f"))


class Chosen(ReusingPoints):
    """Integers as actions, of which the first is not always allowed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.single_action_space = spaces.Discrete(3, start=5)

    def step(self, actions: Tensor) -> Any:
        assert ((actions > 5) | (self.state[:, 0] > 0)).all()
        return super().step((actions[:, None] - 6).float())


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sac": (sw.SAC, Points, {}),
    "sac, named": (sw.SAC, NamedPoints, {}),
    "sac, gsde": (sw.SAC, Points, {"use_gsde": True}),
    "td3, walk": (sw.TD3, Wide, {"noise_type": "ou"}),
    "td3, priorities": (sw.TD3, Wide, {"prioritized": True}),
    "td3, priorities, 3 steps": (sw.TD3, Wide, {"prioritized": True, "n_step": 3}),
    "dqn": (sw.DQN, Chosen, {"n_envs": 5}),
}
cases = pytest.mark.parametrize("case", CASES)


def made(case: str, **more: Any) -> Any:
    algorithm, env, options = CASES[case]
    return algorithm(env(5, limit=9), **{**OPTIONS, **options, **more}, seed=3)


@pytest.mark.long
@cases
def test_learning_is_that_from_arrays(case: str) -> None:
    on_device = made(case)
    assert isinstance(on_device.collector, TensorTransitionCollector)
    on_device.train(400)
    from_arrays = made(case)
    loop = from_arrays.loop
    loop.collector = OffPolicyCollector(loop.env, seed=from_arrays.learner.seeds.env)
    loop._choose = loop._choose_arrays
    from_arrays.train(400)
    ours, theirs = (a.buffer.state_dict()["fields"] for a in (on_device, from_arrays))
    for name, column in ours.items():
        assert torch.equal(column, theirs[name]), name
    for (name, a), b in zip(
        on_device.policy.state_dict().items(), from_arrays.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert list(on_device.episodes.returns) == pytest.approx(list(from_arrays.episodes.returns))
    assert list(on_device.episodes.lengths) == list(from_arrays.episodes.lengths)


@pytest.mark.long
@cases
def test_a_run_continues_exactly(case: str, tmp_path: Path) -> None:
    whole = made(case, save_buffer=True)
    for _ in range(2):
        whole.train(200)
    first = made(case, save_buffer=True)
    first.train(200)
    first.save(tmp_path / "half")
    again = CASES[case][1](5, limit=9)
    second = type(first).from_checkpoint(tmp_path / "half", env_id=again)
    second.train(200)
    for (name, a), b in zip(
        whole.policy.state_dict().items(), second.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("tells_final", [True, False])
def test_rows_are_those_of_arrays(tells_final: bool) -> None:
    def choose(obs: Any, masks: Any) -> Any:
        assert masks is None
        return obs["policy"][:, :1] * 0 + 1

    tensors = TensorTransitionCollector(
        TensorVectorEnv(NamedPoints(3, limit=4, tells_final=tells_final)), seed=1
    )
    arrays = OffPolicyCollector(
        TensorVectorEnv(NamedPoints(3, limit=4, tells_final=tells_final)), seed=1
    )
    for _ in range(30):
        (ours, mean), (theirs, wanted) = tensors.step(choose), arrays.step(choose)
        assert theirs is not None
        for (name, a), (_, b) in zip(
            leaves(tuple(ours[:6])), leaves(tuple(theirs[:6])), strict=True
        ):
            np.testing.assert_array_equal(a, b, err_msg=name)
        assert float(mean) == pytest.approx(wanted, rel=1e-6)
    assert tensors.timesteps == arrays.timesteps
    assert tensors.episodes.count == arrays.episodes.count > 0


def test_what_does_not_fit_the_device_goes_through_the_host() -> None:
    for options in ({"buffer": "memory"}, {"overlap": True}, {"normalize_obs": True}):
        algorithm = made("sac", **options)
        assert isinstance(algorithm.collector, OffPolicyCollector), options


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_seen(number: float) -> None:
    watch = FiniteWatch("cpu")
    good = torch.full((1000, 3), 3e38)
    watch.look({"obs": good, "flags": good > 0})
    watch.check("it", 5)
    good[700, 1] = number
    watch.look((good, -good))
    watch.look(torch.zeros(3))
    with pytest.raises(NonFiniteError, match="it must give finite numbers"):
        watch.check("it", 5)


class BadRewards(Points):
    def step(self, actions: Tensor) -> Any:
        obs, rewards, *rest = super().step(actions)
        return obs, rewards + torch.nan, *rest


class BadLast(Points):
    """Last observations are not finite, and elsewhere nobody reads them."""

    def step(self, actions: Tensor) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        return obs, rewards, terminated, truncated, {"final_obs": infos["final_obs"] + torch.inf}


@pytest.mark.parametrize("env", [BadRewards, BadLast])
def test_numbers_that_are_not_finite_end_the_run(env: Any) -> None:
    algorithm = sw.SAC(env(5), **OPTIONS)
    with pytest.raises(NonFiniteError, match="gave NaN or inf by step"):
        algorithm.train(400)


def test_callbacks_hear_of_rewards() -> None:
    heard: list[float] = []

    class Hearing(sw.Callback):
        def on_step(self, *, reward: float, **_: Any) -> bool:
            heard.append(reward)
            return True

    made("sac").train(100, callbacks=[Hearing()])
    assert len(heard) == 20
    assert all(isinstance(reward, float) for reward in heard)


def test_numbers_that_nobody_reads_do_no_harm() -> None:
    class Elsewhere(Points):
        def step(self, actions: Tensor) -> Any:
            obs, rewards, terminated, truncated, infos = super().step(actions)
            ended = (terminated | truncated)[:, None]
            last = torch.where(ended, infos["final_obs"], torch.nan)
            return obs, rewards, terminated, truncated, {"final_obs": last}

    agent = sw.SAC(Elsewhere(5, limit=9), **OPTIONS)
    agent.train(200)
    assert agent.episodes.count > 0
