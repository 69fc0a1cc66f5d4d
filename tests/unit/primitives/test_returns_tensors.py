from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.primitives.returns import tensors as kernels
from tests.reference import returns as loops

returns: Any = kernels  # arguments come in lists here
reference: Any = loops

GAMMA, LAM = 0.99, 0.95
SHAPES = [(1, 1), (37, 5), (600, 2), (3, 70)]
TOLERANCES: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.float64: {"rtol": 1e-10, "atol": 1e-10},
}

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


class Rollout:
    """Random steps as tensors, and as float64 arrays for the reference."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
        rng = np.random.default_rng(shape[0])
        names = ("rewards", "values", "next_values", "log_rhos")
        self.tensors = {
            name: torch.tensor(rng.normal(size=shape), dtype=dtype, device=device) for name in names
        }
        for name in ("terminated", "truncated"):
            self.tensors[name] = torch.tensor(rng.random(shape) < 0.1, device=device)
        self.last = torch.tensor(rng.normal(size=shape[1]), dtype=dtype, device=device)
        self.tolerance = TOLERANCES[dtype]

    def given(self, *names: str) -> Any:
        return [self.tensors[name] for name in names]

    def exact(self, *names: str) -> Any:
        ends = ("terminated", "truncated")
        return [
            (x if name in ends else x.double()).cpu().numpy()
            for name, x in zip(names, self.given(*names), strict=True)
        ]

    def compare(self, found: Any, wanted: Any) -> None:
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), b, **self.tolerance)


@shapes
@dtypes
def test_gae_equals_the_loop(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    data = Rollout(shape, dtype, device)
    rewards, values, following, terminated, truncated = data.given(
        "rewards", "values", "next_values", "terminated", "truncated"
    )
    steps = data.exact("rewards", "values", "next_values", "terminated", "truncated")
    ends = {"terminated": terminated, "truncated": truncated}
    found = returns.gae(rewards, values, next_values=following, **ends, gamma=GAMMA, lam=LAM)
    assert found[0].dtype == dtype
    data.compare(found, reference.gae(*steps, GAMMA, LAM))

    after = reference.successors(steps[1], data.last.double().cpu().numpy())
    found = returns.gae(
        rewards, values, bootstrap=data.last, terminated=terminated, gamma=GAMMA, lam=LAM
    )
    never = np.zeros(shape, bool)
    data.compare(found, reference.gae(*steps[:2], after, steps[3], never, GAMMA, LAM))

    found = returns.gae(rewards, values, bootstrap=data.last, final_values=following, **ends)
    cut = np.where(steps[4], steps[2], after)
    data.compare(found, reference.gae(*steps[:2], cut, *steps[3:], GAMMA, LAM))


@shapes
@dtypes
def test_weighted_gae_reads_env_major_tensors(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    data = Rollout(shape, dtype, device)
    dones = torch.rand(shape, device=device, dtype=torch.float64)
    rewards, values = (x.T.contiguous().T for x in data.given("rewards", "values"))
    found = returns.weighted_gae(rewards, values, data.last, dones, gamma=GAMMA, lam=LAM)
    assert found[0].stride() == rewards.stride()
    exact = data.exact("rewards", "values")
    for env in range(shape[1]):
        wanted = reference.gae_trajectory(
            exact[0][:, env],
            exact[1][:, env],
            dones[:, env].cpu().numpy(),
            float(data.last[env]),
            GAMMA,
            LAM,
        )
        data.compare([x[:, env] for x in found], wanted)


@shapes
@dtypes
def test_vtrace_equals_the_loop(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    bar = float("inf") if shape[1] == 5 else 1.1
    data = Rollout(shape, dtype, device)
    log_rhos, rewards, values, following = data.given(
        "log_rhos", "rewards", "values", "next_values"
    )
    ends = dict(
        zip(("terminated", "truncated"), data.given("terminated", "truncated"), strict=True)
    )
    names = ("log_rhos", "rewards", "values", "next_values", "terminated", "truncated")
    steps = data.exact(*names)
    options: Any = {"gamma": GAMMA, "lam": LAM, "rho_bar": bar, "c_bar": 0.9, "pg_rho_bar": 1.3}
    numbers = (log_rhos, rewards, values)
    found = returns.vtrace(*numbers, next_values=following, **ends, **options)
    data.compare(found, reference.vtrace(*steps, GAMMA, LAM, bar, 0.9, 1.3))
    found = returns.vtrace(*numbers, bootstrap=data.last, final_values=following, **ends, **options)
    after = reference.successors(steps[2], data.last.double().cpu().numpy())
    cut = np.where(steps[5], steps[3], after)
    data.compare(found, reference.vtrace(*steps[:3], cut, *steps[4:], GAMMA, LAM, bar, 0.9, 1.3))


@shapes
@dtypes
@pytest.mark.parametrize("n", [1, 3, 1000])
def test_n_step_returns_equal_the_loop(
    shape: tuple[int, int], dtype: torch.dtype, n: int, device: torch.device
) -> None:
    if n > 3 and shape[0] > 100:
        pytest.skip("long in the interpreter")
    data = Rollout(shape, dtype, device)
    names = ("rewards", "next_values", "terminated", "truncated")
    found = returns.n_step_returns(*data.given(*names), n, GAMMA)
    data.compare([found], [reference.n_step_returns(*data.exact(*names), n, GAMMA)])


@shapes
@dtypes
def test_discounted_returns_equal_the_loop(
    shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    data = Rollout(shape, dtype, device)
    rewards, dones = data.given("rewards", "terminated")
    exact = data.exact("rewards", "terminated")
    found = returns.discounted_returns(rewards, dones, GAMMA, data.last)
    last = data.last.double().cpu().numpy()
    data.compare([found], [reference.discounted_returns(*exact, GAMMA, last)])
    found = returns.discounted_returns(rewards[:, 0].contiguous(), dones[:, 0].contiguous(), 1.0, 2)
    wanted = reference.discounted_returns(exact[0][:, :1], exact[1][:, :1], 1.0, [2.0])[:, 0]
    data.compare([found], [wanted])


def test_nan_reaches_every_earlier_step_of_its_episode_and_no_other(device: torch.device) -> None:
    n_steps = 3000  # long enough for the product of the factors to vanish
    rewards = torch.zeros(n_steps, 2, device=device)
    rewards[-1] = torch.nan
    terminated = torch.zeros(n_steps, 2, dtype=torch.bool, device=device)
    terminated[1000, 1] = True
    last = torch.zeros(2, device=device)
    values = torch.zeros_like(rewards)
    advantages, _ = returns.gae(rewards, values, bootstrap=last, terminated=terminated)
    assert advantages[:, 0].isnan().all()
    assert advantages[1001:, 1].isnan().all()
    assert not advantages[:1001, 1].isnan().any()


def test_values_behind_a_terminal_step_are_not_read(device: torch.device) -> None:
    ones = torch.ones(4, 3, device=device)
    nans = ones * torch.nan
    advantages, _ = returns.gae(ones, ones / 2, next_values=nans, terminated=ones.bool())
    assert advantages.tolist() == [[0.5] * 3] * 4


def test_other_dtypes_give_float64(device: torch.device) -> None:
    ones = torch.ones(4, 3, device=device)
    ends: Any = {"bootstrap": ones[0], "terminated": ones.int() * 0}
    found = returns.gae(ones.half(), ones, **ends, gamma=1.0, lam=1.0)
    assert found[0].dtype == torch.float64
    np.testing.assert_allclose(found[1][:, 0].cpu().numpy(), [5, 4, 3, 2])


def test_out_is_written(device: torch.device) -> None:
    ones = torch.ones(4, 3, device=device)
    out = (torch.empty_like(ones), torch.empty_like(ones))
    found = returns.gae(ones, ones, bootstrap=ones[0], terminated=ones * 0, out=out)
    assert found[0] is out[0]
    assert found[1] is out[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(3, 3)}, r"values must have shape \(4, 3\) like rewards"),
        ({"terminated": torch.zeros(4)}, r"terminated must have shape \(4, 3\)"),
        ({"bootstrap": torch.zeros(4)}, r"bootstrap must have shape \(3,\)"),
        ({"bootstrap": None}, "exactly one of next_values and bootstrap"),
        ({"next_values": torch.zeros(4, 3)}, "exactly one of next_values and bootstrap"),
        (
            {
                "bootstrap": None,
                "next_values": torch.zeros(4, 3),
                "final_values": torch.zeros(4, 3),
            },
            "final_values go with bootstrap",
        ),
        ({"truncated": torch.zeros(4, 3)}, "truncated needs final_values or next_values"),
        ({"gamma": 1.5}, "gamma must be between 0 and 1, got 1.5"),
        ({"lam": -1.0}, "lam must be between 0 and 1"),
        ({"out": (torch.zeros(4, 3), torch.zeros(4, 3).double())}, "out must have dtype"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_raise(change: dict[str, Any], message: str) -> None:
    zeros = torch.zeros(4, 3)
    given: dict[str, Any] = {"rewards": zeros, "values": zeros, "bootstrap": torch.zeros(3)}
    with pytest.raises(ValueError, match=message):
        returns.gae(**{**given, "terminated": zeros, **change})


def test_results_have_no_gradients(device: torch.device) -> None:
    rollout = Rollout((4, 3), torch.float32, device)
    rewards, values, log_rhos, ends = rollout.given("rewards", "values", "log_rhos", "terminated")

    def results(values: torch.Tensor) -> list[torch.Tensor]:
        return [
            *returns.gae(rewards, values, bootstrap=rollout.last, terminated=ends),
            *returns.vtrace(log_rhos, rewards, values, bootstrap=rollout.last, terminated=ends),
            returns.n_step_returns(rewards, values, ends, ends, 2, GAMMA),
            returns.discounted_returns(values, ends, GAMMA, rollout.last),
        ]

    for found, wanted in zip(
        results(values.clone().requires_grad_()), results(values), strict=True
    ):
        assert not found.requires_grad
        assert torch.equal(found, wanted)
