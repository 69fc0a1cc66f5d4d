"""Checkpoints with forged or damaged content and right checksums end in errors that name them.

They ended in bare KeyError, IndexError, AttributeError, RecursionError and MemoryError.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli import main
from sharpwave.collect import NonFiniteError
from sharpwave.errors import EnvironmentFailed
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint

KINDS: dict[str, Any] = {
    "ppo": lambda: sw.PPO("CartPole-v1", n_envs=1, n_steps=16, batch_size=16, hidden=(4,)),
    "ppo in torch": lambda: sw.PPO(
        "CartPole-v1",
        n_envs=1,
        n_steps=16,
        batch_size=16,
        hidden=(4,),
        backend="torch",
        env_mode="sync",
        normalize_obs=True,
    ),
    "dqn": lambda: sw.DQN(
        "CartPole-v1",
        learning_starts=4,
        batch_size=4,
        buffer_size=32,
        hidden=(4,),
        save_buffer=True,
        prioritized=True,
        log_interval=8,
    ),
    "sac": lambda: sw.SAC(
        "Pendulum-v1",
        learning_starts=4,
        batch_size=4,
        buffer_size=32,
        hidden=(4,),
        save_buffer=True,
        log_interval=8,
    ),
    "bc": lambda: sw.BC(
        {
            "obs": np.zeros((8, 4), np.float32),
            "next_obs": np.zeros((8, 4), np.float32),
            "actions": np.arange(8) % 2,
            "rewards": np.zeros(8),
            "terminated": np.zeros(8, bool),
        },
        env="CartPole-v1",
        hidden=(4,),
        batch_size=4,
    ),
}
DEEP: Any = 0
for _ in range(400):
    DEEP = [DEEP]
VALUES = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x" * 50,
    "../../etc/passwd",
    [],
    [1, "a", None],
    {},
    {"id": 1},
    DEEP,
    np.zeros(0, np.float32),
    np.zeros((3, 3, 3)),
    np.full(7, 2**40, np.int64),
    np.full((1, 2), np.nan, np.float32),
]
Path_ = tuple[Any, ...]
SIZES = [("header", name) for name in ("config", "observation_space", "action_space")]
"""Places of numbers that say how large networks and rollouts are."""


def places(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """The paths of everything in a tree."""
    yield at
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return
    for key, inner in items:
        yield from places(inner, (*at, key))


def changed(value: Any, at: Path_, new: Any) -> Any:
    """A nest with another value in one place; `Ellipsis` takes it out."""
    if not at:
        return new
    key, rest = at[0], at[1:]
    if isinstance(value, dict):
        if new is ... and not rest:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: changed(value[key], rest, new)}
    items = list(value)
    if new is ... and not rest:
        del items[key]
    else:
        items[key] = changed(items[key], rest, new)
    return type(value)(items)


def reshaped(array: Any, rng: random.Random) -> Any:
    """An array that is not what it was: in length, rank or type."""
    return rng.choice(
        [
            array[:-1] if array.ndim and len(array) else np.zeros(2, array.dtype),
            np.concatenate([array.ravel(), array.ravel()]),
            array[None],
            array.astype(np.float64 if array.dtype != np.float64 else np.int8),
            array.astype(np.uint8),
        ]
    )


def try_out(path: Path, *, learn: bool = True) -> bool:
    """Load, play and go on; True where that works."""
    try:
        agent = Trainer.from_checkpoint(path).algo
    except (OSError, ValueError) as error:
        if path.name not in str(error):
            raise AssertionError(f"the file is not named: {error!r}") from error
        return False
    except EnvironmentFailed:
        return False  # arguments of the environment that it does not take
    try:
        agent.predict(agent.observation_space.sample())
        if learn and "dataset" not in agent.leading_arguments:
            agent.train(24)
    except (OSError, ValueError, EnvironmentFailed, NonFiniteError):
        return False
    finally:
        agent.close()
    return True


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    found = {}
    for name, make in KINDS.items():
        agent = make()
        agent.train(24)
        found[name] = folder / f"{name.replace(' ', '_')}.safetensors"
        agent.save(found[name])
        agent.close()
    return found


def attack(source: Path, target: Path, seed: int, times: int) -> None:
    rng = random.Random(seed)
    header, state = read_checkpoint(source)
    whole = {"header": header, "state": state}
    everywhere = [at for at in places(whole) if len(at) > 1]
    for _ in range(times):
        at = rng.choice(everywhere)
        inner: Any = whole
        for key in at:
            inner = inner[key]
        new = ... if rng.random() < 0.2 else rng.choice(VALUES)
        if isinstance(inner, np.ndarray) and rng.random() < 0.7:
            new = reshaped(inner, rng)
        if at[0] == "header" and isinstance(new, np.ndarray | float):
            new = str(new)
        if at[:2] in SIZES and isinstance(new, int) and new > 0:
            new = -new  # what is only large is allowed, and would take as long as it says
        forged = changed(whole, at, new)
        write_checkpoint(target, forged["header"], forged["state"])
        try:
            try_out(target, learn=at[0] == "state")
        except BaseException as error:
            error.add_note(f"at {at} with {new!r:.200}")
            raise


@pytest.mark.long(only=["ppo in torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_forged_content_is_a_named_error(
    kind: str, saved: dict[str, Path], memory_path: Path
) -> None:
    assert try_out(saved[kind])
    attack(saved[kind], memory_path / "forged.safetensors", seed=0, times=20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_forged_content_again_and_again(
    kind: str, seed: int, saved: dict[str, Path], memory_path: Path
) -> None:
    attack(saved[kind], memory_path / "forged.safetensors", seed, times=400)


@pytest.mark.parametrize("kind", ["ppo", "bc"])
def test_flipped_cut_and_foreign_bytes_are_a_named_error(
    kind: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    rng = random.Random(0)
    content = saved[kind].read_bytes()
    path = tmp_path / "broken.safetensors"
    length = int.from_bytes(content[:8], "little")
    for number in range(60):
        broken = bytearray(content)
        if number % 3 == 0:
            broken = broken[: rng.randrange(len(content))]
        elif number % 3 == 1:
            broken[rng.randrange(8 + length)] ^= 1 << rng.randrange(8)
        else:
            broken[:8] = rng.getrandbits(64).to_bytes(8, "little")
        path.write_bytes(broken)
        with pytest.raises(sw.SharpwaveIOError, match="broken"):
            Trainer.from_checkpoint(path)
    path.write_bytes(content)
    assert main(["eval", str(path), "--episodes", "1"]) == 0


@pytest.mark.parametrize("count", [-1, 2**63, 10**30])
@pytest.mark.parametrize("at", [("timesteps",), ("updates",), ("learner", "collector", "count")])
def test_an_impossible_count_is_refused(
    at: tuple[str, ...], count: int, saved: dict[str, Path], tmp_path: Path
) -> None:
    """A negative count of rollouts came as far as native code, which named its own arguments."""
    header, state = read_checkpoint(saved["ppo"])
    forged = changed({"header": header, "state": state}, ("state", *at), count)
    target = tmp_path / "forged.safetensors"
    write_checkpoint(target, forged["header"], forged["state"])
    with pytest.raises(ValueError, match=f"forged.safetensors.*{at[-1]} must be from 0"):
        Trainer.from_checkpoint(target)


def test_more_steps_than_were_collected_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    """The count fell back to what was collected, and the run went on for the difference."""
    target = tmp_path / "forged.safetensors"
    for kind in ("ppo", "ppo in torch"):
        header, state = read_checkpoint(saved[kind])
        write_checkpoint(target, header, {**state, "timesteps": 2**31})
        with pytest.raises(ValueError, match=r"forged\.safetensors.*timesteps must"):
            Trainer.from_checkpoint(target)


@pytest.mark.parametrize(
    ("kind", "at", "new"),
    [
        ("ppo in torch", "learner.collector.has_masks", None),
        ("ppo in torch", "learner.collector.has_masks", {"id": 1}),
        ("sac", "learner.collector.has_masks", True),
        ("bc", "normalizer.std", "x"),
        ("bc", "normalizer.mean", np.zeros(3)),
        ("bc", "normalizer.std", np.zeros(4)),
    ],
)
def test_what_no_run_can_have_is_refused_when_it_is_loaded(
    kind: str, at: str, new: Any, saved: dict[str, Path], tmp_path: Path
) -> None:
    """It came as far as training, and ended in TypeError and AttributeError."""
    header, state = read_checkpoint(saved[kind])
    target = tmp_path / "forged.safetensors"
    write_checkpoint(target, header, changed(state, tuple(at.split(".")), new))
    with pytest.raises(ValueError, match=f"forged.safetensors.*{at.rpartition('.')[2]} must"):
        Trainer.from_checkpoint(target)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("obs", float("nan")),
        ("obs", [[0.0] * 4]),
        ("obs", np.zeros((2, 4))),
        ("masks", [[True, True]]),
        ("masks", np.ones(2, bool)),
        ("ended", np.zeros(2, bool)),
        ("starts", True),
        ("restarted", "yes"),
    ],
)
def test_episodes_in_flight_that_no_run_can_have_are_refused(
    name: str, new: Any, tmp_path: Path
) -> None:
    """Native environments offer their state."""
    path = tmp_path / "forged.safetensors"
    agent = sw.PPO("CartPole-v1", n_envs=1, n_steps=16, batch_size=16, backend="torch")
    agent.train(24)
    agent.save(path)
    header, state = read_checkpoint(path)
    assert isinstance(state["learner"]["collector"]["obs"], np.ndarray)
    write_checkpoint(path, header, changed(state, ("learner", "collector", name), new))
    with pytest.raises(ValueError, match=rf"forged\.safetensors.*{name}.* must"):
        Trainer.from_checkpoint(path)
