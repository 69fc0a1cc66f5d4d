"""LeRobot datasets, version 3: Parquet files of frames, with videos beside them.

Fields are features: observations `observation.NAME` (`observation.state` where they are not
nested), `action`, `next.reward`, `next.terminated`, `next.truncated`, others by their names, and
`next.done`, which is derived. Observations that are images are stored as PNG. Meta fields are
columns `sharpwave/NAME` of the episodes. A description of the fields goes along, so that a dataset
that we wrote comes back as it was.

Of datasets of others the columns are carried; a video is not decoded: its path and times are meta
fields, the path as a row of bytes (see `sharpwave.formats.text`), like the task. Not carried: the
robot's type, statistics, features that are no numbers, and all but an episode's first task (with
warnings).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.arrow import runs
from sharpwave.formats.flat_columns import described_stream, foreign_stream
from sharpwave.formats.lerobot_writer import (
    COUNTERS,
    KEPT,
    META,
    LeRobotWriter,
    channels_last,
    decode_image,
    features_of,
    our_names,
)
from sharpwave.formats.spec import described
from sharpwave.formats.stream import EpisodeStream, warn_not_carried
from sharpwave.formats.tables import Decoder, Tables, is_numeric
from sharpwave.formats.target import existing_file, holds_only, new_target
from sharpwave.formats.text import encode_text
from sharpwave.types import Array


def detect(path: Path) -> bool:
    """Return whether this is the folder of a LeRobot dataset, of any version."""
    try:
        return "codebase_version" in _json(path / "meta" / "info.json")
    except SharpwaveIOError:
        return False


def read(path: str | os.PathLike[str]) -> EpisodeStream:
    """The episodes of a LeRobot dataset.

    Args:
        path: Its folder.

    Raises:
        SharpwaveIOError: It is no such dataset, of another version, or damaged.
        ValueError: Its files contradict each other.
    """
    path = existing_file(path, "the folder of a LeRobot dataset", detect)
    info = _json(path / "meta" / "info.json")
    if not str(info["codebase_version"]).startswith("v3"):
        raise SharpwaveIOError(
            f"{path} must be a LeRobot dataset of version 3, got {info['codebase_version']} "
            f"(LeRobot itself converts older ones)"
        )
    frames = Tables(str(path), _files(path, "data"), "parquet")
    episodes = Tables(str(path / "meta"), _files(path, "meta/episodes"), "parquet")
    note = path / "meta" / "sharpwave.json"
    if note.is_file():
        return _ours(frames, episodes, note)
    return _foreign(path, info, frames, episodes)


def write(
    stream: EpisodeStream,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    fps: int = 30,
    task: str = "task",
    robot_type: str | None = None,
) -> None:
    """Write a LeRobot dataset.

    Args:
        stream: The episodes.
        path: Its folder.
        overwrite: Replace a LeRobot dataset that is there.
        fps: Steps per second, from which the timestamps follow where there is no field `timestamp`.
        task: Task of the robot, in words; a meta field `task` of bytes says it for each episode.
        robot_type: Type of the robot.

    Raises:
        ValueError: A field has a name that LeRobot uses itself, or too many axes.
    """
    if fps < 1:
        raise ValueError(f"fps must be at least 1, got {fps}")
    features = features_of(stream.schema)
    with new_target(path, overwrite=overwrite, is_ours=_may_go) as made:
        made.mkdir()
        LeRobotWriter(stream, features, made, fps=fps, task=task, robot_type=robot_type).write()


def _may_go(path: Path) -> bool:
    names = ("meta", "data", "videos", "images", "README.md", ".gitattributes", ".cache")
    return detect(path) and holds_only(path, *names)


def _ours(frames: Tables, episodes: Tables, note: Path) -> EpisodeStream:
    schema = described(frames.origin, note.read_text())
    features = features_of(schema)
    decoders = {
        feature.name: _image_decoder(last=channels_last(feature.shape))
        for feature in features.values()
        if feature.is_image
    }
    shapes = {feature.name: feature.shape for feature in features.values()}
    meta_shapes = {META + name: field.shape for name, field in schema.meta_fields.items()}
    return described_stream(
        frames.columns(list(shapes), shapes, decoders),
        episodes.columns(list(meta_shapes), meta_shapes),
        schema,
        lambda name: features[name].name,
        lambda name: META + name,
        episodes.column("length").astype(np.int64),
    )


def _foreign(path: Path, info: dict[str, Any], frames: Tables, episodes: Tables) -> EpisodeStream:
    features = info["features"]
    videos = [name for name, feature in features.items() if feature["dtype"] == "video"]
    images = [name for name, feature in features.items() if feature["dtype"] == "image"]
    names = our_names([n for n in features if n not in videos and (n not in COUNTERS or n in KEPT)])
    for name in names:
        frames.check(name)
    carried = {
        name: ours
        for name, ours in names.items()
        if name in images or is_numeric(frames.schema.field(name).type)
    }
    warn_not_carried([name for name in names if name not in carried], "no numbers")
    if info.get("robot_type"):
        warn_not_carried(["robot_type"], "said about the dataset")
    lengths = runs(frames, "episode_index")
    if len(lengths) != episodes.n_rows:
        raise ValueError(
            f"{path}: the frames have {len(lengths)} episodes, meta/episodes {episodes.n_rows}"
        )
    decoders = dict.fromkeys(images, _image_decoder(last=True))
    return foreign_stream(
        frames.columns(list(carried), {}, decoders),
        lengths=lengths,
        names=carried,
        meta=_tasks(episodes) | _videos(path, info, videos, episodes),
        keep_next_obs=True,
    )


def _tasks(episodes: Tables) -> dict[str, Array]:
    if "tasks" not in episodes.schema.names or not episodes.n_rows:
        return {}
    given = [tasks for batch in episodes.groups(["tasks"]) for tasks in batch.column(0).to_pylist()]
    if any(len(tasks) > 1 for tasks in given):
        warn_not_carried(["the further tasks of an episode"], "an episode has one text")
    return {"task": encode_text([tasks[0] if tasks else "" for tasks in given])}


def _videos(
    path: Path, info: dict[str, Any], videos: list[str], episodes: Tables
) -> dict[str, Array]:
    """The file of each episode's video and where the episode is in it."""
    meta = {}
    for video in videos:
        columns = {
            key: episodes.column(f"videos/{video}/{key}")
            for key in ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
        }
        files = [
            str(
                path
                / info["video_path"].format(video_key=video, chunk_index=chunk, file_index=file)
            )
            for chunk, file in zip(
                columns["chunk_index"].tolist(), columns["file_index"].tolist(), strict=True
            )
        ]
        meta[f"videos.{video}.path"] = encode_text(files)
        meta[f"videos.{video}.from"] = columns["from_timestamp"].astype(np.float64)
        meta[f"videos.{video}.to"] = columns["to_timestamp"].astype(np.float64)
    return meta


def _image_decoder(*, last: bool) -> Decoder:
    def decode(where: str, column: Any) -> Array:
        images = [decode_image(where, content) for content in _contents(where, column)]
        if len({image.shape for image in images}) > 1:
            raise ValueError(f"{where} must have images of one shape")
        stacked = np.stack(images)
        return stacked if last else np.moveaxis(stacked, -1, 1)

    return decode


def _contents(where: str, column: Any) -> Iterator[bytes]:
    for image in column.to_pylist():
        content = image.get("bytes") if isinstance(image, dict) else None
        if content is None:
            raise ValueError(f"{where} must hold its images, got {image!r}")
        yield content


def _files(path: Path, folder: str) -> list[Path]:
    files = sorted((path / folder).glob("*/*.parquet"))
    if not files:
        raise SharpwaveIOError(f"{path} has no Parquet files in {folder}")
    return files


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SharpwaveIOError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise SharpwaveIOError(f"{path} must hold an object, got {type(value).__name__}")
    return value
