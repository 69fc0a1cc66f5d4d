"""Learners keep their contract, and each way to break it is found by the rule it belongs to."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import sharpwave as sw
from sharpwave.testing import LEARNER_RULES, ContractError, check_learner
from tests.contract.learners import BOTH_BACKENDS, LEARNERS, TEAMS
from tests.envs import resumable
from tests.unit.testing.broken_learners import BROKEN, Curious

ROLLOUTS = {"ppo", "hybrid_ppo", "a2c", "impala", "appo", "appo-target"}
ROLLOUTS |= {name for name in TEAMS if "ppo" in name}
WITHOUT_ERRORS = ROLLOUTS | {"bc", "bc-discrete", "iql", "cql", "dreamer_v3", "qmix-recurrent"}


def absent(name: str) -> set[str]:
    """Rules that do not apply to an algorithm."""
    return {"td_errors_are_one_for_each_row"} if name in WITHOUT_ERRORS else set()


@pytest.mark.long(but=["ppo-native"])
@pytest.mark.parametrize(("name", "backend"), BOTH_BACKENDS)
def test_learners_keep_all_rules(name: str, backend: str) -> None:
    case = LEARNERS[name]
    kept = check_learner(None, case.cls, case.world(), backend=backend, **case.options)
    assert set(kept) == set(LEARNER_RULES) - absent(name)


@pytest.mark.long
@pytest.mark.parametrize("name", TEAMS)
def test_learners_of_groups_keep_all_rules(name: str) -> None:
    case = TEAMS[name]
    kept = check_learner(None, case.cls, case.world(), **case.options)
    assert set(kept) == set(LEARNER_RULES) - absent(name)


def test_every_group_has_a_learner_of_the_user() -> None:
    class Mine(sw.MAPPOLearner):
        def follow(self, progress_remaining: float) -> None:
            super().follow(progress_remaining)

    agent = TEAMS["ippo"].make(learner=Mine)
    assert [type(member) for member in agent.learner.members.values()] == [Mine, Mine]
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"recurrent": "lstm", "recurrent_size": 4}),
        ("ppo", {"normalize_obs": True, "normalize_rewards": True}),
        ("dqn", {"noisy": True, "dueling": True, "n_step": 3, "prioritized": True}),
        ("sac", {"use_gsde": True, "n_step": 2, "prioritized": True, "overlap": True}),
        ("td3", {"normalize_obs": True, "normalize_rewards": True, "overlap": True}),
        ("iql", {"actor": "deterministic"}),
        ("cql", {"auto_alpha": True}),
    ],
    ids=lambda x: x if isinstance(x, str) else "-".join(x),
)
def test_learners_keep_all_rules_whatever_the_options(name: str, options: dict[str, Any]) -> None:
    case = LEARNERS[name]
    kept = check_learner(None, case.cls, case.world(), **{**case.options, **options})
    assert set(kept) == set(LEARNER_RULES) - absent(name)


@pytest.mark.long
def test_a_learner_of_a_user_keeps_all_rules() -> None:
    """Layers of torch's in `build` had the same first weights for every seed of a run."""
    assert set(check_learner(Curious, sw.DQN, "CartPole-v1")) == set(LEARNER_RULES)


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "absent"),
    [
        (resumable, set()),
        (lambda: gym.make("CartPole-v1"), {"a_resumed_run_is_the_run"}),
    ],
    ids=["with a state", "without"],
)
def test_environments_without_an_id_are_made_by_a_function(make: Any, absent: set[str]) -> None:
    kept = check_learner(None, sw.DQN, make, backend="native")
    assert set(kept) == set(LEARNER_RULES) - absent


@pytest.mark.long(but=["NotALearner"])
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_learner_is_found_by_its_rules(kind: Any) -> None:
    algorithm = sw.SAC if issubclass(kind, sw.SACLearner) else sw.DQN
    env = "Pendulum-v1" if algorithm is sw.SAC else "CartPole-v1"
    with pytest.raises(ContractError) as caught:
        check_learner(kind, algorithm, env, rules=BROKEN[kind])
    assert set(caught.value.broken) == set(BROKEN[kind])
    assert str(caught.value).startswith(f"{kind.__name__} breaks ")
    for rule in BROKEN[kind]:
        assert f"- {rule}: " in str(caught.value)


def test_every_rule_finds_something() -> None:
    assert {rule for rules in BROKEN.values() for rule in rules} == set(LEARNER_RULES)
