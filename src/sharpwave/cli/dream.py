"""`sharpwave dream`."""

from __future__ import annotations

import csv
import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.cli.environment import add_env_options
from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.playing import player_of
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.core.optional import require
from sharpwave.runs.dreams import in_color
from sharpwave.storage.files import replace_file
from sharpwave.storage.run_folder import RunFolder
from sharpwave.types import Array

FPS = 10
SEEN, UNSEEN = (60, 170, 80), (215, 70, 50)
"""Colors of the line above a film while the model sees, and after."""
LINE = 4
"""Pixels of it."""
DRAWN = 6
"""Numbers of an observation that are drawn."""


def run(arguments: list[str]) -> int:
    """Write what the world model of a run predicts, and return the exit status."""
    parsed = _parser().parse(arguments)
    if parsed.context >= parsed.steps:
        raise UserError(f"--context must be less than --steps, {parsed.steps}")
    path = _newest(parsed.run)
    out = Path(parsed.out) if parsed.out else _beside(Path(parsed.run))
    with input_errors():
        trainer = player_of(path, parsed)
        try:
            agent: Any = trainer.algo
            if not hasattr(type(agent), "open_loop"):
                raise UserError(f"{path} holds {agent.name}, which has no world model")
            from sharpwave.agents.played import played_sequences

            batch = played_sequences(agent, parsed.sequences, parsed.steps, parsed.seed)
            shown = agent.open_loop(batch, parsed.context)
        finally:
            trainer.close()
        out.mkdir(parents=True, exist_ok=True)
        say(
            f"{path}: the model of {agent.timesteps:,} steps sees {parsed.context} observations "
            f"of {parsed.steps}, then only actions"
        )
        for name, video in shown.videos.items():
            file = out / (f"dream_{name}.mp4" if len(shown.videos) > 1 else "dream.mp4")
            _film(file, video, shown.context)
            say(f"film, truth | model | error: {file}")
        _tabulate(out / "dream.csv", shown)
        say(f"curves: {out / 'dream.csv'}")
        if find_spec("matplotlib") is not None:
            _draw(out / "dream.png", shown)
            say(f"picture: {out / 'dream.png'}")
    return 0


def _newest(path: str) -> Path:
    """The newest checkpoint of a run folder, or the one that was named."""
    found, latest = find_checkpoint(path), RunFolder(path).latest_checkpoint
    return latest if latest.is_file() else found


def _beside(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _film(path: Path, video: Array, context: int) -> None:
    """Film sequences [B, T, H, 3W, C] below one another, with a line that says what is seen."""
    from sharpwave.runs.video import FilmFile

    require("imageio_ffmpeg", extra="video")
    film = FilmFile(path, 1, FPS)
    try:
        for t, frames in enumerate(in_color(video).swapaxes(0, 1)):
            picture = np.concatenate(frames)
            line = np.empty((LINE, picture.shape[1], 3), np.uint8)
            line[:] = SEEN if t < context else UNSEEN
            film.add(np.concatenate([line, picture]))
    finally:
        film.close()


def _tabulate(path: Path, shown: Any) -> None:
    """Write a line for each row of each sequence: numbers as they were, and as predicted."""
    curves = shown.curves
    names = [
        f"{name}_{i}" if truth.shape[-1] > 1 else name
        for name, (truth, _) in curves.items()
        for i in range(truth.shape[-1])
    ]
    truths, predictions = (
        np.concatenate([pair[i] for pair in curves.values()], axis=-1) for i in (0, 1)
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sequence", "row", "seen", *names, *(f"{name}_predicted" for name in names)])
    for b, t in np.ndindex(truths.shape[:2]):
        numbers = (f"{x:.6g}" for x in (*truths[b, t], *predictions[b, t]))
        writer.writerow([b, t, int(t < shown.context), *numbers])
    replace_file(path, text.getvalue())


def _draw(path: Path, shown: Any) -> None:
    """Draw the curves of the first sequence, truth and prediction, one below the other."""
    curves = [
        (f"{name} {i}" if truth.shape[-1] > 1 else name, truth[0, :, i], prediction[0, :, i])
        for name, (truth, prediction) in shown.curves.items()
        for i in range(min(truth.shape[-1], DRAWN))
    ]
    figure = require("matplotlib.figure", extra="plots").Figure(
        (8, 1.6 * len(curves)), layout="constrained"
    )
    every = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, truth, prediction) in zip(every, curves, strict=True):
        axes.plot(truth, color="#2f6fdf", label="truth")
        axes.plot(prediction, color="#d9560b", label="model")
        axes.axvspan(0, shown.context - 1, color="#ecedea", zorder=0)
        axes.set_ylabel(name, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
    every[0].legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    every[-1].set_xlabel("observation")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    replace_file(path, picture.getvalue())


def _parser() -> Parser:
    parser = Parser(
        "dream",
        "Play, and write what the world model of a run predicts of it: a film of images, curves of "
        "numbers.",
    )
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its newest one")
    options: list[tuple[str, int, int, str]] = [
        ("--sequences", 1, 4, "sequences to show"),
        ("--steps", 2, 50, "observations of each"),
        ("--context", 1, 5, "observations that the model sees"),
        ("--seed", 0, 0, "seed of the episodes"),
    ]
    for option, least, default, what in options:
        parser.add_argument(
            option,
            type=count(least),
            default=default,
            metavar="N",
            help=f"{what} (default: {default})",
        )
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder to write to (default: the run folder)"
    )
    add_env_options(parser, replaces=True)
    return parser
