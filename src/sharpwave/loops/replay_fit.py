"""Checks that a replay buffer fits the algorithm that is to learn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.buffers import ReplayBuffer
from sharpwave.buffers.offline_mixture import OfflineMixture, rows_of
from sharpwave.buffers.schema import STEP, Field, Schema
from sharpwave.config.off_policy import ReplayConfig
from sharpwave.distributed.replay import ShardedReplay

__all__ = ["check_fields", "check_given", "differences"]


def check_given(buffer: Any, config: ReplayConfig, columns: Mapping[str, Field]) -> None:
    """Check that a buffer that the user made can do what is asked of it.

    Args:
        buffer: A buffer of this library, a mixture of them, or another one.
        config: Of the algorithm.
        columns: Of the learner's own, stored with a step.

    Raises:
        TypeError: A mixture has parts that do not mix.
        ValueError: The buffer lacks what the configuration asks for.
    """
    if isinstance(buffer, OfflineMixture):
        _check_mixture(buffer, config, columns)
    elif isinstance(buffer, ShardedReplay):
        _refuse(config, "needs a buffer in this process, got shards", ("her_goals", "length"))
        if buffer.is_created:
            _check_columns(buffer, columns, "buffer")
        _check_ours(buffer, config)
    elif isinstance(buffer, ReplayBuffer):
        _check_ours(buffer, config)
        _check_columns(buffer, columns, "buffer")
    else:
        unknown = ("prioritized", "her_goals", "length")
        _refuse(config, "needs a buffer of this library", unknown)
        if config.draws.n_step > 1:
            raise ValueError("n_step above 1 needs a buffer of this library")


def _refuse(config: ReplayConfig, why: str, options: tuple[str, ...]) -> None:
    """Refuse what a kind of buffers cannot do; sequences have a `length`."""
    for option in options:
        if getattr(config.draws, option):
            raise ValueError(f"{'sequence_length' if option == 'length' else option} {why}")


def _check_ours(buffer: ReplayBuffer | ShardedReplay, config: ReplayConfig) -> None:
    if config.draws.prioritized and not buffer.is_prioritized:
        raise ValueError("prioritized needs a buffer with priorities")
    is_new = isinstance(buffer, ShardedReplay) and not buffer.is_created
    draws = config.draws
    in_order = draws.n_step > 1 or draws.her_goals or draws.length is not None
    if buffer.n_envs is None and not is_new and in_order:
        raise ValueError(
            "n_step above 1, her_goals and sequences need a buffer that keeps steps in order: make "
            "it with n_envs"
        )
    if buffer.capacity < config.batch_size:
        raise ValueError(
            f"buffer must hold a batch of {config.batch_size} steps, got capacity {buffer.capacity}"
        )


def _check_columns(
    buffer: ReplayBuffer | ShardedReplay, columns: Mapping[str, Field], which: str
) -> None:
    for name, field in columns.items():
        found = buffer.schema.fields.get(name, "none")
        if found != field:
            raise ValueError(
                f"{which} must have the learner's column {name!r} as {field}, got {found}"
            )


def _check_mixture(
    mixture: OfflineMixture, config: ReplayConfig, columns: Mapping[str, Field]
) -> None:
    for i, part in enumerate(mixture.parts):
        if not isinstance(rows_of(part), ReplayBuffer):
            raise TypeError(f"parts[{i}] of buffer must be of this library, got {part!r}")
        if getattr(part, "normalize", False):
            raise ValueError(
                f"parts[{i}] of buffer must have observations as they were: make it with "
                "normalize=False"
            )
        _check_columns(rows_of(part), columns, f"parts[{i}] of buffer")
    unknown = ("prioritized", "her_goals", "length")
    _refuse(config, "does not go with a mixture of buffers", unknown)
    _check_ours(mixture.growing, config)


def check_fields(buffer: ReplayBuffer | ShardedReplay, schema: Schema, n_envs: int) -> None:
    """Check that a buffer that the user made can hold the steps of an environment.

    Args:
        buffer: The buffer.
        schema: The fields of a step.
        n_envs: Number of environments.

    Raises:
        ValueError: Its fields or its number of environments are others.
    """
    if buffer.n_envs not in (None, n_envs):
        raise ValueError(f"buffer must have n_envs={n_envs} like env, got {buffer.n_envs}")
    found = _other_fields(buffer.schema, schema)
    if found:
        raise ValueError(f"buffer must hold the steps of env: {'; '.join(found)}")


def differences(
    buffer: ReplayBuffer, schema: Schema, config: ReplayConfig, n_envs: int
) -> list[str]:
    """Differences between a buffer and the one that a configuration would make, in words."""
    found = []
    if buffer.capacity != config.buffer_size:
        found.append(f"it has buffer_size {buffer.capacity}, not {config.buffer_size}")
    if buffer.n_envs != n_envs:
        found.append(f"it has n_envs {buffer.n_envs}, not {n_envs}")
    priorities = buffer._options["priorities"]
    if (priorities is not None) != config.draws.prioritized:
        found.append(f"it is {'not ' if priorities is None else ''}prioritized")
    elif priorities is not None and priorities[1] != config.draws.alpha:
        found.append(f"it has alpha {priorities[1]}, not {config.draws.alpha}")
    elif priorities is not None and priorities[4] != (config.draws.weight_norm == "batch"):
        norm = "batch" if priorities[4] else "buffer"
        found.append(f"it has weight_norm {norm!r}, not {config.draws.weight_norm!r}")
    if buffer.schema != schema:
        found += _other_fields(buffer.schema, schema, exactly=True) or ["it has other fields"]
    return found


def _other_fields(schema: Schema, wanted: Schema, *, exactly: bool = False) -> list[str]:
    """Fields that are missing, too many, or of another form."""
    has = {leaf.name: leaf.field for leaf in schema.leaves}
    needs = {leaf.name: leaf.field for leaf in wanted.leaves}
    columns = wanted.fields.keys() - {*STEP}
    found = [
        f"{name} is missing" + ", a column of the learner's own" * (name in columns)
        for name in needs
        if name not in has
    ]
    found += [f"there is {name}, which env does not give" for name in has if name not in needs]
    for name in needs.keys() & has.keys():
        one, other = has[name], needs[name]
        flat = not exactly and name == "action" and np.prod(one.shape) == np.prod(other.shape)
        if one.shape != other.shape and not flat:
            found.append(f"{name} has shape {one.shape}, not {other.shape}")
        elif exactly and one != other:
            found.append(f"{name} is {one}, not {other}")
    return sorted(found)
