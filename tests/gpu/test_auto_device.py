"""The device that a run takes where none is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from tests.learning import probes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 16, "batch_size": 32}


class Picture(probes.Identity):
    """The probe whose observation is a picture."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)

    def observe(self) -> Any:
        return np.full((1, 36, 36), 255 if self.sign > 0 else 0, np.uint8)


def trained_on(env: Any, **options: Any) -> str:
    """The kind of device whose parameters a short run has moved."""
    ppo = sw.PPO(env, **SMALL, **options)
    before = [parameter.detach().clone() for parameter in ppo.policy.parameters()]
    ppo.train(256)
    after = list(ppo.policy.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
    return str(after[0].device.type)


def test_pictures_are_learned_from_on_the_gpu() -> None:
    assert trained_on(Picture) == "cuda"


def test_a_memory_is_trained_on_the_gpu() -> None:
    assert trained_on(probes.MemoryOfStart, recurrent="lstm") == "cuda"


def test_wide_layers_are_trained_on_the_gpu() -> None:
    assert trained_on(probes.Identity, hidden=(1024, 1024)) == "cuda"


def test_small_networks_stay_on_the_cpu() -> None:
    assert trained_on(probes.Identity) == "cpu"
