"""Columns of a learner that are not what it declares, or that nothing can store, are refused."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.contract.remembering import COLUMNS, REPLAY, ROLLOUT, Listed, remembering
from tests.envs import resumable
from tests.unit.envs.tensor_envs import Points


class Declares(sw.DQNLearner):
    """Gives and declares what a test says."""

    declared: ClassVar[Any] = {"twice": ("float32", (1,))}
    gives: ClassVar[Any] = None

    def extra_columns(self) -> Any:
        return self.declared

    def act(self, obs: Any, **options: Any) -> Any:
        return super().act(obs, **options)._replace(extra=self.gives and self.gives(obs))


class DeclaresRollouts(sw.PPOLearner):
    """The same from rollouts."""

    declared: ClassVar[Any] = Declares.declared
    gives: ClassVar[Any] = None
    extra_columns = Declares.extra_columns

    def act(self, obs: Any, **options: Any) -> Any:
        return super().act(obs, **options)._replace(extra=self.gives and self.gives(obs))


def declaring(loop: str, **options: Any) -> Any:
    """An agent whose learner declares and gives something."""
    gives = options.pop("gives", None)
    members = {**options, "gives": staticmethod(gives) if gives else None}
    if loop == "replay":
        return sw.DQN(resumable, learner=type("Mine", (Declares,), members), **REPLAY)
    mine = type("Mine", (DeclaresRollouts,), members)
    world = Points(4) if loop == "tensors" else resumable
    return sw.PPO(world, learner=mine, **ROLLOUT)


each_loop = pytest.mark.parametrize("loop", ["rollouts", "tensors", "replay"])
WRONG: dict[str, tuple[Any, str]] = {
    "missing": (None, r"'twice' as float32 \[\d, 1\], .* of Mine declares it, got only \[\]"),
    "another": (lambda obs: {"thrice": obs}, r"'twice' as float32 .* got only \['thrice'\]"),
    "dtype": (lambda obs: {"twice": obs[:, :1].double()}, r"'twice' as .* got float64 \[\d, 1\]"),
    "shape": (lambda obs: {"twice": obs[:, 0]}, r"'twice' as float32 .* got float32 \[\d\]"),
    "rows": (lambda obs: {"twice": obs[:1, :1]}, r"'twice' as float32 .* got float32 \[1, 1\]"),
    "list": (lambda obs: {"twice": obs.tolist()}, r"'twice' as float32 .* got a list"),
    "more": (
        lambda obs: {"twice": obs[:, :1], "row": obs},
        r"not give .* 'row': extra_columns of Mine declares \['twice'\]",
    ),
}


@each_loop
@pytest.mark.parametrize("case", WRONG)
def test_columns_that_are_not_those_declared(case: str, loop: str) -> None:
    given, message = WRONG[case]
    agent = declaring(loop, gives=given)
    with pytest.raises(ValueError, match=message):
        agent.train(64)


@each_loop
def test_columns_that_are_not_declared(loop: str) -> None:
    agent = declaring(loop, declared={}, gives=lambda obs: {"row": obs})
    with pytest.raises(ValueError, match=r"'row': extra_columns of Mine declares none"):
        agent.train(64)


@each_loop
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"obs": "float32"}, r"extra_columns of Mine must not use the name 'obs'"),
        ({"done": "float32"}, r"extra_columns of Mine must not use the name 'done'"),
        ({"weights": "float32"}, r"extra_columns of Mine: .* reserved names \['weights'\]"),
        ({"a.b": "float32"}, r"extra_columns of Mine: .* without dots, got 'a.b'"),
        ({"a": {"b": "float32"}}, r"extra_columns of Mine must be a dtype .* for 'a'"),
        ({"a": "nothing"}, r"extra_columns of Mine: a field must be"),
        (["a"], r"extra_columns of Mine: fields must be a dict"),
    ],
)
def test_declarations_that_cannot_be(loop: str, declared: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        declaring(loop, declared=declared)


class Narrow(Listed):
    """Takes steps and nothing else."""

    def push(self, *step: Any) -> None:
        super().push(*step)


def test_buffers_that_cannot_hold_columns() -> None:
    learner = remembering(sw.DQN)
    with pytest.raises(TypeError, match=r"column 'twice': push of Narrow must take twice="):
        sw.DQN(resumable, learner=learner, buffer=Narrow(), **REPLAY)
    plain = sw.ReplayBuffer.for_env(sw.make_vec_env(resumable, 3), 150)
    with pytest.raises(ValueError, match=r"buffer must have .* column 'twice' .* none"):
        sw.DQN(resumable, learner=learner, buffer=plain, **REPLAY)
    other = {**COLUMNS, "third": ("float32", (2,))}
    narrow = sw.ReplayBuffer.for_env(sw.make_vec_env(resumable, 3), 150, extra=other)
    with pytest.raises(ValueError, match=r"column 'third' as .*float64.*, got .*float32"):
        sw.DQN(resumable, learner=learner, buffer=narrow, **REPLAY)


# At play, and where there are none


@each_loop
def test_play_ignores_columns(loop: str) -> None:
    agent = declaring(loop, gives=lambda obs: {"undeclared": obs[:0]})
    obs = np.zeros(agent.observation_space.shape, np.float32)
    assert agent.predict(obs) is not None
    if loop != "tensors":
        assert len(agent.evaluate(2).returns) == 2


@each_loop
def test_arrays_are_columns_too(loop: str) -> None:
    agent = declaring(loop, gives=lambda obs: {"twice": 2 * obs[:, :1].numpy()})
    agent.train(64)
    batch = agent.loop.sample() if loop == "replay" else agent.loop.collect()
    obs, twice = batch.obs[:, :1], batch.extra["twice"]
    assert isinstance(twice, torch.Tensor)
    assert bool(((twice == 2 * obs) | ((twice == 0) & (loop == "replay"))).all())


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_learners_without_columns_have_none(backend: str) -> None:
    dqn: Any = sw.DQN("CartPole-v1", backend=backend, **REPLAY)
    dqn.train(48)
    assert dqn.loop.sample().extra is None
    assert list(dqn.buffer.schema.fields) == list(sw.Schema.from_env(dqn.env).fields)
    ppo: Any = sw.PPO("CartPole-v1", backend=backend, **ROLLOUT)
    assert ppo.loop.collect().extra is None


def test_native_code_knows_no_columns() -> None:
    class Mine(sw.SACLearner):
        def extra_columns(self) -> dict[str, Any]:
            return {"twice": "float32"}

    with pytest.raises(ValueError, match="Mine changes extra_columns"):
        sw.SAC("Pendulum-v1", learner=Mine, backend="native", **REPLAY)
