"""Minari's episodes as ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.core.tree import leaves
from sharpwave.envs.named import env_of_file
from sharpwave.formats.description import described
from sharpwave.formats.dotted import joined, under
from sharpwave.formats.hdf5_links import check_links, datasets_inside
from sharpwave.formats.minari_places import Places, attribute, escaped, reading
from sharpwave.formats.minari_spaces import flattened
from sharpwave.formats.spec import EpisodeField, EpisodeSchema
from sharpwave.formats.stream import (
    FINAL_OBS,
    Episode,
    EpisodeStream,
    warn_not_carried,
)
from sharpwave.types import Array

ABOUT = (
    "author",
    "author_email",
    "algorithm_name",
    "code_permalink",
    "description",
    "env_spec",
    "eval_env_spec",
    "requirements",
    "ref_min_score",
    "ref_max_score",
)
"""Metadata of a Minari dataset that is not carried over: there is no place for it here."""


def open_storage(data: Path) -> Any:
    """A reader of the files of a dataset, which runs no code that they name.

    Minari itself takes missing spaces from the environment whose entry point the metadata says.
    Here they are taken from the environment that is registered by that id, if there is one.

    Raises:
        ValueError: The id names a module, or the spaces are unknown.
    """
    storages = require("minari.dataset.minari_storage", extra="minari")
    metadata = storages.MinariStorage.read_raw_metadata(data)
    if {"observation_space", "action_space"} <= metadata.keys():
        return storages.MinariStorage.read(data)
    spec = json.loads(metadata["env_spec"])
    env_id, kwargs = env_of_file(data / "metadata.json", spec, argument="dataset")
    import gymnasium

    if env_id not in gymnasium.registry:
        raise ValueError(
            f"{data} does not say its spaces, and its environment {env_id!r} is not registered: "
            "load it with minari.load_dataset, if you trust it, and pass the result"
        )
    env: Any = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
    kinds = require("minari.dataset._storages", extra="minari")
    jpeg = bool(metadata.get("jpeg_encoding", True))
    kind = kinds.get_minari_storage(metadata["data_format"])
    return kind(data, env.observation_space, env.action_space, jpeg_encoding=jpeg)


class Reader:
    """Makes our episodes of Minari's."""

    def __init__(self, storage: Any, indices: list[int]) -> None:
        self.origin = str(storage.data_path)
        self.storage = storage
        self.indices = indices
        with reading(self.origin):
            self._check_links()
            self.metadata = list(storage.get_episode_metadata(indices))
            about = storage.metadata
            self.schema = self._schema(about)
        self.lengths = np.array([one["total_steps"] for one in self.metadata], np.int64)
        self.places = Places.of(self.schema)
        warn_not_carried([name for name in ABOUT if name in about], "said about the dataset")

    def stream(self) -> EpisodeStream:
        """The episodes in order."""
        return EpisodeStream(self.origin, self.schema, self.lengths, self._episodes)

    def _episodes(self) -> Iterator[Episode]:
        for number, index in enumerate(self.indices):
            with reading(f"{self.origin}: episode {index}"):
                episode = self._episode(self._found(index), self.metadata[number])
            yield episode

    def _found(self, index: int) -> dict[str, Any]:
        """An episode as Minari gives it."""
        name = f"episode_{index}"
        with self._hdf5_file() as file:
            if file is not None and name in file:
                for _ in datasets_inside(file[name], self.origin):
                    pass  # which refuses what lies elsewhere
        (found,) = self.storage.get_episodes([index])
        episode: dict[str, Any] = found
        return episode

    def _check_links(self) -> None:
        with self._hdf5_file() as file:
            if file is not None:
                check_links(file, self.origin)

    @contextlib.contextmanager
    def _hdf5_file(self) -> Iterator[Any]:
        """The file of the dataset, where it has one."""
        path = Path(self.origin) / "main_data.hdf5"
        if not path.is_file():
            yield None
            return
        with require("h5py", extra="hdf5").File(path, "r") as file:
            yield file

    def _episode(self, found: dict[str, Any], metadata: Mapping[str, Any]) -> Episode:
        places, schema = self.places, self.schema
        observations = self._flat("observations", found, places.obs)
        actions = self._flat("actions", found, places.action)
        infos = dict(leaves(found["infos"] or {}))
        given = {joined(places.obs, rest): rows[:-1] for rest, rows in observations.items()}
        given |= {joined(places.action, rest): rows for rest, rows in actions.items()}
        for name, key in (
            (places.reward, "rewards"),
            (places.terminated, "terminations"),
            (places.truncated, "truncations"),
        ):
            if name is not None:
                given[name] = found[key]
        n_steps = len(found["rewards"])
        given |= {name: infos[place][-n_steps:] for name, place in places.infos.items()}
        meta = {joined(FINAL_OBS, rest): rows[-1] for rest, rows in observations.items()}
        meta |= {joined("reset_info", place): infos[place][0] for place in places.infos.values()}
        meta |= {
            name: _metadata(metadata, name, field)
            for name, field in schema.meta_fields.items()
            if name not in meta
        }
        return Episode(
            {name: _typed(name, given[name], field) for name, field in schema.fields.items()},
            {name: _typed(name, meta[name], field) for name, field in schema.meta_fields.items()},
        )

    def _flat(self, key: str, found: dict[str, Any], first: str = "") -> dict[str, Array]:
        """Observations or actions, by the rest of our names."""
        storage = self.storage
        space = storage.observation_space if key == "observations" else storage.action_space
        try:
            flat = flattened(space, found[key])
        except ValueError as error:
            raise ValueError(f"{self.origin}: {key}: {error}") from error
        ours = {escaped(rest): rest for rest in under(first, self.schema.fields)} if first else {}
        return {ours.get(name, name): rows for name, rows in flat.items()}

    def _schema(self, about: Mapping[str, Any]) -> EpisodeSchema:
        note = about.get("sharpwave")
        if note is not None:
            return described(self.origin, note)
        if not self.indices:
            raise ValueError(f"{self.origin} has no episodes, so its fields are unknown")
        first = self._found(self.indices[0])
        observations = self._flat("observations", first)
        actions = self._flat("actions", first)
        infos = {name: np.asarray(rows) for name, rows in leaves(first["infos"] or {})}
        numeric = {name: rows for name, rows in infos.items() if rows.dtype.kind in "biuf"}
        left_out = [f"infos of {name!r}" for name in infos if name not in numeric]
        warn_not_carried(left_out, "no numbers")
        fields = {joined("obs", rest): _field(rows) for rest, rows in observations.items()}
        fields |= {joined("action", rest): _field(rows) for rest, rows in actions.items()}
        fields["reward"] = _field(first["rewards"])
        fields["terminated"] = fields["truncated"] = EpisodeField("bool")
        fields |= {joined("info", name): _field(rows) for name, rows in numeric.items()}
        meta = {joined(FINAL_OBS, rest): _field(rows) for rest, rows in observations.items()}
        n_steps = len(first["rewards"])
        meta |= {
            joined("reset_info", name): _field(rows)
            for name, rows in numeric.items()
            if len(rows) > n_steps
        }
        return EpisodeSchema(fields, meta | _meta_fields(self.metadata))


def _meta_fields(metadata: list[dict[str, Any]]) -> dict[str, EpisodeField]:
    """Fields of the metadata that are numbers of one shape."""
    arrays: dict[str, list[Array]] = {}
    for one in metadata:
        for name, value in leaves(one):
            if name not in ("id", "total_steps"):
                arrays.setdefault(name, []).append(np.asarray(value))
    fields, left_out = {}, []
    for name, values in arrays.items():
        shapes = {value.shape for value in values}
        dtype = np.result_type(*values) if all(v.dtype.kind in "biuf" for v in values) else None
        if dtype is None or len(shapes) > 1:
            left_out.append(name)
        elif name == "seed":
            # -1 is none, as int64 or, where seeds are larger, as uint64.
            small = max(map(int, values)) < 2**63
            fields[name] = EpisodeField("int64" if small else "uint64")
        else:
            missing = len(values) < len(metadata)
            fields[name] = EpisodeField("float64" if missing else dtype.name, shapes.pop())
    warn_not_carried(left_out, "metadata of episodes that is no number, or differs in shape")
    return fields


def _metadata(metadata: Mapping[str, Any], name: str, field: EpisodeField) -> Any:
    """The value of a meta field; -1 where there was no seed, NaN where another is missing."""
    flat = dict(leaves(dict(metadata)))
    for place in (attribute(name), attribute(name).replace("/", "."), name):
        if place in flat:
            return flat[place]
    if name == "seed":
        return -1
    if np.dtype(field.dtype).kind == "f":
        return np.full(field.shape, np.nan)
    raise ValueError(f"an episode has no metadata {name!r}")


def _typed(name: str, values: Any, field: EpisodeField) -> Array:
    array: Array = np.asarray(values)
    typed: Array = array.astype(field.dtype, copy=False)
    if not np.can_cast(array.dtype, typed.dtype, "same_kind") and (typed != array).any():
        raise ValueError(f"{name!r} must be {field.dtype} in all episodes, got {array.dtype}")
    return typed


def _field(rows: Any) -> EpisodeField:
    array = np.asarray(rows)
    return EpisodeField(array.dtype.name, array.shape[1:])
