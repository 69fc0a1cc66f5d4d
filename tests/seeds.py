"""Numbers of all tests from one seed, so that a failure is seen again.

`SHARPWAVE_TEST_SEED` sets the seed; without it every session draws one and says which. A test and
a fixture that several tests share have numbers of their own, whatever ran before them.
"""

from __future__ import annotations

import os
import random
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import hypothesis.core
import numpy as np
import pytest
import torch
from gymnasium.utils import seeding

from sharpwave.envs import native as native_envs

VARIABLE = "SHARPWAVE_TEST_SEED"
# --hypothesis-seed sets the same number, once for all tests.
examples: Any = hypothesis.core


def session_seed() -> int:
    """The seed of this session: that of the variable, or one drawn for all its processes."""
    given = os.environ.get(VARIABLE)
    if not given:
        # Processes of the session inherit the variable.
        os.environ[VARIABLE] = given = str(secrets.randbelow(2**32))
    if not given.isdecimal():
        raise pytest.UsageError(f"{VARIABLE} must be an integer of at least 0, got {given!r}")
    return int(given)


def seed_of(name: str) -> int:
    """The seed of a test or a fixture."""
    return zlib.crc32(f"{session_seed()} {name}".encode())


def seed_generators(seed: int) -> None:
    """Seed every generator that tests draw from without a seed of their own."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    examples.global_force_seed = seed


@contextmanager
def generators_of(name: str) -> Iterator[None]:
    """Generators seeded by `name`, and afterwards as they were."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    forced = examples.global_force_seed
    seed_generators(seed_of(name))
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        examples.global_force_seed = forced


def replace_entropy(patch: pytest.MonkeyPatch) -> None:
    """Let runs, environments and spaces without a seed draw it from the seeded generators."""
    drawn = seeding.np_random

    def np_random(seed: int | None = None) -> tuple[np.random.Generator, int]:
        return drawn(random.getrandbits(63) if seed is None else seed)

    patch.setattr(seeding, "np_random", np_random)
    patch.setattr(native_envs, "secrets", SimpleNamespace(randbits=random.getrandbits))
    patch.setattr("sharpwave.agents.agent.draw_seed", lambda: random.getrandbits(32))
