from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sharpwave import primitives as sp
from sharpwave.types import Array
from tests.reference import returns as reference
from tests.types import Arguments, FloatType

GAMMA, LAM = 0.99, 0.95
VECTOR: Arguments = {
    "rewards": np.ones(4),
    "values": np.full(4, 0.5),
    "dones": np.array([0.0, 1.0, 0.0, 0.0]),
}
EXPECTED = [1.46525, 0.5, 2.1170165, 1.193]


def rollout(n_steps: int = 37, n_envs: int = 5, seed: int = 0, ends: float = 0.15) -> Arguments:
    rng = np.random.default_rng(seed)
    shape = (n_steps, n_envs)
    return {
        "rewards": rng.normal(size=shape),
        "values": rng.normal(size=shape),
        "next_values": rng.normal(size=shape),
        "terminated": rng.random(shape) < ends,
        "truncated": rng.random(shape) < ends,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dones_dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_known_trajectory_gives_known_advantages(
    dtype: FloatType, dones_dtype: npt.DTypeLike
) -> None:
    advantages, returns = sp.compute_gae(
        VECTOR["rewards"].astype(dtype),
        VECTOR["values"].astype(dtype),
        VECTOR["dones"].astype(dones_dtype),
        0.7,
        GAMMA,
        LAM,
    )
    assert advantages.dtype == returns.dtype == dtype
    np.testing.assert_allclose(advantages, EXPECTED, rtol=1e-6)
    np.testing.assert_allclose(returns, np.array(EXPECTED) + 0.5, rtol=1e-6)


@pytest.mark.parametrize("n_steps", [0, 1, 2, 7, 8, 9, 16, 17, 31, 33, 511, 512, 513, 2048])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("flags", [bool, float])
def test_trajectory_of_any_length_equals_the_loop(
    n_steps: int, dtype: FloatType, flags: npt.DTypeLike
) -> None:
    data = rollout(n_steps, 1, seed=n_steps)
    rewards, values = (data[k][:, 0].astype(dtype) for k in ("rewards", "values"))
    dones = data["terminated"][:, 0].astype(flags)
    got = sp.compute_gae(rewards, values, dones, 0.3, GAMMA, LAM)
    want = reference.gae_trajectory(rewards, values, dones.astype(float), 0.3, GAMMA, LAM)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-4)


def test_fractional_dones_weigh_what_follows() -> None:
    got, _ = sp.compute_gae([1.0, 1.0], [0.0, 2.0], [0.25, 0.5], 4.0, 0.5, 0.5)
    want, _ = reference.gae_trajectory([1.0, 1.0], np.array([0.0, 2.0]), [0.25, 0.5], 4.0, 0.5, 0.5)
    np.testing.assert_allclose(got, want)


def test_mixed_and_other_dtypes_give_float64() -> None:
    rewards = VECTOR["rewards"].astype(np.float32)
    for values in (VECTOR["values"], VECTOR["values"].astype(np.float16), [0.5] * 4):
        advantages, _ = sp.compute_gae(rewards, values, VECTOR["dones"], 0.7, GAMMA, LAM)
        assert advantages.dtype == np.float64
        np.testing.assert_allclose(advantages, EXPECTED)


@pytest.mark.parametrize("shape", ["flat", "matrix"])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [(sp.compute_gae_batched, np.float64), (sp.compute_gae_batched_f32, np.float32)],
)
def test_batched_equals_each_trajectory_and_keeps_the_shape(
    shape: str, function: Callable[..., tuple[Array, Array]], dtype: FloatType
) -> None:
    data = rollout(21, 6)
    rewards, values, dones = (
        np.ascontiguousarray(data[k].T) for k in ("rewards", "values", "terminated")
    )
    last_values = np.arange(6.0)
    given = [x if shape == "matrix" else x.ravel() for x in (rewards, values, dones)]
    advantages, returns = function(*given, last_values, 21, GAMMA, LAM)
    assert advantages.dtype == dtype
    assert advantages.shape == returns.shape == given[0].shape
    for env in range(6):
        want, want_returns = reference.gae_trajectory(
            rewards[env], values[env], dones[env].astype(float), last_values[env], GAMMA, LAM
        )
        np.testing.assert_allclose(advantages.reshape(6, 21)[env], want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(returns.reshape(6, 21)[env], want_returns, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [5, 7, 9, 12])
@pytest.mark.parametrize("function", [sp.compute_gae_batched, sp.compute_gae_batched_f32])
def test_batched_refuses_data_that_is_not_envs_times_steps(
    size: int, function: Callable[..., tuple[Array, Array]]
) -> None:
    data = np.zeros(size)
    n_steps = 4 if size == 12 else 3
    with pytest.raises(ValueError, match="rewards must hold"):
        function(data, data, data, np.zeros(2), n_steps, GAMMA, LAM)


@pytest.mark.parametrize("name", ["values", "dones"])
@pytest.mark.parametrize("length", [3, 5])
def test_lengths_that_differ_raise_and_name_the_argument(name: str, length: int) -> None:
    arguments = dict(VECTOR, **{name: np.zeros(length)})
    with pytest.raises(
        ValueError, match=rf"{name} must have shape \(4,\) like rewards, got \({length},\)"
    ):
        sp.compute_gae(**arguments, last_value=0.0, gamma=GAMMA, lam=LAM)


def test_truncation_bootstraps_once_from_the_true_final_observation() -> None:
    constant = np.full((6, 1), 10.0)
    rewards = constant - 0.9 * constant
    truncated = np.zeros((6, 1), bool)
    truncated[2] = True
    advantages, _ = sp.gae(
        rewards,
        constant,
        next_values=constant,
        terminated=np.zeros((6, 1)),
        truncated=truncated,
        gamma=0.9,
    )
    np.testing.assert_allclose(advantages, 0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1), (40, 1), (600, 1), (9, 3), (33, 16), (4, 700), (0, 3), (3, 0)]
)
def test_time_major_equals_the_loop(dtype: FloatType, shape: tuple[int, ...]) -> None:
    data = rollout(*shape)
    floats = {k: data[k].astype(dtype) for k in ("rewards", "values", "next_values")}
    got = sp.gae(
        **floats, terminated=data["terminated"], truncated=data["truncated"], gamma=GAMMA, lam=LAM
    )
    want = reference.gae(**data, gamma=GAMMA, lam=LAM)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_bootstrap_means_values_one_step_later() -> None:
    data = rollout()
    bootstrap = np.arange(5.0)
    got, _ = sp.gae(
        data["rewards"],
        data["values"],
        bootstrap=bootstrap,
        terminated=data["terminated"],
        truncated=np.zeros_like(data["truncated"]),
    )
    data["next_values"] = reference.successors(data["values"], bootstrap)
    data["truncated"][:] = False
    want, _ = reference.gae(**data, gamma=0.99, lam=0.95)
    np.testing.assert_allclose(got, want)


def test_one_axis_is_one_environment() -> None:
    data = {k: v[:, 0] for k, v in rollout(600, 1).items()}
    got, _ = sp.gae(**data)
    want, _ = sp.gae(**{k: v[:, None] for k, v in data.items()})
    np.testing.assert_allclose(got, want[:, 0])
    assert got.shape == (600,)


def test_nan_value_after_a_terminal_step_is_not_read() -> None:
    data = rollout(10, 3)
    data["next_values"][data["terminated"]] = np.nan
    advantages, _ = sp.gae(**data)
    assert np.isfinite(advantages).all()


def test_truncated_without_next_values_explains_itself() -> None:
    data = rollout()
    with pytest.raises(ValueError, match="truncated needs next_values"):
        sp.gae(
            data["rewards"],
            data["values"],
            bootstrap=np.zeros(5),
            terminated=data["terminated"],
            truncated=data["truncated"],
        )


@pytest.mark.parametrize("extra", [{}, {"next_values": np.zeros((2, 1)), "bootstrap": [0.0]}])
def test_exactly_one_of_next_values_and_bootstrap(extra: Arguments) -> None:
    with pytest.raises(ValueError, match="exactly one of next_values and bootstrap"):
        sp.gae(np.zeros((2, 1)), np.zeros((2, 1)), terminated=np.zeros((2, 1)), **extra)


@pytest.mark.parametrize("bootstrap", [0.0, np.zeros(4), np.zeros((5, 1))])
def test_bootstrap_has_one_value_per_environment(bootstrap: Any) -> None:
    data = rollout()
    with pytest.raises(ValueError, match=r"bootstrap must have shape \(5,\)"):
        sp.gae(data["rewards"], data["values"], bootstrap=bootstrap, terminated=data["terminated"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (80, 32), (9, 3), (0, 3)])
@pytest.mark.parametrize("pg_rho_bar", [None, 0.7])
def test_vtrace_equals_the_loop(
    dtype: FloatType, shape: tuple[int, ...], pg_rho_bar: float | None
) -> None:
    data = rollout(*shape)
    log_rhos = np.random.default_rng(1).normal(size=shape)
    bars: Arguments = {"rho_bar": 1.1, "c_bar": 0.9}
    floats = {k: data[k].astype(dtype) for k in ("rewards", "values", "next_values")}
    got = sp.vtrace(
        log_rhos.astype(dtype),
        **floats,
        terminated=data["terminated"],
        truncated=data["truncated"],
        gamma=GAMMA,
        lam=LAM,
        pg_rho_bar=pg_rho_bar,
        **bars,
    )
    want = reference.vtrace(
        log_rhos, **data, gamma=GAMMA, lam=LAM, pg_rho_bar=pg_rho_bar or 1.1, **bars
    )
    for a, b in zip(got, want, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("flags", [bool, np.float32])
def test_compute_vtrace_is_vtrace_of_one_trajectory(flags: npt.DTypeLike) -> None:
    data = rollout(25, 1)
    log_rhos = np.linspace(-1, 1, 25)
    dones = data["terminated"][:, 0].astype(flags)
    got = sp.compute_vtrace(
        log_rhos, data["rewards"][:, 0], data["values"][:, 0], dones, 0.4, GAMMA, 0.8, 0.6
    )
    want = sp.vtrace(
        log_rhos,
        data["rewards"][:, 0],
        data["values"][:, 0],
        bootstrap=0.4,
        terminated=data["terminated"][:, 0],
        gamma=GAMMA,
        rho_bar=0.8,
        c_bar=0.6,
    )
    for a, b in zip(got, want, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_on_policy_vtrace_without_bars_is_gae_with_lambda() -> None:
    data = rollout()
    vs, _ = sp.vtrace(np.zeros((37, 5)), **data, gamma=GAMMA, lam=LAM, rho_bar=np.inf, c_bar=np.inf)
    _, returns = sp.gae(**data, gamma=GAMMA, lam=LAM)
    np.testing.assert_allclose(vs, returns)


def test_importance_weights_at_their_limits_stay_numbers() -> None:
    log_rhos = np.array([-1e4, -90.0, 0.0, 90.0, 1e4])
    vs, pg_advantages = sp.vtrace(
        log_rhos, np.ones(5), np.zeros(5), bootstrap=0.0, terminated=np.zeros(5)
    )
    assert np.isfinite(vs).all()
    assert np.isfinite(pg_advantages).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (12, 1), (700, 1), (30, 20), (3, 600), (0, 2)])
@pytest.mark.parametrize("n", [1, 3, 25, 1000])
def test_n_step_returns_equal_the_loop(dtype: FloatType, shape: tuple[int, ...], n: int) -> None:
    data = rollout(*shape)
    got = sp.n_step_returns(
        data["rewards"].astype(dtype),
        data["next_values"].astype(dtype),
        data["terminated"],
        data["truncated"],
        n,
        GAMMA,
    )
    want = reference.n_step_returns(
        data["rewards"], data["next_values"], data["terminated"], data["truncated"], n, GAMMA
    )
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(12,), (600,), (9, 3), (0, 2), (2, 3, 4)])
@pytest.mark.parametrize("flags", [bool, float])
def test_discounted_returns_equal_the_loop(shape: tuple[int, ...], flags: npt.DTypeLike) -> None:
    rng = np.random.default_rng(0)
    rewards, dones = rng.normal(size=shape), (rng.random(shape) < 0.1).astype(flags)
    bootstrap = rng.normal(size=shape[1:])
    got = sp.discounted_returns(rewards, dones, GAMMA, bootstrap)
    want = reference.discounted_returns(rewards, dones.astype(float), GAMMA, bootstrap)
    np.testing.assert_allclose(got, want)


def test_strided_input_equals_contiguous_input() -> None:
    data = rollout(50, 6)
    strided: Arguments = {k: np.asfortranarray(v)[::2, 1::2] for k, v in data.items()}
    contiguous: Arguments = {k: np.ascontiguousarray(v) for k, v in strided.items()}
    for a, b in zip(sp.gae(**strided), sp.gae(**contiguous), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_gives_torch_out(dtype: torch.dtype) -> None:
    tensors: Arguments = {k: torch.from_numpy(v).to(dtype) for k, v in VECTOR.items()}
    tensors["values"].requires_grad_()
    advantages, returns = sp.compute_gae(**tensors, last_value=0.7, gamma=GAMMA, lam=LAM)
    assert isinstance(advantages, torch.Tensor)
    assert advantages.dtype == returns.dtype == dtype
    np.testing.assert_allclose(advantages.numpy(), EXPECTED, rtol=1e-6)


def test_bfloat16_tensors_are_read() -> None:
    tensors: Arguments = {k: torch.from_numpy(v).bfloat16() for k, v in VECTOR.items()}
    advantages, _ = sp.compute_gae(**tensors, last_value=0.7, gamma=GAMMA, lam=LAM)
    np.testing.assert_allclose(advantages, EXPECTED)


@pytest.mark.parametrize("make", [np.empty, torch.empty])
def test_out_is_written_and_returned(make: Callable[..., Any]) -> None:
    dtype = np.float64 if make is np.empty else torch.float64
    out = (make(4, dtype=dtype), make(4, dtype=dtype))
    result = sp.compute_gae(**VECTOR, last_value=0.7, gamma=GAMMA, lam=LAM, out=out)
    assert result[0] is out[0]
    assert result[1] is out[1]
    np.testing.assert_allclose(out[0], EXPECTED)


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.empty(4), TypeError),
        ((np.empty(4),), TypeError),
        (([0.0] * 4, [0.0] * 4), TypeError),
        ((np.empty(3), np.empty(4)), ValueError),
        ((np.empty(4, np.float32), np.empty(4)), ValueError),
        ((np.empty(8)[::2], np.empty(4)), ValueError),
        ((torch.empty(4, dtype=torch.bfloat16), np.empty(4)), TypeError),
    ],
)
def test_out_that_does_not_fit_raises(out: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="out"):
        sp.compute_gae(**VECTOR, last_value=0.7, gamma=GAMMA, lam=LAM, out=out)


def test_out_that_shares_memory_raises() -> None:
    one = np.empty(4)
    rewards = VECTOR["rewards"].copy()
    for out in ((one, one), (rewards, one)):
        with pytest.raises(ValueError, match="share memory"):
            sp.compute_gae(rewards, VECTOR["values"], VECTOR["dones"], 0.7, GAMMA, LAM, out=out)


@pytest.mark.parametrize("name", ["gamma", "lam"])
@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_fractions_outside_zero_to_one_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be between 0 and 1"):
        sp.compute_gae(**{**VECTOR, "last_value": 0.7, "gamma": GAMMA, "lam": LAM, name: value})


def test_number_beyond_float32_raises_instead_of_becoming_inf() -> None:
    huge = np.array([1.0, 1e40])
    with pytest.raises(ValueError, match="rewards must fit float32, got 1e\\+40"):
        sp.compute_gae_batched_f32(huge, np.zeros(2), np.zeros(2), [0.0], 2, GAMMA, LAM)
    with pytest.raises(ValueError, match="bootstrap_value must fit float32"):
        sp.compute_vtrace([0.0], [0.0], [0.0], [0.0], 1e40, GAMMA)


def test_nan_rewards_propagate_to_earlier_steps_only() -> None:
    rewards = np.array([1.0, np.nan, 1.0])
    advantages, _ = sp.compute_gae(rewards, np.zeros(3), np.zeros(3), 0.0, GAMMA, LAM)
    assert np.isnan(advantages).tolist() == [True, True, False]


@pytest.mark.parametrize("junk", [None, "abc", object(), 1j, [[1], [1, 2]], np.array(["a"])])
def test_junk_raises_type_error_that_names_the_argument(junk: object) -> None:
    with pytest.raises(TypeError, match="values must be"):
        sp.compute_gae([1.0], junk, [0.0], 0.0, GAMMA, LAM)


def test_large_outputs_do_not_share_memory() -> None:
    rewards = np.ones((256, 1024), np.float32)
    first, second = (
        sp.gae(rewards * k, rewards, bootstrap=np.zeros(1024), terminated=rewards, lam=0.0)
        for k in (1, 2)
    )
    assert not any(np.shares_memory(a, b) for a in first for b in second)
    np.testing.assert_array_equal(first[0], 0.0)
    np.testing.assert_array_equal(second[0], 1.0)
    assert first[0].flags.writeable


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_of_what_was_cut_may_come_beside_the_last_ones(
    dtype: FloatType, as_tensors: bool
) -> None:
    data = rollout()
    given = {name: data[name].astype(dtype) for name in ("rewards", "values", "next_values")}
    last = np.arange(5, dtype=dtype)
    after = np.concatenate([given["values"][1:], last[None]])
    after[data["truncated"]] = given["next_values"][data["truncated"]]
    ends: dict[str, Any] = {name: data[name] for name in ("terminated", "truncated")}
    unread = np.where(data["truncated"], given["next_values"], np.nan)

    def convert(array: Array) -> Any:
        return torch.from_numpy(array).requires_grad_() if as_tensors else array

    values = convert(given["values"])
    options: dict[str, Any] = {"gamma": GAMMA, "lam": LAM}
    found = sp.gae(given["rewards"], values, bootstrap=last, final_values=unread, **ends, **options)
    wanted = sp.gae(given["rewards"], given["values"], next_values=after, **ends, **options)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == dtype
        np.testing.assert_array_equal(a, b)
    steps = (given["next_values"] / 10, given["rewards"])
    found = sp.vtrace(*steps, values, bootstrap=last, final_values=convert(unread), **ends)
    wanted = sp.vtrace(*steps, given["values"], next_values=after, **ends)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_that_contradict_each_other_are_refused() -> None:
    ones, last = np.ones((4, 3)), np.ones(3)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"next_values": ones}, "final_values go with bootstrap"),
        ({}, "exactly one of next_values and bootstrap"),
        ({"bootstrap": np.ones(4)}, r"bootstrap must have shape \(3,\)"),
        ({"bootstrap": last, "final_values": np.ones(4)}, r"final_values must have shape \(4, 3\)"),
        ({"bootstrap": last, "truncated": np.ones(4)}, r"truncated must have shape \(4, 3\)"),
    ]
    for options, message in cases:
        options = {"final_values": ones, "terminated": ones * 0, **options}
        with pytest.raises(ValueError, match=message):
            sp.gae(ones, ones, **options)
