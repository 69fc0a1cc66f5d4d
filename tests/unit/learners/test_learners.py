"""Several learners are one: weights, steps, checkpoints, statistics, and how they end."""

from __future__ import annotations

import copy
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave import losses
from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.cli.learners import launch
from sharpwave.collect import EpisodeStats
from sharpwave.core.ranks import Ranks
from sharpwave.envs import PythonVectorEnv, VecNormalize
from sharpwave.learners import Seeds
from sharpwave.learners.choose import choose
from sharpwave.loops.actor_learner import ActorLearnerLoop
from sharpwave.loops.on_policy import OnPolicyLoop
from sharpwave.runs.recorded import joined
from tests.unit.learners import parallel_program as program

several = pytest.mark.parametrize("name", program.AGENTS)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two processes that ran all cases: starting them costs more than the cases do."""
    folder = tmp_path_factory.mktemp("learners")
    for name, make in program.AGENTS.items():
        agent = make()
        agent.train(program.STEPS[name])
        agent.save(folder / program.ALONE_FOLDER / f"{name}.safetensors")
        agent.close()
    assert launch(2, ["-m", program.__name__, str(folder)]) == 0
    return folder


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [case.__name__ for case in program.CASES])
def test_two_processes(results: Path, case: str) -> None:
    path = results / f"{case}.json"
    assert path.exists(), "a case before it failed"
    assert json.loads(path.read_text()) == ["", ""]


@pytest.mark.long
@several
def test_two_learn_from_half_of_the_rows_what_one_learns_from_all(results: Path, name: str) -> None:
    alone = program.learn_fixed(name)
    with np.load(results / "share_fixed_rows" / f"{name}.npz") as file:
        together = dict(file)
    assert set(together) == set(alone)
    first = program.learned(program.AGENTS[name](**program.FIXED[name]))
    assert any(not np.array_equal(first[key], alone[key]) for key in alone)
    for key, array in alone.items():
        np.testing.assert_allclose(together[key], array, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.long
@several
def test_one_goes_on_with_what_two_began(
    results: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / "stay_equal_and_resume" / f"{name}.safetensors"
    agent = getattr(sw, name.upper()).from_checkpoint(path)
    steps = program.STEPS[name]
    assert agent.timesteps == steps
    assert agent.config.n_envs == program.AGENTS[name]().config.n_envs
    before = program.bits_of(program.learned(agent))
    agent.train(steps)
    assert agent.timesteps == 2 * steps
    assert program.bits_of(program.learned(agent)) != before
    said = capsys.readouterr().err
    assert f"{path} was written by 2 learners and goes on with 1:" in said
    agent.close()


# What each process does for its part


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (sw.PPOConfig(n_envs=8), "n_envs"),
        (sw.PPOConfig(n_envs=6), "batch_size"),
        (sw.SACConfig(n_envs=2), "n_envs"),
        (sw.DQNConfig(n_envs=6, batch_size=64), "batch_size"),
        (sw.IMPALAConfig(n_actors=2), "n_actors"),
        (sw.IMPALAConfig(n_actors=3, batch_unrolls=4), "batch_unrolls"),
        (sw.APPOConfig(n_actors=2), "n_actors"),
        (sw.APPOConfig(n_actors=3, batch_size=256), "batch_size"),
    ],
)
def test_learners_that_do_not_divide_are_refused_by_both_numbers(config: Any, name: str) -> None:
    value = getattr(config, name)
    with pytest.raises(ValueError, match=rf"^{name} must be a multiple of learners, 3,.*{value}$"):
        config.share(3)


def test_each_has_its_share() -> None:
    assert sw.PPOConfig(n_envs=8).share(1) == sw.PPOConfig(n_envs=8)
    ppo = sw.PPOConfig(n_envs=8, batch_size=64).share(4)
    assert (ppo.n_envs, ppo.batch_size, ppo.n_steps) == (2, 16, 128)
    sac = sw.SACConfig(n_envs=3, batch_size=96, buffer_size=100).share(3)
    assert (sac.n_envs, sac.batch_size, sac.buffer_size) == (1, 32, 34)
    assert sac.learning_starts == sw.SACConfig().learning_starts
    impala = sw.IMPALAConfig(n_actors=4, batch_unrolls=6, max_in_flight=7).share(2)
    assert (impala.n_actors, impala.batch_unrolls, impala.max_in_flight) == (2, 3, 4)
    assert impala.n_envs == sw.IMPALAConfig().n_envs
    appo = sw.APPOConfig(n_actors=4, batch_size=64).share(2)
    assert (appo.n_actors, appo.batch_size, appo.n_envs) == (2, 32, sw.APPOConfig().n_envs)


@pytest.mark.parametrize("seeds", [Seeds.of(3), Seeds.of_replay(3)])
def test_processes_begin_with_the_same_weights_and_draw_by_themselves(seeds: Seeds) -> None:
    assert seeds.of_rank(0) == seeds
    others = [seeds.of_rank(rank) for rank in (1, 2)]
    for other in others:
        assert other.weights is seeds.weights
        assert (other.exploring is None) == (seeds.exploring is None)
        assert 0 <= other.env < 2**31
    for name in ("env", "learning", "playing", "drawing"):
        assert len({getattr(one, name) for one in (seeds, *others)}) == 3


def test_native_code_is_refused_and_the_reason_said() -> None:
    agent = sw.PPO("CartPole-v1", seed=0)
    spaces = agent.observation_space, agent.action_space
    options: dict[str, Any] = {"seeds": Seeds.of(0), "given": {}, "ranks": Ranks(0, 2)}
    with pytest.raises(ValueError, match=r"native.*2 learners share their gradients"):
        choose(sw.PPO, sw.PPOConfig(backend="native"), *spaces, **options)


def test_environments_whose_resets_take_steps_are_refused() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2)  # Gymnasium's own, in mode next_step
    config = sw.PPOConfig(n_envs=2)
    spaces = env.single_observation_space, env.single_action_space
    learner = PPOLearner(config, *spaces)
    learner.ranks = Ranks(0, 2)
    with pytest.raises(ValueError, match=r"2 learners divide minibatches, got.*next_step"):
        OnPolicyLoop(
            learner, config, env, seeds=learner.seeds, subject="two", why_not_act="torch acts"
        )
    env.close()


def test_what_one_process_does_alone_cannot_be_shared() -> None:
    ranks = Ranks(0, 2)
    with ranks.apart(), pytest.raises(RuntimeError, match="on_train_batch"):
        ranks.gather(1)


def test_advantages_are_normalized_over_the_rows_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    advantages = 5 + 3 * torch.randn(40, generator=generator)
    weights = (torch.rand(40, generator=generator) < 0.7).float()
    halves = [slice(None, 15), slice(15, None)]
    for weight in (None, weights):
        parts = [None if weight is None else weight[half] for half in halves]
        others: list[torch.Tensor] = []  # moments of the other process
        for half, part in zip(halves, parts, strict=True):
            losses.normalize(advantages[half], part, total=partial(_remembered, others))
        others.reverse()
        found = [
            losses.normalize(advantages[half], part, total=other.add)
            for half, part, other in zip(halves, parts, others, strict=True)
        ]
        whole = losses.normalize(advantages, weight)
        torch.testing.assert_close(torch.cat(found), whole, atol=1e-6, rtol=1e-5)
    alone = torch.tensor([3.0])
    assert losses.normalize(alone, total=torch.clone).equal(alone)


def _remembered(memory: list[Any], given: Any) -> Any:
    memory.append(given.clone())
    return given


def test_statistics_of_normalizers_become_those_of_all() -> None:
    parts, whole = [_normalizer(2), _normalizer(2)], _normalizer(4)
    generator = np.random.default_rng(0)
    ended = np.zeros(4, np.bool_)
    for _ in range(3):  # what was merged does not count again
        for _ in range(5):
            obs, after = 9 + 4 * generator.normal(size=(2, 4, 3)).astype(np.float32)
            rewards = generator.normal(size=4).astype(np.float32)
            whole.count_step(obs, rewards, ended, after)
            for part, own in zip(parts, (slice(0, 2), slice(2, 4)), strict=True):
                part.count_step(obs[own], rewards[own], ended[own], after[own])
        every: list[Any] = []
        for part in parts:  # first all of them give, then all of them take
            copy.deepcopy(part).merge_over(partial(_given, every))
        for part in parts:
            part.merge_over(partial(_all, every))
        states = [part.state_dict() for part in parts]
        for name, wanted in whole.state_dict().items():
            if name.startswith(("obs", "return.")):
                assert np.array_equal(states[0][name], states[1][name])
                np.testing.assert_allclose(states[0][name], wanted, rtol=1e-10)


def _normalizer(n_envs: int) -> VecNormalize:
    return VecNormalize(PythonVectorEnv([lambda: gym.make("Pendulum-v1")] * n_envs))


def _given(every: list[Any], own: Any) -> list[Any]:
    every.append(own)
    return [own]


def _all(every: list[Any], own: Any) -> list[Any]:
    return every


def test_episodes_of_all_processes_are_the_last_of_each() -> None:
    def state(returns: list[float], count: int) -> dict[str, Any]:
        numbers = np.array(returns)
        return {"returns": numbers, "lengths": numbers, "successes": numbers[:0], "count": count}

    every = [state([1.0, 2.0, 3.0], 30), state([9.0], 1), state([], 0)]
    joined = EpisodeStats.joined(every, window=6)
    assert list(joined.returns) == [2.0, 3.0, 9.0]
    assert (joined.count, joined.mean_return) == (31, 14 / 3)
    assert joined.success_rate is None


def test_measures_of_processes_are_joined_by_what_they_are() -> None:
    every = [
        {"lag": 1.0, "lag_max": 2.0, "actors_alive": 3.0, "mean_return": math.nan},
        {"lag": 2.0, "lag_max": 5.0, "actors_alive": 1.0, "mean_return": 7.0},
    ]
    found = joined(every, ActorLearnerLoop.summed)
    assert found == {"lag": 1.5, "lag_max": 5.0, "actors_alive": 4.0, "mean_return": 7.0}


@pytest.mark.parametrize(
    ("gpus", "backend", "chosen"),
    [(0, "gloo", []), (1, "gloo", []), (2, "cpu:gloo,cuda:nccl", [1])],
)
def test_processes_meet_on_the_cpu_where_gpus_are_too_few(
    gpus: int, backend: str, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from sharpwave.core.ranks import Ranks

    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    asked: list[str] = []
    set_devices: list[int] = []
    distributed = torch.distributed
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", set_devices.append)
    monkeypatch.setattr(distributed, "init_process_group", lambda kind, **_: asked.append(kind))
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr("sharpwave.core.ranks.atexit.register", lambda *_: None)
    assert Ranks.join().rank == 1
    assert (asked, set_devices) == ([backend], chosen)
