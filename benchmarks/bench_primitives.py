"""Advantages, V-trace, group advantages, token KL and sequence packing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import floor
import numpy as np
from harness import FLOOR, OURS, Builder, Operation, Ratio, Row

GAMMA, LAMBDA = 0.99, 0.95


def rows() -> Iterator[Row]:
    yield gae_one_trajectory()
    yield from gae_batched(64, 128, env_major=3.0, time_major=5.0)
    yield from gae_batched(256, 2048, env_major=4.0, time_major=5.0)
    yield vtrace()
    yield group_advantages(64, 8, 2.0)
    yield group_advantages(1024, 32, 5.0)
    yield from token_kl()
    yield from packing()


def rollout(steps: int, envs: int, dtype: type) -> tuple[np.ndarray, ...]:
    """Time-major rewards, values, dones [T, N] and last values [N]."""
    rng = np.random.default_rng(0)
    rewards, values = rng.standard_normal((2, steps, envs)).astype(dtype)
    dones = (rng.random((steps, envs)) < 0.01).astype(dtype)
    return rewards, values, dones, rng.standard_normal(envs).astype(dtype)


def environment_major(column: np.ndarray) -> np.ndarray:
    """[T, N] as one flat array, environment after environment."""
    return np.ascontiguousarray(column.T).reshape(-1)


def numpy_gae(
    rewards: np.ndarray, values: np.ndarray, dones: np.ndarray, last_values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The usual loop over time, vectorized over environments."""
    advantages = np.empty_like(rewards)
    trace = np.zeros_like(last_values)
    next_values = last_values
    for t in range(len(rewards) - 1, -1, -1):
        alive = 1 - dones[t]
        delta = rewards[t] + GAMMA * next_values * alive - values[t]
        trace = delta + GAMMA * LAMBDA * alive * trace
        advantages[t] = trace
        next_values = values[t]
    return advantages, advantages + values


def gae_one_trajectory() -> Row:
    rewards, values, dones = (column[:, 0].copy() for column in rollout(2048, 1, np.float64)[:3])
    arguments = (rewards, values, dones, 0.5, GAMMA, LAMBDA)

    def ours() -> Operation:
        import sharpwave as sw

        return partial(sw.compute_gae, *arguments)

    def rlox() -> Operation:
        import rlox as library

        return partial(library.compute_gae, *arguments)

    return Row(
        "GAE one trajectory 2048, float64",
        {
            OURS: ours,
            "rlox": rlox,
            FLOOR: lambda: partial(floor.load().gae_trajectory, *arguments),
        },
        [Ratio("rlox", 2.0)],
        note="the floor is the plain backward recursion",
    )


def gae_batched(envs: int, steps: int, env_major: float, time_major: float) -> Iterator[Row]:
    columns = rollout(steps, envs, np.float32)
    rewards, values, dones, last_values = columns
    flat = tuple(environment_major(column) for column in columns[:3])
    arguments = (*flat, last_values, steps, GAMMA, LAMBDA)

    def ours_env_major() -> Operation:
        import sharpwave as sw

        return partial(sw.compute_gae_batched_f32, *arguments)

    def ours_time_major() -> Operation:
        import sharpwave as sw

        terminated = dones.astype(bool)
        return partial(
            sw.gae,
            rewards,
            values,
            bootstrap=last_values,
            terminated=terminated,
            gamma=GAMMA,
            lam=LAMBDA,
        )

    def rlox() -> Operation:
        import rlox as library

        return partial(library.compute_gae_batched_f32, *arguments)

    peers: dict[str, Builder] = {
        "rlox": rlox,
        "numpy": lambda: partial(numpy_gae, *columns),
        FLOOR: lambda: partial(floor.load().gae, *columns, GAMMA, LAMBDA),
    }
    note = "rlox is given environment-major data, numpy and the floor time-major"
    yield Row(
        f"GAE {envs} x {steps} float32, environment-major",
        {OURS: ours_env_major, **peers},
        [Ratio("rlox", env_major)],
        note=note,
    )
    yield Row(
        f"GAE {envs} x {steps} float32, time-major",
        {OURS: ours_time_major, **peers},
        [Ratio("rlox", time_major)],
        note=note,
    )


def vtrace() -> Row:
    steps, envs = 80, 32
    rewards, values, dones, last_values = rollout(steps, envs, np.float32)
    log_rhos = 0.3 * np.random.default_rng(1).standard_normal((steps, envs), dtype=np.float32)

    def ours() -> Operation:
        import sharpwave as sw

        return partial(
            sw.vtrace,
            log_rhos,
            rewards,
            values,
            bootstrap=last_values,
            terminated=dones.astype(bool),
            gamma=GAMMA,
        )

    def rlox() -> Operation:
        from rlox import compute_vtrace

        trajectories = [
            (*(np.ascontiguousarray(c[:, e]) for c in (log_rhos, rewards, values, dones)), last)
            for e, last in enumerate(last_values.tolist())
        ]

        def every_trajectory() -> None:
            for trajectory in trajectories:
                compute_vtrace(*trajectory, GAMMA, 1.0, 1.0)

        return every_trajectory

    return Row(
        "V-trace 80 x 32 float32",
        {
            OURS: ours,
            "rlox": rlox,
            FLOOR: lambda: partial(
                floor.load().vtrace, log_rhos, rewards, values, dones, last_values, GAMMA
            ),
        },
        [Ratio("rlox", 8.0)],
        note="rlox takes one trajectory per call: 32 calls on arrays that are contiguous already",
    )


def group_advantages(groups: int, size: int, at_least: float) -> Row:
    rewards = np.random.default_rng(0).standard_normal(groups * size)

    def ours() -> Operation:
        import sharpwave as sw

        return partial(sw.compute_batch_group_advantages, rewards, size)

    def rlox() -> Operation:
        import rlox as library

        return partial(library.compute_batch_group_advantages, rewards, size)

    def by_hand() -> np.ndarray:
        grouped = rewards.reshape(groups, size)
        deviation = grouped.std(axis=1, keepdims=True)
        return (grouped - grouped.mean(axis=1, keepdims=True)) / np.maximum(deviation, 1e-8)

    return Row(
        f"group advantages {groups} x {size}",
        {
            OURS: ours,
            "rlox": rlox,
            "numpy": lambda: by_hand,
            FLOOR: lambda: partial(floor.load().group_advantages, rewards, size),
        },
        [Ratio("rlox", at_least)],
    )


def token_kl() -> Iterator[Row]:
    for sequences, length, targets in (
        (1, 128, [Ratio("rlox", 2.0)]),
        (32, 2048, [Ratio("torch", 1.6), Ratio("rlox", 10.0)]),
    ):
        rng = np.random.default_rng(0)
        log_p = -rng.exponential(size=sequences * length).astype(np.float32)
        log_q = log_p + 0.1 * rng.standard_normal(log_p.size, dtype=np.float32)
        size = f"{sequences} x {length} float32"
        arguments = (log_p, log_q, length)
        yield Row(
            f"token KL k3 {size}",
            {
                OURS: partial(ours_kl, "compute_batch_token_kl_schulman", arguments),
                "rlox": partial(rlox_kl, "compute_batch_token_kl_schulman_f32", arguments),
                "torch": partial(torch_kl, k3, arguments),
                FLOOR: partial(floor_kl, "token_kl_exp", arguments),
            },
            targets,
        )
        yield Row(
            f"token KL weighted by probability {size}",
            {
                OURS: partial(ours_kl, "compute_batch_token_kl", arguments, estimator="weighted"),
                "rlox": partial(rlox_kl, "compute_batch_token_kl_f32", arguments),
                "torch": partial(torch_kl, lambda p, q: p.exp() * (p - q), arguments),
            },
            targets,
        )
        yield Row(
            f"token KL k1 {size}",
            {
                OURS: partial(ours_kl, "compute_batch_token_kl", arguments),
                "torch": partial(torch_kl, lambda p, q: p - q, arguments),
                FLOOR: partial(floor_kl, "token_kl", arguments),
            },
            [Ratio("torch", 1.6)],
        )


def k3(log_p: Any, log_q: Any) -> Any:
    log_ratio = log_q - log_p
    return log_ratio.exp() - log_ratio - 1


KlArguments = tuple[np.ndarray, np.ndarray, int]


def ours_kl(name: str, arguments: KlArguments, **options: str) -> Operation:
    import sharpwave as sw

    return partial(getattr(sw, name), *arguments, **options)


def rlox_kl(name: str, arguments: KlArguments) -> Operation:
    import rlox as library

    return partial(getattr(library, name), *arguments)


def torch_kl(per_token: Callable[..., Any], arguments: KlArguments) -> Operation:
    import torch

    p, q = (torch.from_numpy(a).view(-1, arguments[2]) for a in arguments[:2])
    return lambda: per_token(p, q).sum(-1)


def floor_kl(name: str, arguments: KlArguments) -> Operation:
    return partial(getattr(floor.load(), name), *arguments)


def packing() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(16, 2048, 1000)
    tokens = [rng.integers(0, 50_000, n).astype(np.uint32) for n in lengths]
    total = int(lengths.sum())

    def rlox() -> Operation:
        import rlox as library

        return partial(library.pack_sequences, tokens, 2048)

    def ours(sequences: object) -> Operation:
        import sharpwave as sw

        return partial(sw.pack_sequences, sequences, 2048)

    yield Row(
        "pack 1000 sequences, max 2048",
        {
            OURS: partial(ours, tokens),
            "rlox": rlox,
            FLOOR: lambda: partial(floor.load().copy_sequences, tokens, total),
        },
        [Ratio("rlox", 2.0)],
        note="the floor copies tokens and writes positions and mask, without choosing rows",
    )
    yield Row(
        "pack 1000 sequences from lengths, max 2048",
        {OURS: partial(ours, lengths), "rlox": rlox},
        [Ratio("rlox", 20.0)],
        note="rlox packs the tokens themselves",
    )
