"""Checkpoints of tensors on a CUDA device: they come over little by little."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from sharpwave.storage.checkpoints import (
    CheckpointReader,
    read_checkpoint,
    to_tensor,
    write_checkpoint,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def host_bytes(name: str) -> int:
    found = re.search(name + r":\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_tensors_come_back_to_the_device_as_they_were(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.randn(64, 32, device="cuda").to(dtype)
    write_checkpoint(tmp_path / "a", {}, {"x": tensor, "y": tensor.t(), "z": tensor[:, ::2]})
    found = read_checkpoint(tmp_path / "a")[1]
    for name, expected in (("x", tensor), ("y", tensor.t()), ("z", tensor[:, ::2])):
        assert torch.equal(to_tensor(found[name]).float(), expected.cpu().float())
    with CheckpointReader(tmp_path / "a") as checkpoint:
        assert len(checkpoint.aliases) == 1
        target = torch.zeros_like(tensor)
        checkpoint.copy_to("state.x", target)
        assert torch.equal(target.float(), tensor.float())


def test_the_host_holds_a_small_piece_at_a_time(tmp_path: Path) -> None:
    weights = {str(i): torch.ones(2**24, device="cuda") for i in range(4)}
    size = 4 * 2**26
    write_checkpoint(tmp_path / "warm", {}, {"x": weights["0"][:10]})
    Path("/proc/self/clear_refs").write_text("5")
    before = host_bytes("VmRSS")
    write_checkpoint(tmp_path / "a", {}, weights)
    with CheckpointReader(tmp_path / "a") as checkpoint:
        for name, weight in weights.items():
            weight.zero_()
            checkpoint.copy_to(f"state.{name}", weight)
    assert host_bytes("VmHWM") - before <= 0.1 * size
    assert all(bool((weight == 1).all()) for weight in weights.values())
