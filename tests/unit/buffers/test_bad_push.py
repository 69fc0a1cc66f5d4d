"""A push of something wrong says what, and changes nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from sharpwave import Field, PrioritizedReplayBuffer, ReplayBuffer
from tests.unit.buffers.inputs import CLASSES, INF, NAN, Unchanged, make, refused, step, steps


class TestPush:
    @pytest.mark.parametrize("cls", CLASSES)
    @pytest.mark.parametrize(
        ("name", "value", "error", "message"),
        [
            ("obs", np.zeros(2), ValueError, r"obs must have shape \(3,\), got \(2,\)"),
            ("obs", np.zeros(6), ValueError, r"obs must have shape \(3,\), got \(6,\)"),
            ("obs", np.zeros((3, 3)), ValueError, r"obs must have shape \(3,\), got \(3, 3\)"),
            ("obs", np.zeros((1, 3)), ValueError, r"obs must have shape \(3,\), got \(1, 3\)"),
            ("obs", 1.0, ValueError, r"obs must have shape \(3,\), got \(\)"),
            ("obs", [], ValueError, r"obs must have shape \(3,\), got \(0,\)"),
            ("obs", ["a", "b", "c"], TypeError, "obs must be of a bool, integer or float dtype"),
            ("obs", [[1], [1, 2], []], TypeError, "obs must be an array of numbers"),
            ("obs", np.zeros(3, complex), TypeError, "obs must be of a bool.* got complex128"),
            ("obs", np.zeros(3, object), TypeError, "obs must be of a bool.* got object"),
            (
                "obs",
                np.zeros(3, "M8[s]")[::-1],
                TypeError,
                "obs must be of a bool.* got datetime64",
            ),
            ("obs", np.zeros(3, "f4,f4")[::-1], TypeError, "obs must be of a bool"),
            ("obs", {"a": 1}, TypeError, "obs must be an array of numbers, got dict"),
            ("obs", [1e40, 0, 0], ValueError, "obs must fit float32, got 1e"),
            ("action", [1.0, 2.0], ValueError, r"action must have shape \(1,\), got \(2,\)"),
            ("action", "up", TypeError, "action must be of a bool, integer or float dtype"),
            ("action", 2**70, ValueError, "action must fit float32, got an integer beyond 64 bits"),
            ("reward", NAN, ValueError, "reward must be finite, got NaN or infinity"),
            ("reward", INF, ValueError, "reward must be finite"),
            ("reward", -INF, ValueError, "reward must be finite"),
            ("reward", 1e40, ValueError, "reward must fit float32, got 1e"),
            ("reward", np.float64(1e40), ValueError, "reward must fit float32"),
            ("reward", [1.0, 2.0], ValueError, r"reward must have shape \(\), got \(2,\)"),
            ("reward", None, TypeError, "needs the argument 'reward'"),
            ("terminated", NAN, ValueError, "terminated must fit"),
            ("terminated", "yes", TypeError, "terminated must be of a bool"),
            ("truncated", None, TypeError, "needs the argument 'truncated'"),
            ("next_obs", None, TypeError, "needs the argument 'next_obs'"),
            ("next_obs", np.zeros(4), ValueError, r"next_obs must have shape \(3,\), got \(4,\)"),
        ],
    )
    def test_a_wrong_value_is_named_and_nothing_is_pushed(
        self, cls: Any, name: str, value: Any, error: type[Exception], message: str
    ) -> None:
        buffer = make(cls)
        with Unchanged(buffer):
            refused(error, message, lambda: buffer.push(**step(**{name: value})))

    def test_a_missing_argument_is_named(self) -> None:
        buffer = make()
        for name in step():
            given = step()
            del given[name]
            refused(
                TypeError,
                rf"push\(\) needs the argument '{name}'",
                lambda g=given: buffer.push(**g),
            )
        refused(TypeError, "at most 6 positional", lambda: buffer.push(*range(7)))
        refused(TypeError, "multiple values for argument 'obs'", lambda: buffer.push(1, obs=1))

    def test_a_misspelt_keyword_gets_a_suggestion(self) -> None:
        buffer = make()
        refused(TypeError, "'rewrad'; did you mean 'reward'", lambda: buffer.push(**step(rewrad=1)))
        refused(
            TypeError,
            r"push_batch\(\) got .* 'reward'; did you mean 'rewards'",
            lambda: buffer.push_batch(**steps(reward=1)),
        )
        refused(TypeError, "unexpected keyword argument 'zzz'", lambda: buffer.push(**step(zzz=1)))
        for method in (buffer.push, buffer.push_batch, buffer.sample, buffer.gather):
            refused(UnicodeEncodeError, "surrogates", lambda m=method: m(**{"\ud800": 1}))

    def test_values_that_do_not_fit_integers_are_refused(self) -> None:
        buffer = ReplayBuffer(4, fields={"byte": "uint8", "number": "int64", "flag": "bool"})
        with Unchanged(buffer):
            for byte in (300, -1, 1.5, NAN, INF, 256.0, np.array([-1]), np.int64(300), 1e300):
                refused(
                    ValueError,
                    "byte must fit uint8, got",
                    lambda b=byte: buffer.push(byte=b, number=0, flag=0),
                )
            for number in (2**63, 1e19, 0.5, NAN, -(2**70)):
                refused(
                    ValueError,
                    "number must fit int64",
                    lambda n=number: buffer.push(byte=0, number=n, flag=0),
                )
            refused(
                ValueError,
                "flag must fit bool, got nan",
                lambda: buffer.push(byte=0, number=0, flag=NAN),
            )
        buffer.push(byte=255, number=2**63 - 1, flag=7)
        batch = buffer.sample(1)
        assert (batch["byte"][0], batch["number"][0], batch["flag"][0]) == (255, 2**63 - 1, True)

    def test_one_column_is_not_broadcast_into_two(self) -> None:
        buffer = ReplayBuffer(4, fields={"x": ("float32", (1, 2)), "y": ("float32", (2,))})
        refused(
            ValueError,
            r"x must have shape \(1, 2\), got \(1, 1\)",
            lambda: buffer.push(x=[[1.0]], y=[1, 2]),
        )
        refused(
            ValueError,
            r"y must have shape \(2,\), got \(1,\)",
            lambda: buffer.push(x=[[1, 2]], y=[1.0]),
        )
        assert len(buffer) == 0

    def test_fields_that_ask_for_it_refuse_nan(self) -> None:
        buffer = ReplayBuffer(4, fields={"a": Field("float32", (2,), finite=True), "b": "float32"})
        refused(ValueError, "a must be finite", lambda: buffer.push(a=[0, NAN], b=0))
        buffer.push(a=[0, 1], b=NAN)
        assert np.isnan(buffer.sample(1)["b"][0])

    def test_nested_observations_are_checked_by_name(self) -> None:
        fields = {"obs": {"image": ("uint8", (2,)), "pair": ["float32", "float32"]}}
        buffer = ReplayBuffer(4, fields=fields)
        good: dict[str, Any] = {"image": [1, 2], "pair": (1.0, 2.0)}
        for wrong, message in [
            ({**good, "image": [1, 300]}, re.escape('obs["image"] must fit uint8, got 300')),
            ({"pair": (1.0, 2.0)}, re.escape('obs["image"] is missing')),
            ({**good, "pair": (1.0,)}, re.escape('obs["pair"][1] is missing')),
            ({**good, "pair": 5}, re.escape('obs["pair"][0] is missing')),
            ([1, 2], re.escape('obs["image"] is missing')),
            ("text", re.escape('obs["image"] is missing')),
        ]:
            refused(ValueError, message, lambda w=wrong: buffer.push(w))
        refused(TypeError, re.escape('obs["image"]'), lambda: buffer.push({**good, "image": None}))
        assert len(buffer) == 0

    @pytest.mark.parametrize("priority", [NAN, INF, -INF, -1.0, -1e-300])
    def test_a_priority_that_is_none_is_refused(self, priority: float) -> None:
        buffer = make(PrioritizedReplayBuffer)
        with Unchanged(buffer):
            refused(
                ValueError,
                "priority must be finite and not negative, got",
                lambda: buffer.push(**step(), priority=priority),
            )
            refused(
                ValueError,
                "priority must be finite and not negative, got",
                lambda: buffer.push_batch(**steps(2), priorities=[1.0, priority]),
            )

    def test_priorities_need_a_prioritized_buffer(self) -> None:
        refused(TypeError, "unexpected .* 'priority'", lambda: make().push(**step(), priority=1))
        refused(ValueError, "no priorities", lambda: make().update_priorities([0], [1.0]))

    def test_streams_are_checked(self) -> None:
        buffer = ReplayBuffer(8, 3, 1, n_envs=2)
        refused(
            ValueError, "needs the argument 'stream'.* from 0 to 1", lambda: buffer.push(**step())
        )
        for stream in (-1, 2, 2**40):
            refused(
                IndexError,
                "stream must be from 0 to 1",
                lambda s=stream: buffer.push(**step(), stream=s),
            )
        for wrong in (1.0, True, "0"):
            refused(TypeError, "stream must be", lambda s=wrong: buffer.push(**step(), stream=s))
        refused(ValueError, "multiple of 2 rows, got 3", lambda: buffer.push_batch(**steps(3)))
        refused(
            ValueError,
            "streams must have length 3, got 2",
            lambda: buffer.push_batch(**steps(3), streams=[0, 1]),
        )
        assert len(buffer) == 0


class TestPushBatch:
    @pytest.mark.parametrize("cls", CLASSES)
    @pytest.mark.parametrize(
        ("name", "value", "error", "message"),
        [
            ("obs", np.zeros((3, 3)), ValueError, r"obs must have shape \(4, 3\), got \(3, 3\)"),
            ("obs", np.zeros((4, 2)), ValueError, r"obs must have shape \(4, 3\), got \(4, 2\)"),
            ("obs", np.zeros((3, 4)), ValueError, r"obs must have shape \(4, 3\), got \(3, 4\)"),
            ("obs", np.zeros((4, 3), "U1"), TypeError, "obs must be of a bool"),
            ("next_obs", None, TypeError, r"push_batch\(\) needs the argument 'next_obs'"),
            ("actions", np.zeros(5), ValueError, r"must have shape \(5, 3\), got \(4, 3\)"),
            (
                "terminated",
                np.zeros(3),
                ValueError,
                r"terminated must have shape \(4,\), got \(3,\)",
            ),
            ("rewards", [0, 0, 0, NAN], ValueError, "reward must be finite"),
            ("rewards", [0, 0, 0, 1e40], ValueError, "reward must fit float32"),
            ("truncated", [0, 0, 0, NAN], ValueError, "truncated must fit"),
        ],
    )
    def test_a_wrong_row_pushes_none_of_the_batch(
        self, cls: Any, name: str, value: Any, error: type[Exception], message: str
    ) -> None:
        buffer = make(cls)
        with Unchanged(buffer):
            refused(error, message, lambda: buffer.push_batch(**steps(4, **{name: value})))

    def test_mismatched_priorities_push_nothing(self) -> None:
        buffer = make(PrioritizedReplayBuffer)
        with Unchanged(buffer):
            refused(
                ValueError,
                "priorities must have length 4, got 3",
                lambda: buffer.push_batch(**steps(4), priorities=[1, 2, 3]),
            )

    def test_no_rows_change_nothing(self) -> None:
        buffer = make(PrioritizedReplayBuffer)
        with Unchanged(buffer):
            buffer.push_batch(**steps(0))


class TestNestedObservations:
    @pytest.mark.parametrize(
        "obs",
        [
            {"a": 1.0},
            {"a": 1.0, "b": (1, 2), "c": 3},
            {"a": 1.0, "b": (1, 2, 3)},
            {"a": 1.0, "b": (1,)},
            {"a": 1.0, "c": (1, 2)},
            (1.0, (1, 2)),
            1.0,
        ],
    )
    def test_entries_too_many_or_too_few_are_refused(self, obs: Any) -> None:
        nest = {"a": "float32", "b": ["uint8", "uint8"]}
        buffer = ReplayBuffer(4, fields={"obs": nest, "reward": "float32"})
        buffer.push({"a": 1.0, "b": (1, 2)}, 0.0)
        refused(ValueError, r"obs\[", lambda: buffer.push(obs, 0.0))
        assert len(buffer) == 1


def test_a_priority_beyond_float32_is_refused_everywhere() -> None:
    buffer = PrioritizedReplayBuffer(4, 1, 1)
    buffer.push([0], 0, 0, 0, 0, [0])
    refused(
        ValueError,
        "priority must fit float32",
        lambda: buffer.push([0], 0, 0, 0, 0, [0], priority=1e39),
    )
    refused(ValueError, "priorities must", lambda: buffer.update_priorities([0], [1e39]))
    assert len(buffer) == 1
