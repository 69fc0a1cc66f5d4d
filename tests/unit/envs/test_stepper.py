"""Steps read from vector environments of every autoreset mode, against single environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from sharpwave.envs import PythonVectorEnv, Step, Stepper, SubprocessVectorEnv, autoreset_mode
from tests.envs import CountingEnv, NestedEnv, ReusingEnv, numbered, vectorized
from tests.reference.nests import assert_same, transform
from tests.reference.stepping import single_rows

MODES = ["next_step", "same_step", "disabled"]
N = 3
STEPS = 24

SCHEDULES: dict[str, list[tuple[int, ...]]] = {
    "each its own": [(3, 5), (4,), (2, 1, 6)],
    "all together": [(4,)] * N,
    "one step each": [(1,)] * N,
    "one step or more": [(1,), (1, 2), (5,)],
}


def makers(schedule: str, kind: Any = CountingEnv) -> list[Any]:
    return [
        lambda number=number, lengths=lengths: kind(lengths, number, "alternating")
        for number, lengths in enumerate(SCHEDULES[schedule])
    ]


def actions_of(t: int) -> Any:
    return np.array([t % 2, 1, (t + 1) % 2])


def check(env: VectorEnv[Any, Any, Any], made: list[Any], mode: str) -> None:
    actions = [actions_of(t) for t in range(STEPS)]
    expected = [
        single_rows(make, [row[i] for row in actions], 10 + i, mode) for i, make in enumerate(made)
    ]
    stepper = Stepper(env)
    assert stepper.mode == mode
    first_obs, _ = stepper.reset(seed=10)
    assert_same(transform(len, first_obs), transform(lambda _: N, first_obs))
    steps: list[Step] = [stepper.step(action) for action in actions]
    for t, step in enumerate(steps):
        for i in range(N):
            row = expected[i][t]
            is_step = row.next_obs is not None
            assert is_step == (step.valid is None or bool(step.valid[i]))
            assert (step.terminated[i], step.truncated[i]) == (row.terminated, row.truncated)
            assert step.rewards[i] == pytest.approx(row.reward)
            same_values(transform(lambda leaf, i=i: leaf[i], step.obs), row.obs)
            if is_step:
                same_values(transform(lambda leaf, i=i: leaf[i], step.next_obs), row.next_obs)
    env.close()


def same_values(got: Any, expected: Any) -> None:
    transform(np.testing.assert_array_equal, got, expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", MODES)
def test_steps_are_those_of_single_environments(mode: str, schedule: str) -> None:
    made = makers(schedule)
    check(vectorized(made, mode), made, mode)


@pytest.mark.parametrize("mode", MODES)
def test_nested_observations(mode: str) -> None:
    made = makers("each its own", NestedEnv)
    check(vectorized(made, mode), made, mode)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [CountingEnv, NestedEnv, ReusingEnv])
def test_own_vector_environment(kind: Any, schedule: str) -> None:
    made = makers(schedule, kind)
    check(PythonVectorEnv(made), made, "same_step")


@pytest.mark.long(but=["NestedEnv-one step or more"])
@pytest.mark.parametrize("schedule", ["one step or more", "all together"])
@pytest.mark.parametrize("kind", [NestedEnv, ReusingEnv])
def test_own_environments_in_processes(kind: Any, schedule: str) -> None:
    made = makers(schedule, kind)
    check(SubprocessVectorEnv(made), made, "same_step")


@pytest.mark.parametrize("mode", MODES)
def test_environments_that_hand_out_their_own_memory(mode: str) -> None:
    made = makers("each its own")
    env = SyncVectorEnv(made, copy=False, autoreset_mode=AutoresetMode[mode.upper()])
    check(env, made, mode)


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_ends_the_next_observations_are_the_same_object(mode: str) -> None:
    env = vectorized(numbered(2, lengths=(3,)), mode)
    stepper = Stepper(env)
    stepper.reset()
    step = stepper.step(np.array([0, 0]))
    assert step.next_obs is step.obs
    assert step.valid is None


@pytest.mark.parametrize("mode", MODES)
def test_infos_belong_to_the_observation_to_act_on(mode: str) -> None:
    env = vectorized([*numbered(1, lengths=(1, 5)), *numbered(1, lengths=(5,))], mode)
    stepper = Stepper(env)
    stepper.reset()
    step = stepper.step(np.array([0, 0]))
    if mode == "next_step":
        assert step.infos["step"].tolist() == [1, 1]
        step = stepper.step(np.array([0, 0]))
        assert step.infos["_first"].tolist() == [True, False]
        assert step.infos["_step"].tolist() == [False, True]
        return
    assert step.infos["_first"].tolist() == [True, False]
    assert step.infos["first"][0] == 1
    assert step.infos["_step"].tolist() == [False, True]
    assert step.infos["final_info"]["step"][0] == 1
    assert step.infos["_final_info"].tolist() == [True, False]
    assert step.infos["final_info"]["last"][0]


class Batchwide(VectorWrapper):
    """Says something of the whole step, without a mask."""

    def step(self, actions: Any) -> Any:
        *outcome, infos = self.env.step(actions)
        return *outcome, {**infos, "clock": np.array([7.0, 8.0])}


def test_infos_of_the_whole_step_stay_when_the_stepper_resets() -> None:
    stepper = Stepper(Batchwide(vectorized(numbered(2, lengths=(1,)), "disabled")))
    stepper.reset()
    step = stepper.step(np.array([0, 0]))
    assert step.terminated.all()
    assert step.infos["clock"].tolist() == [7.0, 8.0]
    assert "last" not in step.infos


class Forms(VectorEnv[Any, Any, Any]):
    """Two environments whose first one ends at once, with last observations in some form."""

    num_envs = 2
    metadata: dict[str, Any] = {"autoreset_mode": "same-step"}  # noqa: RUF012

    def __init__(self, obs: Any, final_obs: Any) -> None:
        self.obs = obs
        self.final_obs = final_obs

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.obs, {}

    def step(self, actions: Any) -> Any:
        infos = {} if self.final_obs is None else {"final_obs": self.final_obs}
        ended = np.array([1, 0], np.uint8)
        return self.obs, np.array([1, 2], np.int32), ended, np.zeros(2, np.uint8), infos


def objects(*values: Any) -> Any:
    array = np.full(len(values), None, object)
    for i, value in enumerate(values):
        array[i] = value
    return array


@pytest.mark.parametrize(
    ("obs", "final_obs", "expected"),
    [
        (np.array([[1], [2]]), objects(np.array([9]), None), np.array([[9], [2]])),
        (np.array([[1], [2]]), np.array([[9], [99]]), np.array([[9], [2]])),
        ({"a": np.array([1, 2])}, {"a": np.array([9, 99])}, {"a": np.array([9, 2])}),
        ({"a": np.array([1, 2])}, objects({"a": 9}, None), {"a": np.array([9, 2])}),
        ((np.array([1, 2]),), (np.array([9, 99]),), (np.array([9, 2]),)),
        ((np.array([1, 2]),), objects((9,), None), (np.array([9, 2]),)),
    ],
)
def test_forms_of_last_observations(obs: Any, final_obs: Any, expected: Any) -> None:
    stepper = Stepper(Forms(obs, final_obs))
    stepper.reset()
    step = stepper.step(np.zeros(2))
    same_values(step.next_obs, expected)
    assert step.obs is obs
    assert step.rewards.dtype == np.float64
    assert step.terminated.dtype == step.truncated.dtype == np.bool_


@pytest.mark.parametrize("final_obs", [None, objects(None, None)])
def test_a_missing_last_observation_is_named(final_obs: Any) -> None:
    stepper = Stepper(Forms(np.array([[1], [2]]), final_obs))
    stepper.reset()
    with pytest.raises(ValueError, match="final_obs"):
        stepper.step(np.zeros(2))


def test_the_mode_of_an_instance_counts_more_than_that_of_its_class() -> None:
    class Careless(VectorEnv[Any, Any, Any]):
        num_envs = 1
        metadata: dict[str, Any] = {}  # noqa: RUF012

        def __init__(self, mode: AutoresetMode) -> None:
            self.autoreset_mode = mode
            self.metadata["autoreset_mode"] = mode  # of all instances

    first, second = Careless(AutoresetMode.NEXT_STEP), Careless(AutoresetMode.SAME_STEP)
    assert autoreset_mode(first) == "next_step"
    assert autoreset_mode(VectorWrapper(first)) == "next_step"
    assert autoreset_mode(second) == "same_step"


def test_an_unknown_mode_is_refused() -> None:
    env = Forms(np.zeros(2), None)
    env.metadata = {"autoreset_mode": "sometimes"}
    with pytest.raises(ValueError, match="sometimes"):
        Stepper(env)


def test_gymnasium_made_environments_are_next_step() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2)
    assert Stepper(env).mode == "next_step"
    env.close()


def test_a_stepper_goes_on_from_where_another_stopped() -> None:
    env = vectorized(numbered(2, lengths=(1, 2)), "next_step")
    first = Stepper(env)
    first.reset()
    first.step(np.array([0, 0]))
    second = Stepper(env)
    second.ended = first.ended.copy()
    step = second.step(np.array([0, 0]))
    assert step.valid is not None
    assert step.valid.tolist() == [False, False]
