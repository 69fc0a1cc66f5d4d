"""The device of the networks of a run when nobody says."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.devices import why_gpu
from tests.learning import probes


class Pictures(probes.ConstantValue):
    """Sees images."""

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)


SMALL: dict[str, Any] = {"n_envs": 1, "seed": 0}
REPLAY: dict[str, Any] = {**SMALL, "buffer_size": 100, "batch_size": 8}
GAINING = {
    "images": partial(sw.PPO, Pictures, n_steps=8, **SMALL),
    "images of DQN": partial(sw.DQN, Pictures, **REPLAY),
    "memory": partial(sw.A2C, "CartPole-v1", recurrent="gru", **SMALL),
    "wide": partial(sw.SAC, "Pendulum-v1", hidden=(1024, 1024), **REPLAY),
    "wide critics": partial(sw.CrossQ, "Pendulum-v1", **REPLAY),
}


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch says that there is a GPU, which is the CPU in truth."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        "sharpwave.learners.torch_learner.find_device", lambda _: torch.device("cpu")
    )


@pytest.mark.long(but=["images"])
@pytest.mark.parametrize("make", GAINING.values(), ids=list(GAINING))
@pytest.mark.usefixtures("a_gpu")
def test_networks_that_gain_go_to_the_gpu_and_say_so(make: Any) -> None:
    """The default was the CPU on a machine with a GPU, without a word."""
    agent = make()
    assert agent.device_name == "cuda"
    assert agent.backend == "torch"
    assert agent.backend_reason.startswith("on cuda, since ")


@pytest.mark.usefixtures("a_gpu")
def test_small_networks_stay_where_they_are_quicker() -> None:
    for agent in (sw.PPO("CartPole-v1", **SMALL), sw.SAC("Pendulum-v1", **REPLAY)):
        assert (agent.device_name, agent.backend) == ("cpu", "native")


@pytest.mark.usefixtures("a_gpu")
def test_who_names_a_device_or_insists_on_native_code_gets_it() -> None:
    assert sw.PPO(Pictures, device="cpu", n_steps=8, **SMALL).device_name == "cpu"
    wide = sw.SAC("Pendulum-v1", hidden=(1024,), backend="native", **REPLAY)
    assert (wide.device_name, wide.backend) == ("cpu", "native")


@pytest.mark.parametrize("make", GAINING.values(), ids=list(GAINING))
def test_without_a_gpu_all_is_on_the_cpu(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    agent = make()
    assert agent.device_name == "cpu"
    assert agent.device.type == "cpu"


@pytest.mark.long
def test_a_run_folder_knows_the_device(tmp_path: Path) -> None:
    sw.PPO("CartPole-v1", n_steps=8, **SMALL).train(16, run_dir=tmp_path)
    assert json.loads((tmp_path / "environment.json").read_text())["device"] == "cpu"


def test_images_in_nests_and_widths_by_network_are_seen() -> None:
    image, box = Pictures.observation_space, spaces.Box(-1, 1, (3,))
    config = sw.PPOConfig()
    assert why_gpu(config, spaces.Dict(a=box, b=spaces.Tuple((box, image)))) is not None
    assert why_gpu(config, spaces.Dict(a=box)) is None
