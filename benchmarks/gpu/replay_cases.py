"""Cases of replay: priorities, rows and whole buffers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from case import Case, error, uniform
from torch import Tensor

from sharpwave.primitives.priorities.tensors import PrioritySums
from sharpwave.primitives.rows.tensors import RowTable
from sharpwave.tensors.buffers import (
    StatsTracker,
    TensorPrioritizedReplayBuffer,
    TensorReplayBuffer,
)


def priority_cases(capacity: int, count: int) -> Iterator[Case]:
    sums = PrioritySums(capacity, "cuda")
    sums.load_state_dict({"priorities": uniform(capacity), "highest": 1.0})
    uniforms = torch.rand(count, device="cuda", dtype=torch.float64)
    index = torch.randint(0, capacity, (count,), device="cuda")
    fresh = uniform(count)
    leaves = uniform(capacity)

    def check_sample() -> float:
        uniforms.uniform_()
        prefixes = sums.priorities.double().cumsum(0)
        places = torch.arange(count, device="cuda")
        targets = (places + uniforms) / count * prefixes[-1]
        wanted = torch.searchsorted(prefixes, targets, right=True)
        found, probability = sums.sample(count, uniforms=uniforms)
        gap = (found - wanted).abs().max()  # rounding may move a sample to the neighbor
        chances = sums.priorities[found].double() / prefixes[-1]
        return max(float(gap > 1), error(probability, chances))

    def check_update() -> float:
        twice = torch.cat([index, index])
        given = torch.cat([fresh + 1, fresh])
        sums.set(twice, given)
        found = sums.priorities
        last = torch.full((capacity,), -1, device="cuda")
        last.scatter_reduce_(0, twice, torch.arange(2 * count, device="cuda"), "amax")
        touched = last >= 0
        exact = bool((found[touched] == given[last[touched]]).all())
        return max(float(not exact), error(sums.total, found.double().sum()))

    def torch_sample() -> Tensor:
        prefixes = leaves.cumsum(0)
        return torch.searchsorted(prefixes, uniforms.float() * prefixes[-1])

    yield Case(
        f"prioritized sample {count} of {capacity}",
        lambda: sums.sample(count, uniforms=uniforms),
        check_sample,
        1e-5,
        torch=torch_sample,
        targets={"graph_ms": 0.03},
    )
    yield Case(
        f"prioritized update {count} of {capacity}",
        lambda: sums.set(index, fresh),
        check_update,
        1e-5,
        torch=lambda: leaves.index_copy_(0, index, fresh),
        targets={"graph_ms": 0.02},
    )


def row_cases(capacity: int, count: int, compiles: bool) -> Iterator[Case]:
    columns = [
        torch.randn(capacity, 64, device="cuda"),
        torch.randn(capacity, 64, device="cuda"),
        torch.randn(capacity, 8, device="cuda"),
        torch.randn(capacity, device="cuda"),
        uniform(capacity) < 0.1,
    ]
    table = RowTable(columns)
    index = torch.randint(0, capacity, (count,), device="cuda")
    step = [column[:count].clone() for column in columns]
    position = torch.tensor(1, device="cuda")
    row_bytes = sum(c.element_size() * c[0].numel() for c in columns)

    def torch_gather(index: Tensor) -> list[Tensor]:
        return [column[index] for column in columns]

    def check_gather() -> float:
        index.random_(0, capacity)
        pairs = zip(table.gather(index), torch_gather(index), strict=True)
        return float(not all(torch.equal(a, b) for a, b in pairs))

    def torch_push() -> None:
        at = position * count + torch.arange(count, device="cuda")
        for column, row in zip(columns, step, strict=True):
            column.index_copy_(0, at, row)

    def check_push() -> float:
        table.push(step, position)
        pairs = zip(columns, step, strict=True)
        return float(not all(torch.equal(c[count : 2 * count], row) for c, row in pairs))

    fast = torch.compile(torch_gather) if compiles else None
    given = [torch.empty_like(row) for row in step]
    yield Case(
        f"replay sample {count} x 5 fields",
        lambda: table.gather(index),
        check_gather,
        0.0,
        bytes=count * (2 * row_bytes + 8),
        torch=lambda: torch_gather(index),
        compiled=fast and (lambda: fast(index)),
        targets={"graph_ms": 0.010, "eager_ms": 0.03},
    )
    yield Case(
        f"replay sample {count} x 5 fields into given tensors",
        lambda: table.gather(index, given),
        check_gather,
        0.0,
        bytes=count * (2 * row_bytes + 8),
    )
    yield Case(
        f"add one step of {count} environments",
        lambda: table.push(step, position),
        check_push,
        0.0,
        bytes=2 * count * row_bytes,
        torch=torch_push,
        targets={"graph_ms": 0.008, "eager_ms": 0.025},
    )


def step_of(n_envs: int) -> dict[str, Tensor]:
    """Steps as environments hand them to a replay buffer."""
    shapes: dict[str, tuple[int, ...]]
    shapes = {"obs": (64,), "action": (8,), "reward": (), "next_obs": (64,)}
    step = {name: torch.randn(n_envs, *shape, device="cuda") for name, shape in shapes.items()}
    step["done"], step["truncated"] = (uniform(n_envs) < 0.1 for _ in range(2))
    return step


def kept(buffer: TensorReplayBuffer, step: dict[str, Tensor]) -> float:
    """0 if a buffer filled with this step returns it, otherwise 1."""
    batch = buffer.gather(torch.arange(buffer.num_envs, device="cuda"))
    same = torch.equal(batch.observations, step["obs"])
    return float(not (same and torch.equal(batch.truncateds, step["truncated"])))


def buffer_cases(n_steps: int, n_envs: int, count: int) -> Iterator[Case]:
    step = step_of(n_envs)
    columns = [x.expand(n_steps, *x.shape).flatten(0, 1).clone() for x in step.values()]
    buffer = TensorReplayBuffer(n_steps, n_envs, (64,), (8,), device="cuda")
    for _ in range(n_steps):
        buffer.add(**step)

    tracker = StatsTracker(n_envs, device="cuda")

    def torch_add() -> None:
        for column, row in zip(columns, step.values(), strict=True):
            column[:n_envs] = row

    def check_tracker() -> float:
        tracker.update(step["done"], step["reward"])
        returns = step["reward"][step["done"]][-100:]
        found = torch.from_numpy(tracker.get_raw_values()["Rollout/rewards"])
        return error(found[-len(returns) :], returns.cpu())

    def torch_get() -> list[Tensor]:
        index = torch.randint(n_steps * n_envs, (count,), device="cuda")
        return [column[index] for column in columns]

    yield Case(
        f"TensorReplayBuffer.add, {n_envs} environments",
        lambda: buffer.add(**step),
        lambda: kept(buffer, step),
        0.0,
        torch=torch_add,
        graph_calls=0,
    )
    yield Case(
        f"StatsTracker.update, {n_envs} environments",
        lambda: tracker.update(step["done"], step["reward"]),
        check_tracker,
        0.0,
    )
    yield Case(
        f"TensorReplayBuffer.get({count})",
        lambda: buffer.get(count),
        lambda: kept(buffer, step),
        0.0,
        torch=torch_get,
        graph_calls=0,
    )
    given = buffer.get(count)
    yield Case(
        f"TensorReplayBuffer.get({count}), out given",
        lambda: buffer.get(count, out=given),
        lambda: kept(buffer, step),
        0.0,
        graph_calls=0,
    )
    yield from host_cases(step, n_steps // 4, n_envs, count)


def host_cases(step: dict[str, Tensor], n_steps: int, n_envs: int, count: int) -> Iterator[Case]:
    buffer = TensorReplayBuffer(n_steps, n_envs, (64,), (8,), device="cuda", store_device="cpu")
    columns = [x.cpu().expand(n_steps, *x.shape).flatten(0, 1).clone() for x in step.values()]
    for _ in range(n_steps):
        buffer.add(**step)

    def torch_get() -> list[Tensor]:
        index = torch.randint(n_steps * n_envs, (count,))
        return [column[index].to("cuda") for column in columns]

    yield Case(
        f"TensorReplayBuffer.get({count}), steps in host memory",
        lambda: buffer.get(count),
        lambda: kept(buffer, step),
        0.0,
        torch=torch_get,
        graph_calls=0,
    )


def prioritized_buffer_cases(n_steps: int, n_envs: int, count: int) -> Iterator[Case]:
    n_rows, step = n_steps * n_envs, step_of(n_envs)
    columns = [x.expand(n_steps, *x.shape).flatten(0, 1).clone() for x in step.values()]
    buffer = TensorPrioritizedReplayBuffer(n_steps, n_envs, (64,), (8,), device="cuda")
    for _ in range(n_steps):
        buffer.add(**step)
    leaves = uniform(n_rows)
    drawn = torch.randint(n_rows, (count,), device="cuda")
    errors = torch.randn(count, device="cuda")

    def check_update() -> float:
        buffer.update_priorities(drawn, errors)
        last = torch.full((n_rows,), -1, device="cuda")
        last.scatter_reduce_(0, drawn, torch.arange(count, device="cuda"), "amax")
        wanted = (errors[last].double().abs() + 1e-6) ** 0.6
        return error(buffer.state_dict()["priorities"], torch.where(last >= 0, wanted, 1.0))

    def torch_update() -> None:
        leaves[drawn] = (errors.abs() + 1e-6) ** 0.6

    def torch_get() -> list[Tensor]:
        prefixes = leaves.cumsum(0)
        index = torch.searchsorted(prefixes, torch.rand(count, device="cuda") * prefixes[-1])
        weights = (leaves[index] / prefixes[-1]) ** -0.4
        return [weights / weights.max(), *(column[index] for column in columns)]

    yield Case(
        f"TensorPrioritizedReplayBuffer.update_priorities, {count} rows",
        lambda: buffer.update_priorities(drawn, errors),
        check_update,
        1e-5,
        torch=torch_update,
        graph_calls=0,
    )
    yield Case(
        f"TensorPrioritizedReplayBuffer.get({count})",
        lambda: buffer.get(count),
        lambda: kept(buffer, step),
        0.0,
        torch=torch_get,
        graph_calls=0,
    )
    given = buffer.get(count)
    yield Case(
        f"TensorPrioritizedReplayBuffer.get({count}), out given",
        lambda: buffer.get(count, out=given),
        lambda: kept(buffer, step),
        0.0,
        graph_calls=0,
    )
    yield Case(
        f"TensorPrioritizedReplayBuffer.add, {n_envs} environments",
        lambda: buffer.add(**step),
        lambda: kept(buffer, step),
        0.0,
        graph_calls=0,
    )
