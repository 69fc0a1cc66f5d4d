"""Rollouts of tensors: advantages, batches and sequences, on every device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpwave import ResetStrategy, RolloutBuffer, StatsTracker
from tests.contract.tensor_cases import needs_cuda
from tests.examples import examples
from tests.reference import returns

on_each_device = pytest.mark.parametrize(
    ("device", "store"),
    [
        ("cpu", "cpu"),
        pytest.param("cuda", "cuda", marks=needs_cuda),
        pytest.param("cuda", "cpu", marks=needs_cuda),
    ],
)

T, N = 6, 3


def rollout(
    device: str = "cpu", store: str = "cpu", n_steps: int = T, seed: int = 0, **options: Any
) -> tuple[RolloutBuffer, dict[str, np.ndarray[Any, Any]]]:
    """A full buffer and what was added [T, N]."""
    buffer = RolloutBuffer(
        n_steps,
        N,
        **{"obs_shape": (2,), "action_shape": (), **options},
        device=device,
        store_device=store,
    )
    random = np.random.default_rng(seed)
    given_: dict[str, Any] = {
        name: random.normal(size=(n_steps, N)).astype(np.float32)
        for name in ("reward", "value", "log_prob", "final_value")
    }
    given_["done"] = random.random((n_steps, N)) < 0.4
    given_["truncated"] = given_["done"] & (random.random((n_steps, N)) < 0.5)
    given_["last_values"] = random.normal(size=N).astype(np.float32)
    for t in range(n_steps):
        rows = torch.arange(t * N, (t + 1) * N)
        step: dict[str, Any] = {
            name: torch.from_numpy(a[t]).to(device) for name, a in given_.items() if a.ndim > 1
        }
        obs = torch.stack([rows, -rows], 1).float()
        buffer.add(obs=obs, action=rows, **step)
    return buffer, given_


def computed(*arguments: Any, **options: Any) -> RolloutBuffer:
    buffer, given_ = rollout(*arguments, **options)
    buffer.compute_returns_and_advantages(torch.from_numpy(given_["last_values"]))
    return buffer


@on_each_device
@pytest.mark.parametrize("seed", range(5))
def test_truncated_steps_bootstrap_from_their_final_value(
    device: str, store: str, seed: int
) -> None:
    buffer, given_ = rollout(device, store, seed=seed, gamma=0.9, gae_lambda=0.8)
    last = given_["last_values"]
    buffer.compute_returns_and_advantages(torch.from_numpy(last).to(device))
    following = np.concatenate([given_["value"][1:], last[None]])
    cut = given_["truncated"]
    following[cut] = given_["final_value"][cut]
    terminated = given_["done"] & ~cut
    wide = {key: given_[key].astype(np.float64) for key in ("reward", "value")}
    expected = returns.gae(wide["reward"], wide["value"], following, terminated, cut, 0.9, 0.8)
    for got, want in zip((buffer.advantages, buffer.returns), expected, strict=True):
        np.testing.assert_allclose(got.cpu(), want, rtol=1e-4, atol=1e-5)


@on_each_device
def test_without_a_final_value_the_value_of_the_step_stands_for_it(device: str, store: str) -> None:
    options: dict[str, Any] = {"device": device, "store_device": store, "gamma": 0.5}
    buffer = RolloutBuffer(2, 1, (), (), **options)
    for value in (4.0, 100.0):
        row = torch.tensor([value], device=device)
        buffer.add(row, row, torch.ones(1), torch.tensor([True]), row, row, torch.tensor([True]))
    buffer.compute_returns_and_advantages(torch.tensor([7.0]))
    assert buffer.returns.flatten().tolist() == [3.0, 51.0]


def test_the_last_dones_count_even_if_add_was_not_told() -> None:
    one, never = torch.ones(1), torch.tensor([False])
    for ended, expected in ((True, 1.0), (False, 1.0 + 0.99 * 10)):
        buffer = RolloutBuffer(1, 1, (), ())
        buffer.add(one, one, one, never, one, one)
        buffer.compute_returns_and_advantages(torch.tensor([10.0]), torch.tensor([ended]))
        assert buffer.returns.item() == pytest.approx(expected)


@on_each_device
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_visit_every_row_once_in_time_major_order(
    device: str, store: str, shuffle: bool
) -> None:
    buffer = computed(device, store)
    batches = list(buffer.get(4, shuffle))
    assert [len(batch.returns) for batch in batches] == [4, 4, 4, 4, 2]
    rows = torch.cat([batch.actions for batch in batches]).cpu()
    assert batches[0].observations.device.type == device
    assert sorted(rows.tolist()) == list(range(T * N))
    assert (rows.tolist() == list(range(T * N))) is not shuffle
    for batch in batches:
        index = batch.actions.long().cpu()
        assert torch.equal(batch.observations.cpu()[:, 0], index.float())
        for name in ("value", "log_prob"):
            expected = buffer.stored(name).flatten()[index].cpu()
            assert torch.equal(getattr(batch, f"{name}s").cpu(), expected)
        for name in ("advantages", "returns"):
            expected = getattr(buffer, name).flatten()[index].cpu()
            assert torch.equal(getattr(batch, name).cpu(), expected)
        assert batch.starts is None
    assert len(next(buffer.get()).returns) == T * N
    if shuffle:
        again = torch.cat([batch.actions for batch in buffer.get(4)]).cpu()
        assert not torch.equal(again, rows)


@on_each_device
def test_sequences_are_whole_environments_with_their_starts(device: str, store: str) -> None:
    buffer = computed(device, store)
    batches = list(buffer.get(2, sequences=True))
    assert [batch.returns.shape for batch in batches] == [(T, 2), (T, 1)]
    seen = []
    for batch in batches:
        actions = batch.actions.long().cpu()
        envs = actions[0] % N
        seen += envs.tolist()
        assert torch.equal(actions, torch.arange(T)[:, None] * N + envs)
        assert batch.observations.shape == (*actions.shape, 2)
        assert batch.starts is not None
        done = buffer.stored("done").cpu()[:, envs]
        expected = torch.cat([torch.ones(1, len(envs), dtype=torch.bool), done[:-1]])
        assert torch.equal(batch.starts.cpu(), expected)
    assert sorted(seen) == list(range(N))


def test_episodes_go_on_from_one_rollout_to_the_next() -> None:
    buffer = RolloutBuffer(1, 2, (), (), reset_strategy=ResetStrategy.AUTO)
    row = torch.zeros(2)
    found = []
    for done in ([False, True], [False, False], [True, False]):
        buffer.add(row, row, row, torch.tensor(done), row, row)
        buffer.compute_returns_and_advantages(row)
        starts = next(buffer.get(shuffle=False, sequences=True)).starts
        assert starts is not None
        found.append(starts[0].tolist())
    assert found == [[True, True], [False, True], [False, False]]


def test_a_partly_filled_buffer_gives_its_rows_only() -> None:
    buffer, _ = rollout()
    buffer.reset()
    row = torch.ones(N)
    buffer.add(torch.ones(N, 2), row, row, row, row, row)
    buffer.compute_returns_and_advantages(row)
    assert [len(batch.returns) for batch in buffer.get(2)] == [2, 1]
    assert buffer.advantages.shape == (1, N)


def test_batches_need_advantages_of_all_steps() -> None:
    buffer, given_ = rollout()
    with pytest.raises(RuntimeError, match="compute_returns_and_advantages"):
        buffer.get(4)
    buffer.compute_returns_and_advantages(torch.from_numpy(given_["last_values"]))
    buffer.get(4)
    buffer.reset()
    with pytest.raises(RuntimeError, match="compute_returns_and_advantages"):
        buffer.get(4)
    with pytest.raises(RuntimeError, match="empty"):
        buffer.compute_returns_and_advantages(torch.zeros(N))


def test_bad_arguments_are_named() -> None:
    buffer = computed()
    with pytest.raises(RuntimeError, match="full"):
        buffer.add(torch.zeros(N, 2), *[torch.zeros(N)] * 5)
    with pytest.raises(ValueError, match="batch_size"):
        buffer.get(0)
    with pytest.raises(ValueError, match="last_values"):
        buffer.compute_returns_and_advantages(torch.zeros(N + 1))
    with pytest.raises(ValueError, match="last_dones"):
        buffer.compute_returns_and_advantages(torch.zeros(N), torch.zeros(1))
    with pytest.raises(ValueError, match="reset_strategy"):
        RolloutBuffer(2, 1, (), (), reset_strategy=ResetStrategy.RECURRENT)
    for name in ("gamma", "gae_lambda"):
        ratio: dict[str, Any] = {name: 1.5}
        with pytest.raises(ValueError, match=name):
            RolloutBuffer(2, 1, (), (), **ratio)
    with pytest.raises(ValueError, match="stats_tracker"):
        RolloutBuffer(2, 1, (), (), StatsTracker(2))
    with pytest.raises(ValueError, match="obs_shape"):
        RolloutBuffer(2, 1, {}, ())
    with pytest.raises(ValueError, match="obs_dtype"):
        RolloutBuffer(2, 1, {"a": ()}, (), obs_dtype={"b": torch.uint8})
    with pytest.raises(TypeError, match="action_dtype"):
        RolloutBuffer(2, 1, (), (), action_dtype="float32")
    with pytest.raises(ValueError, match="extra_fields"):
        RolloutBuffer(2, 1, (), (), extra_fields={"value": torch.float32})


@on_each_device
def test_nested_observations_and_extra_fields_reach_batches(device: str, store: str) -> None:
    buffer = RolloutBuffer(
        2,
        2,
        {"image": (2, 2), "speed": ()},
        (3,),
        obs_dtype={"image": torch.uint8},
        action_dtype=torch.float16,
        extra_fields={"mask": (torch.bool, (4,)), "state": {"h": (torch.bfloat16, (5,))}},
        device=device,
        store_device=store,
    )
    row = torch.ones(2, device=device)
    for t in range(2):
        obs = {"image": torch.full((2, 2, 2), 200 + t), "speed": row * t}
        mask = torch.tensor([[True, False, True, False]]).repeat(2, 1)
        state = {"h": torch.full((2, 5), 0.5, device=device)}
        buffer.add(obs, torch.full((2, 3), t), row, row, row, row, mask=mask, state=state)
    buffer.compute_returns_and_advantages(row)
    batch = next(buffer.get(shuffle=False))
    assert batch.observations["image"].dtype == torch.uint8
    assert batch.observations["image"][:, 0, 0].tolist() == [200, 200, 201, 201]
    assert batch.observations["speed"].tolist() == [0, 0, 1, 1]
    assert (batch.actions.dtype, batch.actions.shape) == (torch.float16, (4, 3))
    assert batch.extras["mask"].tolist() == [[True, False, True, False]] * 4
    assert batch.extras["state"]["h"].dtype == torch.bfloat16
    assert batch.extras["state"]["h"].eq(0.5).all()
    with pytest.raises(TypeError, match="extra fields"):
        buffer.add(obs, torch.zeros(2, 3), row, row, row, row, mask=mask)


def test_advantages_and_returns_are_normalized_over_the_rollout() -> None:
    buffer = computed()
    values = buffer.stored("value").numpy().astype(np.float64)
    before = buffer.returns.numpy().astype(np.float64)
    explained = 1 - np.var(before - values) / np.var(before)
    assert buffer.explained_variance == pytest.approx(explained, rel=1e-5)
    assert buffer.returns_mean == pytest.approx(before.mean(), rel=1e-5)
    assert buffer.returns_std == pytest.approx(before.std(ddof=1), rel=1e-5)
    buffer.normalize_advantages()
    buffer.normalize_returns()
    assert buffer.advantages_mean == pytest.approx(0.0, abs=1e-6)
    assert float(buffer.advantages.std(unbiased=False)) == pytest.approx(1.0, abs=1e-4)
    expected = (before - before.mean()) / (before.std() + 1e-6)
    np.testing.assert_allclose(buffer.returns, expected, rtol=1e-4, atol=1e-5)
    assert buffer.advantages_std == pytest.approx(np.sqrt(T * N / (T * N - 1)), abs=1e-4)


def test_constant_returns_explain_no_variance() -> None:
    buffer = RolloutBuffer(1, 2, (), (), gamma=0.0)
    row = torch.ones(2)
    buffer.add(row, row, row, row, row, row)
    buffer.compute_returns_and_advantages(row)
    assert np.isnan(buffer.explained_variance)


@on_each_device
def test_a_saved_rollout_goes_on_where_it_was(device: str, store: str, tmp_path: Path) -> None:
    buffer = computed(device, store)
    list(buffer.get(4))
    buffer.save(tmp_path / "rollout")
    other = RolloutBuffer.load(tmp_path / "rollout", device=device, store_device=store)
    assert (other.gamma, other.gae_lambda, len(other)) == (0.99, 0.95, T)
    for one, two in zip(buffer.get(4), other.get(4), strict=True):
        assert torch.equal(one.actions, two.actions)
        assert torch.equal(one.advantages, two.advantages)
    assert torch.equal(other._starts.cpu(), buffer._starts.cpu())


@pytest.mark.long
@settings(max_examples=examples(25))
@given(
    n_steps=st.integers(1, 7),
    batch_size=st.integers(1, 30),
    sequences=st.booleans(),
    shuffle=st.booleans(),
)
def test_every_row_is_in_one_batch_whatever_the_sizes(
    n_steps: int, batch_size: int, sequences: bool, shuffle: bool
) -> None:
    buffer = computed(n_steps=n_steps)
    batches = list(buffer.get(batch_size, shuffle, sequences=sequences))
    rows = torch.cat([batch.actions.flatten() for batch in batches])
    assert sorted(rows.tolist()) == list(range(n_steps * N))
