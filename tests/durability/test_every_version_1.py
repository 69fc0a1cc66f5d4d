"""Checkpoints of older versions load, and go on as the version that wrote them did.

`every_algorithm.zip` holds, for each case, a file of format 1, and the weights that its own
version had after going on from there: written before learners, loops and runs were objects.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.algorithms import algorithm_class
from sharpwave.storage.checkpoints import read_header

FILES = Path(__file__).parent / "version_1" / "every_algorithm.zip"


def cases() -> list[str]:
    with zipfile.ZipFile(FILES) as archive:
        return sorted({name.partition("/")[0] for name in archive.namelist()})


def dataset(*, discrete: bool) -> dict[str, Any]:
    """The steps that the offline cases had learned from."""
    generator = np.random.default_rng(0)
    last = np.arange(120) % 20 == 19
    actions = generator.uniform(-1, 1, (120, 2)).astype(np.float32)
    return {
        "obs": generator.normal(2.0, 3.0, (120, 3)).astype(np.float32),
        "next_obs": generator.normal(2.0, 3.0, (120, 3)).astype(np.float32),
        "actions": generator.integers(0, 3, 120) if discrete else actions,
        "rewards": generator.normal(size=120).astype(np.float32),
        "terminated": last & (np.arange(120) // 20 % 2 == 0),
        "truncated": last & (np.arange(120) // 20 % 2 == 1),
    }


@pytest.mark.long(but=["a2c-native", "bc-torch-discrete"])
@pytest.mark.parametrize("case", cases())
def test_a_checkpoint_of_before_goes_on_as_it_did(case: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with zipfile.ZipFile(FILES) as archive:
        path.write_bytes(archive.read(f"{case}/checkpoint"))
        after = dict(np.load(io.BytesIO(archive.read(f"{case}/after.npz"))))
    header = read_header(path)
    cls: Any = algorithm_class(header["algorithm"])
    is_offline = "dataset" in header
    given = {"dataset": dataset(discrete="discrete" in case)} if is_offline else {}
    agent = cls.from_checkpoint(path, **given)
    assert agent.backend == case.split("-")[1]
    agent.train(8 if is_offline else 80)
    assert agent.timesteps == after.pop("metrics/timesteps")
    obs = np.zeros(agent.observation_space.shape, np.float32)
    for i in range(2):
        chosen = agent.predict(obs)
        np.testing.assert_allclose(chosen, after.pop(f"predict/True/{i}"), atol=1e-5)
    networks = agent.networks.items()
    found = {f"{name}/{k}": x for name, net in networks for k, x in net.state_dict().items()}
    assert found.keys() == after.keys()
    for name, weights in after.items():
        # Bit for bit where they were made; another processor may round otherwise.
        np.testing.assert_allclose(found[name], weights, rtol=1e-4, atol=1e-5, err_msg=name)
