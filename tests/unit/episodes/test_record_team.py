"""The episodes of several agents are recorded as they were, with their deaths and turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs import make_multi_env
from sharpwave.envs.multi.toys import Generations, Mortal
from sharpwave.episodes import EpisodeBuffer


def played(env: Any, folder: Path, steps: int, n_envs: int = 2) -> list[dict[str, Any]]:
    """Episodes of each copy as a plain loop keeps them: rows by agent, where it acted."""
    draw = np.random.default_rng(0)
    recorded = sw.RecordTeamEpisodes(make_multi_env(env, n_envs, mode="sync"), folder)
    step = recorded.reset(seed=7)
    kept: list[dict[str, Any]] = []
    running: list[dict[str, Any]] = [{} for _ in range(n_envs)]
    for _ in range(steps):
        before, actions = step, {}
        for name, members in recorded.groups.items():
            n = recorded.action_spaces[name].n  # type: ignore[attr-defined]
            masks = before.groups[name].masks
            weights = np.ones((n_envs, len(members), n)) if masks is None else masks * 1.0
            chosen = [[draw.choice(n, p=w / w.sum()) for w in rows] for rows in weights]
            actions[name] = np.array(chosen)
        step = recorded.step(actions)
        for e in range(n_envs):
            for name, members in recorded.groups.items():
                for i, agent in enumerate(members):
                    rows = running[e].setdefault(agent, [])
                    if before.groups[name].alive[e, i]:
                        rows.append(
                            (
                                before.groups[name].obs[e, i],
                                actions[name][e, i],
                                step.groups[name].rewards[e, i],
                                step.groups[name].terminated[e, i],
                            )
                        )
            if step.ended[e]:
                kept.append({"env": e, **running[e]})
                running[e] = {}
    recorded.close()
    recorded.close()
    return kept


@pytest.mark.parametrize(
    ("env", "steps"),
    [
        ("mpe2/simple_spread_v3", 50),
        (Mortal, 20),
        (Generations, 20),
        ("pettingzoo.classic.tictactoe_v3", 30),
    ],
    ids=["spread", "deaths", "births", "turns"],
)
def test_the_steps_of_every_agent_are_read_back(env: Any, steps: int, tmp_path: Path) -> None:
    kept = played(env, tmp_path, steps)
    assert kept
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        table = buffer.episodes()
        assert table.meta["env"][: len(kept)].tolist() == [one["env"] for one in kept]
        for number, episode in enumerate(kept):
            rows = buffer.gather(table.starts[number] + np.arange(table.lengths[number]))
            for agent in set(episode) - {"env"}:
                acted = rows[f"acted.{agent}"]
                lived = episode[agent]
                assert acted.sum() == len(lived)
                for field, place in (("obs", 0), ("action", 1), ("reward", 2), ("terminated", 3)):
                    expected = np.array([row[place] for row in lived])
                    np.testing.assert_array_equal(rows[f"{field}.{agent}"][acted], expected)
                assert not rows[f"action.{agent}"][~acted].any()


def test_deaths_and_last_observations_are_there(tmp_path: Path) -> None:
    played(Mortal, tmp_path, 8, n_envs=1)
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        rows = buffer.gather(np.arange(8))
        meta = buffer.episodes().meta
    assert rows["acted.agent_1"].tolist() == [True] + [False] * 7
    assert rows["terminated.agent_1"].tolist() == [True] + [False] * 7
    assert rows["acted.agent_0"].all()
    assert meta["seed"].tolist() == [7]
    assert meta["final_obs.agent_0"].shape == (1, 2)


def test_what_is_cut_is_truncated_for_the_living(tmp_path: Path) -> None:
    played(Mortal, tmp_path, 3, n_envs=1)
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        rows = buffer.gather(np.arange(3))
    assert rows["truncated.agent_0"].tolist() == [False, False, True]
    assert not rows["truncated.agent_1"].any()


def test_masks_are_those_that_the_actions_were_chosen_by(tmp_path: Path) -> None:
    played("pettingzoo.classic.tictactoe_v3", tmp_path / "turns", 9, n_envs=1)
    with EpisodeBuffer.from_folder(tmp_path / "turns", read_only=True) as buffer:
        rows = buffer.gather(np.arange(4))
    for t in range(4):
        agent = "player_1" if t % 2 == 0 else "player_2"
        mask = rows[f"action_mask.{agent}"][t]
        assert mask.sum() == 9 - t
        assert mask[rows[f"action.{agent}"][t]]
    played(Mortal, tmp_path / "free", 8, n_envs=1)
    with EpisodeBuffer.from_folder(tmp_path / "free", read_only=True) as buffer:
        rows = buffer.gather(np.arange(8))
    assert rows["action_mask.agent_1"].shape == (8, 2)
    assert rows["action_mask.agent_1"].all()


def test_continuous_actions_have_no_masks(tmp_path: Path) -> None:
    kwargs = {"continuous_actions": True}
    env = make_multi_env("mpe2/simple_spread_v3", 1, env_kwargs=kwargs)
    recorded = sw.RecordTeamEpisodes(env, tmp_path)
    recorded.reset(seed=0)
    recorded.step({"agent": np.zeros((1, 3, 5), np.float32)})
    recorded.close()
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        assert not any("mask" in name for name in buffer.gather(np.arange(1)))


def test_what_is_recorded_can_be_filmed(tmp_path: Path) -> None:
    env = make_multi_env("mpe2/simple_spread_v3", 2, env_kwargs={"render_mode": "rgb_array"})
    recorded = sw.RecordTeamEpisodes(env, tmp_path)
    assert recorded.render_mode == "rgb_array"
    recorded.reset(seed=0)
    first, second = recorded.render()
    assert first.shape == second.shape
    assert first.shape[2] == 3
    recorded.close()


@pytest.mark.long
def test_a_run_is_recorded(tmp_path: Path) -> None:
    env = sw.RecordTeamEpisodes(make_multi_env("mpe2/simple_spread_v3", 2), tmp_path / "episodes")
    agent = sw.MAPPO(env, n_steps=25, n_epochs=1, hidden=(8,), seed=1)
    agent.train(100)
    agent.close()
    with EpisodeBuffer.from_folder(tmp_path / "episodes", read_only=True) as buffer:
        assert buffer.episodes().lengths.tolist() == [25] * 4
        returns = [
            np.mean([buffer.gather(np.arange(s, s + 25))[f"reward.{a}"].sum() for a in env.agents])
            for s in buffer.episodes().starts
        ]
    assert np.mean(returns) == pytest.approx(agent.progress_metrics()["mean_return"])
