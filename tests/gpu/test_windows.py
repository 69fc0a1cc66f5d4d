"""Windows of arrivals on a CUDA device: those of the host, and inside of a captured step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sharpwave import Sequence
from sharpwave.tensors.buffers import TensorReplayBuffer
from tests.gpu.host_sync import no_host_sync

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VIEW = Sequence(6, context=1, arrivals=True, cross=True)
N_ENVS, SIZE = 3, 40


def make(device: str) -> TensorReplayBuffer:
    extra = {"deter": (torch.float16, (4,)), "stoch": (torch.uint8, (3,))}
    shape = {"image": (4, 4, 3), "speed": ()}
    dtype = {"image": torch.uint8, "speed": torch.float32}
    return TensorReplayBuffer(
        SIZE, N_ENVS, shape, (2,), obs_dtype=dtype, device=device, extra_fields=extra
    )


def step(buffers: list[TensorReplayBuffer], t: int) -> None:
    """The same step in all of them, with ends of both kinds and cuts."""
    speed = 100.0 * torch.arange(N_ENVS) + t
    obs = {"image": torch.full((N_ENVS, 4, 4, 3), t % 250, dtype=torch.uint8), "speed": speed}
    next_obs = {"image": obs["image"] + 1, "speed": speed + 0.5}
    done = torch.tensor([t % 5 == 4, t % 7 == 3, t % 11 == 10])
    for buffer in buffers:
        if t % 17 == 16:
            buffer.cut()
        buffer.add(
            obs,
            torch.stack([speed, -speed], 1),
            speed,
            done,
            next_obs,
            done & (t % 2 == 0),
            deter=torch.full((N_ENVS, 4), t),
            stoch=torch.full((N_ENVS, 3), t % 200),
        )


def fields(batch: Any) -> dict[str, torch.Tensor]:
    found = {**batch.observations, **batch.extras}
    names = ("prev_actions", "rewards", "is_first", "is_last", "is_terminal", "indices")
    return {**found, **{name: getattr(batch, name) for name in names}}


def test_the_device_reads_what_the_host_reads() -> None:
    host, device = make("cpu"), make("cuda")
    for t in range(100):
        step([host, device], t)
    for buffer in (host, device):
        buffer.get_windows(1, VIEW)
    ids = device._windows[7].draw(200, device.generator)
    got = fields(device._windows[7].read(ids))
    expected = fields(host._windows[7].read(ids.cpu()))
    assert got["is_last"].any()
    assert got["is_terminal"].any()
    for name, tensor in expected.items():
        assert torch.equal(got[name].cpu(), tensor), name


def test_a_captured_step_draws_and_writes_over_anew() -> None:
    buffer = make("cuda")
    for t in range(60):
        step([buffer], t)
    generator = torch.Generator("cuda").manual_seed(1)
    marks = torch.zeros((), dtype=torch.uint8, device="cuda")

    def work() -> Any:
        batch = buffer.get_windows(16, VIEW, generator=generator)
        stoch = marks.expand(*batch.indices.shape, 3)
        deter = batch.indices[..., None].expand(-1, -1, 4).to(torch.float16)
        buffer.update(batch.indices, stoch=stoch, deter=deter)
        return batch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        batch = work()
    seen = []
    for t in range(60, 90):
        step([buffer], t)
        marks.fill_(t + 100)
        graph.replay()
        ids = batch.indices
        seen.append(ids[:, 0].cpu().clone())
        there = ids[ids >= 0]
        assert int(there.max()) < (t + 1) * N_ENVS
        assert int(there.min()) >= (t + 1 - SIZE) * N_ENVS
        rows = buffer.gather(there // N_ENVS % SIZE * N_ENVS + there % N_ENVS)
        assert (rows.extras["stoch"] == t + 100).all()
        assert torch.equal(rows.extras["deter"][:, 0], there.to(torch.float16))
        torch.testing.assert_close(rows.rewards, 100.0 * (there % N_ENVS) + there // N_ENVS)
    assert len({tuple(ids.tolist()) for ids in seen}) == len(seen)
    assert buffer.stale_updates == 0


def test_nothing_waits_for_the_device() -> None:
    buffer = make("cuda")
    for t in range(60):
        step([buffer], t)
    batch = buffer.get_windows(8, VIEW)
    torch.cuda.synchronize()
    with no_host_sync():
        batch = buffer.get_windows(8, VIEW)
        buffer.update(batch.indices, stoch=batch.extras["stoch"])
