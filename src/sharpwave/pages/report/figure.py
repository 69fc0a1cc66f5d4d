"""The learning curve as a picture."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from sharpwave.core.optional import require
from sharpwave.pages.curves import finite, thinned
from sharpwave.pages.report.told import (
    curve_of,
    headline_of,
    subject_of,
    title_of,
    unit_of,
)
from sharpwave.pages.text import compact
from sharpwave.storage.files import replace_file
from sharpwave.storage.run_folder import RunFolder

TRAINING, EVALUATION, INK, GRID = "#2f6fdf", "#d9560b", "#5d646d", "#ecedea"


def write_learning_curve(run_dir: str | os.PathLike[str]) -> Path:
    """Draws the learning curve of a run into `learning_curve.png` in its folder.

    That is the metric that the run is judged by: the return, beside the evaluations, where it is in
    environments.

    Args:
        run_dir: Folder of the run.

    Returns:
        Path of the picture.

    Raises:
        FileNotFoundError: There is no run in the folder.
        ImportError: matplotlib is not installed: `pip install "sharpwave[plots]"`.
    """
    folder = RunFolder(run_dir)
    if not folder.exists:
        raise FileNotFoundError(f"run_dir must be the folder of a run, got {folder.path}")
    # The figure alone, without pyplot: no window, no state that the user's own plots share.
    figure = require("matplotlib.figure", extra="plots").Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    config, metrics, evaluations = folder.config, folder.metrics(), folder.evaluations()
    headline = headline_of(config)
    if headline.metric in metrics:
        x, y = finite(metrics["step"], metrics[headline.metric])
        kept = thinned(y, 1000)
        axes.plot(x[kept], y[kept], color=TRAINING, linewidth=1.8, label=curve_of(headline))
    if evaluations and headline.evaluated == headline:
        steps, mean, std = (
            np.array([getattr(one, name) for one in evaluations])
            for name in ("step", "mean", "std")
        )
        spread = np.where(np.isfinite(std), std, 0.0)
        axes.errorbar(
            steps, mean, spread, fmt="o", color=EVALUATION, markersize=5, label="evaluation"
        )
    axes.set_title(
        f"{str(config.get('algorithm') or 'run').upper()} on {subject_of(config)}",
        loc="left",
        fontweight="bold",
        parse_math=False,
    )
    axes.set_xlabel(unit_of(config), color=INK, parse_math=False)
    axes.set_ylabel(title_of(headline).lower(), color=INK, parse_math=False)
    axes.xaxis.set_major_formatter(lambda value, _: compact(value))
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(length=0, colors=INK)
    if axes.get_legend_handles_labels()[0]:
        legend = axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
        for text in legend.get_texts():
            text.set_parse_math(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    replace_file(folder.learning_curve_file, picture.getvalue())
    return folder.learning_curve_file
