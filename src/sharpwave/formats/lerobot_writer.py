"""Our episodes as the files of a LeRobot dataset: features, images and statistics of them."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.formats.dotted import by_role, joined
from sharpwave.formats.spec import EpisodeSchema, describe
from sharpwave.formats.stream import Episode, EpisodeStream
from sharpwave.formats.tables import (
    TableWriter,
    arrow_type,
    nested_type,
    rows_of_a_group,
    to_arrow,
    to_nested,
)
from sharpwave.formats.text import decode_text
from sharpwave.types import Array

META = "sharpwave/"
"""Prefix of the names of meta fields among the columns of episodes."""

FILE_MEGABYTES = 100
CHUNK_FILES = 1000
PATTERN = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


class LeRobotWriter:
    """Writes frames, episodes, tasks, statistics and the description of them all."""

    def __init__(
        self,
        stream: EpisodeStream,
        features: Mapping[str, Feature],
        folder: Path,
        *,
        fps: int,
        task: str,
        robot_type: str | None,
    ) -> None:
        self.stream = stream
        self.features = features
        self.folder = folder
        self.fps = fps
        self.task = task
        self.robot_type = robot_type
        self.tasks: dict[int, str] = {}
        counters = {name: Feature(name, dtype, ()) for name, dtype in COUNTERS.items()}
        done = {"next.done": Feature("next.done", "bool", ())}
        by_name = {feature.name: feature for feature in features.values()}
        self.columns = by_name | done | counters
        self.stats = {
            name: FeatureStats(image=feature.is_image) for name, feature in self.columns.items()
        }

    def write(self) -> None:
        """Write everything, episode by episode."""
        meta = self.folder / "meta"
        meta.mkdir()
        with contextlib.ExitStack() as stack:
            frames = _FrameFiles(self.folder / "data", self.columns, stack)
            episodes = stack.enter_context(self._episode_table())
            start = 0
            frames.place()  # there is a file without episodes, too
            for number, episode in enumerate(self.stream):
                length = int(self.stream.lengths[number])
                chunk, file = frames.place()
                rows = self._rows(episode, number, start, length)
                for name, values in rows.items():
                    feature = self.columns[name]
                    self.stats[name].add(feature.as_images(values) if feature.is_image else values)
                frames.write(rows)
                places = (number, length, chunk, file, start, start + length, 0, 0)
                episodes.write(self._episode_row(places, rows, episode))
                start += length
        self._write_tasks(meta / "tasks.parquet")
        shapes = {name: feature.their_shape for name, feature in self.columns.items()}
        stats = {name: self.stats[name].to_json(shape) for name, shape in shapes.items()}
        (meta / "stats.json").write_text(json.dumps(stats, indent=4))
        (meta / "info.json").write_text(json.dumps(self._info(), indent=4))
        (meta / "sharpwave.json").write_text(describe(self.stream.schema))

    def _rows(self, episode: Episode, number: int, start: int, length: int) -> dict[str, Array]:
        rows = {self.features[name].name: values for name, values in episode.steps.items()}
        ends = np.zeros(length, np.bool_)
        roles = by_role(self.stream.schema)
        for role in ("terminated", "truncated"):
            if role in roles:
                ends |= episode.steps[roles[role]].astype(np.bool_)
        ends[-1] = True
        task = _text(episode.meta.get("task"), self.task)
        frame_index = np.arange(length)
        counted = {
            "next.done": ends,
            "timestamp": (frame_index / self.fps).astype(np.float32),
            "frame_index": frame_index,
            "episode_index": np.full(length, number),
            "index": np.arange(start, start + length),
        }
        if "task_index" not in rows:
            counted["task_index"] = np.full(length, self._number_of(task))
        rows = counted | rows
        self.tasks.setdefault(int(rows["task_index"][0]), task)
        for index in np.unique(rows["task_index"]).tolist():
            self.tasks.setdefault(index, f"task {index}")
        return rows

    def _number_of(self, task: str) -> int:
        known = {text: number for number, text in self.tasks.items()}
        return known.get(task, len(known))

    def _episode_table(self) -> TableWriter:
        pa = require("pyarrow", extra="arrow")
        fields = {
            META + name: (field.dtype, field.shape)
            for name, field in self.stream.schema.meta_fields.items()
        }
        columns = [(name, pa.int64()) for name in EPISODE_COLUMNS]
        columns += [("tasks", pa.list_(pa.string()))]
        columns += [(name, arrow_type(*of)) for name, of in fields.items()]
        path = self.folder / "meta" / "episodes" / PATTERN.format(chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True)
        rows = rows_of_a_group(fields.values())
        return TableWriter(path, "parquet", pa.schema(columns), min(rows, 4096), compress=True)

    def _episode_row(
        self, places: tuple[int, ...], rows: Mapping[str, Array], episode: Episode
    ) -> dict[str, Any]:
        pa = require("pyarrow", extra="arrow")
        tasks = [self.tasks[index] for index in np.unique(rows["task_index"]).tolist()]
        numbers = zip(EPISODE_COLUMNS, places, strict=True)
        return {
            **{name: pa.array([value], pa.int64()) for name, value in numbers},
            "tasks": pa.array([tasks], pa.list_(pa.string())),
            # A view of the steps would keep them in memory as long as it waits.
            **{META + name: to_arrow(np.array([value])) for name, value in episode.meta.items()},
        }

    def _write_tasks(self, path: Path) -> None:
        """Write the tasks as pandas does where they are the index of the table."""
        pa = require("pyarrow", extra="arrow")
        numbers = sorted(self.tasks)
        texts = [self.tasks[number] for number in numbers]
        about = {
            "index_columns": ["task"],
            "column_indexes": [],
            "columns": [
                _pandas_column("task_index", "int64", "int64"),
                _pandas_column("task", "unicode", "object"),
            ],
        }
        table = pa.table({"task_index": pa.array(numbers, pa.int64()), "task": texts})
        table = table.replace_schema_metadata({"pandas": json.dumps(about)})
        require("pyarrow.parquet", extra="arrow").write_table(table, path)

    def _info(self) -> dict[str, Any]:
        return {
            "codebase_version": "v3.0",
            "robot_type": self.robot_type,
            "total_episodes": len(self.stream),
            "total_frames": self.stream.n_steps,
            "total_tasks": len(self.tasks),
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": FILE_MEGABYTES,
            "video_files_size_in_mb": 500,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.stream)}"},
            "data_path": f"data/{PATTERN}",
            "video_path": None,
            "features": {name: feature.to_json() for name, feature in self.columns.items()},
        }


EPISODE_COLUMNS = (
    "episode_index",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
    "meta/episodes/chunk_index",
    "meta/episodes/file_index",
)


class _FrameFiles:
    """Files of frames, each of some size and of whole episodes."""

    def __init__(
        self, folder: Path, columns: Mapping[str, Feature], stack: contextlib.ExitStack
    ) -> None:
        pa = require("pyarrow", extra="arrow")
        self._folder = folder
        self._columns = columns
        self._schema = pa.schema([(name, column.arrow_type()) for name, column in columns.items()])
        self._stack = stack
        self._open = contextlib.ExitStack()
        self._written = 0
        self._number = -1
        self._group_rows = rows_of_a_group(
            ("uint8" if column.is_image else column.dtype, column.shape)
            for column in columns.values()
        )
        stack.push(self._open)

    def place(self) -> tuple[int, int]:
        """The chunk and file that the next episode goes to."""
        if self._number < 0 or self._written > FILE_MEGABYTES << 20:
            self._open.close()
            self._number += 1
            self._written = 0
            chunk, file = divmod(self._number, CHUNK_FILES)
            path = self._folder / PATTERN.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = TableWriter(path, "parquet", self._schema, self._group_rows, compress=True)
            self._writer = self._open.enter_context(writer)
        return divmod(self._number, CHUNK_FILES)

    def write(self, rows: Mapping[str, Array]) -> None:
        length = len(rows["index"])
        for start in range(0, length, self._group_rows):
            part = slice(start, start + self._group_rows)
            arrays = {
                name: column.to_arrow(rows[name][part]) for name, column in self._columns.items()
            }
            self._written += sum(array.nbytes for array in arrays.values())
            self._writer.write(arrays)


def _text(value: Array | None, default: str) -> str:
    if value is None or value.dtype != np.uint8 or value.ndim != 1:
        return default
    try:
        return decode_text(value[np.newaxis])[0]
    except UnicodeDecodeError:  # numbers, and no text
        return default


def _pandas_column(name: str, pandas_type: str, numpy_type: str) -> dict[str, Any]:
    return {
        "name": name,
        "field_name": name,
        "pandas_type": pandas_type,
        "numpy_type": numpy_type,
        "metadata": None,
    }


class FeatureStats:
    """Gathers the statistics of a feature, group of rows by group of rows.

    Args:
        image: Rows are images with the channels last: statistics are per channel, of values from 0
            to 1, with the shape [channels, 1, 1].
    """

    def __init__(self, *, image: bool) -> None:
        self._image = image
        self._frames = 0
        self._values = 0

    @np.errstate(all="ignore")
    def add(self, rows: Array) -> None:
        """Take rows in, [N, ...]; where they are not finite, neither are the statistics."""
        self._frames += len(rows)
        flat = rows.reshape(-1, rows.shape[-1]) if self._image else rows.reshape(len(rows), -1)
        values = flat.astype(np.float64) / (255 if self._image else 1)
        count, mean = len(values), values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        if self._values == 0:
            self._low, self._high = values.min(axis=0), values.max(axis=0)
            self._mean, self._squares = mean, squares
        else:
            # Chan's way to join the means and squared deviations of two groups.
            total = self._values + count
            apart = mean - self._mean
            self._mean = self._mean + apart * count / total
            self._squares = self._squares + squares + apart**2 * self._values * count / total
            self._low = np.minimum(self._low, values.min(axis=0))
            self._high = np.maximum(self._high, values.max(axis=0))
        self._values += count

    def to_json(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The statistics as JSON values.

        Args:
            shape: Shape of the feature.
        """
        if self._values == 0:
            return {}
        shape = (-1, 1, 1) if self._image else shape
        numbers = {
            "min": self._low,
            "max": self._high,
            "mean": self._mean,
            "std": np.sqrt(self._squares / self._values),
        }
        named = {name: array.reshape(shape).tolist() for name, array in numbers.items()}
        return {**named, "count": [self._frames]}


COUNTERS = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
"""The columns that every dataset has."""

KEPT = {"timestamp": "f", "task_index": "iu"}
"""Those of them that may say more than the position of a row, with the kinds of their dtypes."""

NEXT = {"reward": "next.reward", "terminated": "next.terminated", "truncated": "next.truncated"}
OURS = {"next.done": "terminated", "next.success": "success"} | {
    theirs: ours for ours, theirs in NEXT.items()
}


@dataclass(frozen=True)
class Feature:
    """One column of frames.

    Attributes:
        name: Its name in LeRobot.
        dtype: A NumPy dtype or "image".
        shape: Shape of a row, as our field has it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_image(self) -> bool:
        """True if rows are PNG files."""
        return self.dtype == "image"

    @property
    def their_shape(self) -> tuple[int, ...]:
        """The shape as LeRobot says it: scalars have one value, images their channels last."""
        if self.is_image and not channels_last(self.shape):
            return (*self.shape[1:], self.shape[0])
        return self.shape or (1,)

    def to_json(self) -> dict[str, Any]:
        """The entry in info.json."""
        names = ["height", "width", "channels"] if self.is_image else None
        return {"dtype": self.dtype, "shape": list(self.their_shape), "names": names}

    def arrow_type(self) -> Any:
        """The type of the column."""
        if self.is_image:
            pa = require("pyarrow", extra="arrow")
            return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        return nested_type(self.dtype, () if self.their_shape == (1,) else self.shape)

    def to_arrow(self, rows: Array) -> Any:
        """Rows of our field as a column."""
        if self.is_image:
            images = [{"bytes": encode_png(row), "path": None} for row in self.as_images(rows)]
            return require("pyarrow", extra="arrow").array(images, self.arrow_type())
        return to_nested(rows.reshape(-1) if self.their_shape == (1,) else rows)

    def as_images(self, rows: Array) -> Array:
        """Rows with the channels last."""
        return rows if channels_last(self.shape) else np.moveaxis(rows, 1, -1)


def features_of(schema: EpisodeSchema) -> dict[str, Feature]:
    """The features of our fields, by field.

    Raises:
        ValueError: A name is taken, or a field has more than five axes.
    """
    roles = {first: role for role, first in by_role(schema).items()}
    features = {}
    for name, field in schema.fields.items():
        first, _, rest = name.partition(".")
        image = is_image(field.dtype, field.shape) and roles.get(first) == "obs"
        theirs = _their_name(name, roles.get(first), rest, image)
        features[name] = Feature(theirs, "image" if image else field.dtype, field.shape)
        taken = theirs in COUNTERS and not _is_kept(theirs, field.dtype, field.shape)
        if taken or theirs == "next.done":
            raise ValueError(f"field {name!r} cannot go to LeRobot: {theirs!r} is taken there")
        if len(field.shape) > 5:
            raise ValueError(
                f"field {name!r} cannot go to LeRobot: it may have 5 axes, got {field.shape}"
            )
    names = [feature.name for feature in features.values()]
    if len(set(names)) < len(names):
        raise ValueError(f"fields must have different names in LeRobot, got {names}")
    return features


def _their_name(name: str, role: str | None, rest: str, image: bool) -> str:
    if role == "obs":
        return joined("observation", rest or ("image" if image else "state")).replace("/", "%2F")
    if role == "action":
        return joined("action", rest).replace("/", "%2F")
    return NEXT.get(role or "", name.replace("/", "%2F"))


def _is_kept(name: str, dtype: str, shape: tuple[int, ...]) -> bool:
    return name in KEPT and shape == () and np.dtype(dtype).kind in KEPT[name]


def our_names(features: Sequence[str]) -> dict[str, str]:
    """Our name of each feature of a dataset that others wrote.

    A feature whose name begins that of another, as "action" and "action.gripper", makes the dots
    behind it underscores, since a field cannot hold others.
    """
    names = {}
    for theirs in features:
        first, dot, rest = _without_prefixes(theirs, features).partition(".")
        ours = OURS.get(theirs, ("obs" if first == "observation" else first) + dot + rest)
        if ours == "terminated" and theirs == "next.done" and NEXT["terminated"] in features:
            continue  # said better by the other
        names[theirs] = ours
    return names


def _without_prefixes(name: str, others: Iterable[str]) -> str:
    prefixes = [other for other in others if name.startswith(f"{other}.")]
    if not prefixes:
        return name
    shortest = min(prefixes, key=len)
    return f"{shortest}_{name[len(shortest) + 1 :].replace('.', '_')}"


CHANNELS = (1, 3, 4)
SMALLEST = 8
"""Below this many pixels a side, an array of bytes is rather something else."""


def is_image(dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether values are images: bytes, 1, 3 or 4 channels as the last or first axis."""
    if dtype != "uint8" or len(shape) != 3:
        return False
    sides = shape[:2] if channels_last(shape) else shape[1:]
    return (shape[2] in CHANNELS or shape[0] in CHANNELS) and min(sides) >= SMALLEST


def channels_last(shape: tuple[int, ...]) -> bool:
    """Return whether the last axis is that of the channels."""
    return shape[2] in CHANNELS


def encode_png(image: Array) -> bytes:
    """An image [height, width, channels] as PNG, without losses."""
    pillow = require("PIL.Image", extra="lerobot")
    content = io.BytesIO()
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    pillow.fromarray(np.ascontiguousarray(pixels)).save(content, format="PNG", compress_level=1)
    return content.getvalue()


def decode_image(where: str, content: bytes) -> Array:
    """The pixels [height, width, channels] of an image file.

    Raises:
        ValueError: It is no image.
    """
    pillow = require("PIL.Image", extra="lerobot")
    try:
        pixels: Array = np.asarray(pillow.open(io.BytesIO(content)))
    except OSError as error:
        raise ValueError(f"{where} is no image: {error}") from error
    return pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels
