import numpy as np
import pytest
import torch

from sharpwave.primitives.episodes.tensors import EpisodeSums


@pytest.mark.parametrize(("n_envs", "n_kept"), [(1, 1), (1, 7), (5, 3), (3, 40), (2500, 100)])
@pytest.mark.parametrize("n_marks", [0, 2])
def test_sums_are_those_of_a_loop(
    n_envs: int, n_kept: int, n_marks: int, device: torch.device
) -> None:
    sums = EpisodeSums(n_envs, 3, n_marks, n_kept, device)
    running, episodes = np.zeros((3, n_envs)), []
    for step in range(12):
        gains = [
            torch.randn(n_envs),
            torch.randint(0, 9, (n_envs,)),
            torch.rand(n_envs).bfloat16() if step % 3 else None,
        ]
        ended = torch.rand(n_envs) < (0.3 if step % 4 else 0.0)
        marks = torch.randint(0, 2, (n_marks, n_envs)) if step % 2 else None
        for row, gain in zip(running, gains, strict=True):
            row += 0 if gain is None else gain.double().numpy()
        kept = np.zeros((n_marks, n_envs)) if marks is None else marks.numpy()
        for env in np.flatnonzero(ended.numpy()):
            episodes.append([*running[:, env], *kept[:, env]])
            running[:, env] = 0
        sums.add(
            [gain if gain is None else gain.to(device) for gain in gains],
            ended.to(device),
            None if marks is None else marks.to(device),
        )
        wanted = np.array(episodes).reshape(-1, 3 + n_marks).T[:, -n_kept:]
        np.testing.assert_allclose(sums.last(n_kept), wanted, rtol=1e-12)
    np.testing.assert_allclose(sums.running.cpu(), running, rtol=1e-12)
    assert int(sums.count) == len(episodes)


def test_all_may_end_at_once(device: torch.device) -> None:
    sums = EpisodeSums(1200, 1, 0, 4, device)
    ends = torch.ones(1200, dtype=torch.bool, device=device)
    for k in range(3):
        sums.add([torch.arange(1200.0, device=device) + k], ends)
    assert sums.last(4).tolist() == [[1198.0, 1199.0, 1200.0, 1201.0]]
    assert not sums.running.any()


def test_sums_go_on_elsewhere(device: torch.device) -> None:
    sums, other = (EpisodeSums(3, 2, 1, 5, device) for _ in range(2))
    for k in range(9):
        gains = [torch.randn(3, device=device) for _ in range(2)]
        ended = torch.tensor([True, k % 2 == 0, k % 3 == 0], device=device)
        marks = torch.rand(1, 3, device=device)
        sums.add(gains, ended, marks)
        if k == 4:
            other.restore(sums.running, sums.last(5), int(sums.count))
        elif k > 4:
            other.add(gains, ended, marks)
    assert torch.equal(sums.last(5), other.last(5))
    assert torch.equal(sums.running, other.running)
    assert int(sums.count) == int(other.count)
