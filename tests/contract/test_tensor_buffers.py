"""The contract of every replay buffer of tensors, run over all of them on every device."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import ResetStrategy, StatsTracker
from sharpwave.errors import SharpwaveIOError
from tests.contract.tensor_cases import NUM_ENVS, TensorCase, each_prioritized, each_tensor_case
from tests.reference.tensors import RingOracle

SIZE = 5


def filled(case: TensorCase, n: int = 12, **options: Any) -> tuple[Any, RingOracle]:
    """A buffer that has wrapped around, and what it should hold."""
    buffer = case.make(SIZE, **options)
    oracle = RingOracle(SIZE, NUM_ENVS)
    steps = case.steps()
    for _ in range(n):
        step = steps.step()
        buffer.add(**step)
        oracle.add(buffer.fields, step)
    return buffer, oracle


def tensors_of(buffer: Any, batch: Any) -> list[Tensor]:
    nests = {
        "obs": batch.observations,
        "action": batch.actions,
        "reward": batch.rewards,
        "done": batch.dones,
        "truncated": batch.truncateds,
        "next_obs": batch.next_observations,
        **batch.extras,
    }
    found: list[Tensor] = buffer.fields.flat(nests, len(batch.rewards))
    return [tensor.cpu() for tensor in found]


def flat(nest: Any) -> list[Tensor]:
    if isinstance(nest, dict):
        return [tensor for inner in nest.values() for tensor in flat(inner)]
    return [] if nest is None else [nest]


def same_row(row: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(row, other, strict=True))


def assert_same_batch(batch: Any, other: Any) -> None:
    for name, value in vars(batch).items():
        assert_same(value, getattr(other, name))


def assert_same(value: Any, other: Any) -> None:
    if isinstance(value, dict):
        assert value.keys() == other.keys()
        for key in value:
            assert_same(value[key], other[key])
    elif value is None:
        assert other is None
    else:
        assert value.dtype == other.dtype
        assert torch.equal(value.cpu(), other.cpu())


@each_tensor_case
def test_the_newest_steps_are_in_their_slots(case: TensorCase) -> None:
    buffer, oracle = case.make(SIZE), RingOracle(SIZE, NUM_ENVS)
    steps = case.steps()
    for i in range(13):
        assert len(buffer) == buffer.current_size == len(oracle) == min(i, SIZE)
        assert buffer.full == (i >= SIZE)
        assert buffer.position == oracle.position
        step = steps.step()
        buffer.add(**step)
        oracle.add(buffer.fields, step)
        indices = torch.arange(len(oracle) * NUM_ENVS)
        batch = buffer.gather(indices)
        got = tensors_of(buffer, batch)
        for index, row in enumerate(oracle.rows()):
            assert same_row([tensor[index] for tensor in got], row)
    assert buffer.capacity == SIZE
    assert buffer.total_capacity == buffer.total_current_size == SIZE * NUM_ENVS


@each_tensor_case
def test_a_batch_has_the_promised_names_dtypes_shapes_and_device(case: TensorCase) -> None:
    buffer, _ = filled(case)
    batch = buffer.get(4)
    for leaf, tensor in zip(buffer.fields.leaves, tensors_of(buffer, batch), strict=True):
        assert tensor.dtype == leaf.dtype
        assert tensor.shape == (4, *leaf.shape)
        assert tensor.is_contiguous()
    assert (batch.rewards.dtype, batch.rewards.shape) == (torch.float32, (4,))
    assert batch.dones.dtype == batch.truncateds.dtype == torch.bool
    assert torch.equal(batch.terminateds, batch.dones & ~batch.truncateds)
    for value in vars(batch).values():
        if isinstance(value, Tensor):
            assert value.device.type == case.device
    names = ["observations", "actions", "rewards", "dones", "truncateds", "next_observations"]
    assert list(vars(batch))[:6] == names
    if case.prioritized:
        assert (batch.indices.dtype, batch.weights.dtype) == (torch.int64, torch.float32)


@each_tensor_case
def test_a_batch_can_be_overwritten(case: TensorCase) -> None:
    (buffer, _), (other, _) = filled(case), filled(case)
    batch, wanted = buffer.get(4), other.get(4)
    assert_same_batch(batch, wanted)
    addresses = [tensor.data_ptr() for tensor in flat(vars(batch))]
    for _ in range(3):
        assert buffer.get(4, out=batch) is batch
        assert_same_batch(batch, other.get(4))
    assert [tensor.data_ptr() for tensor in flat(vars(batch))] == addresses


@each_tensor_case
def test_a_batch_of_another_kind_is_not_overwritten(case: TensorCase) -> None:
    buffer, _ = filled(case)
    with pytest.raises(ValueError, match=r"of out must be a contiguous .* of shape \(5"):
        buffer.get(5, out=buffer.get(4))
    batch = buffer.get(4)
    batch.rewards = batch.rewards.double()
    with pytest.raises(ValueError, match=r"reward of out must be a contiguous torch\.float32"):
        buffer.get(4, out=batch)


@each_tensor_case
def test_a_field_can_be_changed_while_another_waits_for_its_gradient(case: TensorCase) -> None:
    batch = filled(case)[0].get(4)
    observations = batch.observations
    if isinstance(observations, dict):
        observations = next(iter(observations.values()))
    weight = torch.ones((), device=case.device, requires_grad=True)
    loss = (observations.float() * weight).square().sum()
    for tensor in (batch.rewards, batch.dones, batch.truncateds):
        tensor.zero_()
    loss.backward()
    assert weight.grad is not None


@each_tensor_case
def test_every_drawn_row_is_a_row_that_was_added(case: TensorCase) -> None:
    for n in (3, 12):
        buffer, oracle = filled(case, n)
        names = buffer.fields.names
        rows = oracle.rows()
        places = {float(row[names.index("reward")]): index for index, row in enumerate(rows)}
        seen = set()
        for _ in range(15):
            batch = buffer.get(len(rows))
            got = tensors_of(buffer, batch)
            drawn = [places[reward] for reward in batch.rewards.tolist()]
            for i, index in enumerate(drawn):
                assert same_row([tensor[i] for tensor in got], rows[index])
            seen.update(drawn)
            if case.prioritized:
                assert batch.indices.tolist() == drawn
        assert seen == set(range(len(rows)))


@each_tensor_case
def test_draws_follow_the_seed_and_never_repeat(case: TensorCase) -> None:
    first, second, other = (filled(case, seed=seed)[0] for seed in (1, 1, 2))
    batches = [first.get(13) for _ in range(3)]
    for batch in batches:
        assert_same_batch(second.get(13), batch)
    keys = [tuple(batch.rewards.tolist()) for batch in [*batches, other.get(13)]]
    assert len(set(keys)) == 4


@each_tensor_case
def test_a_generator_can_be_passed(case: TensorCase) -> None:
    if case.shared:
        pytest.skip("every process has its own")
    place = case.make(2).store_device
    batches = []
    for _ in range(2):
        generator = torch.Generator(place).manual_seed(5)
        buffer, _ = filled(case, generator=generator)
        batches.append(buffer.get(9))
    assert_same_batch(*batches)
    if case.device == "cuda":
        elsewhere = "cpu" if place.type == "cuda" else "cuda"
        with pytest.raises(ValueError, match="generator must be on"):
            case.make(2, generator=torch.Generator(elsewhere))


@each_tensor_case
def test_too_large_batches_are_refused(case: TensorCase) -> None:
    buffer = case.make(SIZE)
    with pytest.raises(ValueError, match="buffer is empty: add steps before sampling"):
        buffer.get(1)
    buffer, _ = filled(case, 2)
    with pytest.raises(ValueError, match=f"batch_size must be at most {2 * NUM_ENVS}"):
        buffer.get(2 * NUM_ENVS + 1)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        buffer.get(0)


@each_tensor_case
def test_a_full_buffer_follows_its_strategy(case: TensorCase) -> None:
    steps = case.steps()
    strict = case.make(2, reset_strategy=ResetStrategy.ERROR)
    auto = case.make(2, reset_strategy=ResetStrategy.AUTO)
    for _ in range(2):
        strict.add(**steps.step())
        auto.add(**steps.step())
    with pytest.raises(RuntimeError, match="full"):
        strict.add(**steps.step())
    assert len(strict) == len(auto) == 2
    strict.reset()
    assert len(strict) == 0
    for one in (strict, auto):
        step = steps.step()
        one.add(**step)
        assert len(one) == 1
        batch = one.get(NUM_ENVS)
        assert set(batch.rewards.tolist()) <= set(step["reward"].tolist())


@pytest.mark.long(but=["TensorReplayBuffer flat on cpu"])
@each_tensor_case
def test_states_move_to_another_buffer_which_goes_on_alike(
    case: TensorCase, tmp_path: Path
) -> None:
    for n in (0, 3, 5, 12):
        buffer, _ = filled(case, n)
        if case.prioritized and n:
            drawn = buffer.get(5)
            buffer.update_priorities(drawn.indices, torch.tensor([0.1, 5.0, -3.0, 0.0, 2.0]))
            buffer.beta = 0.7
        path = tmp_path / f"buffer-{n}"
        buffer.save(path)
        copies = [case.make(SIZE), type(buffer).load(path, device=case.device)]
        if not case.shared and case.make(2).store_device.type != case.device:
            copies[1] = type(buffer).load(path, device=case.device, store_device="cpu")
        copies[0].load_state_dict(buffer.state_dict())
        step = case.steps().step()
        for other in copies:
            assert len(other) == len(buffer)
            assert other.fields == buffer.fields
            if n == 0:
                continue
            if not case.shared:
                assert other.position == buffer.position
                for _ in range(3):
                    other_batch = other.get(5)
                assert_same_rows(buffer, other)
            other.add(**step)
        if n and not case.shared:
            for _ in range(3):
                batch = buffer.get(5)
            assert_same_batch(batch, other_batch)


def assert_same_rows(buffer: Any, other: Any) -> None:
    indices = torch.arange(buffer.total_current_size)
    assert_same_batch(buffer.gather(indices), other.gather(indices))


@each_tensor_case
def test_copies_go_on_alike(case: TensorCase) -> None:
    if case.shared or case.device == "cuda":
        pytest.skip("a copy is a handle of the same memory, or is made by a state")
    buffer, _ = filled(case)
    buffer.get(3)
    for other in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert_same_rows(buffer, other)
        assert_same_batch(copy.deepcopy(buffer).get(9), other.get(9))


@each_tensor_case
def test_a_state_of_another_kind_is_refused(case: TensorCase, tmp_path: Path) -> None:
    buffer, _ = filled(case)
    state = buffer.state_dict()
    other = case.make(SIZE, num_envs=NUM_ENVS + 1)
    with pytest.raises(ValueError, match="must have shape"):
        other.load_state_dict(state)
    columns = state["fields"]
    with pytest.raises(ValueError, match="fields must be"):
        buffer.load_state_dict({**state, "fields": {"reward": columns["reward"]}})
    with pytest.raises(ValueError, match="dtype"):
        buffer.load_state_dict({**state, "fields": {**columns, "reward": columns["done"]}})
    if case.prioritized:
        with pytest.raises(ValueError, match="priorities must have shape"):
            buffer.load_state_dict({**state, "priorities": state["priorities"][1:]})
    assert_same_rows(buffer, filled(case)[0])
    with pytest.raises(SharpwaveIOError):
        type(buffer).load(tmp_path / "nothing")
    buffer.save(tmp_path / "saved")
    content = (tmp_path / "saved").read_bytes()
    (tmp_path / "saved").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(SharpwaveIOError):
        type(buffer).load(tmp_path / "saved")


@each_tensor_case
def test_a_refused_step_changes_nothing(case: TensorCase) -> None:
    tracker = StatsTracker(NUM_ENVS)
    buffer, _ = filled(case, stats_tracker=tracker)
    before, count = buffer.state_dict(), tracker.episode_count
    step = case.steps().step()
    for name in step:
        if name != "truncated":
            with pytest.raises(TypeError):
                buffer.add(**{key: value for key, value in step.items() if key != name})
    with pytest.raises(TypeError, match="unknown names"):
        buffer.add(**step, unknown=torch.zeros(NUM_ENVS))
    with pytest.raises(ValueError, match="reward must have shape"):
        buffer.add(**{**step, "reward": torch.zeros(NUM_ENVS + 1)})
    with pytest.raises((TypeError, ValueError)):
        buffer.add(**{**step, "obs": {"wrong": torch.zeros(NUM_ENVS)}})
    with pytest.raises((TypeError, ValueError)):
        buffer.add(**{**step, "obs": None})
    assert_same(buffer.state_dict()["fields"], before["fields"])
    assert tracker.episode_count == count


@each_tensor_case
def test_what_was_added_is_copied(case: TensorCase) -> None:
    buffer, oracle = case.make(SIZE), RingOracle(SIZE, NUM_ENVS)
    step = case.steps().step()
    oracle.add(buffer.fields, step)
    buffer.add(**step)
    for tensor in buffer.fields.flat(step, NUM_ENVS):
        tensor.zero_()
    got = tensors_of(buffer, buffer.gather(torch.arange(NUM_ENVS)))
    for index, row in enumerate(oracle.rows()):
        assert same_row([tensor[index] for tensor in got], row)


@each_tensor_case
def test_inputs_of_any_form_store_the_same(case: TensorCase) -> None:
    forms: dict[str, Callable[[Any], Any]] = {
        "float64": lambda t: t.double() if t.dtype == torch.float32 else t,
        "strided": lambda t: t.repeat_interleave(2, 0)[::2],
        "with gradients": lambda t: t.clone().requires_grad_() if t.is_floating_point() else t,
        "flags as floats": lambda t: t.float() if t.dtype == torch.bool else t,
        "numpy": lambda t: t.cpu().numpy() if t.dtype != torch.bfloat16 else t,
    }
    step = case.steps().step()
    expected = case.make(SIZE)
    expected.add(**step)
    for name, form in forms.items():
        buffer = case.make(SIZE)
        formed = [form(tensor) for tensor in buffer.fields.flat(step, NUM_ENVS)]
        buffer.add(**buffer.fields.nested(formed))
        indices = torch.arange(NUM_ENVS)
        got = tensors_of(buffer, buffer.gather(indices))
        want = tensors_of(expected, expected.gather(indices))
        assert same_row(got, want), name


@each_tensor_case
def test_nan_rewards_are_kept_as_they_are(case: TensorCase) -> None:
    buffer = case.make(SIZE)
    step = case.steps().step()
    buffer.add(**{**step, "reward": torch.tensor([torch.nan, torch.inf, -1.0])})
    rewards = buffer.gather(torch.arange(NUM_ENVS)).rewards
    assert str(rewards.tolist()) == "[nan, inf, -1.0]"


@each_tensor_case
def test_the_tracker_is_fed(case: TensorCase) -> None:
    tracker = StatsTracker(
        NUM_ENVS, extra_metrics_keys=["score", "bonus"], done_reason_keys=["fell"]
    )
    buffer = case.make(SIZE, stats_tracker=tracker)
    step = case.steps().step()
    more = {"infos": {"score": torch.tensor([1.0, 2.0, 3.0])}, "bonus": torch.ones(NUM_ENVS)}
    never = torch.zeros(NUM_ENVS, dtype=torch.bool)
    buffer.add(**{**step, "done": never}, **more)
    buffer.add(**{**step, "done": ~never}, **more, done_reasons=["fell", None, "slept"])
    found = tracker.get_statistics()
    assert found["Rollout/rewards"] == pytest.approx(2 * float(step["reward"].mean()))
    assert found["Rollout/lengths"] == 2.0
    assert found["Rollout/score"] == 4.0
    assert found["Rollout/bonus"] == 2.0
    assert found["Rollout/Done/fell_rate"] == pytest.approx(1 / 3)
    assert "Rollout/Done/slept_rate" not in found


@pytest.mark.long(but=["TensorPrioritizedReplayBuffer flat on cpu"])
@each_prioritized
def test_rows_are_drawn_by_priority(case: TensorCase) -> None:
    buffer, _ = filled(case)
    total = buffer.total_current_size
    errors = torch.linspace(0.0, 3.0, total) * torch.tensor([1.0, -1.0]).repeat(total)[:total]
    for given in (errors, errors.numpy(), errors[:, None]):
        buffer.update_priorities(torch.arange(total), given)
    shares = (errors.abs().double() + buffer.epsilon) ** buffer.alpha
    shares /= shares.sum()
    counts = torch.zeros(total, dtype=torch.float64)
    n, size = 300, total
    for _ in range(n):
        counts += torch.bincount(buffer.get(size).indices.cpu(), minlength=total)
    expected = shares * n * size
    seen = expected > 5
    chi = float(((counts - expected) ** 2 / expected)[seen].sum())
    assert chi < 2.5 * total
    batch = buffer.get(size)
    drawn = shares[batch.indices.cpu()]
    weights = (total * drawn) ** -buffer.beta
    np.testing.assert_allclose(batch.weights.cpu(), weights / weights.max(), rtol=2e-4)


@each_prioritized
def test_new_steps_get_the_highest_priority_so_far(case: TensorCase) -> None:
    buffer, _ = filled(case)
    total = buffer.total_current_size
    buffer.update_priorities(torch.arange(total), torch.full((total,), 2.0))
    buffer.update_priorities(torch.tensor([0]), torch.tensor([9.0]))
    buffer.update_priorities(torch.tensor([0]), torch.tensor([2.0]))
    buffer.add(**case.steps().step())
    state = buffer.state_dict()
    highest = (9.0 + buffer.epsilon) ** buffer.alpha
    begin = (buffer.position - 1) % SIZE * NUM_ENVS
    new = torch.zeros(total, dtype=torch.bool)
    new[begin : begin + NUM_ENVS] = True
    low = (2.0 + buffer.epsilon) ** buffer.alpha
    expected = torch.where(new, highest, low)
    np.testing.assert_allclose(state["priorities"].cpu(), expected, rtol=1e-5)
    assert state["highest_priority"] == pytest.approx(highest)


@each_prioritized
def test_of_two_priorities_for_one_step_the_later_counts(case: TensorCase) -> None:
    buffer, _ = filled(case)
    errors = torch.tensor([1.0, 2.0, 3.0, 4.0])
    buffer.update_priorities(torch.tensor([5, 2, 5, 5]), errors)
    found = buffer.state_dict()["priorities"][[5, 2]].cpu()
    expected = (torch.tensor([4.0, 2.0]) + buffer.epsilon) ** buffer.alpha
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@each_prioritized
def test_errors_that_are_not_finite_count_as_the_highest(case: TensorCase) -> None:
    buffer, _ = filled(case)
    buffer.update_priorities([0, 1], [4.0, 0.5])
    buffer.update_priorities([2, 3, 1], [torch.nan, torch.inf, 1e38])
    buffer.update_priorities([1], [0.5])
    found = buffer.state_dict()["priorities"][:4].cpu()
    assert found.isfinite().all()
    expected = (4.0 + buffer.epsilon) ** buffer.alpha
    np.testing.assert_allclose(found[[0, 2, 3]], expected, rtol=1e-5)
    assert buffer.get(9).weights.isfinite().all()
    with pytest.raises(ValueError, match="td_errors"):
        buffer.update_priorities([0, 1], [1.0])
