"""Multi-agent environments keep their contract, and each way to break it is found by its rule."""

from __future__ import annotations

from typing import Any

import pytest

from sharpwave.envs import PettingZooVectorEnv, make_multi_env
from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Mortal, Roles, Switch
from sharpwave.testing import MULTI_ENV_RULES, ContractError, check_multi_env
from tests.unit.testing.broken_multi_envs import BROKEN, Good

ALWAYS = set(MULTI_ENV_RULES) - {
    "the_true_last_observations_are_kept",
    "masks_allow_something",
    "actions_of_the_gone_are_ignored",
    "a_saved_state_goes_on_exactly",
}
TOYS: dict[str, Any] = {
    "climbing": lambda: MatrixGame(CLIMBING),
    "roles": Roles,
    "mortal": Mortal,
    "careless": lambda: Mortal(careless=True),
    "generations": Generations,
    "switch": Switch,
}


def test_an_environment_of_every_kind_of_step_is_held_to_all_rules() -> None:
    assert set(check_multi_env(Good, n_steps=40)) == set(MULTI_ENV_RULES)


@pytest.mark.long(but=["mortal", "generations"])
@pytest.mark.parametrize("make", TOYS.values(), ids=TOYS)
def test_toys_keep_all_rules(make: Any) -> None:
    kept = set(check_multi_env(make))
    assert kept >= ALWAYS | {"a_saved_state_goes_on_exactly"}


@pytest.mark.long(but=["CartPole-v1"])
@pytest.mark.parametrize(
    ("env_id", "more"),
    [
        ("CartPole-v1", {"a_saved_state_goes_on_exactly"}),
        ("mpe2/simple_spread_v3", {"a_saved_state_goes_on_exactly"}),
        ("mpe2/simple_speaker_listener_v4", set()),
        ("mpe2/simple_tag_v3", set()),
        (
            "pettingzoo.classic.tictactoe_v3",
            {"masks_allow_something", "actions_of_the_gone_are_ignored"},
        ),
    ],
)
def test_ids_keep_all_rules(env_id: str, more: set[str]) -> None:
    if not env_id.startswith("CartPole"):
        pytest.importorskip("mpe2")
    assert set(check_multi_env(env_id)) >= ALWAYS | more


@pytest.mark.long
def test_environments_in_processes_keep_all_rules() -> None:
    env = make_multi_env(Generations, 2, mode="async")
    kept = set(check_multi_env(env))
    env.reset()  # it is still open
    env.close()
    assert kept == set(MULTI_ENV_RULES) - {"masks_allow_something"}


def test_an_environment_a_class_and_a_maker_are_taken() -> None:
    rule = "rewards_are_finite"
    for source in (Mortal(), Mortal, lambda: PettingZooVectorEnv([Mortal] * 2)):
        assert check_multi_env(source, rules=rule) == (rule,)


@pytest.mark.long(but=["Raises"])
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_environment_is_found_by_its_rule(kind: type[Good]) -> None:
    with pytest.raises(ContractError) as caught:
        check_multi_env(kind, n_steps=40)
    rule = BROKEN[kind]
    assert rule in caught.value.broken
    assert str(caught.value).startswith(f"{kind.__name__} breaks ")


def test_every_rule_finds_something() -> None:
    assert set(BROKEN.values()) == set(MULTI_ENV_RULES)
