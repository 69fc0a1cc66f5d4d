"""The learning curve as a picture."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from sharpwave.extras import require
from sharpwave.files import replace_file
from sharpwave.pages.curves import finite, thinned
from sharpwave.pages.text import compact
from sharpwave.train.run_folder import RunFolder

TRAINING, EVALUATION, INK, GRID = "#2f6fdf", "#d9560b", "#5d646d", "#ecedea"


def write_learning_curve(run_dir: str | os.PathLike[str]) -> Path:
    """Draws training return and evaluations into `learning_curve.png` in the folder of a run.

    Args:
        run_dir: Folder of the run.

    Returns:
        Path of the picture.

    Raises:
        FileNotFoundError: There is no run in the folder.
        ImportError: matplotlib is not installed: `pip install sharpwave[plots]`.
    """
    folder = RunFolder(run_dir)
    if not folder.exists:
        raise FileNotFoundError(f"run_dir must be the folder of a run, got {folder.path}")
    # The figure alone, without pyplot: no window, no state that the user's own plots share.
    figure = require("matplotlib.figure", extra="plots").Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    metrics, evaluations = folder.metrics(), folder.evaluations()
    if "mean_reward" in metrics:
        x, y = finite(metrics["step"], metrics["mean_reward"])
        kept = thinned(y, 1000)
        axes.plot(x[kept], y[kept], color=TRAINING, linewidth=1.8, label="training return")
    if evaluations:
        steps, mean, std = (
            np.array([getattr(one, name) for one in evaluations])
            for name in ("step", "mean", "std")
        )
        spread = np.where(np.isfinite(std), std, 0.0)
        axes.errorbar(
            steps, mean, spread, fmt="o", color=EVALUATION, markersize=5, label="evaluation"
        )
    config = folder.config
    axes.set_title(
        f"{str(config.get('algorithm') or 'run').upper()} on {config.get('env')}",
        loc="left",
        fontweight="bold",
        parse_math=False,
    )
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel("episode return", color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: compact(value))
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(length=0, colors=INK)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    replace_file(folder.learning_curve_file, picture.getvalue())
    return folder.learning_curve_file
