"""Properties of the primitives: equality with the loops, and laws that need no oracle."""

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave import primitives as sp
from sharpwave.primitives.llm import Estimator
from sharpwave.types import Array
from tests.examples import examples
from tests.reference import llm as llm_reference
from tests.reference import packing as packing_reference
from tests.reference import returns as reference
from tests.types import Arguments, FloatType

finite = st.floats(-10, 10, width=32)
fraction = st.floats(0, 1)
float_dtype = st.sampled_from([np.float32, np.float64])


@st.composite
def rollouts(draw: st.DrawFn, min_steps: int = 0, max_envs: int = 6) -> Arguments:
    shape = (draw(st.integers(min_steps, 40)), draw(st.integers(1, max_envs)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ends = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    floats = {k: rng.normal(size=shape) for k in ("rewards", "values", "next_values")}
    flags = {k: rng.random(shape) < ends for k in ("terminated", "truncated")}
    return {**floats, **flags}


def in_layout(array: Array, layout: str) -> Array:
    """The same numbers behind other strides."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "every other":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def in_dtype_and_layout(data: Arguments, dtype: FloatType, layout: str) -> Arguments:
    """The rollout in another dtype, its flags as they are, behind other strides."""
    return {
        k: in_layout(v if v.dtype == bool else v.astype(dtype), layout) for k, v in data.items()
    }


layouts = st.sampled_from(["plain", "fortran", "reversed", "every other"])


def assert_close(got: Array, want: Array | list[float], dtype: FloatType) -> None:
    tolerance = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@given(rollouts(), fraction, fraction, float_dtype, layouts)
def test_gae_equals_the_loop(
    data: Arguments, gamma: float, lam: float, dtype: FloatType, layout: str
) -> None:
    given_data = in_dtype_and_layout(data, dtype, layout)
    got = sp.gae(**given_data, gamma=gamma, lam=lam)
    for a, b in zip(got, reference.gae(**data, gamma=gamma, lam=lam), strict=True):
        assert a.dtype == dtype
        assert_close(a, b, dtype)


@given(rollouts(), fraction, fraction, float_dtype, layouts, st.floats(0, 3), st.floats(0, 3))
def test_vtrace_equals_the_loop(
    data: Arguments,
    gamma: float,
    lam: float,
    dtype: FloatType,
    layout: str,
    rho_bar: float,
    c_bar: float,
) -> None:
    given_data = in_dtype_and_layout(data, dtype, layout)
    options: Arguments = {"gamma": gamma, "lam": lam, "rho_bar": rho_bar, "c_bar": c_bar}
    got = sp.vtrace(given_data["next_values"], **given_data, **options)
    want = reference.vtrace(data["next_values"], **data, **options, pg_rho_bar=rho_bar)
    scale = max(1.0, np.abs(np.concatenate(want)).max(initial=0.0))
    for a, b in zip(got, want, strict=True):
        assert_close(a / scale, b / scale, dtype)


@given(rollouts(), fraction, st.integers(1, 60), float_dtype, layouts)
def test_n_step_returns_equal_the_loop(
    data: Arguments, gamma: float, n: int, dtype: FloatType, layout: str
) -> None:
    del data["values"]
    given_data = in_dtype_and_layout(data, dtype, layout)
    got = sp.n_step_returns(**given_data, n=n, gamma=gamma)
    assert_close(got, reference.n_step_returns(**data, n=n, gamma=gamma), dtype)


@given(rollouts(min_steps=1), rollouts(min_steps=1), fraction, fraction)
def test_two_episodes_in_one_trace_equal_the_traces_apart(
    first: Arguments, second: Arguments, gamma: float, lam: float
) -> None:
    n_envs = min(first["rewards"].shape[1], second["rewards"].shape[1])
    parts = [{k: v[:, :n_envs] for k, v in data.items()} for data in (first, second)]
    parts[0]["truncated"] = parts[0]["truncated"].copy()
    parts[0]["truncated"][-1] = True
    joined = {k: np.concatenate([parts[0][k], parts[1][k]]) for k in first}
    options: Arguments = {"gamma": gamma, "lam": lam}
    functions: list[Callable[[Arguments], tuple[Array, Array]]] = [
        lambda data: sp.gae(**data, **options),
        lambda data: sp.vtrace(data["values"], **data, **options),
    ]
    for function in functions:
        apart = [function(part) for part in parts]
        for k, together in enumerate(function(joined)):
            assert_close(together, np.concatenate([part[k] for part in apart]), np.float64)


@given(rollouts(min_steps=1, max_envs=1), fraction, finite)
def test_lambda_one_is_the_discounted_return_minus_the_value(
    data: Arguments, gamma: float, bootstrap: float
) -> None:
    rewards, values, dones = (data[k][:, 0] for k in ("rewards", "values", "terminated"))
    advantages, _ = sp.compute_gae(rewards, values, dones, bootstrap, gamma, 1.0)
    returns = sp.discounted_returns(rewards, dones, gamma, bootstrap)
    assert_close(advantages, returns - values, np.float64)


@given(rollouts(), fraction, fraction)
def test_env_major_is_time_major_transposed(data: Arguments, gamma: float, lam: float) -> None:
    n_steps, n_envs = data["rewards"].shape
    bootstrap = np.arange(n_envs, dtype=float)
    rewards, values, ends = (data[k] for k in ("rewards", "values", "terminated"))
    got = sp.compute_gae_batched(rewards.T, values.T, ends.T, bootstrap, n_steps, gamma, lam)
    want = sp.gae(rewards, values, bootstrap=bootstrap, terminated=ends, gamma=gamma, lam=lam)
    for a, b in zip(got, want, strict=True):
        assert_close(a.T, b, np.float64)


@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=finite), st.randoms(use_true_random=False)
)
def test_group_advantages_do_not_depend_on_the_order(rewards: Array, random: Random) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    got = sp.compute_group_advantages(rewards)
    assert_close(sp.compute_group_advantages(rewards[order]), got[order], np.float64)
    assert_close(got, llm_reference.group_advantages(rewards), np.float64)


@given(
    st.integers(0, 6),
    st.integers(1, 9),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.fixed_dictionaries(
        {
            "ddof": st.sampled_from([0, 1]),
            "eps": st.sampled_from([0.0, 1e-4, 1.0]),
            "leave_one_out": st.booleans(),
            "scale": st.sampled_from([None, "group", "batch", "none"]),
        }
    ),
    float_dtype,
    layouts,
)
def test_group_advantages_equal_the_loop_with_every_option(
    n_groups: int,
    size: int,
    seed: int,
    unscored: float,
    options: Arguments,
    dtype: FloatType,
    layout: str,
) -> None:
    rng = np.random.default_rng(seed)
    rewards = (rng.integers(-2, 3, (n_groups, size)) * 0.1 + 7).astype(dtype)
    mask = rng.random((n_groups, size)) >= unscored
    rewards[~mask] = rng.choice([np.nan, np.inf, 1e30])  # nobody looks
    given_rewards, given_mask = in_layout(rewards, layout), in_layout(mask, layout)
    got = sp.compute_batch_group_advantages(given_rewards, size, mask=given_mask, **options)
    assert got.dtype == dtype
    assert not got[~mask].any()
    assert_close(got, llm_reference.all_group_advantages(rewards, mask, **options), dtype)
    if n_groups == 1:
        alone = sp.compute_group_advantages(given_rewards, mask=given_mask, **options)
        np.testing.assert_array_equal(alone, got)


@given(
    st.integers(0, 100),
    float_dtype,
    st.sampled_from(["k1", "k2", "k3", "weighted"]),
    st.integers(0, 2**32),
    st.sampled_from([1e-3, 0.1, 1.0, 20.0]),
    st.booleans(),
)
def test_token_kl_equals_the_loop(
    n: int, dtype: FloatType, estimator: Estimator, seed: int, spread: float, masked: bool
) -> None:
    rng = np.random.default_rng(seed)
    log_p: Array = (-rng.exponential(2.0, n)).astype(dtype)
    log_q = (log_p + rng.normal(size=n) * spread).astype(dtype)
    mask = rng.random(n) < 0.5 if masked else None
    got = sp.compute_token_kl(log_p, log_q, estimator=estimator, mask=mask)
    want = llm_reference.token_kl(log_p.astype(float), log_q.astype(float), estimator, mask)
    tolerance = 3e-6 if dtype == np.float32 else 1e-11
    # Terms of both signs cancel: the error is relative to the sum of their magnitudes.
    terms = np.abs(log_p.astype(float) - log_q)
    if estimator == "weighted":
        terms *= np.exp(log_p.astype(float))
    scale = float(terms.sum()) if estimator in ("k1", "weighted") else 0.0
    assert got == pytest.approx(want, rel=tolerance, abs=tolerance * scale + 1e-300)
    if estimator == "k3":
        assert got >= 0.0


@given(
    st.integers(1, 50).flatmap(
        lambda max_len: st.tuples(st.lists(st.integers(0, max_len), max_size=60), st.just(max_len))
    )
)
def test_packing_places_each_token_once_in_no_more_bins_than_first_fit(
    arguments: tuple[list[int], int],
) -> None:
    lengths, max_len = arguments
    packed, masks, positions = sp.pack_sequences(np.array(lengths, np.int64), max_len)
    assert sorted(packed[masks].tolist()) == list(range(sum(lengths)))
    assert (packed[~masks] == -1).all()
    assert len(packed) <= len(packing_reference.first_fit_decreasing(lengths, max_len))
    starts = np.repeat(np.cumsum([0, *lengths])[:-1], lengths)
    np.testing.assert_array_equal(positions[masks], packed[masks] - starts[packed[masks]])
    tokens = np.arange(sum(lengths))
    sequences = np.split(tokens, np.cumsum(lengths)[:-1]) if lengths else []
    by_tokens = sp.pack_sequences(sequences, max_len)
    np.testing.assert_array_equal(by_tokens.attention_mask, masks)
    np.testing.assert_array_equal(by_tokens.input_ids[masks], packed[masks])
    np.testing.assert_array_equal(by_tokens.position_ids, positions)


@given(st.lists(hnp.arrays(np.float64, st.tuples(st.integers(0, 9), st.just(2)), elements=finite)))
def test_running_stats_do_not_depend_on_the_batches(batches: list[Array]) -> None:
    parts, whole = sp.RunningStats(2), sp.RunningStats(2)
    for batch in batches:
        parts.update(batch)
    together = np.concatenate(batches) if batches else np.zeros((0, 2))
    whole.update(together)
    assert parts.count == whole.count == len(together)
    assert_close(parts.mean, whole.mean, np.float64)
    assert_close(parts.var, whole.var, np.float64)


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-(2**70), -1, 0, 1, 2, 3, 5, 2**62, 2**63, 2**70]),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just(object()),
    st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=1)), max_size=4),
    st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
    hnp.arrays(
        st.sampled_from(["f4", "f8", "?", "i8", "c16", "U1", "M8[s]"]).map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
    ),
    st.just(np.array([None, 1], dtype=object)),
)

CALLS: list[tuple[Callable[..., Any], int]] = [
    (sp.compute_gae, 6),
    (sp.compute_gae_batched, 7),
    (sp.compute_gae_batched_f32, 7),
    (sp.compute_vtrace, 8),
    (sp.n_step_returns, 6),
    (sp.discounted_returns, 4),
    (sp.compute_group_advantages, 1),
    (sp.compute_batch_group_advantages, 2),
    (sp.compute_token_kl, 2),
    (sp.compute_batch_token_kl, 3),
    (sp.plan_packing, 2),
    (sp.pack_sequences, 2),
    (sp.polyak, 3),
    (lambda r, v, n, b, te, tr, o: sp.gae(
        r, v, next_values=n, bootstrap=b, terminated=te, truncated=tr, out=o), 7),
    (lambda *a: sp.vtrace(a[0], a[1], a[2], next_values=a[3], bootstrap=a[4], terminated=a[5],
                          truncated=a[6], rho_bar=a[7], pg_rho_bar=a[8], out=a[9]), 10),
    (lambda x, n, m, d, e, o, s: sp.compute_batch_group_advantages(
        x, n, mask=m, ddof=d, eps=e, leave_one_out=o, scale=s), 7),
    (lambda x, e, m, o: sp.compute_batch_token_kl(x, x, 1, estimator=e, mask=m, out=o), 4),
    (lambda x: sp.RunningStats((2,)).update(x), 1),
    (lambda x, c, e: sp.RunningStats((2,)).normalize(x, c, e), 3),
]  # fmt: skip


@settings(max_examples=examples(400))
@given(st.data())
def test_junk_raises_type_value_or_index_error_only(data: st.DataObject) -> None:
    function, n_arguments = data.draw(st.sampled_from(CALLS))
    arguments = [data.draw(junk) for _ in range(n_arguments)]
    with np.errstate(all="ignore"), suppress(TypeError, ValueError, IndexError):
        function(*arguments)
