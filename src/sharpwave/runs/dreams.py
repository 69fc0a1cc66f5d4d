"""Predictions of a world model, kept with its run: those of the start, the middle and the end."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.tree import leaves
from sharpwave.pages.png import png
from sharpwave.runs.loggers.row_file import RowFile
from sharpwave.storage.files import to_json
from sharpwave.storage.run_folder import step_of
from sharpwave.types import Array

__all__ = ["DreamFile", "in_color", "strip"]

PICTURES = 16
"""Maximum number of pictures in a strip."""
CURVES = 6
"""Numbers of an observation that are kept."""
GAP = 6
"""Pixels between what was seen and what was not."""


class DreamFile(RowFile):
    """File of the predictions of a run's world model; nothing for agents without one.

    Looking changes nothing of a run: `open_loop` draws from generators of its own.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._steps: list[float] = []
        self._failed = False

    def begin(self, step: int) -> None:
        """Forget what an earlier attempt saw after this step."""
        self.cut(lambda line: step_of(line) <= step)
        self._steps = [step_of(line) for line in self.lines()]

    def look(self, algo: Any, step: int, *, is_end: bool = False) -> None:
        """Keep what the model predicts now, if it is time and there is something to predict."""
        if not self._is_due(algo, step, is_end):
            return
        try:
            row = row_of(algo, step)
        except Exception as error:  # it must not cost the run that it is about
            self._failed = True
            warnings.warn(f"no predictions of the world model are kept: {error}", stacklevel=2)
            return
        self.append(json.dumps(to_json(row)))
        self._steps.append(step)

    def _is_due(self, algo: Any, step: int, is_end: bool) -> bool:
        if not hasattr(type(algo), "open_loop") or self._failed or not algo.loop.can_learn:
            return False
        half = algo.target_timesteps / 2
        latest = max(self._steps, default=-1.0)
        return latest < 0 or (is_end and latest < step) or latest < half <= step


def row_of(algo: Any, step: int) -> dict[str, Any]:
    """The predictions of one sequence as pictures and curves, and sizes of what is stored.

    The returns are sums of the rewards after the context, means over all sequences.
    """
    shown = algo.open_loop()
    strips = {
        name or "obs": base64.b64encode(png(strip(video[0], shown.context))).decode()
        for name, video in shown.videos.items()
    }
    later = slice(shown.context, None)
    returns = {"true": shown.rewards, "predicted": shown.predicted_rewards}
    columns = getattr(algo.loop.store, "columns", {})
    latents = [np.dtype(x.dtype).itemsize * int(np.prod(x.shape)) for x in columns.values()]
    return {
        "step": step,
        "context": shown.context,
        "strips": strips,
        "curves": {
            name: {"truth": truth[0, :, :CURVES].T, "prediction": prediction[0, :, :CURVES].T}
            for name, (truth, prediction) in shown.curves.items()
        },
        "returns": {k: float(x[:, later].sum(1).mean()) for k, x in returns.items()},
        "bytes": {
            "latents": sum(latents),
            "observation": sum(leaf[0, 0].nbytes for _, leaf in leaves(shown.truth)),
        },
    }


def strip(video: Array, context: int) -> Array:
    """Pictures of a sequence in a row: truth above model above error, a gap after the context.

    Args:
        video: [T, H, 3W, C] uint8, truth, model and error side by side.
        context: Rows that the model saw.

    Returns:
        [3H, width, 3] uint8, of at most `PICTURES` rows, the first and the last among them.
    """
    length = len(video)
    rows = np.unique(np.linspace(0, length - 1, min(length, PICTURES)).round().astype(int))
    pictures = in_color(video[rows])
    stacked = np.concatenate(np.split(pictures, 3, axis=2), axis=1)
    n_seen = int((rows < context).sum())
    gap = np.full((stacked.shape[1], GAP, 3), 255, np.uint8)
    return np.concatenate([*stacked[:n_seen], gap, *stacked[n_seen:]], axis=1)


def in_color(pictures: Array) -> Array:
    """Pictures [..., C] with three channels; of stacked gray ones the newest."""
    if pictures.shape[-1] == 3:
        return pictures
    return np.repeat(pictures[..., -1:], 3, axis=-1)
