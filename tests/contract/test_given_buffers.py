"""Every algorithm of replay learns from every kind of buffer that it may be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.compat import rlox
from sharpwave.distributed.replay import LocalShard, ShardOptions
from tests.contract.learners import BOTH_BACKENDS, LEARNERS, state_of
from tests.learning import probes

REPLAYING = [x for x in BOTH_BACKENDS if LEARNERS[x[0]].replays and x[0] != "dreamer_v3"]
"""Those that learn from single steps, which any buffer holds."""
NAMES = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")


class Listed:
    """Steps in a list, as somebody might write it: NumPy's types of whatever was pushed."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def push(self, *step: Any) -> None:
        self.steps.append(step)

    def __len__(self) -> int:
        return len(self.steps)

    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        rows = np.random.default_rng(seed).integers(0, len(self.steps), batch_size)
        columns = zip(*(self.steps[i] for i in rows), strict=True)
        return {name: np.array(column) for name, column in zip(NAMES, columns, strict=True)}


class Changed(Listed):
    """The same with every column in another form."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        return {k: self.change(k, v) for k, v in super().sample(batch_size, seed).items()}


def as_rows(name: str, column: Any) -> Any:
    """Actions of two dimensions, and all as float64."""
    wide = name == "actions" and column.ndim == 1
    return (column[:, None] if wide else column).astype(np.float64)


class Env:
    """Environments of a learner, for buffers that ask."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id
        self.obs = 4 if env_id == "CartPole-v1" else 3

    def make(self) -> Any:
        return sw.make_vec_env(self.env_id, 2)


def made(kind: str, env: Env, path: Path) -> Any:
    """A buffer object of a kind."""
    flat: dict[str, Any] = {"obs_dim": env.obs, "act_dim": 1}
    folder: dict[str, Any] = {"cold_path": path / "buffer"}
    cls: Any
    if kind in ("flat", "prioritized flat"):
        cls = sw.ReplayBuffer if kind == "flat" else sw.PrioritizedReplayBuffer
        return cls(300, **flat)
    if kind in ("ordered", "prioritized ordered"):
        cls = sw.ReplayBuffer if kind == "ordered" else sw.PrioritizedReplayBuffer
        return cls.for_env(env.make(), 300)
    if kind == "mmap ordered":
        return sw.MmapReplayBuffer.for_env(env.make(), 300, **folder)
    if kind.startswith("mmap"):
        return sw.MmapReplayBuffer(50, 300, **flat, **folder, prioritized="prioritized" in kind)
    if kind.endswith("shards"):
        options = ShardOptions(capacity=150, prioritized="prioritized" in kind)
        plan = (150, 0.6 if options.prioritized else None)
        return sw.ShardedReplay([LocalShard(make=options.make, plan=plan) for _ in range(2)])
    return rlox.ReplayBuffer(300, **flat) if kind == "of rlox" else FOREIGN[kind]()


OURS = [
    *("flat", "prioritized flat", "ordered", "prioritized ordered"),
    *("mmap flat", "mmap prioritized", "mmap ordered", "of rlox"),
    *("shards", "prioritized shards"),
]
FOREIGN: dict[str, Any] = {
    "list": Listed,
    "float64 rows": lambda: Changed(as_rows),
    "float32": lambda: Changed(lambda _, x: x.astype(np.float32)),
    "tensors": lambda: Changed(lambda _, x: torch.from_numpy(x)),
    "lists": lambda: Changed(lambda _, x: x.tolist()),
}


@pytest.mark.long(
    but=[
        "dqn-native-flat",
        "c51-torch-mmap prioritized",
        "qr_dqn-one-torch-list",
        "sac-torch-flat",
        "td3-torch-mmap prioritized",
        "ddpg-torch-list",
    ]
)
@pytest.mark.parametrize("kind", [*OURS, *FOREIGN])
@pytest.mark.parametrize(("name", "backend"), REPLAYING)
def test_a_buffer_object_is_learned_from(
    name: str, backend: str, kind: str, memory_path: Path
) -> None:
    """DQN in native code refused actions that a flat buffer holds as float32."""
    learner = LEARNERS[name]
    buffer = made(kind, Env(learner.world()), memory_path)
    agent = learner.make(backend=backend, buffer=buffer)
    agent.train(learner.steps)
    assert agent.buffer is buffer
    assert len(buffer) == learner.steps
    assert agent.gradient_steps == 9
    batch = agent.sampler.sample()
    actions = np.asarray(batch.actions)
    if isinstance(agent.action_space, spaces.Discrete):
        assert actions.shape == (8,)
        assert actions.dtype.kind == "i"
        assert set(actions) <= {0, 1}
    else:
        assert actions.shape == (8, 1)
        assert np.abs(actions).max() <= 1.0
    if hasattr(buffer, "close"):
        agent.close()
        buffer.close()


@pytest.mark.long(but=["float32-dqn"])
@pytest.mark.parametrize("name", ["dqn", "c51", "discrete_sac"])
@pytest.mark.parametrize("kind", ["float32", "float64 rows", "tensors", "lists"])
def test_floats_and_integers_of_the_same_steps_teach_the_same(name: str, kind: str) -> None:
    """A buffer of floats is drawn from like one of integers, where the draws are the same."""
    learner = LEARNERS[name]
    taught = []
    for one in ("list", kind):
        agent = learner.make(buffer=FOREIGN[one]())
        agent.train(learner.steps)
        taught.append(state_of(agent))
    assert taught[0] == taught[1]


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_actions_that_are_no_choices_are_refused(backend: str) -> None:
    learner = LEARNERS["dqn"]
    halves = Changed(lambda name, x: x + 0.5 if name == "actions" else x)
    agent = learner.make(buffer=halves, backend=backend)
    with pytest.raises(ValueError, match=r"actions of a buffer must be integers here, got"):
        agent.train(learner.steps)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("env", [probes.MultiIdentity, "start"])
def test_other_discrete_spaces_from_a_buffer_of_floats(env: Any, backend: str) -> None:
    class Shifted(probes.ConstantValue):
        """Actions are counted from -3 on."""

        action_space = spaces.Discrete(3, start=-3)

    world = Shifted if env == "start" else env
    vector = sw.make_vec_env(world, 2, mode="sync")
    shape = vector.single_action_space.shape or ()
    size = int(np.prod(vector.single_observation_space.shape or ()))
    buffer = sw.ReplayBuffer(300, obs_dim=size, act_dim=int(np.prod(shape)))
    agent = sw.DQN(
        vector,
        buffer=buffer,
        backend=backend,
        batch_size=8,
        learning_starts=16,
        hidden=(8,),
        seed=0,
    )
    agent.train(40)
    assert agent.gradient_steps > 0
    actions = np.asarray(agent.sampler.sample().actions)
    assert actions.shape == (8, *shape)
    assert actions.min() >= 0
    assert actions.max() <= 2
