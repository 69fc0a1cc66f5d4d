"""Checkpoints with tensors in shards: whole to readers, refused where shards do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints import CheckpointReader, read_checkpoint
from sharpwave.storage.checkpoints.container import write_tensors
from sharpwave.storage.checkpoints.tensors import code_of
from sharpwave.storage.checkpoints.trees import to_json
from sharpwave.storage.checkpoints.writer import FORMAT, VERSION

WHOLE = np.arange(15, dtype=np.float32).reshape(5, 3)


def write(path: Path, shards: dict[str, Any], pieces: dict[str, Any]) -> None:
    """A checkpoint with the tensors x and y, which lie in these pieces."""
    state = {"x": WHOLE, "y": WHOLE, "n": 3}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "header": {"algorithm": "none"},
        "state": to_json(state, "state", {}),
        "shards": shards,
    }
    codes = {name: code_of(piece, name) for name, piece in pieces.items()}
    with path.open("wb") as file:
        write_tensors(file, document, pieces, codes)


def test_shards_are_read_as_whole_tensors(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    names = ["state.x@0", "state.x@1", "state.x@2"]
    pieces = dict(zip(names, (WHOLE[:2], WHOLE[2:5], WHOLE[5:]), strict=True))
    write(path, {"state.x": names, "state.y": names}, pieces)
    _, state = read_checkpoint(path)
    assert (state["x"] == WHOLE).all()
    assert state["y"] is state["x"]
    assert state["n"] == 3
    with CheckpointReader(path) as checkpoint:
        assert set(checkpoint.names) == {"state.x", "state.y"}
        assert checkpoint.shape("state.x") == (5, 3)
        assert checkpoint.dtype("state.y") == "float32"
        target = np.zeros_like(WHOLE)
        checkpoint.copy_to("state.y", target)
        assert (target == WHOLE).all()


@pytest.mark.parametrize(
    ("shards", "pieces"),
    [
        (["x@0", "x@1"], {"x@0": WHOLE}),
        (["x@0", "x@1"], {"x@0": WHOLE, "x@1": WHOLE[:, :2]}),
        (["x@0", "x@1"], {"x@0": WHOLE, "x@1": WHOLE.astype(np.float64)}),
        (["x@0"], {"x@0": np.array(1.0)}),
        ([], {"x@0": WHOLE}),
        (5, {"x@0": WHOLE}),
        (["x@0"], {"x@0": WHOLE, "state.x": WHOLE}),
    ],
)
def test_shards_that_do_not_fit_are_refused(tmp_path: Path, shards: Any, pieces: Any) -> None:
    path = tmp_path / "one.safetensors"
    write(path, {"state.x": shards}, {"state.y": WHOLE, **pieces})
    with pytest.raises(SharpwaveIOError, match=r"one\.safetensors"):
        CheckpointReader(path)
