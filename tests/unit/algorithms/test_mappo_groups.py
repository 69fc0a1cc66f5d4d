"""Options of single groups, and what critics look at where observations are images."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs.multi.toys import Mortal, Roles
from sharpwave.testing.bits import state_of

GROUPS = {"first": ["agent_0"], "second": ["agent_1"]}
SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,), "n_epochs": 1, "seed": 3}
OF_SECOND = {"second": {"hidden": (4,), "learning_rate": 0.0, "recurrent": "gru"}}


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Any] = []

    def one(env: Any = Roles, kind: Any = sw.MAPPO, **options: Any) -> Any:
        made.append(kind(env, **{**SMALL, **options}))
        return made[-1]

    yield one
    for agent in made:
        agent.close()


def test_groups_have_options_of_their_own(make: Any) -> None:
    agent = make(groups=GROUPS, group_options=OF_SECOND)
    first, second = agent.learner["first"], agent.learner["second"]
    assert [(x.config.hidden, x.config.recurrent) for x in (first, second)] == [
        ((8,), None),
        ((4,), "gru"),
    ]
    before = [state_of(x) for x in (first, second)]
    metrics = agent.train(16)
    assert metrics["learning_rate/second"] == 0.0
    assert state_of(first) != before[0]
    weights = second.weights()
    agent.train(16)
    np.testing.assert_array_equal(second.weights(), weights)


def test_a_group_without_options_learns_as_ever(make: Any) -> None:
    one = make(groups=GROUPS)
    other = make(groups=GROUPS, group_options={"second": {"learning_rate": 1e-2}})
    for agent in (one, other):
        agent.train(16)
    assert state_of(one.learner["first"]) == state_of(other.learner["first"])
    assert state_of(one.learner["second"]) != state_of(other.learner["second"])


def test_native_rollouts_are_those_of_the_group(make: Any) -> None:
    options: dict[str, Any] = {"env": "mpe2/simple_spread_v3", "hidden": (8,)}
    own = make(**options, group_options={"agent": {"hidden": (16,)}})
    all_alike = make(**{**options, "hidden": (16,)})
    assert own.loop.collection_reason is None
    for agent in (own, all_alike):
        agent.train(32)
    assert state_of(own.learner) == state_of(all_alike.learner)


def test_options_of_a_group_are_those_of_its_agents_with_policies_of_their_own(make: Any) -> None:
    own = {"agent": {"hidden": (4,)}, "agent_1": {"hidden": (5,)}}
    agent = make(share_policy=False, group_options=own)
    assert [x.config.hidden for x in agent.learner.members.values()] == [(4,), (5,)]


def test_checkpoints_and_copies_have_the_options_of_groups(make: Any, tmp_path: Path) -> None:
    agent = make(groups=GROUPS, group_options=OF_SECOND)
    agent.train(16)
    agent.save(tmp_path / "run")
    loaded = sw.MAPPO.from_checkpoint(tmp_path / "run", env=Roles)
    copied = copy.deepcopy(agent)
    for one in (agent, loaded, copied):
        one.train(16)
        assert state_of(one.learner) == state_of(agent.learner)
    played = make(groups=GROUPS, opponents={"second": tmp_path / "run"})
    assert played._opposing["second"].config.hidden == (4,)
    loaded.close()
    copied.close()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"secnd": {}}, ValueError, r"name groups, .* got 'secnd'; did you mean 'second'\?"),
        ({"agent_1": {}}, ValueError, r"name groups, \['first', 'second'\], got 'agent_1'"),
        ({"second": {"n_steps": 4}}, ValueError, r"\['second'\] must not have n_steps, which is"),
        ({"second": {"hiden": 4}}, TypeError, r"\['second'\]: unknown option 'hiden'.*'hidden'"),
        ({"second": {"hidden": 0}}, ValueError, r"\['second'\]: .*hidden"),
        ({"second": 4}, TypeError, r"\['second'\] must be options by name, got 4"),
    ],
    ids=["group", "agent", "loop", "option", "value", "mapping"],
)
def test_bad_options_of_groups_are_named(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        sw.MAPPO(Roles, groups=GROUPS, group_options=options, **SMALL)


class Pictures(Mortal):
    """Both see the bit, in a picture; so is the state."""

    observations = spaces.Box(0, 255, (36, 36, 3), np.uint8)  # type: ignore[arg-type]

    def observe(self, agent: str) -> Any:
        del agent
        return np.full((36, 36, 3), 200 * self.bit, np.uint8)


class PicturesOfNumbers(Pictures):
    """The state is the bit itself."""

    def state(self) -> Any:
        return np.array([self.bit], np.float32)


class OnlyPictures(Pictures):
    """There is no state."""

    def state(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("env", "expected"),
    [(Pictures, "state"), (PicturesOfNumbers, "state"), (OnlyPictures, "obs")],
)
def test_critics_look_at_what_there_is_beside_images(make: Any, env: Any, expected: str) -> None:
    """They wanted to put images side by side, and nothing was trained without an option."""
    agent = make(env, n_steps=4)
    assert agent.config.critic_input == expected
    before = state_of(agent.learner)
    agent.train(8)
    assert state_of(agent.learner) != before


def test_critics_of_vectors_look_at_all_of_them(make: Any) -> None:
    by_default, asked = make(), make(critic_input="concat")
    assert by_default.config.critic_input == "concat"
    assert make(kind=sw.IPPO).config.critic_input == "obs"
    for agent in (by_default, asked):
        agent.train(16)
    assert state_of(by_default.learner) == state_of(asked.learner)
