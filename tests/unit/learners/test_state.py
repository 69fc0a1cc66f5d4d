"""A learner goes on from the state of another one, in whatever loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.agents import OnlineAgent
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.loops.off_policy import OffPolicyLoop

SMALL: dict[str, Any] = {"hidden": 16, "batch_size": 8, "seed": 0}
OFFLINE = {"iql": sw.IQL, "cql": sw.CQL, "td3_bc": sw.TD3BC}
ONLINE = {
    "sac": ("Pendulum-v1", sw.SAC),
    "td3": ("Pendulum-v1", sw.TD3),
    "dqn": ("CartPole-v1", sw.DQN),
}


def weights(learner: Any) -> dict[str, Any]:
    networks = learner.state_dict()["networks"].items()
    return {f"{name}.{k}": np.asarray(x).copy() for name, net in networks for k, x in net.items()}


def data(n: int = 64) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "obs": draw.normal(size=(n, 3)).astype(np.float32),
        "actions": draw.uniform(-2, 2, (n, 1)).astype(np.float32),
        "rewards": draw.normal(size=n).astype(np.float32),
        "next_obs": draw.normal(size=(n, 3)).astype(np.float32),
        "terminated": np.zeros(n, bool),
    }


@pytest.mark.long(but=["sac-native-torch"])
@pytest.mark.parametrize(("writes", "reads"), [("native", "torch"), ("torch", "native")])
@pytest.mark.parametrize("name", ONLINE)
def test_states_of_either_backend_load_in_the_other(name: str, writes: str, reads: str) -> None:
    env, kind = ONLINE[name]
    options = {**SMALL, "learning_starts": 16}
    first, second = (kind(env, backend=backend, **options) for backend in (writes, reads))
    first.train(24)
    second.learner.load_state_dict(first.learner.state_dict())
    loaded = weights(second.learner)
    assert second.learner.updates == first.learner.updates > 0
    for key, value in weights(first.learner).items():
        np.testing.assert_array_equal(loaded[key], value, err_msg=key)
    first.train(8)
    for key, value in weights(second.learner).items():
        np.testing.assert_array_equal(loaded[key], value, err_msg=key)  # nothing is shared


@pytest.mark.long(but=["iql-torch"])
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("name", OFFLINE)
def test_what_learned_offline_goes_on_online(name: str, backend: str) -> None:
    kind: Any = OFFLINE[name]

    @dataclass(frozen=True, kw_only=True)
    class Both(kind.Config, OffPolicyConfig):  # type: ignore[misc]
        pass

    class Online(OnlineAgent):
        name = f"online_{kind.name}"
        Config = Both
        Learner = kind.Learner
        Native = kind.Native
        Loop = OffPolicyLoop

    offline = kind(data(), backend=backend, **SMALL)
    offline.train(6)
    online: Any = Online("Pendulum-v1", backend=backend, learning_starts=16, **SMALL)
    online.learner.load_state_dict(offline.learner.state_dict())
    assert online.backend == offline.backend
    before = weights(online.learner)
    for key, value in weights(offline.learner).items():
        np.testing.assert_array_equal(before[key], value, err_msg=key)
    online.train(24)
    assert online.learner.updates == 6 + 9
    after = weights(online.learner)
    assert any((before[key] != after[key]).any() for key in before if key.startswith("actor"))
    assert len(online.buffer) == 24
