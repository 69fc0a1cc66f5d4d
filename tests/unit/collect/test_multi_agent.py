from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sharpwave.collect.joint import JointView
from sharpwave.collect.multi_agent import MultiAgentCollector
from sharpwave.errors import NonFiniteError
from tests.multi_envs import Fates
from tests.reference.multi_agent import advantages


class Valuer:
    """Values observations by their first number, and says what it was asked."""

    learns = True

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.action_map = SimpleNamespace(to_env=lambda actions: actions)
        self.cut: dict[tuple[int, int], Any] = {}
        self.acted: list[Any] = []

    def act(self, obs: Any, joint: Any, starts: Any, masks: Any, acts: Any) -> Any:
        del joint, masks, acts
        self.acted.append((obs.copy(), starts.copy()))
        zeros = np.zeros(self.rows, np.int64)
        return SimpleNamespace(
            actions=zeros, log_probs=zeros.astype(np.float32), values=obs[:, 0], extra=None
        )

    def values(self, obs: Any, joint: Any, rows: Any = None) -> Any:
        if joint is not None:
            assert len(joint) in (len(obs), len(obs) // 2)
        if rows is not None:
            self.cut.update(
                {(len(self.acted) - 1, int(row)): x for row, x in zip(rows, obs[:, 0], strict=True)}
            )
        return obs[:, 0]


def collected(n_steps: int = 30, **fates: Any) -> tuple[Any, Valuer, MultiAgentCollector]:
    env = Fates(**fates)
    actor = Valuer(env.num_envs * 2)
    collector = MultiAgentCollector(env, {"agent": actor}, n_steps=n_steps, seed=3)
    rollouts = collector.collect(0.9, 0.8)
    assert rollouts is not None
    return rollouts["agent"], actor, collector


@pytest.mark.parametrize("waits", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_those_of_every_agent_alone(waits: float, seed: int) -> None:
    env = Fates(waits=waits)
    actor = Valuer(6)
    collector = MultiAgentCollector(env, {"agent": actor}, n_steps=25, seed=seed)
    for _ in range(2):
        actor.cut, actor.acted = {}, []
        rollouts = collector.collect(0.9, 0.8)
        assert rollouts is not None
        rollout = rollouts["agent"]
        last = collector.obs["agent"].reshape(6, -1)[:, 0]
        waiting = np.stack(collector._waits["agent"]).reshape(25, 6)
        for row in range(6):
            steps = [
                {
                    "acts": rollout.valid[t, row],
                    "waits": waiting[t, row],
                    "value": rollout.values[t, row],
                    "reward": rollout.rewards[t, row],
                    "terminated": rollout.terminated[t, row],
                    "truncated": rollout.truncated[t, row],
                    "cut_value": actor.cut.get((t, row)),
                }
                for t in range(25)
            ]
            oracle = advantages(steps, last[row], 0.9, 0.8)
            valid = rollout.valid[:, row]
            np.testing.assert_allclose(rollout.advantages[valid, row], oracle[valid], atol=1e-5)
            expected = oracle[valid] + rollout.values[valid, row]
            np.testing.assert_allclose(rollout.returns[valid, row], expected, atol=1e-5)
        assert (waits > 0) == waiting.any()


def test_rows_of_agents_that_are_gone_reach_no_batch() -> None:
    kept = [collected(dead=dead)[2].columns("agent", sequences=False) for dead in (0.0, 7.0)]
    rollout, _, _ = collected()
    assert 0 < rollout.valid.sum() < rollout.valid.size
    assert len(kept[0]["obs"]) == rollout.valid.sum()
    for name in ("obs", "actions", "advantages", "returns", "agents"):
        np.testing.assert_array_equal(kept[0][name], kept[1][name])


def test_a_life_begins_after_an_end_and_not_after_a_turn() -> None:
    rollout, _, collector = collected(n_steps=60, waits=0.3)
    waiting = np.stack(collector._waits["agent"]).reshape(rollout.valid.shape)
    for row in range(rollout.valid.shape[1]):
        begins = True
        for t in range(60):
            if rollout.valid[t, row]:
                assert rollout.starts[t, row] == begins
                begins = False
            if rollout.terminated[t, row] or rollout.truncated[t, row]:
                begins = True
            if collector.rollouts["agent"].valid[t, row]:
                assert not waiting[t, row]


def test_the_joint_view_is_stored_once_for_each_environment() -> None:
    env = Fates(sizes={"agent": 2, "other": 1})
    actors = {"agent": Valuer(6), "other": Valuer(3)}
    joint = JointView(env, "concat")
    collector = MultiAgentCollector(env, actors, n_steps=4, seed=0, joint=joint)
    rollouts = collector.collect(0.9, 0.8)
    assert rollouts is not None
    assert collector.joints["agent"] is collector.joints["other"]
    assert collector.joints["agent"].shape == (4, 3, 6)
    columns = collector.columns("agent", sequences=False)
    own = columns["joint"][columns["joint_rows"]].reshape(-1, 3, 2)
    np.testing.assert_array_equal(own[np.arange(len(own)), columns["agents"]], columns["obs"])


def test_states_of_the_environment_are_what_critics_look_at() -> None:
    env = Fates()
    collector = MultiAgentCollector(
        env, {"agent": Valuer(6)}, n_steps=3, seed=0, joint=JointView(env, "state")
    )
    collector.reset()
    first = collector._state
    assert first is not None
    collector.collect(0.9, 0.8)
    np.testing.assert_array_equal(collector.joints["agent"][0], first)


def test_returns_are_counted_for_teams_groups_and_agents() -> None:
    env = Fates(sizes={"agent": 2, "other": 1})
    actors = {"agent": Valuer(6), "other": Valuer(3)}
    collector = MultiAgentCollector(env, actors, n_steps=200, seed=0)
    collector.collect(0.9, 0.8)
    stats = collector.episodes
    assert stats.count > 3
    every = [stats.mean_of(agent) for agent in env.agents]
    assert stats.mean_return == pytest.approx(np.mean(every))
    assert stats.mean_of("agent") == pytest.approx(np.mean(every[:2]))
    assert set(stats.metrics()) >= {"mean_return", "mean_return/agent", "mean_return/other_0"}
    other = type(stats)(3, env.groups)
    other.load_state_dict(stats.state_dict())
    assert other.metrics() == stats.metrics()


def test_a_reward_that_is_no_number_names_its_agent() -> None:
    env = Fates()
    collector = MultiAgentCollector(env, {"agent": Valuer(6)}, n_steps=3, seed=0)
    collector.reset()
    step = env.step

    def spoiled(actions: Any) -> Any:
        taken = step(actions)
        taken.groups["agent"].rewards[1, 1] = np.nan
        return taken

    env.step = spoiled  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match="nan for agent_1 of environment 1 at step 0"):
        collector.collect(0.9, 0.8)


@pytest.mark.parametrize("name", ["state", "next_state", "obs", "next_obs"])
def test_what_is_seen_must_be_numbers(name: str) -> None:
    """A state that was none ended as a loss that was none, in learning that diverged."""
    env = Fates()
    joint = JointView(env, "state")
    collector = MultiAgentCollector(env, {"agent": Valuer(6)}, n_steps=3, seed=0, joint=joint)
    collector.reset()
    step = env.step

    def spoiled(actions: Any) -> Any:
        taken = step(actions)
        if "state" in name:
            getattr(taken, name)[2, 1] = np.nan
        else:
            getattr(taken.groups["agent"], name)[2, 1, 0] = np.inf
        return taken

    env.step = spoiled  # type: ignore[method-assign]
    what = "state" if "state" in name else "obs of agent_1"
    wanted = rf"{what} must be finite, got \[.*(nan|inf).*\] from environment 2 at step 0"
    with pytest.raises(NonFiniteError, match=wanted):
        collector.collect(0.9, 0.8)


def test_a_state_that_is_no_number_is_found_in_the_first_one() -> None:
    env = Fates()
    reset = env.reset

    def spoiled(**options: Any) -> Any:
        first = reset(**options)
        first.state[0] = np.nan  # type: ignore[index]
        return first

    env.reset = spoiled  # type: ignore[method-assign]
    actors = {"agent": Valuer(6)}
    looks_elsewhere = MultiAgentCollector(env, actors, n_steps=3, seed=0)
    assert looks_elsewhere.collect(0.9, 0.8) is not None
    joint = JointView(env, "state")
    with pytest.raises(NonFiniteError, match=r"state must be finite, .* environment 0 at step 0"):
        MultiAgentCollector(env, actors, n_steps=3, seed=0, joint=joint).collect(0.9, 0.8)


def test_a_team_is_paid_its_mean() -> None:
    env = Fates()
    actor = Valuer(6)
    collector = MultiAgentCollector(env, {"agent": actor}, n_steps=5, seed=0, team_reward=True)
    paid: list[Any] = []
    step = env.step

    def watched(actions: Any) -> Any:
        taken = step(actions)
        paid.append(taken.groups["agent"].rewards.copy())
        return taken

    env.step = watched  # type: ignore[method-assign]
    rollouts = collector.collect(0.9, 0.8)
    assert rollouts is not None
    expected = np.repeat(np.stack(paid).mean(2), 2, 1)
    np.testing.assert_allclose(rollouts["agent"].rewards, expected, rtol=1e-6)


def test_collection_goes_on_from_its_state() -> None:
    _, _, collector = collected()
    state = collector.state_dict()
    other = MultiAgentCollector(collector.env, {"agent": Valuer(6)}, n_steps=5, seed=3)
    other.load_state_dict(state, in_flight=True)
    assert other.timesteps == 90
    np.testing.assert_array_equal(other.obs["agent"], collector.obs["agent"])
    for name in ("_alive", "_begins"):
        np.testing.assert_array_equal(
            getattr(other, name)["agent"], getattr(collector, name)["agent"]
        )
