"""Multi-agent environments go on exactly where they were saved."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sharpwave.envs import (
    PettingZooVectorEnv,
    environment_state,
    random_state,
    restore_environment_state,
    restore_random_state,
)
from sharpwave.envs.multi.native import NativeMultiAgentEnv
from sharpwave.envs.multi.toys import CLIMBING, Generations, MatrixGame, Mortal, Switch
from tests.unit.envs.multi.multi_envs import Trio, assert_same_steps, drawn_actions, play

N = 3
MAKERS: dict[str, Any] = {
    "climbing": lambda: MatrixGame(CLIMBING, horizon=4),
    "mortal": Mortal,
    "generations": Generations,
    "switch": Switch,
}


def go_on(env: Any, last: Any, n_steps: int = 25) -> list[Any]:
    rng = np.random.default_rng(1)
    steps = [last]
    for _ in range(n_steps):
        steps.append(env.step(drawn_actions(env, steps[-1], rng)))
    return steps[1:]


@pytest.mark.long(but=["sync"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_saved_environment_goes_on_exactly(make: Any, mode: str) -> None:
    env = PettingZooVectorEnv([make] * N, mode=mode)
    for n_steps in (0, 1, 2, 3, 4):
        last = play(env, n_steps)[-1]
        state = environment_state(env)
        assert state is not None
        other = PettingZooVectorEnv([make] * N)
        play(other, 3, seed=9)
        restore_environment_state(other, state)
        assert_same_steps(go_on(other, last), go_on(env, last))
        other.close()
    env.close()


def test_native_environments_are_saved_by_the_same_functions() -> None:
    env, other = (NativeMultiAgentEnv("mpe2/simple_spread_v3", N) for _ in range(2))
    last = play(env, 7)[-1]
    state = environment_state(env)
    assert state is not None
    play(other, 3, seed=9)
    restore_environment_state(other, state)
    assert_same_steps(go_on(other, last), go_on(env, last))


def test_environments_that_do_not_offer_their_state_save_their_generators() -> None:
    mpe2 = pytest.importorskip("mpe2.simple_tag_v3")
    env, other = (PettingZooVectorEnv([mpe2.parallel_env] * 2) for _ in range(2))
    play(env, 5)
    assert environment_state(env) is None
    state = random_state(env)
    assert state is not None
    other.reset(seed=8)
    restore_random_state(other, json.loads(json.dumps(state)))
    assert_same_steps([other.reset()], [env.reset()])


def test_turns_are_saved_with_the_environment() -> None:
    from tests.unit.envs.multi.test_turns import Rounds

    class Saved(Rounds):
        def get_state(self) -> Any:
            names = ("agents", "rewards", "terminations", "truncations", "turns", "agent_selection")
            return {name: getattr(self, name) for name in names}

        def set_state(self, state: Any) -> None:
            self.reset()
            for name, value in state.items():
                setattr(self, name, value.copy() if isinstance(value, dict | list) else value)
            self._cumulative_rewards = dict.fromkeys(self.agents, 0)
            self.infos = {agent: {} for agent in self.agents}
            self.order.reinit(self.agents)
            while self.order.next() != self.agent_selection:
                pass

    for n_steps in (2, 4, 5):
        env, other = PettingZooVectorEnv([Saved]), PettingZooVectorEnv([Saved])
        last = play(env, n_steps)[-1]
        other.reset()
        state = environment_state(env)
        assert state is not None
        restore_environment_state(other, state)
        assert_same_steps(go_on(other, last, 9), go_on(env, last, 9))


def test_a_state_of_other_environments_is_refused() -> None:
    env = PettingZooVectorEnv([Mortal] * 2)
    env.reset()
    state = environment_state(env)
    assert state is not None
    with pytest.raises(ValueError, match="env must have 2 environments, got 3"):
        restore_environment_state(PettingZooVectorEnv([Mortal] * 3), state)
    assert environment_state(PettingZooVectorEnv([Trio])) is None
