"""DreamerV3 as an agent: what it stores, what it draws, how it goes on, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs import TensorVectorEnv
from sharpwave.errors import NonFiniteError
from sharpwave.testing.bits import state_of
from tests.contract.learners import DREAMER
from tests.envs import CountingEnv, MaskedEnv, ResumableCartPole, vectorized
from tests.learning import probes
from tests.unit.envs.tensor_envs import Points

SMALL: dict[str, Any] = {
    **DREAMER,
    "n_envs": 1,
    "learning_starts": 0,
    "learning_rate": 1e-3,
    "seed": 3,
}
STILL: dict[str, Any] = {**SMALL, "learning_rate": 0.0}
LENGTHS = (13, 9, 17)


def agent_of(env: Any = ResumableCartPole, **options: Any) -> Any:
    return sw.DreamerV3(env, **{**SMALL, **options})


def counting(n_envs: int = 1, mode: str = "same_step", end: str = "alternating") -> Any:
    makers = [partial(CountingEnv, LENGTHS[i:] + LENGTHS[:i], i, end) for i in range(n_envs)]
    return vectorized(makers, mode)


def rows_of(agent: Any) -> Any:
    return agent.buffer.gather(agent.buffer.indices())


def recorded(agent: Any) -> list[tuple[Any, Any]]:
    """Observations and columns of every action of an agent, as they come."""
    found: list[tuple[Any, Any]] = []
    act = agent.learner.act

    def watched(obs: Any, **how: Any) -> Any:
        acted = act(obs, **how)
        found.append((obs.clone(), {k: x.clone() for k, x in (acted.extra or {}).items()}))
        return acted

    agent.learner.act = watched
    return found


# Going on


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_envs": 2, "train_ratio": 37.7},
        {"overlap": True},
        {"fresh": False},
        {"compile": True, "overlap": True},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.long(but=["plain"])
def test_a_run_goes_on_bit_for_bit(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    options = {"save_buffer": True, **options}
    whole = agent_of(**options)
    whole.train(75)
    whole.train(50)
    part = agent_of(**options)
    part.train(75)
    part.save(tmp_path / "part")
    rest = sw.DreamerV3.from_checkpoint(tmp_path / "part", ResumableCartPole)
    assert torch.equal(rest.learner.return_range, part.learner.return_range)
    rest.train(50)
    assert rest.gradient_steps == whole.gradient_steps > part.gradient_steps > 0
    assert state_of(rest) == state_of(whole)
    assert torch.equal(rest.loop.actor.state, whole.loop.actor.state)
    for name, column in rows_of(whole).items():
        np.testing.assert_array_equal(rows_of(rest)[name], column, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("buffer", ["run", "folder"])
def test_a_run_folder_goes_on_bit_for_bit(buffer: str, tmp_path: Path) -> None:
    def made(name: str) -> Any:
        where = str(tmp_path / f"replay-{name}") if buffer == "folder" else "memory"
        return agent_of(buffer=where)

    whole, part = made("whole"), made("part")
    whole.train(75, run_dir=tmp_path / "whole")
    whole.train(50)
    part.train(75, run_dir=tmp_path / "part")
    if buffer == "run":
        rest = agent_of()
        rest.train(125, run_dir=tmp_path / "part", resume=True)
    else:
        part.save(tmp_path / "checkpoint")
        part.close()
        rest = sw.DreamerV3.from_checkpoint(tmp_path / "checkpoint", ResumableCartPole)
        rest.train(50)
    assert rest.timesteps == whole.timesteps
    assert state_of(rest) == state_of(whole)
    np.testing.assert_array_equal(rows_of(rest)["deter"], rows_of(whole)["deter"])
    for agent in (whole, rest):
        agent.close()


KILLED = """
import sys
import sharpwave as sw
from tests.contract.learners import DREAMER
options = {**DREAMER, "seed": 3, "n_envs": 1, "learning_starts": 0, "buffer": sys.argv[1]}
agent = sw.DreamerV3("CartPole-v1", **options)
class Save(sw.Callback):
    def on_train_batch(self, *, algo, **_):
        if algo.gradient_steps:
            algo.save(sys.argv[2])
            print("saved", flush=True)
agent.train(1_000_000, callbacks=Save())
"""


@pytest.mark.long
def test_a_killed_run_goes_on_with_its_folder(tmp_path: Path) -> None:
    """Latents are written over while it is killed; what the folder holds can be learned from."""
    command: list[Any] = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        KILLED,
        tmp_path / "replay",
        tmp_path / "file",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "saved\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    agent = sw.DreamerV3.from_checkpoint(tmp_path / "file")
    before = agent.gradient_steps
    assert before > 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).* steps that (came after the|the checkpoint)")
        agent.train(40)
    assert agent.gradient_steps > before
    assert np.isfinite(rows_of(agent)["deter"].astype(np.float32)).all()
    agent.close()


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_what_acts_beside_learning_has_weights_of_its_own(
    compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled, the copy went on remembering with the weights that learning moves."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    agent = agent_of(overlap=True, compile=compile)
    acting = agent.loop.actor.learner
    assert acting is not agent.learner
    obs = torch.ones(3, 4)
    with torch.no_grad():
        before = acting.act(obs, explore=False)
        for parameter in agent.learner.policy.parameters():
            parameter += 1.0
        after = acting.act(obs, explore=False)
        moved = agent.learner.act(obs, explore=False)
    assert torch.equal(after.state, before.state)
    assert not torch.equal(moved.state, before.state)
    acting.copy_acting(agent.learner)
    with torch.no_grad():
        assert torch.equal(acting.act(obs, explore=False).state, moved.state)


# What is stored


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_every_step_has_the_latent_that_acting_had(mode: str) -> None:
    agent = agent_of(counting(1, mode), train_ratio=1e-6)
    seen = recorded(agent)
    agent.train(40)
    stored = rows_of(agent)
    acted = {tuple(obs[0].tolist()): extra for obs, extra in seen}
    assert len(stored["obs"]) >= 40
    for obs, deter, stoch in zip(stored["obs"], stored["deter"], stored["stoch"], strict=True):
        extra = acted[tuple(obs.tolist())]
        np.testing.assert_array_equal(deter, extra["deter"][0].numpy())
        np.testing.assert_array_equal(stoch, extra["stoch"][0].numpy())


def test_latents_are_written_over_after_a_gradient_step() -> None:
    agent = agent_of(counting())
    while agent.timesteps < 40:
        agent.loop.collect()
    agent.loop.follow(1.0)
    before = rows_of(agent)
    batch = agent.loop.sample()
    ids = np.asarray(batch.indices).copy()
    metrics = agent.learner.update(batch)
    agent.loop.report(batch, metrics)
    after = rows_of(agent)
    flat = metrics["deter"].transpose(0, 1).flatten(0, 1).numpy()
    last = {int(x): i for i, x in enumerate(ids.T.ravel())}  # of a row that was drawn twice
    written = 0
    for row, deter in zip(agent.buffer.indices(), after["deter"], strict=True):
        if int(row) in last:
            np.testing.assert_array_equal(deter, flat[last[int(row)]])
            written += 1
    assert written >= SMALL["sequence_length"]
    others = ~np.isin(agent.buffer.indices(), ids)
    np.testing.assert_array_equal(before["deter"][others], after["deter"][others])
    assert not np.array_equal(before["deter"], after["deter"])
    np.testing.assert_array_equal(before["obs"], after["obs"])


@pytest.mark.parametrize("buffer", ["memory", "device"])
def test_without_latents_there_are_no_columns(buffer: str) -> None:
    agent = agent_of(counting(), store_latents=False, buffer=buffer)
    agent.train(60)
    assert agent.gradient_steps > 0
    batch = agent.loop.sample()
    assert batch.deter is batch.stoch is batch.indices is None
    assert len(batch.rewards) == SMALL["sequence_length"]
    if buffer == "memory":
        assert not {"deter", "stoch"} & {*agent.buffer.schema.fields}


@pytest.mark.parametrize("n_envs", [1, 3])
def test_streams_are_those_of_the_environments(n_envs: int) -> None:
    """Whatever stands beside it, an environment's steps are stored in their order."""
    agent = agent_of(counting(n_envs), n_envs=n_envs, train_ratio=1e-6)
    agent.train(40 * n_envs)
    rows = rows_of(agent)
    for i in range(n_envs):
        mine = rows["obs"][rows["obs"][:, 0] == i]
        alone = CountingEnv(LENGTHS[i:] + LENGTHS[:i], i, "alternating")
        obs, _ = alone.reset()
        for row in mine:
            np.testing.assert_array_equal(row, obs)
            obs, _, terminated, truncated, _ = alone.step(0)
            if terminated or truncated:
                obs, _ = alone.reset()


# What is drawn


def test_ends_arrive_with_their_observation_and_truncated_episodes_go_on() -> None:
    agent = agent_of(counting(), batch_size=16)
    agent.train(140)
    batch = agent.loop.sample()
    assert batch.is_terminal.any()
    cut = batch.is_last & ~batch.is_terminal
    assert cut.any()
    assert not (batch.is_terminal & ~batch.is_last).any()
    lengths = torch.tensor(LENGTHS, dtype=torch.float32)
    assert torch.isin(batch.obs[batch.is_last][:, 2], lengths).all()  # the observation after all
    assert (batch.obs[batch.is_first][:, 2] == 0).all()
    assert (batch.rewards[batch.is_first] == 0).all()
    losses = []
    for terminal in (batch.is_terminal, batch.is_terminal | cut):
        agent.learner.generator.manual_seed(0)
        columns = {**vars(batch), "is_terminal": terminal}
        columns["prev_actions"] = torch.nn.functional.one_hot(batch.prev_actions.long(), 2).float()
        observed = agent.learner.world.observe(
            columns, agent.learner._before(batch), agent.learner.generator
        )
        losses.append(agent.learner.world.loss(columns, observed)["continue"])
    assert torch.equal(losses[0][~cut], losses[1][~cut])
    assert not torch.equal(losses[0][cut], losses[1][cut])


def test_a_window_begins_where_the_unbroken_sequence_was() -> None:
    """With weights that stand still the stored latent gives what acting remembered."""
    agent = agent_of(counting(), **{**STILL, "train_ratio": 1e-6})
    seen = recorded(agent)
    agent.train(100)
    acted = {tuple(obs[0].tolist()): extra["deter"][0].float() for obs, extra in seen}
    compared = 0
    for _ in range(4):
        batch = agent.loop.sample()
        with torch.no_grad():
            _, observed, _ = agent.learner.model_loss(batch)
        for obs, deter in zip(batch.obs[0], observed.latents.deter[0], strict=True):
            wanted = acted.get(tuple(obs.tolist()))
            if wanted is not None:  # nothing acts at an episode's last observation
                torch.testing.assert_close(deter, wanted, atol=1e-3, rtol=0)
                compared += 1
    assert compared > 8


def test_every_window_is_drawn_once_before_others() -> None:
    agent = agent_of(counting(), batch_size=4, train_ratio=1e-6)
    agent.train(60)
    firsts = [np.asarray(agent.loop.sample().indices)[0] for _ in range(3)]
    drawn = np.concatenate(firsts)[:5]
    assert (np.diff(drawn) > 0).all()
    plain = agent_of(counting(), fresh=False, train_ratio=1e-6)
    plain.train(60)
    assert plain.loop.store.selector() is None


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_it_learns_whatever_the_autoreset(mode: str) -> None:
    agent = agent_of(counting(2, mode), n_envs=2)
    metrics = agent.train(80)
    assert agent.gradient_steps > 0
    assert all(np.isfinite(x) for k, x in metrics.items() if k.endswith("_loss"))


@pytest.mark.parametrize("source", ["arrays", "tensors"])
def test_a_buffer_on_the_device_learns(source: str) -> None:
    env = counting(2) if source == "arrays" else TensorVectorEnv(Points(2, limit=7))
    agent = agent_of(env, n_envs=2, buffer="device")
    metrics = agent.train(80)
    assert agent.gradient_steps > 0
    assert all(np.isfinite(x) for k, x in metrics.items() if k.endswith("_loss"))
    batch = agent.loop.sample()
    assert batch.deter.shape == (4, 16)
    assert bool((batch.deter != 0).any())
    with pytest.raises(ValueError, match="autoreset mode next_step"):
        agent_of(counting(2, "next_step"), n_envs=2, buffer="device").train(8)


# What is refused


class Pictures(probes.ConstantValue):
    """Shows images of some size."""

    size, dtype = 64, np.uint8

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (self.size, self.size, 3), self.dtype)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"size": 80}, ValueError, "64 x 64 or 96 x 96.*, got 80 x 80 x 3: .*ResizeO"),
        ({"dtype": np.float32}, TypeError, "must be uint8, got float32"),
    ],
    ids=["size", "dtype"],
)
def test_images_that_it_does_not_know_are_named(changes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        agent_of(type("Other", (Pictures,), changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_ratio": -1.0}, "train_ratio must be"),
        ({"buffer_size": 31}, "buffer_size must be at least the 32 steps of a batch, got 31"),
        ({"buffer_size": 10, "batch_size": 1}, "buffer_size must be at least 11, a sequence of"),
        ({"deter": 18}, "deter must be a multiple of blocks, 4, got 18"),
        ({"fresh": True, "buffer": "device"}, "fresh must be None or False"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent_of(**options)


@pytest.mark.parametrize("env", [probes.MultiIdentity, probes.BinaryIdentity])
def test_actions_that_it_does_not_know_are_named(env: Any) -> None:
    kind = type(env.action_space).__name__
    with pytest.raises(TypeError, match=f"action_space must be Discrete or Box, got {kind}"):
        agent_of(env)


def test_a_checkpoint_of_other_sizes_is_refused(tmp_path: Path) -> None:
    agent_of().save(tmp_path / "small")
    with pytest.raises(ValueError, match=r"must be that of .*more\); .*: deter=32 in place of 16$"):
        sw.DreamerV3.from_checkpoint(tmp_path / "small", ResumableCartPole, deter=32)
    with pytest.raises(ValueError, match=r"deter=512 in place of 16, hidden=64 in"):
        sw.DreamerV3.from_checkpoint(tmp_path / "small", ResumableCartPole, preset="size1m")
    loaded = sw.DreamerV3.from_checkpoint(tmp_path / "small", ResumableCartPole)
    assert loaded.config.deter == 16


class Broken(gym.Env[Any, Any]):
    """Says NaN after some steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(2, np.nan if self.t > 50 else 1.0, np.float32), 1.0, False, False, {}


def test_observations_that_are_no_numbers_end_the_run(tmp_path: Path) -> None:
    agent = agent_of(Broken)
    with pytest.raises(Exception, match=r"finite|nan|NaN"):
        agent.train(200, run_dir=tmp_path / "run")
    assert agent.timesteps <= 51
    assert agent.gradient_steps > 0
    assert torch.isfinite(agent.learner.flats["policy"].data).all()


@pytest.mark.long
def test_losses_that_are_no_numbers_end_the_run_and_keep_its_checkpoint(tmp_path: Path) -> None:
    agent, checkpoints = agent_of(), sw.CheckpointCallback(20, tmp_path / "kept")

    class Poison(sw.Callback):
        def on_step(self, *, step: int, **_: Any) -> None:
            if step == 90:
                with torch.no_grad():
                    agent.learner.world.reward_head.output.bias.fill_(torch.nan)

    with pytest.raises(NonFiniteError, match="loss"):
        agent.train(200, callbacks=[checkpoints, Poison()], run_dir=tmp_path / "run")
    assert 90 < agent.timesteps < 200
    assert len(checkpoints.paths) >= 2
    for kept in checkpoints.paths:
        good = sw.DreamerV3.from_checkpoint(kept, ResumableCartPole)
        assert torch.isfinite(good.learner.flats["policy"].data).all()
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "failed"


def test_masks_hold_where_it_acts_and_not_in_imagination() -> None:
    agent = agent_of(partial(MaskedEnv, LENGTHS))
    with pytest.warns(UserWarning, match="in imagination all are allowed"):
        agent.train(60)  # the environment asserts that its masks hold
    assert agent.gradient_steps > 0
    dream = agent.imagine(np.zeros((64, 3), np.float32), horizon=6)
    assert {0, 1, 2} == set(np.unique(dream.actions).tolist())
