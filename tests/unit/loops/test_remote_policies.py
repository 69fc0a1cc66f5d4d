"""Policies of torch at actors elsewhere: a name and options travel, and never code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.algorithms.followers import follower_of
from sharpwave.algorithms.impala import IMPALALearner
from sharpwave.distributed import ActorRecipe
from sharpwave.distributed.unroll_schema import UnrollSchema
from sharpwave.errors import WireError
from sharpwave.nn import DiscretePolicy
from tests.unit.distributed.remote import Acting

LSTM: dict[str, Any] = {"recurrent": "lstm", "recurrent_size": 8}
OPTIONS: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,), "seed": 1}
IMAGES = "tests.image_ids:Images-v0"


def trained(agent: Any, steps: int, **node: Any) -> Any:
    """The weights after so many steps, with a node where the agent listens."""
    acting = None
    if agent.config.actors == "grpc":
        agent.loop.fleet.start(agent.learner.weights(), agent.learner.updates)
        address = agent.loop.fleet.address
        acting = Acting(address, n_actors=2, followers=follower_of, **node)
    agent.train(steps)
    found = agent.learner.weights().copy()
    agent.close()
    if acting is not None:
        assert acting.wait() is None
    return found


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["IMPALA", "APPO"])
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", LSTM),
        ("CartPole-v1", {**LSTM, "recurrent": "gru"}),
        (IMAGES, {}),
    ],
    ids=["lstm", "gru", "cnn"],
)
def test_a_run_is_that_of_threads_bit_for_bit(
    algorithm: str, env: str, options: dict[str, Any]
) -> None:
    given = {**OPTIONS, **options, "deterministic": True}
    made = getattr(sw, algorithm)
    first = made(env, actors="threads", **given)
    before = first.learner.weights().copy()
    here = trained(first, 4 * 2 * 2 * 8)
    there = trained(made(env, actors="grpc", **given), 4 * 2 * 2 * 8, env=env)
    assert (here != before).any()
    np.testing.assert_array_equal(here, there)


@pytest.mark.long
def test_a_memory_is_resumed_elsewhere_bit_for_bit(tmp_path: Path) -> None:
    """The state of actors, their generators and their memory are in the checkpoint."""
    given = {**OPTIONS, **LSTM, "deterministic": True, "anneal_lr": False}
    whole = trained(sw.IMPALA("CartPole-v1", actors="threads", **given), 8 * 32)
    agent: Any = sw.IMPALA("CartPole-v1", actors="grpc", **given)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    node = Acting(agent.loop.fleet.address, n_actors=2, followers=follower_of)
    agent.train(4 * 32)
    agent.save(tmp_path / "saved")
    agent.close()
    assert node.wait() is None
    again = sw.IMPALA.from_checkpoint(tmp_path / "saved")
    np.testing.assert_array_equal(trained(again, 4 * 32), whole)


@pytest.mark.long
def test_the_command_acts_for_a_memory() -> None:
    agent: Any = sw.IMPALA("CartPole-v1", actors="grpc", n_actors=1, **OPTIONS, **LSTM)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    command = [sys.executable, "-m", "sharpwave", "actor", "--learner", agent.loop.fleet.address]
    node = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        assert agent.train(64)["actors_alive"] == 1
        agent.close()
        assert node.wait(120) == 0
    finally:
        node.kill()
        node.wait()


class Mine(IMPALALearner):
    """A class of a user's."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**LSTM, "learner": Mine}, "Mine is a class of its own"),
        ({"policy": DiscretePolicy(4, 2)}, "policy is a network of its own"),
    ],
)
def test_code_of_a_user_is_not_sent(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=f"no code is sent: {says}"):
        sw.IMPALA("CartPole-v1", actors="grpc", **OPTIONS, **options)


def test_a_class_that_was_changed_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IMPALALearner, "act", lambda *_, **__: None, raising=False)
    with pytest.raises(TypeError, match="no code is sent: IMPALALearner changes act"):
        sw.IMPALA("CartPole-v1", actors="grpc", **OPTIONS, **LSTM)


def sent(**options: Any) -> dict[str, Any]:
    """An agent's description of its policy."""
    agent: Any = sw.IMPALA("CartPole-v1", actors="grpc", **{**OPTIONS, **LSTM, **options})
    described = json.loads(agent.loop.fleet._recipe)
    agent.close()
    found: dict[str, Any] = described["policy"]
    return found


def test_what_travels_is_a_name_and_options() -> None:
    """Schedules of Python and addresses stay where they are: actors do not learn."""
    policy = sent(learning_rate=lambda left: 1e-3 * left, address="127.0.0.1:0")
    assert policy["algorithm"] == "impala"
    assert not {"learning_rate", "address", "tls", "worker_addresses"} & policy["config"].keys()
    again = follower_of(policy)
    assert again.config.recurrent_size == 8
    assert again.to_json()["n_weights"] == policy["n_weights"]


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"algorithm": "ppo"}, ValueError, "algorithm must be one with actors, got 'ppo'"),
        ({"algorithm": "os.system"}, ValueError, "unknown algorithm"),
        ({"n_weights": 2**40}, ValueError, "n_weights must be"),
        ({"n_weights": True}, ValueError, "n_weights must be"),
        ({"config": {"hidden": "rm -rf"}}, ValueError, "hidden must be an integer"),
        ({"config": {"hiden": [8]}}, TypeError, "hiden"),
    ],
)
def test_what_a_learner_says_is_checked(
    changed: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        follower_of({**sent(), **changed})


def test_networks_of_another_size_are_named() -> None:
    policy = sent()
    env = gym.make_vec("CartPole-v1", 2)
    with pytest.raises(ValueError, match=f"must have {policy['n_weights'] + 1} weights as the"):
        follower_of({**policy, "n_weights": policy["n_weights"] + 1})(env, 0)
    env.close()


def test_a_node_without_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = sent()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="torch must be installed to act for impala"):
        follower_of(policy)


def test_a_node_that_knows_no_algorithms_takes_none() -> None:
    with pytest.raises(TypeError, match="policy must be one for native code, got 'impala'"):
        ActorRecipe.of_json({"env": {}, "policy": sent(), "seeds": [1, 2]})


def test_a_memory_of_another_shape_is_refused() -> None:
    space = gym.spaces.Box(-1, 1, (4,))
    schema = UnrollSchema(space, gym.spaces.Discrete(2), 8, 2, memory=(2, 2, 8))
    schema._check_memory("actor 0:", np.zeros((2, 2, 8), np.float32))
    for state in (None, np.zeros((2, 2, 7), np.float32), np.full((2, 2, 8), np.nan, np.float32)):
        with pytest.raises(WireError, match="actor 0: state must be"):
            schema._check_memory("actor 0:", state)
