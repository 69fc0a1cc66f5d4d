"""Programs written for rlox run with their import line changed and get the same kind of results."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave.compat.rlox as compat
from sharpwave.types import Array

N, OBS_DIM, ACT_DIM = 300, 4, 1

BUFFERS = """
import rlox

buf = rlox.ReplayBuffer(capacity=100_000, obs_dim=4, act_dim=1)
log_prob = buf.register_column("log_prob", 1)
latent = buf.register_column("latent", 3)
for i in range(n):
    buf.push(obs[i], actions[i], rewards[i], bool(terminated[i]), bool(truncated[i]), next_obs[i])
    buf.push_extra(log_prob, np.full(1, i, np.float32))
    buf.push_extra(latent, np.full(3, i, np.float32))
uniform = buf.sample(batch_size=256, seed=42)
recent = buf.sample_recent(batch_size=16, window_size=32, seed=42)
buf.push_batch(obs.ravel(), next_obs.ravel(), actions.ravel(), rewards, terminated, truncated)
pushed = len(buf)

pbuf = rlox.PrioritizedReplayBuffer(
    capacity=100_000, obs_dim=4, act_dim=1, alpha=0.6, beta=0.4
)
for i in range(n):
    pbuf.push(
        obs[i], actions[i], rewards[i], bool(terminated[i]), bool(truncated[i]), next_obs[i],
        priority=1.0,
    )
prioritized = pbuf.sample(batch_size=256, seed=42)
pbuf.update_priorities(prioritized["indices"], np.linspace(0.1, 2.0, 256))
pbuf.set_beta(0.7)
annealed = pbuf.sample(batch_size=256, seed=43)

data = rlox.OfflineDatasetBuffer(
    obs.ravel(), next_obs.ravel(), actions.ravel(),
    rewards, terminated, truncated,
    normalize=True,
)
offline = data.sample(batch_size=256, seed=42)
trajectories = data.sample_trajectories(batch_size=8, seq_len=20, seed=42)
stats = data.stats()
n_episodes = data.n_episodes()
"""

MAPPED = """
import rlox

buf = rlox.MmapReplayBuffer(
    hot_capacity=50, total_capacity=200,
    obs_dim=4, act_dim=1,
    cold_path=cold_path,
)
empty = buf.is_empty()
for i in range(n):
    buf.push(obs[i], actions[i], rewards[i], bool(terminated[i]), bool(truncated[i]), next_obs[i])
mapped = buf.sample(batch_size=128, seed=42)
again = buf.sample(128, 42)
floats = [flags.astype(np.float32) for flags in (terminated, truncated)]
buf.push_batch(obs.ravel(), next_obs.ravel(), actions.ravel(), rewards, *floats)
stored = len(buf)
buf.close()  # Cleans up cold file
"""

RECORDS = """
from rlox import ExperienceRecord, MmapReplayBuffer

buf = MmapReplayBuffer(50, 200, 4, 1, cold_path)
for i in range(n):
    buf.push(
        ExperienceRecord(
            obs=obs[i], next_obs=next_obs[i], action=actions[i], reward=rewards[i],
            terminated=bool(terminated[i]), truncated=bool(truncated[i]),
        )
    )
mapped = buf.sample(128, 42)
buf.close()
"""

PRIMITIVES = """
import rlox

gae = rlox.compute_gae(rewards64, values64, dones64, last_value, gamma, lam)
gae_batched = rlox.compute_gae_batched(
    rewards64, values64, dones64, last_values, n_steps, gamma, lam
)
gae_batched_f32 = rlox.compute_gae_batched_f32(
    rewards, values64.astype(np.float32), dones64.astype(np.float32),
    last_values.astype(np.float32), n_steps, gamma, lam,
)
vtrace = rlox.compute_vtrace(
    log_rhos, rewards, values64.astype(np.float32), dones64.astype(np.float32),
    0.5, gamma, 1.0, 1.0,
)
group = rlox.compute_group_advantages(rewards64)
groups = rlox.compute_batch_group_advantages(rewards64, 10)
kl = rlox.compute_batch_token_kl(log_p, log_q, 10)
kl_named = rlox.compute_batch_token_kl(log_probs_policy=log_p, log_probs_ref=log_q, seq_len=10)
kl_schulman = rlox.compute_batch_token_kl_schulman(log_p, log_q, 10)
kl_one = rlox.compute_token_kl(log_p, log_q)
kl_one_schulman = rlox.compute_token_kl_schulman(log_probs_policy=log_p, log_probs_ref=log_q)
"""

PACKING = """
import rlox

packed, masks, positions = rlox.pack_sequences(lengths, max_len)
"""


def given() -> dict[str, Any]:
    """The names that the programs find defined."""
    rng = np.random.default_rng(0)
    rewards = rng.standard_normal(N).astype(np.float32)
    ends = np.arange(N) % 30 == 29
    terminated = ends & (np.arange(N) % 60 == 29)
    return {
        "np": np,
        "n": N,
        "obs": rng.standard_normal((N, OBS_DIM)).astype(np.float32),
        "next_obs": rng.standard_normal((N, OBS_DIM)).astype(np.float32),
        "actions": rng.standard_normal((N, ACT_DIM)).astype(np.float32),
        "rewards": rewards,
        "terminated": terminated.astype(np.uint8),
        "truncated": (ends & ~terminated).astype(np.uint8),
        "rewards64": rewards.astype(np.float64),
        "values64": rng.standard_normal(N),
        "dones64": ends.astype(np.float64),
        "last_value": 0.3,
        "last_values": rng.standard_normal(10),
        "n_steps": 30,
        "gamma": 0.99,
        "lam": 0.95,
        "log_rhos": (0.3 * rng.standard_normal(N)).astype(np.float32),
        "log_p": -rng.random(N),
        "log_q": -rng.random(N),
        "lengths": np.array([5, 3, 8, 2, 6]),
        "max_len": 8,
    }


def run(program: str, module: str = "sharpwave.compat.rlox", **more: Any) -> dict[str, Any]:
    line = "import rlox" if module == "rlox" else f"import {module} as rlox"
    program = program.replace("from rlox", f"from {module}").replace("import rlox", line)
    namespace = {**given(), **more}
    exec(compile(program, "program", "exec"), namespace)
    return namespace


def described(batch: dict[str, Array]) -> dict[str, Any]:
    return {key: (array.shape, array.dtype.name) for key, array in batch.items()}


def step_of(batch: int, flags: str = "uint8") -> dict[str, Any]:
    return {
        "obs": ((batch, OBS_DIM), "float32"),
        "next_obs": ((batch, OBS_DIM), "float32"),
        "actions": ((batch,), "float32"),
        "rewards": ((batch,), "float32"),
        "terminated": ((batch,), flags),
        "truncated": ((batch,), flags),
    }


@pytest.fixture(scope="module")
def buffers() -> dict[str, Any]:
    return run(BUFFERS)


@pytest.fixture(scope="module")
def primitives() -> dict[str, Any]:
    return run(PRIMITIVES)


def test_a_mapped_buffer_does_what_is_documented(memory_path: Path) -> None:
    cold_path = str(memory_path / "replay_cold.bin")
    found = run(MAPPED, cold_path=cold_path)
    assert found["empty"] is True
    assert described(found["mapped"]) == step_of(128)
    assert all((found["mapped"][key] == found["again"][key]).all() for key in found["again"])
    assert found["stored"] == 200
    assert not Path(cold_path).exists()
    records = run(RECORDS, cold_path=cold_path)
    for key, array in records["mapped"].items():
        assert (array == found["mapped"][key]).all(), key


def test_batches_have_the_documented_keys_shapes_and_dtypes(buffers: dict[str, Any]) -> None:
    columns = {"log_prob": ((256,), "float32"), "latent": ((256, 3), "float32")}
    assert described(buffers["uniform"]) == {**step_of(256), **columns}
    weights = {"weights": ((256,), "float32"), "indices": ((256,), "uint64")}
    assert described(buffers["prioritized"]) == {**step_of(256), **weights}
    assert described(buffers["offline"]) == step_of(256, "float32")
    assert described(buffers["trajectories"]) == {
        "obs": ((8, 20, OBS_DIM), "float32"),
        "actions": ((8, 20, ACT_DIM), "float32"),
        "rewards": ((8, 20), "float32"),
        "returns_to_go": ((8, 20), "float32"),
        "timesteps": ((8, 20), "uint32"),
        "mask": ((8, 20), "uint8"),
    }
    assert buffers["pushed"] == 2 * N
    assert buffers["n_episodes"] == 10


def test_rows_of_a_batch_are_whole_steps(buffers: dict[str, Any]) -> None:
    for name in ("uniform", "recent", "prioritized", "annealed"):
        batch = buffers[name]
        rows = [int(np.flatnonzero(buffers["rewards"] == reward)[0]) for reward in batch["rewards"]]
        for key in ("obs", "next_obs", "terminated", "truncated"):
            np.testing.assert_array_equal(batch[key], buffers[key][rows])
        np.testing.assert_array_equal(batch["actions"], buffers["actions"][rows, 0])
        if "log_prob" in batch:
            np.testing.assert_array_equal(batch["log_prob"], rows)
            np.testing.assert_array_equal(
                batch["latent"], np.repeat(np.array(rows), 3).reshape(-1, 3)
            )
    assert min(np.flatnonzero(np.isin(buffers["rewards"], buffers["recent"]["rewards"]))) >= N - 32


def test_primitives_have_the_documented_shapes_and_dtypes(primitives: dict[str, Any]) -> None:
    for name, dtype in {
        "gae": "float64",
        "gae_batched": "float64",
        "gae_batched_f32": "float32",
        "vtrace": "float32",
    }.items():
        assert [(array.shape, array.dtype.name) for array in primitives[name]] == [
            ((N,), dtype)
        ] * 2
    for name, length in {
        "group": N,
        "groups": N,
        "kl": 30,
        "kl_named": 30,
        "kl_schulman": 30,
    }.items():
        assert (primitives[name].shape, primitives[name].dtype.name) == ((length,), "float64")
    assert isinstance(primitives["kl_one"], float)
    assert isinstance(primitives["kl_one_schulman"], float)
    np.testing.assert_array_equal(primitives["kl"], primitives["kl_named"])


def test_token_kl_is_that_of_sampled_tokens(primitives: dict[str, Any]) -> None:
    log_ratio = primitives["log_q"] - primitives["log_p"]
    np.testing.assert_allclose(primitives["kl"], -log_ratio.reshape(30, 10).sum(axis=1))
    k3 = np.exp(log_ratio) - 1 - log_ratio
    np.testing.assert_allclose(primitives["kl_schulman"], k3.reshape(30, 10).sum(axis=1))


def test_lengths_are_packed_into_rows() -> None:
    found = run(PACKING)
    packed, masks, positions = found["packed"], found["masks"], found["positions"]
    assert packed.shape == masks.shape == positions.shape == (3, 8)
    assert np.array_equal(masks != 0, packed >= 0)
    assert np.array_equal(np.sort(packed[packed >= 0]), np.arange(found["lengths"].sum()))
    assert np.array_equal(packed, compat.pack_sequences(found["lengths"], max_length=8)[0])


def test_columns_are_registered_before_the_first_push_and_written_by_handle() -> None:
    buffer = compat.ReplayBuffer(4, 2, 1)
    handle = buffer.register_column("value", 2)
    with pytest.raises(ValueError, match="in use"):
        buffer.register_column("value", 1)
    with pytest.raises(ValueError, match="in use"):
        buffer.register_column("rewards", 1)
    with pytest.raises(ValueError, match="push one first"):
        buffer.push_extra(handle, [1.0, 2.0])
    for i in range(7):
        buffer.push([i, i], 0.0, float(i), False, False, [i, i])
        if i % 2:
            buffer.push_extra(handle, [i, -i])
    with pytest.raises(ValueError, match="before the first push"):
        buffer.register_column("late", 1)
    with pytest.raises(IndexError, match="handle must be less than 1"):
        buffer.push_extra(1, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        buffer.push_extra(handle, [1.0])
    with pytest.raises(ValueError, match="not saved"):
        buffer.save("nowhere")
    batch = buffer.sample(4, seed=0)
    written = batch["rewards"] * (batch["rewards"] % 2)
    np.testing.assert_array_equal(batch["value"], np.stack([written, -written], axis=1))
    assert "indices" not in batch
    assert "indices" in buffer.sample(4, seed=0, indices=True)


def test_columns_survive_pickling() -> None:
    buffer = compat.ReplayBuffer(4, 2, 1)
    handle = buffer.register_column("value", 1)
    buffer.push([0.0, 0.0], 0.0, 1.0, False, False, [0.0, 0.0])
    buffer.push_extra(handle, [5.0])
    other = pickle.loads(pickle.dumps(buffer))
    other.push([0.0, 0.0], 0.0, 1.0, False, False, [0.0, 0.0])
    other.push_extra(handle, [5.0])
    assert other.sample(2, seed=0)["value"].tolist() == [5.0, 5.0]


@pytest.fixture
def rlox() -> Any:
    return pytest.importorskip("rlox")


@pytest.mark.integration
def test_batches_are_like_those_of_rlox(rlox: Any, buffers: dict[str, Any]) -> None:
    theirs = run(BUFFERS, "rlox")
    for name in ("uniform", "recent", "prioritized", "annealed", "offline", "trajectories"):
        expected = described(theirs[name])
        found = described(buffers[name])
        assert {key: found[key] for key in expected} == expected, name
    assert buffers["stats"].keys() == theirs["stats"].keys()
    for key, value in theirs["stats"].items():
        assert buffers["stats"][key] == pytest.approx(value, rel=1e-5), key


@pytest.mark.integration
def test_primitives_are_those_of_rlox(rlox: Any, primitives: dict[str, Any]) -> None:
    theirs = run(PRIMITIVES, "rlox")
    for name in ("gae", "gae_batched"):
        np.testing.assert_allclose(primitives[name], theirs[name], rtol=1e-9, atol=1e-12)
    for name in ("gae_batched_f32", "vtrace"):
        np.testing.assert_allclose(primitives[name], theirs[name], rtol=2e-4, atol=2e-5)
    for name in ("group", "groups"):
        np.testing.assert_allclose(primitives[name], theirs[name], rtol=1e-9)
    for name in ("kl", "kl_schulman"):
        assert primitives[name].shape == theirs[name].shape
        assert primitives[name].dtype == theirs[name].dtype


@pytest.mark.integration
def test_the_weighted_token_kl_is_that_of_rlox(rlox: Any) -> None:
    log_p, log_q = given()["log_p"], given()["log_q"]
    ours = compat.compute_batch_token_kl(log_p, log_q, 10, estimator="weighted")
    np.testing.assert_allclose(ours, rlox.compute_batch_token_kl(log_p, log_q, 10))
    swapped = compat.compute_batch_token_kl_schulman(log_q, log_p, 10)
    theirs = rlox.compute_batch_token_kl_schulman(log_p, log_q, 10)
    np.testing.assert_allclose(swapped, theirs)
