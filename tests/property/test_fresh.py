"""Fresh windows of random lives against the oracle."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharpwave import ReplayBuffer, Sequence, Transition
from tests.property.test_replay import PLAIN, STACKED
from tests.reference.fresh import FreshOracle
from tests.reference.replay import ReplayOracle
from tests.reference.steps import ENDINGS, Steps

VIEWS = st.one_of(
    st.just(Transition()),
    st.builds(Sequence, st.integers(1, 5), cross=st.booleans()),
    st.builds(
        Sequence,
        st.integers(1, 4),
        cross=st.booleans(),
        arrivals=st.just(True),
        context=st.integers(0, 1),
    ),
)
ROUNDS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from([*ENDINGS, "", ""]), st.booleans()),
            max_size=9,
        ),
        st.integers(0, 4),
    ),
    max_size=8,
)


@given(
    view=VIEWS,
    rounds=ROUNDS,
    n_envs=st.integers(1, 3),
    capacity=st.integers(9, 40),
    fields=st.sampled_from([PLAIN, STACKED]),
)
def test_windows_come_once_and_in_turn(
    view: Any, rounds: Any, n_envs: int, capacity: int, fields: Any
) -> None:
    buffer = ReplayBuffer(capacity, fields=fields, n_envs=n_envs)
    oracle = ReplayOracle(capacity, buffer.schema, n_envs)
    queue, steps = FreshOracle(oracle), Steps(buffer.schema, n_envs)
    length = 1 if isinstance(view, Transition) else view.rows
    for pushes, most in rounds:
        for env, ending, reset in pushes:
            row = steps.step(env % n_envs, ending, reset=reset)
            buffer.push(**row, **({} if n_envs == 1 else {"stream": env % n_envs}))
            oracle.push(row, env % n_envs)
        assert buffer._take_fresh(view, length, most).tolist() == queue.take(most, view)
