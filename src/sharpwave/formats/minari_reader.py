"""Minari's episodes as ours: places, spaces and values."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.optional import require
from sharpwave.core.tree import leaves
from sharpwave.envs.named import env_of_file
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.dotted import by_role, joined, tree, under
from sharpwave.formats.hdf5 import check_links, datasets_inside
from sharpwave.formats.spec import EpisodeField, EpisodeSchema, described
from sharpwave.formats.stream import (
    FINAL_OBS,
    Episode,
    EpisodeStream,
    warn_not_carried,
)
from sharpwave.formats.text import encode_text
from sharpwave.types import Array


@dataclass(frozen=True)
class Places:
    """Places of the fields of a schema in a Minari dataset."""

    obs: str
    action: str
    reward: str | None
    terminated: str | None
    truncated: str | None
    infos: dict[str, str]

    @classmethod
    def of(cls, schema: EpisodeSchema) -> Places:
        """The places by the roles of the fields.

        Raises:
            ValueError: There are no observations or no actions.
        """
        roles = by_role(schema)
        for role in ("obs", "action"):
            if role not in roles:
                raise ValueError(
                    f"Minari needs observations and actions: there is no field {role!r} "
                    f"among {list(schema.fields)}"
                )
        others = {
            name: escaped(name.removeprefix("info."))
            for name in schema.fields
            if name.partition(".")[0] not in roles.values()
        }
        if len(set(others.values())) < len(others):
            raise ValueError(f"fields must differ without the `info.` before them, got {[*others]}")
        flags = {role: roles.get(role) for role in ("reward", "terminated", "truncated")}
        return cls(roles["obs"], roles["action"], **flags, infos=others)


def attribute(name: str) -> str:
    """Name of a meta field in Minari's metadata."""
    reserved = name in ("id", "total_steps", "seed", "options")
    return f"meta/{escaped(name)}" if reserved else escaped(name)


def escaped(name: str) -> str:
    """A name without slashes, at which Minari divides names."""
    return name.replace("/", "%2F")


@contextlib.contextmanager
def reading(origin: object) -> Iterator[None]:
    """Errors that Minari raises inside this block, at damaged files, name the dataset."""
    try:
        yield
    except (OSError, KeyError, AssertionError) as error:
        if isinstance(error, SharpwaveIOError):
            raise
        raise SharpwaveIOError(f"{origin} is damaged: {error!r}") from error


def space_of(fields: Mapping[str, EpisodeField]) -> spaces.Space[Any]:
    """The space of everything that some fields can hold: boxes, in dicts where names are dotted."""
    return _space(tree({escaped(name): _box(field) for name, field in fields.items()}))


def _space(nested: Any) -> spaces.Space[Any]:
    if isinstance(nested, dict):
        return spaces.Dict({name: _space(inner) for name, inner in nested.items()})
    box: spaces.Space[Any] = nested
    return box


def _box(field: EpisodeField) -> spaces.Space[Any]:
    dtype = np.dtype(field.dtype)
    low, high = -np.inf, np.inf
    if dtype.kind == "b":
        low, high = 0, 1
    elif dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, field.shape, dtype.type)


def flattened(space: spaces.Space[Any], values: Any) -> dict[str, Array]:
    """Values of a space over time, [T, ...] by dotted name; texts are rows of bytes.

    Raises:
        ValueError: Values are no numbers.
    """
    flat = {}
    for name, (inner, rows) in leaves(_paired(space, values)):
        if isinstance(inner, spaces.Text):
            flat[name] = encode_text(list(rows), _text_width(inner))
        else:
            flat[name] = np.asarray(rows)
            if flat[name].dtype.kind not in "biuf":
                raise ValueError(f"{name!r} must hold numbers, got {flat[name].dtype}")
    return flat


def in_space(space: spaces.Space[Any], nested: Any) -> Any:
    """Nested dicts with tuples in place of those that a space has as tuples.

    Raises:
        ValueError: They do not have the names of the space.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return nested
    inner = space.spaces if isinstance(space, spaces.Dict) else _numbered(space.spaces)
    if not isinstance(nested, dict) or nested.keys() != inner.keys():
        raise ValueError(f"fields must be those of the space {space}, got {_names(nested)}")
    parts = {name: in_space(child, nested[name]) for name, child in inner.items()}
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def _names(nested: Any) -> str:
    return str(list(nested)) if isinstance(nested, dict) else "one without parts"


def _numbered(children: tuple[spaces.Space[Any], ...]) -> dict[str, spaces.Space[Any]]:
    return {str(number): child for number, child in enumerate(children)}


def _paired(space: spaces.Space[Any], values: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _paired(inner, values[name]) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_paired(inner, values[i]) for i, inner in enumerate(space.spaces))
    return [space, values]


def _text_width(space: spaces.Text) -> int:
    return int(space.max_length) * max(len(character.encode()) for character in space.characters)


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
