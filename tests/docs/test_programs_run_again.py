"""Every program of the libraries we stand in for, twice in one process, as notebooks run cells.

A cell that is run again makes its objects while those of the first time are still there: a name is
bound anew only after its value was made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.docs import test_programs_for_memmap_replay_buffer as memmap
from tests.docs import test_programs_for_rl_buffer as tensors
from tests.docs import test_programs_for_rlox as rlox
from tests.docs import test_training_programs_for_rlox as training

COMPAT = {
    "import rlox": "import sharpwave.compat.rlox as rlox",
    "from rlox": "from sharpwave.compat.rlox",
    "from memmap_replay_buffer": "from sharpwave.compat.memmap_replay_buffer",
    "from rl_buffer": "from sharpwave.compat.rl_buffer",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_cells(cells: Sequence[str], **given: Any) -> dict[str, Any]:
    """Run cells in one namespace; what they have made stays alive."""
    namespace: dict[str, Any] = {**given, "__name__": "program", "alive": []}
    for cell in cells:
        for theirs, ours in COMPAT.items():
            cell = re.sub(rf"^{theirs}\b", ours, cell, flags=re.M)
        exec(compile(cell, "cell", "exec"), namespace)
        namespace["alive"].append(dict(namespace))
    return namespace


@pytest.mark.parametrize(
    "program", [rlox.BUFFERS, rlox.MAPPED, rlox.RECORDS, rlox.PRIMITIVES, rlox.PACKING]
)
def test_buffers_and_primitives_of_rlox(program: str) -> None:
    run_cells([program, program], **rlox.given(), cold_path="replay_cold.bin")


@pytest.mark.parametrize("program", [rlox.MAPPED, rlox.RECORDS])
def test_the_mapped_buffer_of_rlox_without_its_close(program: str) -> None:
    """The second constructor was refused: the folder of the first was there, and locked."""
    unclosed = re.sub(r"^buf\.close\(\).*$", "", program, flags=re.M)
    assert unclosed != program
    found = run_cells([unclosed] * 3, **rlox.given(), cold_path="replay_cold.bin")
    assert len(found["buf"]) == 200
    for before in found["alive"][:2]:
        with pytest.raises(ValueError, match="overwritten by another buffer of this process"):
            before["buf"].sample(1, 0)


def test_a_mapped_buffer_of_rlox_that_was_collected() -> None:
    """Its folder stays, and was in the way of the next one, which in rlox it is not."""
    cell = "import rlox\nn = (lambda: len(rlox.MmapReplayBuffer(5, 9, 1, 1, path)))()"
    cell = cell.replace("import rlox", COMPAT["import rlox"])
    found = run_cells([cell] * 2, path="cold")
    assert [before["n"] for before in found["alive"]] == [0, 0]
    assert Path("cold").exists()


@pytest.mark.parametrize(
    "program",
    [
        training.PROGRAM,
        training.STOPPING,
        training.CUSTOM_POLICY,
        training.LOOP,
        training.TRAINER,
    ],
)
def test_training_programs_of_rlox(program: str) -> None:
    run_cells([program, program], np=np, obs=np.zeros(4, np.float32))


READING = [memmap.TRAJECTORIES, memmap.TIMESTEPS, memmap.N_STEPS]


@pytest.mark.parametrize(
    "cells",
    [
        [memmap.STORE, *READING] * 2,
        [cell for cell in [memmap.STORE, *READING] for _ in range(2)],
        [memmap.STORE, memmap.WINDOWS, memmap.UNION] * 2,
    ],
    ids=["all again", "each again", "datasets"],
)
def test_the_programs_of_memmap_replay_buffer(cells: list[str]) -> None:
    """`overwrite=True` was refused while the buffer of the first run was there."""
    found = run_cells(cells)
    assert found["buffer"].num_episodes == 4
    first = found["alive"][0]
    for name in ("buffer", "buffer_rehydrated"):
        with pytest.raises(RuntimeError, match="overwritten by another buffer of this process"):
            first[name].get_all_data()


def test_memmap_replay_buffer_without_overwriting() -> None:
    """A folder that is continued was refused while the buffer of the first run was there."""
    store = memmap.STORE.replace("overwrite = True", "overwrite = False")
    counted = store.replace("assert buffer_rehydrated.num_episodes == 4", "")
    assert counted != memmap.STORE
    found = run_cells([counted] * 3)
    assert found["buffer"].num_episodes == 12
    for name in ("buffer", "buffer_rehydrated"):
        assert found["alive"][0][name].num_episodes == 12


def test_memmap_replay_buffer_writes_through_what_it_rehydrated() -> None:
    """The handle from the folder was refused to write while the first one was there."""
    found = run_cells([memmap.STORE])
    again = found["buffer_rehydrated"]
    with again.one_episode(task_id=7):
        again.store(reward=2.0)
    with found["buffer"].one_episode(task_id=8):
        found["buffer"].store(reward=3.0)
    assert found["buffer"].get_all_data()["task_id"].tolist() == [1, 1, 1, 1, 7, 8]
    assert torch.equal(found["buffer"].get_all_data()["reward"], again.get_all_data()["reward"])


@pytest.mark.parametrize("program", [tensors.REPLAY, tensors.ROLLOUT])
def test_the_programs_of_rl_buffer(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_cells([program, program])
    said = capsys.readouterr().out
    assert len(re.findall("Statistics", said)) >= 2
