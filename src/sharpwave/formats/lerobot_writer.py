"""Our episodes as the files of a LeRobot dataset."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.formats.arrow_values import arrow_type, to_arrow
from sharpwave.formats.description import describe
from sharpwave.formats.lerobot_features import COUNTERS, Feature
from sharpwave.formats.lerobot_stats import FeatureStats
from sharpwave.formats.roles import by_role
from sharpwave.formats.stream import Episode, EpisodeStream
from sharpwave.formats.tables import TableWriter, rows_of_a_group
from sharpwave.formats.text import decode_text
from sharpwave.types import Array

META = "sharpwave/"
"""Prefix of the names of meta fields among the columns of episodes."""

FILE_MEGABYTES = 100
CHUNK_FILES = 1000
PATTERN = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


class Writer:
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
