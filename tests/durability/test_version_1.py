"""Checkpoints of version 1 open, and go on as the code that wrote them did.

The files were written by that code, and so was what they learned when it went on with them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import sharpwave as sw
from sharpwave.storage.checkpoints import CheckpointReader, read_checkpoint, read_header

FOLDER = Path(__file__).parent / "version_1"
CASES: dict[str, tuple[Any, int]] = {
    "ppo": (sw.PPO, 160),
    "sac": (sw.SAC, 96),
    "ppo_torch": (sw.PPO, 160),
}
"""Class, and steps that were trained after the checkpoint."""


def weights(agent: Any) -> dict[str, Any]:
    """Networks and optimizers by dotted names."""
    found: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner)
        else:
            tensor = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            found[name] = np.array(tensor)

    state = agent.state_dict()
    for part in ("networks", "optimizers"):
        walk(part, state[part])
    return found


@pytest.mark.parametrize("case", CASES)
def test_it_goes_on_as_it_did(case: str) -> None:
    cls, steps = CASES[case]
    agent = cls.from_checkpoint(FOLDER / f"{case}.safetensors")
    agent.train(steps)
    with np.load(FOLDER / f"{case}_continued.npz") as then:
        assert agent.timesteps == then["timesteps"]
        assert agent.updates == then["updates"]
        now = weights(agent)
        assert set(now) == set(then.files) - {"timesteps", "updates"}
        for name, array in now.items():
            assert array.dtype == then[name].dtype
            # Other processors may round the last bits of products otherwise.
            np.testing.assert_allclose(array, then[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("case", ["ppo", "sac"])  # their environments offer their state
def test_it_goes_on_bit_for_bit_from_the_version_of_today(case: str, tmp_path: Path) -> None:
    cls, steps = CASES[case]
    old = cls.from_checkpoint(FOLDER / f"{case}.safetensors")
    old.save(tmp_path / "new")
    new = cls.from_checkpoint(tmp_path / "new")
    for agent in (old, new):
        agent.train(steps)
    left, right = weights(old), weights(new)
    assert all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_what_safetensors_reads(case: str) -> None:
    path = FOLDER / f"{case}.safetensors"
    expected = load_file(path)
    with CheckpointReader(path) as checkpoint:
        assert set(checkpoint.names) == set(expected)
        assert checkpoint.header == read_header(path) == read_checkpoint(path)[0]
        for name, array in expected.items():
            found = checkpoint.read(name)
            assert isinstance(found, np.ndarray)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_any_changed_byte_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    content = (FOLDER / "ppo.safetensors").read_bytes()
    path = tmp_path / "changed"
    for at in range(0, len(content), 37):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(sw.SharpwaveIOError, match="changed"):
            CheckpointReader(path)


@pytest.mark.long
def test_native_checkpoints_need_no_torch(tmp_path: Path) -> None:
    """Neither those of version 1 nor those of today."""
    for name in ("ppo", "sac"):
        shutil.copy(FOLDER / f"{name}.safetensors", tmp_path)
    program = """
import sys
sys.modules["torch"] = None  # an import raises
import sharpwave as sw
for cls, name in ((sw.PPO, "ppo"), (sw.SAC, "sac")):
    agent = cls.from_checkpoint(f"{name}.safetensors")
    agent.save("new.safetensors")
    again = cls.from_checkpoint("new.safetensors")
    again.train(64)
    assert again.timesteps == agent.timesteps + 64
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
