"""Unrolls as messages: what a learner trains on comes back as it was."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from sharpwave.collect import Rollout
from sharpwave.core.tree import leaves
from sharpwave.distributed.codec import pack, unpack
from sharpwave.distributed.fleet import Unroll
from sharpwave.distributed.unroll_codec import unroll_of_bytes, unroll_to_bytes
from sharpwave.errors import WireError

COMPUTED = ("values", "next_values", "advantages", "returns")


def unroll(obs: Any, final_obs: Any = None, **more: Any) -> Unroll:
    """Five steps of three environments, with numbers of their own in every column."""
    rng = np.random.default_rng(0)
    floats: dict[str, Any] = {
        name: rng.normal(size=(5, 3)).astype(np.float32)
        for name in ("log_probs", "rewards", *COMPUTED)
    }
    flags: dict[str, Any] = {
        name: rng.random((5, 3)) < 0.5 for name in ("terminated", "truncated", "starts", "valid")
    }
    actions = rng.integers(0, 4, (5, 3))
    rollout = Rollout(obs=obs, actions=actions, final_obs=final_obs, **floats, **flags, **more)
    return Unroll(
        7,
        123,
        rollout,
        rng.normal(size=4),
        rng.integers(1, 500, 4),
        np.array([1.0, 0.0]),
    )


OBS = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
NEST: Any = {
    "a.b": OBS,
    "[0]": OBS + 1,
    "100%": {"inner": (OBS.astype(np.uint8), {"deep": OBS[..., 0]})},
    "%2E": (OBS + 2,),
}


@pytest.mark.parametrize(
    "case",
    [
        unroll(OBS, last_obs=OBS[0]),
        unroll(OBS, OBS[1, :2], last_obs=OBS[0], masks=np.ones((5, 3, 4), np.bool_)),
        unroll(NEST, NEST, last_obs=NEST, extra={"memory.h": OBS, "noise": OBS[..., 0]}),
        unroll((OBS, OBS), OBS[:, :0, :0], last_obs=(OBS[0], OBS[0])),
    ],
    ids=["array", "masks", "nest", "tuple"],
)
def test_what_a_learner_trains_on_comes_back(case: Unroll) -> None:
    found = unroll_of_bytes(unroll_to_bytes(case))
    assert (found.actor, found.version) == (7, 123)
    for name in ("episode_returns", "episode_lengths", "successes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(case, name))
    for field in fields(Rollout):
        if field.name in COMPUTED:
            continue
        ours, theirs = (getattr(one.rollout, field.name) for one in (case, found))
        assert (ours is None) == (theirs is None), field.name
        if ours is None:
            continue
        expected, came = list(leaves(ours)), list(leaves(theirs))
        assert [path for path, _ in expected] == [path for path, _ in came]
        assert type(ours) is type(theirs)
        for (_, one), (_, other) in zip(expected, came, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_values_of_actors_do_not_travel() -> None:
    data = unroll_to_bytes(unroll(OBS, last_obs=OBS[0]))
    assert not [name for name in unpack(data).columns if name.split(".")[-1] in COMPUTED]
    found = unroll_of_bytes(data).rollout
    assert found.advantages.shape == (5, 3)
    assert np.isnan(found.advantages).all()


def changed(**columns: Any) -> bytes:
    """The message of an unroll with other columns; None leaves one out."""
    packed = unpack(unroll_to_bytes(unroll(OBS, last_obs=OBS[0])))
    both = {**packed.columns, **{name.replace("/", "."): x for name, x in columns.items()}}
    return pack("unroll", {n: x for n, x in both.items() if x is not None}, packed.meta)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pack("weights"), "expected a message of kind 'unroll', got 'weights'"),
        (pack("unroll", {}, {"actor": 0, "version": 0}), "must have rewards"),
        (pack("unroll"), "must have numbers of its actor and version"),
        (changed(**{"rewards": None, "rewards/x": OBS}), "rewards of an unroll must be an array"),
        (changed(extra=OBS), "columns by name in extra"),
        (changed(**{"rewards/x": OBS}), "an array or a tree, got both"),
        (changed(none=OBS), "an unroll has no column 'none'"),
        (changed(actions=None), "must have all columns: .*actions"),
        (changed(values=OBS), "an unroll has no column 'values'"),
        (changed(successes=None), "must have all columns: .*successes"),
        (changed(**{"obs": None, "obs/[1]": OBS}), "parts of a tuple"),
        (pack("unroll", unpack(changed()).columns, {"actor": -1, "version": 0}), "numbers of its"),
        (pack("unroll", unpack(changed()).columns, {"actor": 1.0, "version": 0}), "numbers of its"),
    ],
)
def test_what_is_no_unroll_is_a_named_error(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        unroll_of_bytes(data)


def test_an_empty_nest_is_refused() -> None:
    with pytest.raises(ValueError, match=r"obs.x must have leaves, got an empty dict"):
        unroll_to_bytes(unroll({"x": {}}))
