"""Learners with a memory that learn from replay: it begins with episodes, wherever they do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.core.tree import leaves
from sharpwave.envs import TensorVectorEnv
from sharpwave.learners import Acted
from tests.envs import CountingEnv, FailingEnv, vectorized
from tests.unit.envs.tensor_envs import Points
from tests.unit.loops.replay_runs import SpyLearner, spy

LENGTHS = (3, 5, 2)


class Remembering(SpyLearner):
    """Counts the steps of an episode by its memory, and stores latents of it with every step.

    Attributes:
        counted: What the memory said before every call, and what the observation says.
    """

    takes_tensors = True
    deter, stoch = 5, 3

    def build(self) -> None:
        super().build()
        self.counted: list[tuple[torch.Tensor, torch.Tensor]] = []

    def initial_state(self, n_envs: int) -> Any:
        return {
            "steps": torch.full((n_envs,), 99, dtype=torch.int64),
            "seen": (torch.zeros(n_envs, 2), torch.zeros(n_envs, self.deter, dtype=torch.float16)),
        }

    def extra_columns(self) -> dict[str, Any]:
        return {"deter": ("float16", (self.deter,)), "stoch": ("uint8", (self.stoch,))}

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        acted = super().act(obs, explore=explore)
        assert starts.dtype == torch.bool
        steps = torch.where(starts, 0, state["steps"])
        total, deter = (torch.where(starts[:, None], 0, part) for part in state["seen"])
        self.counted.append((steps.clone(), obs.clone()))
        deter = deter + 1
        total = total + torch.stack([steps, acted.actions.reshape(len(steps), -1)[:, 0]], 1)
        extra = {
            "deter": deter,
            "stoch": (steps[:, None] + torch.arange(self.stoch)).to(torch.uint8),
        }
        return acted._replace(state={"steps": steps + 1, "seen": (total, deter)}, extra=extra)


def counting(n_envs: int, mode: str) -> Any:
    makers = [
        partial(CountingEnv, LENGTHS[i:] + LENGTHS[:i], i, "alternating") for i in range(n_envs)
    ]
    return vectorized(makers, mode)


def assert_in_step(learner: Any, least: int) -> None:
    assert len(learner.counted) >= least
    for steps, obs in learner.counted:
        torch.testing.assert_close(steps.float(), obs[:, 2], rtol=0, atol=0)


def run_of(env: Any, n_envs: int, **options: Any) -> Any:
    defaults = {"learning_starts": 0, "n_envs": n_envs, "learner": Remembering}
    return spy(env, **{**defaults, **options})


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_memory_begins_with_every_episode(mode: str, n_envs: int, overlap: bool) -> None:
    run = run_of(counting(n_envs, mode), n_envs, overlap=overlap)
    run.train(60)
    learner = run.loop.actor.learner
    assert_in_step(learner, 60 // n_envs)
    assert (learner is run.learner) is not overlap


def test_latents_are_stored_with_the_step_that_they_belong_to() -> None:
    run = run_of(counting(2, "same_step"), 2)
    run.train(60)
    rows = run.buffer.gather(run.buffer.indices())
    steps = rows["obs"][:, 2]
    assert rows["deter"].dtype == np.float16
    assert rows["stoch"].dtype == np.uint8
    np.testing.assert_array_equal(rows["deter"], np.repeat(steps[:, None] + 1, 5, 1))
    np.testing.assert_array_equal(rows["stoch"], steps[:, None] + np.arange(3))
    batch = run.learner.batches[-1]
    torch.testing.assert_close(batch.extra["deter"][:, 0].float(), batch.obs[:, 2] + 1)


@pytest.mark.parametrize("where", ["memory", "folder", "device"])
def test_latents_fit_into_every_buffer(where: str, tmp_path: Path) -> None:
    buffer = str(tmp_path / "replay") if where == "folder" else where
    run = run_of(counting(2, "same_step"), 2, buffer=buffer)
    run.train(40)
    batch = run.learner.batches[-1]
    assert batch.extra["deter"].dtype == torch.float16
    assert batch.extra["stoch"].dtype == torch.uint8
    torch.testing.assert_close(batch.extra["deter"][:, 0].float(), batch.obs[:, 2] + 1)
    torch.testing.assert_close(batch.extra["stoch"][:, 0].float(), batch.obs[:, 2])
    run.close()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
def test_a_run_goes_on_with_its_memory(mode: str, overlap: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"overlap": overlap, "save_buffer": True, "log_interval": 7}
    whole = run_of(counting(2, mode), 2, **options)
    whole.train(41)
    whole.train(40)
    part = run_of(counting(2, mode), 2, **options)
    part.train(41)
    part.save(tmp_path / "part")
    rest = type(part).from_checkpoint(tmp_path / "part", env=counting(2, mode), learner=Remembering)
    rest.train(40)
    acting = rest.loop.actor.learner
    assert_in_step(acting, 10)
    for (_, mine), (_, other) in zip(
        leaves(rest.loop.actor.state), leaves(whole.loop.actor.state), strict=True
    ):
        assert torch.equal(mine, other)
        assert mine.dtype == other.dtype


def test_the_memory_of_other_environments_is_refused(tmp_path: Path) -> None:
    run = run_of(counting(2, "same_step"), 2)
    run.train(10)
    state = run.loop.state_dict()
    state["acting_state"]["memory"]["0"] = np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="memory of the policy must have shapes"):
        run.loop.actor.load_memory_arrays(state["acting_state"])


def test_the_memory_begins_anew_after_environments_failed() -> None:
    env = FailingEnv((4,), fail_step=3)
    run = run_of(vectorized([lambda: env], "same_step"), 1)
    with pytest.raises(ZeroDivisionError, match="the wheel is flat"):
        run.train(30)
    assert run.loop.actor.state["steps"].tolist() == [3]
    env.fail_step = -1
    run.learner.counted.clear()
    run.train(3)
    assert_in_step(run.learner, 3)


def test_tensor_environments_say_where_episodes_start() -> None:
    env = TensorVectorEnv(Points(3, limit=4))
    run = run_of(env, 3, buffer="device")
    run.train(60)
    # Of these environments the observation does not say the step: the memory must come round.
    steps = torch.stack([steps for steps, _ in run.learner.counted])
    assert int(steps.max()) == 3
    assert (steps[0] == 0).all()
    assert ((steps[1:] == steps[:-1] + 1) | (steps[1:] == 0)).all()


def test_predict_returns_the_memory_when_it_is_given_one() -> None:
    run = run_of(counting(1, "same_step"), 1)
    run.train(10)
    obs = np.array([0, 0, 0], np.float32)
    run.learner.counted.clear()
    action = run.predict(obs)
    assert isinstance(action, int)
    action, state = run.predict(obs, episode_start=True)
    assert isinstance(action, int)
    assert state["steps"].tolist() == [1]
    action, state = run.predict(np.array([0, 0, 1], np.float32), state=state)
    assert state["steps"].tolist() == [2]
    action, state = run.predict(obs, state=state, episode_start=True)
    assert state["steps"].tolist() == [1]
    assert_in_step(run.learner, 4)


def test_evaluation_plays_with_a_memory_of_its_own() -> None:
    run = run_of(counting(2, "same_step"), 2)
    run.train(20)
    before = {path: leaf.clone() for path, leaf in leaves(run.loop.actor.state)}
    run.learner.counted.clear()
    run.evaluate(4, env=CountingEnv(LENGTHS))
    assert_in_step(run.learner, 8)
    for path, leaf in leaves(run.loop.actor.state):
        assert torch.equal(leaf, before[path])
