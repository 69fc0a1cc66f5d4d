"""Several agents on a GPU learn as on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.multi_envs import Fates

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SMALL: dict[str, Any] = {"n_envs": 3, "n_steps": 16, "hidden": (16,), "seed": 0}


@pytest.mark.parametrize("recurrent", [None, "gru"])
@pytest.mark.parametrize("critic_input", ["concat", "agent", "state", "obs"])
def test_an_update_is_that_of_the_cpu(critic_input: str, recurrent: str | None) -> None:
    agents = [
        sw.MAPPO(
            Fates(),
            device=device,
            backend="torch",
            critic_input=critic_input,
            recurrent=recurrent,
            recurrent_size=8,
            **SMALL,
        )
        for device in ("cpu", "cuda")
    ]
    batch = agents[0].loop.collect()["agent"]
    here, there = (agent.learner["agent"] for agent in agents)
    there.flat.data.copy_(here.flat.data)
    columns = {
        name: None if x is None else x.to("cuda")
        for name, x in vars(batch).items()
        if name != "extra"
    }
    here.update(batch)
    there.update(type(batch)(**columns))
    torch.testing.assert_close(there.flat.data.cpu(), here.flat.data, atol=2e-4, rtol=1e-3)
    for name, number in here.value_norm.state_dict().items():
        torch.testing.assert_close(there.value_norm.state_dict()[name].cpu(), number)


def test_runs_move_between_devices(tmp_path: Path) -> None:
    agent = sw.MAPPO(Fates(), device="cuda", **SMALL)
    agent.train(96)
    agent.save(tmp_path / "agent")
    moved = sw.MAPPO.from_checkpoint(tmp_path / "agent", env=Fates(), device="cpu")
    here, there = (x.learner["agent"].weights() for x in (moved, agent))
    np.testing.assert_array_equal(here, there)
    moved.train(48)


def test_critics_of_ppo_may_look_at_more_on_a_gpu() -> None:
    from tests.unit.algorithms.test_critic_obs import OPTIONS, Privileged

    agent = sw.PPO(Privileged, device="cuda", **OPTIONS)
    before = agent.learner.flat.data.clone()
    agent.train(64)
    assert not torch.equal(before, agent.learner.flat.data)
    agent.close()
