"""Groups that others play: what stays of them in checkpoints and copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs.multi.toys import Roles
from sharpwave.testing.bits import state_of

GROUPS = {"first": ["agent_0"], "second": ["agent_1"]}
SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,), "n_epochs": 2, "seed": 3}


def still(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64)


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Any] = []

    def one(**options: Any) -> Any:
        made.append(sw.MAPPO(Roles, groups=GROUPS, **{**SMALL, **options}))
        return made[-1]

    yield one
    for agent in made:
        agent.close()


def played(agent: Any) -> dict[str, bytes]:
    """The weights of what plays the second group."""
    return weights_of(agent._opposing["second"])


def weights_of(learner: Any) -> dict[str, bytes]:
    found = state_of(learner)
    return {name: found[name] for name in found if "exp_avg" not in name}


def test_a_checkpoint_holds_the_opponents(make: Any, tmp_path: Path) -> None:
    """All groups learned on where a run against an opponent was loaded."""
    other = make(seed=5, hidden=(4,))
    other.train(32)
    agent = make(opponents={"second": other})
    agent.train(32)
    agent.save(tmp_path / "run")
    loaded = sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles)
    assert played(loaded) == weights_of(other.learner["second"])
    for one in (agent, loaded):
        one.train(32)
    assert loaded.learner.learning.keys() == {"first"}
    assert state_of(agent.learner) == state_of(loaded.learner)
    assert played(loaded) == weights_of(other.learner["second"])
    loaded.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("opponent", ["agent", "function", "frozen"])
def test_copies_play_against_the_same(make: Any, opponent: str, copied: Any) -> None:
    given = {"agent": make(seed=5), "function": still, "frozen": None}[opponent]
    agent = make(opponents={"second": given})
    agent.train(16)
    other = copied(agent)
    for one in (agent, other):
        one.train(16)
    assert state_of(agent.learner) == state_of(other.learner)
    other.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_need_no_file_of_the_opponent(make: Any, copied: Any, tmp_path: Path) -> None:
    """Neither one that was deleted nor one that changed is read again."""
    file = tmp_path / "other.safetensors"
    other = make(seed=5, hidden=(4,))
    other.save(file)
    agent = make(opponents={"second": file})
    agent.train(16)
    before = played(agent)
    make(seed=6, hidden=(4,)).save(file)
    changed = copied(agent)
    file.unlink()
    deleted = copied(changed)
    for one in (agent, changed, deleted):
        one.train(16)
        assert played(one) == before
        assert state_of(one.learner) == state_of(agent.learner)
    changed.close()
    deleted.close()


def test_another_seed_is_taken_over_against_the_same(make: Any, tmp_path: Path) -> None:
    """The agent is built again, and its opponent with it."""
    file = tmp_path / "other.safetensors"
    make(seed=5).save(file)
    agent, longer = make(opponents={"second": file}), make(opponents={"second": file}, seed=9)
    longer.save(tmp_path / "run")
    before = played(agent)
    file.unlink()
    agent.load_checkpoint(tmp_path / "run")
    assert played(agent) == before


def test_a_learner_of_a_group_may_play(make: Any) -> None:
    other = make(seed=5)
    learner = other.learner["second"]
    agent = make(opponents={"second": learner})
    agent.train(16)
    assert played(agent) == weights_of(learner)


def test_networks_are_refused_at_once(make: Any) -> None:
    """They passed for functions, and failed in the first step."""
    policy = make(seed=5, backend="torch").learner["second"].policy
    wanted = r"opponents\['second'\] must be a checkpoint, .*got ActorCritic: a network does not"
    with pytest.raises(TypeError, match=wanted):
        make(opponents={"second": policy})
    with pytest.raises(TypeError, match=r"opponents\['second'\] must be a checkpoint, .* got 3"):
        make(opponents={"second": 3})


def test_agents_without_policies_of_groups_are_refused(make: Any, tmp_path: Path) -> None:
    """Their files passed for damaged ones."""
    team = sw.VDN(Roles, groups=GROUPS, n_envs=2, hidden=(8,))
    alone = sw.PPO("CartPole-v1", n_envs=2, n_steps=8)
    wanted = r"opponents\['second'\] must be an agent with a policy for each group, as MAPPO"
    for one, name in ((team, "vdn"), (alone, "ppo")):
        one.save(tmp_path / name)
        with pytest.raises(ValueError, match=f"{wanted}.*, got one of '{name}': .*{name}"):
            make(opponents={"second": tmp_path / name})
        with pytest.raises(TypeError, match=f"{wanted}.*, got one of {name.upper()}$"):
            make(opponents={"second": one})
        one.close()
    ippo = sw.IPPO(Roles, groups=GROUPS, **SMALL)
    ippo.save(tmp_path / "ippo")
    make(opponents={"second": tmp_path / "ippo"}).train(16)
    ippo.close()


def test_opponents_are_given_by_group(make: Any) -> None:
    with pytest.raises(TypeError, match=r"opponents must be a mapping .* got \['second'\]"):
        make(opponents=["second"])


def test_a_run_goes_on_against_another(make: Any, tmp_path: Path) -> None:
    agent = make(opponents={"second": make(seed=5)})
    agent.save(tmp_path / "run")
    another = make(seed=6)
    loaded = sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles, opponents={"second": another})
    assert played(loaded) == weights_of(another.learner["second"])
    everyone = sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles, opponents={})
    assert everyone.learner.learning.keys() == {"first", "second"}
    loaded.close()
    everyone.close()


def test_functions_are_not_in_files(make: Any, tmp_path: Path) -> None:
    make(opponents={"second": still}).save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"opponents must be given: .* function as 'second'"):
        sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles)
    given = {"second": still}
    loaded = sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles, opponents=given)
    loaded.train(16)
    loaded.close()


def test_a_run_against_others_is_not_taken_for_one_of_all(make: Any, tmp_path: Path) -> None:
    make(opponents={"second": None}).save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"its opponents are \['second'\], not \[\]"):
        make().load_checkpoint(tmp_path / "run")


def test_functions_may_ask_for_masks() -> None:
    """Without them nothing but a policy could play a game that forbids actions."""
    asked: list[Any] = []

    def last_allowed(obs: Any, action_masks: Any) -> Any:
        assert len(obs) == len(action_masks)
        asked.append(action_masks)
        return action_masks.shape[1] - 1 - action_masks[:, ::-1].argmax(1)

    agent = sw.IPPO(
        "pettingzoo.classic.tictactoe_v3",
        groups={"first": ["player_1"], "second": ["player_2"]},
        opponents={"second": last_allowed},
        **SMALL,
    )
    agent.train(32)
    assert all(masks.shape == (2, 9) for masks in asked)
    assert not np.all(asked)
    board, mask = np.zeros((3, 3, 2), np.int8), np.arange(9) < 5
    seen = {"observation": board, "action_mask": mask}
    assert agent.predict({"player_2": seen}) == {"player_2": 4}
    agent.close()
