"""A loop of one's own around the learning rule learns what `train` does, bit for bit."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.learners.replay import ReplayBatch
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from sharpwave.testing import check_learner
from sharpwave.testing.learner_case import alone_like, own_loop
from tests.contract.learners import BOTH_BACKENDS, LEARNERS, state_of

each = pytest.mark.parametrize(("name", "backend"), BOTH_BACKENDS)
replaying = pytest.mark.parametrize(
    ("name", "backend"), [x for x in BOTH_BACKENDS if LEARNERS[x[0]].replays]
)


@pytest.mark.long(but=["ppo-native", "dqn-native"])
@each
def test_the_documented_loop_is_what_train_does(name: str, backend: str) -> None:
    """The actor of TD3 moved in every step or in none, and the target network of DQN never did."""
    learner = LEARNERS[name]
    rule = "own_loop_learns_what_train_does"
    options = {**learner.options, "backend": backend}
    check_learner(None, learner.cls, learner.world(), rules=rule, **options)


@pytest.mark.long(but=["ppo-recurrent-recurrent_size"])
@pytest.mark.parametrize(
    "options",
    [
        {"recurrent": "lstm", "recurrent_size": 4},
        {"use_gsde": True, "sde_sample_freq": 3},
        {"normalize_obs": True, "normalize_rewards": True},
        {"n_epochs": 3, "target_kl": 1e-4},
        {"clip_eps": lambda progress: 0.1 + 0.1 * progress, "clip_vloss": True},
        {"overlap": True},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.parametrize("name", ["ppo", "a2c", "hybrid_ppo"])
def test_whatever_the_options_of_rollouts(name: str, options: dict[str, Any]) -> None:
    learner = LEARNERS[name]
    known = learner.cls.Config.annotations()
    mine = {key: value for key, value in options.items() if key in known}
    agents = []
    for _ in range(2):
        world = "Pendulum-v1" if "use_gsde" in mine else "CartPole-v1"
        agents.append(learner.cls(world, **{**learner.options, "seed": 3, **mine}))
    trained, own = agents
    trained.train(96)
    own_loop(own, 96)
    assert state_of(own) == state_of(trained)


@pytest.mark.long(
    only=[
        "crossq-gradient_steps",
        "crossq-overlap",
        "crossq-prioritized-n_step",
        "crossq-normalize_obs-normalize_rewards",
    ]
)
@pytest.mark.parametrize(
    "options",
    [
        {"gradient_steps": -1},
        {"gradient_steps": 3, "train_freq": 1},
        {"learning_starts": 0, "train_freq": 3},
        {"learning_starts": 60, "target_update_freq": 5, "target_update_interval": 5},
        {"prioritized": True, "n_step": 2},
        {"normalize_obs": True, "normalize_rewards": True},
        {"overlap": True},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.parametrize("name", ["dqn", "sac", "td3", "crossq"])
def test_whatever_the_options(name: str, options: dict[str, Any]) -> None:
    learner = LEARNERS[name]
    known = {**learner.cls.Config.annotations(), **learner.cls.Config.aliases}
    mine = {key: value for key, value in options.items() if key in known}
    if name == "dqn" and "target_update_freq" in mine:
        del mine["target_update_interval"]
    if name == "crossq":
        mine.pop("target_update_interval", None)
    trained, own = (learner.make(**mine) for _ in range(2))
    trained.train(120)
    own_loop(own, 120)
    assert state_of(own) == state_of(trained)


@pytest.mark.long(but=["dqn-native"])
@replaying
def test_batches_are_all_that_a_gradient_step_needs(name: str, backend: str) -> None:
    """Counters that only the loop of the library advanced decided what a step moves."""
    learner = LEARNERS[name]
    batches: list[tuple[Any, float]] = []
    trained = learner.make(backend=backend)
    as_batch = trained.sampler.as_batch

    def recording(drawn: dict[str, Any]) -> ReplayBatch:
        batch: ReplayBatch = as_batch(drawn)
        batches.append((copy.deepcopy(batch), trained.progress_remaining))
        return batch

    trained.sampler.as_batch = recording
    trained.train(4 * learner.steps)
    # A learner by itself, which no agent, environment or buffer is near.
    alone = alone_like(trained)
    for batch, progress in batches:
        alone.follow(progress)
        assert {*trained.sampler.written} <= alone.update(batch).keys()
    assert alone.updates == trained.gradient_steps == len(batches) > 20
    assert state_of(alone) == state_of(trained)


@pytest.mark.long(but=["ppo", "dqn"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_alone_acts_and_learns_from_batches(name: str) -> None:
    """Made from options, spaces and a number: nothing else is there."""
    learner = LEARNERS[name]
    agent = learner.make()
    made = agent.config, agent.observation_space, agent.action_space
    first, second = (learner.cls.Learner(*made, seeds=3) for _ in range(2))
    assert state_of(first) == state_of(second)
    assert state_of(learner.cls.Learner(*made, seeds=4)) != state_of(first)
    if learner.is_online and not learner.replays:
        agent.learner.begin_rollout(2)
        batches = [agent.loop.collect()]
    else:
        if learner.is_online:
            agent.train(learner.steps)
        batches = [copy.deepcopy(agent.loop.sample()) for _ in range(3)]
    batches = [tensors(batch) for batch in batches]
    before = state_of(first)
    for one in (first, second):
        one.follow(0.5)
        metrics = [one.update(batch) for batch in batches]
        written = getattr(one.Sampler, "written", ("td_errors",)) if learner.replays else ()
        numbers = [x for m in metrics for k, x in m.items() if k not in {"td_errors", *written}]
        assert all(np.isfinite(float(x)) for x in numbers)
        assert one.updates == len(batches)
    assert state_of(first) == state_of(second) != before
    obs = first.inputs(np.stack([agent.observation_space.sample() for _ in range(4)]))
    state = first.initial_state(4)
    with first.inference():
        actions = first.array(first.act(obs, explore=True, state=state).actions)
    assert len(actions) == 4
    assert all(agent.action_space.contains(x) for x in first.action_map.to_env(actions))


def tensors(batch: Any) -> Any:
    """The columns of a batch as tensors, wherever it was drawn for."""
    columns = {k: v for k, v in vars(batch).items() if v is not None and k != "indices"}
    return dataclasses.replace(batch, **{k: torch.as_tensor(v) for k, v in columns.items()})


@pytest.mark.long
def test_the_actor_of_td3_moves_every_second_time_and_the_target_of_dqn_when_it_is_due() -> None:
    for name, network, expected in (
        ("td3", "actor", 10),
        ("td3_bc", "actor", 10),
        ("crossq", "actor", 6),
        ("dqn", "target", 6),  # twelve steps of environments are three gradient steps
        ("sac", "target_critics", 6),
    ):
        learner = LEARNERS[name]
        agent = learner.make()
        if learner.is_online:
            agent.train(12)  # all but enough to learn from
        agent.loop.follow(1.0)
        moved = 0
        for _ in range(20):
            before = state_of(agent)
            agent.learner.update(agent.loop.sample())
            after = state_of(agent)
            moved += any(before[k] != after[k] for k in before if k.startswith(f"{network}."))
        assert moved == expected, name


@pytest.mark.long(
    only=[
        "c51-torch",
        "cql-torch",
        "sac-torch",
        "tqc-torch",
        "ddpg-torch",
        "crossq-torch",
        "qr_dqn-torch",
        "discrete_sac-torch",
        "qr_dqn-one-torch",
    ]
)
@each
def test_a_checkpoint_of_before_learners_counted_goes_on_bit_for_bit(
    name: str, backend: str, tmp_path: Path
) -> None:
    learner = LEARNERS[name]
    options = {"backend": backend}
    if learner.replays:
        options["save_buffer"] = True  # type: ignore[assignment]
    agent = learner.make(**options)
    agent.train(3 * learner.steps)
    agent.save(tmp_path / "new")
    header, state = read_checkpoint(tmp_path / "new")
    rest = state["learner"]
    if not learner.is_online:
        del rest["gradient_steps"]
    if "target_age" in rest.get("extra", {}):
        # What files had: the step of the run that the last copy was made at.
        lived = agent.config.train_freq * agent.config.n_envs
        rest["extra"]["target_copied_at"] = (
            agent.timesteps + lived - rest["extra"].pop("target_age")
        )
    write_checkpoint(tmp_path / "old", header, state)
    world = {"env" if learner.is_online else "dataset": learner.world()}
    again = [learner.cls.from_checkpoint(tmp_path / file, **world) for file in ("new", "old")]
    for one in again:
        one.train(3 * learner.steps)
    assert state_of(again[0]) == state_of(again[1])
    if learner.replays or not learner.is_online:
        assert again[0].gradient_steps == again[1].gradient_steps > agent.gradient_steps > 0


@pytest.mark.parametrize("name", ["dqn", "td3", "td3_bc"])
def test_an_update_of_a_subclass_that_does_not_count_is_counted_by_the_loop(name: str) -> None:
    learner = LEARNERS[name]

    class Idle(learner.cls.Learner):  # type: ignore[misc, name-defined]
        def update(self, batch: ReplayBatch) -> Any:
            return {"rows": len(batch.rewards)}

    agent = learner.make(learner=Idle)
    agent.train(learner.steps)
    assert agent.gradient_steps == (9 if learner.is_online else learner.steps)
