"""Draws of what is not there, and into what does not fit, are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import (
    Hindsight,
    Mixture,
    NStep,
    Prioritized,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Sequence,
    Transition,
    Uniform,
    Where,
)
from tests.unit.buffers.inputs import CLASSES, INF, NAN, make, refused


class TestSample:
    @pytest.mark.parametrize("cls", CLASSES)
    def test_a_batch_larger_than_the_content_is_refused(self, cls: Any) -> None:
        refused(
            ValueError,
            "batch_size must be at most 8, the number of stored steps, got 9",
            lambda: make(cls).sample(9),
        )
        refused(
            ValueError,
            "buffer is empty: push steps before sampling",
            lambda: make(cls, 0).sample(1),
        )
        refused(ValueError, "batch_size must be at most 8", lambda: make(cls).sample(2**62))
        refused(
            ValueError,
            "batch_size must be at most 3, the steps to draw from, got 4",
            lambda: make(cls).sample(4, selector=Recent(3)),
        )

    @pytest.mark.parametrize("cls", CLASSES)
    def test_an_empty_batch_is_empty(self, cls: Any) -> None:
        for n in (0, 8):
            assert make(cls, n).sample(0)["obs"].shape == (0, 3)

    @pytest.mark.parametrize("size", [-1, 2**63, -(2**80)])
    def test_a_batch_size_out_of_range_is_refused(self, size: int) -> None:
        refused(ValueError, "batch_size must be an integer from 0 to", lambda: make().sample(size))

    @pytest.mark.parametrize("size", [1.0, True, None, "1", [1], NAN])
    def test_a_batch_size_that_is_no_integer_is_refused(self, size: Any) -> None:
        refused(TypeError, "batch_size must be an integer", lambda: make().sample(size))
        refused(TypeError, "batch_size must be an integer", lambda: make().epoch(size))

    def test_a_sample_without_seed_never_repeats(self) -> None:
        for cls in CLASSES:
            buffer = make(cls, 16)
            drawn = {buffer.sample(5)["rewards"].tobytes() for _ in range(20)}
            assert len(drawn) == 20

    @pytest.mark.parametrize("wrong", [5, "view", Uniform(), object(), lambda: None, ()])
    def test_what_is_no_view_is_refused(self, wrong: Any) -> None:
        message = f"view must be a sharpwave view, got {type(wrong).__name__}"
        buffer = make()
        refused(TypeError, message, lambda: buffer.sample(1, view=wrong))
        refused(TypeError, message, lambda: buffer.gather([0], view=wrong))
        refused(TypeError, message, lambda: buffer.batch(1, view=wrong))

    @pytest.mark.parametrize("wrong", [5, "uniform", Transition(), Hindsight(len), object()])  # type: ignore[arg-type]
    def test_what_is_no_selector_is_refused(self, wrong: Any) -> None:
        message = f"(selector|parts) must be a sharpwave selector, got {type(wrong).__name__}"
        refused(TypeError, message, lambda: make().sample(1, selector=wrong))
        refused(TypeError, message, lambda: Mixture(((1.0, wrong),)))

    def test_views_that_need_neighbors_need_environments(self) -> None:
        for view in (NStep(2), Sequence(2)):
            refused(ValueError, "n_envs", lambda v=view: make().sample(1, view=v))
        refused(ValueError, "n_envs", lambda: make().sample(1, view=Hindsight(len)))  # type: ignore[arg-type]

    def test_a_sequence_longer_than_any_episode_is_refused(self) -> None:
        buffer = make(n_envs=1)
        refused(ValueError, "episodes are shorter", lambda: buffer.sample(1, view=Sequence(9)))
        refused(ValueError, "episodes are shorter", lambda: buffer.sample(1, view=Sequence(2**20)))
        refused(ValueError, "length must be from 1 to", lambda: Sequence(2**31 - 1))

    @pytest.mark.parametrize("fields", [("reward",), ("obs", "obs"), ("x",), ("indices",)])
    def test_fields_that_are_not_in_a_batch_are_refused(self, fields: tuple[str, ...]) -> None:
        refused(
            ValueError,
            "fields must name entries of the buffer's batches, each once",
            lambda: make().sample(1, view=Transition(fields)),
        )

    @pytest.mark.parametrize("fields", ["obs", 5, {"obs"}, (1,), {"obs": 1}])
    def test_fields_that_are_no_names_are_refused(self, fields: Any) -> None:
        refused(TypeError, "fields must be a tuple of names", lambda: Transition(fields))

    @pytest.mark.parametrize("value", [NAN, -0.1, 1.1, INF, 10**400])
    def test_a_gamma_out_of_range_is_refused(self, value: float) -> None:
        refused(ValueError, "gamma must be from 0 to 1", lambda: NStep(2, value))
        refused(ValueError, "gamma must be from 0 to 1", lambda: Sequence(2, gamma=value))

    def test_views_and_selectors_check_their_numbers(self) -> None:
        refused(ValueError, "n must be from 1 to", lambda: NStep(0))
        refused(TypeError, "n must be an integer", lambda: NStep(2.0))  # type: ignore[arg-type]
        refused(ValueError, "burn_in must be from 0", lambda: Sequence(2, burn_in=-1))
        refused(ValueError, "stride must be from 1", lambda: Sequence(2, stride=0))
        refused(ValueError, "pad must be", lambda: Sequence(2, pad="tail"))  # type: ignore[arg-type]
        refused(ValueError, "window must be at least 1", lambda: Recent(0))
        refused(TypeError, "window must be an integer", lambda: Recent(True))
        refused(ValueError, "strategy must be one of", lambda: Hindsight(len, strategy="past"))  # type: ignore[arg-type]
        for shares in ((NAN,), (0.5,), (1.5, -0.5), ()):
            parts = tuple((share, Uniform()) for share in shares)
            refused(
                ValueError,
                "shares of parts must be positive and add up to 1",
                lambda p=parts: Mixture(p),
            )
        assert len(make().sample(8, selector=Recent(2**64 + 1))["rewards"]) == 8

    def test_a_priority_selector_needs_priorities(self) -> None:
        refused(
            ValueError,
            "needs a buffer with priorities",
            lambda: make().sample(1, selector=Prioritized()),
        )

    def test_a_condition_must_answer_for_every_step(self) -> None:
        buffer = make()
        for answer in (True, np.zeros(3, bool), np.zeros(8), None):
            refused(
                ValueError,
                r"condition must return a bool array of shape \(8,\)",
                lambda a=answer: buffer.sample(1, selector=Where(lambda _: a)),
            )
        refused(
            ValueError,
            "no step in the buffer fulfils the condition",
            lambda: buffer.sample(1, selector=Where(lambda batch: batch["rewards"] < 0)),
        )

    def test_zero_priorities_are_an_error_not_a_panic(self) -> None:
        buffer = make(PrioritizedReplayBuffer)
        buffer.update_priorities(buffer.indices(), np.zeros(8))
        refused(ValueError, "priorities must not all be zero", lambda: buffer.sample(1))
        assert len(buffer.sample(4, selector=Uniform())["rewards"]) == 4

    @pytest.mark.parametrize("flag", [np.zeros(2), torch.zeros(3)])
    def test_a_flag_that_is_neither_is_refused(self, flag: Any) -> None:
        message = "indices must be true or false, got"
        buffer = make(n_envs=1)
        refused(TypeError, message, lambda: buffer.sample(1, indices=flag))
        refused(TypeError, message, lambda: buffer.batch(1, indices=flag))
        view = Hindsight(len)  # type: ignore[arg-type]
        refused(TypeError, message, lambda: buffer.sample(1, view=view, indices=flag))


class TestOut:
    def test_arrays_that_do_not_fit_are_named(self) -> None:
        buffer = make()
        good = buffer.sample(4)
        wrong: list[tuple[str, Any, type[Exception], str]] = [
            (
                "obs",
                np.zeros((3, 3), np.float32),
                ValueError,
                r"must have shape \(4, 3\), got \(3, 3\)",
            ),
            ("obs", np.zeros((4, 3)), ValueError, "writable C-contiguous array of float32"),
            ("obs", np.zeros((3, 4), np.float32).T, ValueError, "C-contiguous"),
            ("obs", np.zeros((4, 6), np.float32)[:, ::2], ValueError, "C-contiguous"),
            ("obs", np.zeros((4, 3), ">f4"), ValueError, "C-contiguous array of float32"),
            ("obs", np.zeros((4, 3)).tolist(), TypeError, "must be an array or tensor, got list"),
            ("obs", None, TypeError, "must be an array or tensor, got NoneType"),
            ("rewards", np.zeros((4, 1), np.float32), ValueError, r"must have shape \(4,\)"),
            ("terminated", np.zeros(4, bool), ValueError, "array of uint8"),
            ("rewards", torch.zeros(4, dtype=torch.float64), ValueError, "array of float32"),
        ]
        for key, value, error, message in wrong:
            text = re.escape(f'out["{key}"]') + ".*" + message
            refused(error, text, lambda k=key, v=value: buffer.sample(4, out={**good, k: v}))
        locked = np.zeros((4, 3), np.float32)
        locked.flags.writeable = False
        refused(ValueError, "writable", lambda: buffer.sample(4, out={**good, "obs": locked}))
        assert not locked.any()

    def test_unknown_keys_and_other_types_are_refused(self) -> None:
        buffer = make()
        good = buffer.sample(4)
        refused(
            ValueError, "a key that is not a field", lambda: buffer.sample(4, out={**good, "x": 1})
        )
        weights = {**good, "weights": np.zeros(4, np.float32)}
        refused(ValueError, "out has 'weights'", lambda: buffer.sample(4, out=weights))
        for wrong in (5, [good], np.zeros(4), "out"):
            refused(
                TypeError, "out must be a dict of arrays", lambda w=wrong: buffer.sample(4, out=w)
            )

    def test_a_batch_of_another_buffer_is_refused(self) -> None:
        small = make()
        large = ReplayBuffer(16, 3000, 1)
        for _ in range(8):
            large.push(np.zeros(3000), 0, 0, 0, 0, np.zeros(3000))
        refused(
            ValueError,
            "out was made for another buffer, batch_size, view or indices",
            lambda: large.sample(4, out=small.batch(4)),
        )
        for batch in (
            small.batch(5),
            small.batch(4, indices=True),
            small.batch(4, view=Transition(("obs",))),
        ):
            refused(ValueError, "out was made for another", lambda b=batch: small.sample(4, out=b))
        dead = make().batch(4)
        again = make()
        refused(ValueError, "out was made for another", lambda: again.sample(4, out=dead))
