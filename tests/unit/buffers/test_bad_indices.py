"""Wrong indices, priorities and datasets are refused; what torch gives is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import OfflineDatasetBuffer, PrioritizedReplayBuffer, ReplayBuffer, Uniform
from sharpwave.buffers import snapshot
from tests.unit.buffers.inputs import INF, NAN, Unchanged, make, refused, step, steps


class TestIndices:
    @pytest.mark.parametrize("index", [-1, 8, 100, 2**40, 2**62, 2**63 - 1, 2**63])
    @pytest.mark.parametrize("n_envs", [None, 1])
    def test_an_index_that_was_never_given_out_is_refused(self, index: int, n_envs: Any) -> None:
        buffer = make(PrioritizedReplayBuffer, n_envs=n_envs)
        indices = np.array([0, index], np.int64 if index < 2**63 else np.uint64)
        with Unchanged(buffer):
            refused(IndexError, "indices must", lambda: buffer.gather(indices))
            refused(IndexError, "indices must", lambda: buffer.update_priorities(indices, [9, 9]))

    def test_an_overwritten_index_cannot_be_gathered(self) -> None:
        buffer = make(n=20)
        refused(
            IndexError, "indices must be of steps in the buffer, got 3", lambda: buffer.gather([3])
        )

    @pytest.mark.parametrize(
        "wrong",
        [[1.0], [True], ["0"], None, [None], [1j], np.array([], np.complex64), [2**80], {"a": 1}],
    )
    def test_indices_that_are_no_integers_are_refused(self, wrong: Any) -> None:
        buffer = make(PrioritizedReplayBuffer)
        refused(TypeError, "indices must be", lambda: buffer.gather(wrong))
        refused(TypeError, "indices must be", lambda: buffer.update_priorities(wrong, [1.0]))

    @pytest.mark.parametrize("kind", ["proportional", "rank"])
    @pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e40])
    def test_a_failed_update_changes_no_priority(self, bad: float, kind: Any) -> None:
        buffer = make(PrioritizedReplayBuffer, kind=kind)
        with Unchanged(buffer):
            refused(
                ValueError,
                "priorities must",
                lambda: buffer.update_priorities([0, 1, 2], [100.0, 50.0, bad]),
            )

    def test_mismatched_lengths_are_refused(self) -> None:
        buffer = make(PrioritizedReplayBuffer)
        with Unchanged(buffer):
            refused(
                ValueError,
                "priorities must have length 2 like indices, got 3",
                lambda: buffer.update_priorities([0, 1], [1, 2, 3]),
            )
            refused(TypeError, "priorities must be", lambda: buffer.update_priorities([0], [1j]))
            refused(TypeError, "needs the arguments", lambda: buffer.update_priorities([0]))

    @pytest.mark.parametrize("n_envs", [None, 1])
    def test_an_update_of_an_overwritten_step_does_not_reach_the_new_one(self, n_envs: Any) -> None:
        buffer = make(PrioritizedReplayBuffer, 16, n_envs=n_envs)
        old = buffer.sample(16, seed=0, selector=Uniform(), indices=True)["indices"]
        for i in range(16, 28):
            buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3, priority=1.0)
        before = snapshot.to_memory(buffer)["pieces"]["leaves"]
        gone = old[old < 12]
        assert buffer.update_priorities(gone, np.full(len(gone), 1e6)) == len(gone)
        assert buffer.stats()["stale_updates"] == len(gone)
        assert snapshot.to_memory(buffer)["pieces"]["leaves"] == before
        assert buffer.max_priority == 1.0

    def test_what_torch_gives_is_accepted(self) -> None:
        buffer = make(PrioritizedReplayBuffer)
        batch = buffer.sample(4)
        indices = torch.from_numpy(batch["indices"].astype(np.int64))
        errors = torch.tensor([0.5, -2.0, 3.0, 1.0], dtype=torch.float32, requires_grad=True)
        assert buffer.update_priorities(indices, errors) == 0
        assert buffer.max_priority == 3.0
        assert buffer.update_priorities(batch["indices"].astype(np.int32), errors.double()) == 0
        assert torch.equal(
            torch.from_numpy(buffer.gather(indices)["obs"]), torch.from_numpy(batch["obs"])
        )


class TestTensors:
    def test_tensors_are_accepted_everywhere(self) -> None:
        buffer = ReplayBuffer(16, 3, 1)
        grad = torch.arange(3.0, requires_grad=True)
        buffer.push(grad, torch.tensor(1.0), torch.tensor([2.0]), torch.tensor(False), False, grad)
        rows = {key: torch.from_numpy(value) for key, value in steps(4).items()}
        buffer.push_batch(**rows)
        out = {key: torch.from_numpy(value) for key, value in buffer.sample(4).items()}
        assert buffer.sample(4, seed=1, out=out) is out
        assert np.array_equal(out["obs"].numpy(), buffer.sample(4, seed=1)["obs"])
        data = OfflineDatasetBuffer(**rows)  # type: ignore[arg-type]
        assert len(data) == 4

    def test_tensors_elsewhere_are_refused_by_name(self) -> None:
        meta = torch.zeros(3, device="meta")
        refused(TypeError, "obs must be in CPU memory", lambda: make().push(**step(obs=meta)))


class TestOffline:
    @pytest.mark.parametrize(
        "name", ["obs", "next_obs", "actions", "rewards", "terminated", "truncated"]
    )
    def test_bad_arrays_are_named(self, name: str) -> None:
        for wrong in (None, "text", [[1], [1, 2]], np.zeros((4, 1), complex), {"a": 1}, [None] * 4):
            with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
                OfflineDatasetBuffer(**steps(4, **{name: wrong}))
        for shape in ((3,), (5, 3), (0,), ()):
            with pytest.raises(ValueError, match=r"must (have|hold)"):
                OfflineDatasetBuffer(**steps(4, **{name: np.zeros(shape)}))

    @pytest.mark.parametrize("bad", [NAN, INF, 1e40])
    def test_rewards_that_are_none_are_refused(self, bad: float) -> None:
        refused(
            ValueError, "reward must", lambda: OfflineDatasetBuffer(**steps(2, rewards=[0.0, bad]))
        )
        flags = steps(2, terminated=[0.0, NAN])
        refused(ValueError, "terminated must be 0 or 1", lambda: OfflineDatasetBuffer(**flags))

    def test_an_empty_dataset_is_refused(self) -> None:
        refused(
            ValueError, "rewards must hold at least one", lambda: OfflineDatasetBuffer(**steps(0))
        )

    def test_draws_check_their_arguments(self) -> None:
        data = OfflineDatasetBuffer(**steps(4))
        refused(TypeError, "batch_size must be an integer", lambda: data.sample(1.5))  # type: ignore[arg-type]
        refused(ValueError, "batch_size must be", lambda: data.sample(-1))
        refused(ValueError, "seq_len must be at least 1", lambda: data.sample_trajectories(1, 0))
        refused(ValueError, "length must be from 1", lambda: data.sample_trajectories(1, 2**31 - 1))
        refused(ValueError, "by must be", lambda: data.sample_trajectories(1, 2, by="row"))  # type: ignore[arg-type]
        for by in ("step", "episode"):
            kind: Any = by
            for seed in (-1, 2**64):
                refused(
                    ValueError,
                    "seed must be from 0",
                    lambda s=seed, k=kind: data.sample_trajectories(1, 2, s, by=k),
                )
            wrong: Any = 1.5
            refused(
                TypeError,
                "seed must be an integer",
                lambda k=kind, w=wrong: data.sample_trajectories(1, 2, w, by=k),
            )
