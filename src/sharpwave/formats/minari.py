"""Minari datasets.

An episode of T steps has T + 1 observations there: the last is our meta field `final_obs`. Fields
without a role are `infos`, meta fields are metadata of the episode, `seed` and `options.NAME` are
what its reset was given. A description of the fields goes along, so that a dataset that we wrote
comes back as it was.

Not carried: meta fields over 60 kB (with a warning), and on the way here what Minari knows about
the dataset (author, environment, ...; with a warning), infos and metadata that are no numbers (with
a warning), and the bounds of its spaces. Texts in observations and actions become rows of bytes
(see `sharpwave.formats.text`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.dotted import joined, tree, under
from sharpwave.formats.minari_reader import Places, attribute, escaped, in_space, reading
from sharpwave.formats.spec import EpisodeField, EpisodeSchema, describe
from sharpwave.formats.stream import (
    FINAL_OBS,
    Episode,
    EpisodeStream,
    warn_not_carried,
)
from sharpwave.formats.target import holds_only, new_target
from sharpwave.types import Array

_ID = re.compile(r"[-_\w]+(/[-_\w]+)*-v\d+")


def detect(path: Path) -> bool:
    """Return whether this is the folder of a Minari dataset."""
    try:
        return "data_format" in json.loads((_data(path) / "metadata.json").read_text())
    except (OSError, RecursionError, TypeError, ValueError):
        return False


def read(dataset: Any) -> EpisodeStream:
    """The episodes of a local Minari dataset.

    Args:
        dataset: Its id, its folder, or a `minari.MinariDataset`, of which only the episodes that it
            points to are read.

    Raises:
        SharpwaveIOError: There is no such dataset, or it is damaged, or takes data from elsewhere.
        ValueError: Observations, actions or rewards are no numbers, or differ in shape; or to know
            its spaces an environment would be made whose code the dataset names: load that with
            `minari.load_dataset`, if you trust it, and pass the result.
    """
    require("minari", extra="minari")
    from sharpwave.formats.minari_reader import Reader, open_storage

    if hasattr(dataset, "episode_indices"):
        storage, indices = dataset.storage, dataset.episode_indices.tolist()
    else:
        with reading(folder := _existing(dataset)):
            storage = open_storage(_data(folder))
            indices = list(range(storage.total_episodes))
    return Reader(storage, indices).stream()


def write(
    stream: EpisodeStream,
    dataset: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    env: Any = None,
    observation_space: Any = None,
    action_space: Any = None,
    data_format: str = "hdf5",
    jpeg: bool = False,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a Minari dataset.

    Args:
        stream: The episodes; they must have fields with the roles obs and action.
        dataset: An id such as "cartpole/random-v0", which puts it where `minari.load_dataset` finds
            it, or a folder.
        overwrite: Replace a Minari dataset that is there.
        env: The environment, its id or its spec, which the dataset will name; its spaces are taken.
        observation_space: By default that of the environment, or what the fields can hold.
        action_space: The same for actions.
        data_format: "hdf5", "arrow" or "parquet".
        jpeg: Let Minari compress images with losses, as it does by default.
        about: Further metadata of the dataset: author, algorithm_name, description, ...

    Raises:
        ValueError: There are no observations or no actions.
    """
    storages = require("minari.dataset.minari_storage", extra="minari")

    spaces = _spaces(stream.schema, env, observation_space, action_space)
    writer = MinariWriter(stream, *spaces, data_format)
    is_id = isinstance(dataset, str) and _ID.fullmatch(dataset) and not Path(dataset).exists()
    # Minari itself does not find relative paths again.
    folder = (_local(str(dataset)) if is_id else Path(dataset)).absolute()
    name = str(dataset) if is_id else _id_of(folder)
    with new_target(folder, overwrite=overwrite, is_ours=_may_go) as made:
        made.mkdir()
        data = made / "data"
        storage = storages.MinariStorage.new(
            data,
            observation_space=writer.observation_space,
            action_space=writer.action_space,
            env_spec=_env_spec(env),
            data_format=data_format,
            jpeg_encoding=jpeg,
        )
        storage.update_metadata(
            {
                **_about(about or {}),
                "dataset_id": name,
                "minari_version": require("minari", extra="minari").__version__,
                "sharpwave": describe(stream.schema),
            }
        )
        storage.update_episodes(writer.episodes())
        if writer.attributes and any(writer.attributes):
            storage.update_episode_metadata(writer.attributes, range(len(stream)))
    if is_id:
        _register_namespace(name)


def _may_go(path: Path) -> bool:
    return detect(path) and holds_only(path, "data")


def _spaces(
    schema: EpisodeSchema, env: Any, observation_space: Any, action_space: Any
) -> tuple[Any, Any]:
    from sharpwave.formats.minari_reader import space_of

    places = Places.of(schema)
    if env is not None and (observation_space is None or action_space is None):
        made = env if hasattr(env, "observation_space") else _make(env)
        observation_space = observation_space or made.observation_space
        action_space = action_space or made.action_space
    return (
        observation_space or space_of(under(places.obs, schema.fields)),
        action_space or space_of(under(places.action, schema.fields)),
    )


def _make(env: Any) -> Any:
    import gymnasium

    return gymnasium.make(env)


def _env_spec(env: Any) -> Any:
    if isinstance(env, str):
        import gymnasium

        return gymnasium.spec(env)
    return getattr(env, "spec", env)


def _about(about: Mapping[str, Any]) -> dict[str, Any]:
    people = {
        key: {about[key]} if isinstance(about[key], str) else set(about[key])
        for key in ("author", "author_email")
        if key in about
    }
    return {**about, **people}


def _local(dataset_id: str) -> Path:
    paths = require("minari.storage.datasets_root_dir", extra="minari")
    return Path(paths.get_dataset_path(dataset_id))


def _existing(dataset: str | os.PathLike[str]) -> Path:
    folder = Path(dataset)
    if detect(folder):
        return folder
    if isinstance(dataset, str) and _ID.fullmatch(dataset) and not folder.exists():
        folder = _local(dataset)
        if not detect(folder):
            raise SharpwaveIOError(
                errno.ENOENT,
                f"there is no local Minari dataset {dataset} (`minari download {dataset}` gets it)",
            )
        return folder
    if not folder.exists():
        raise SharpwaveIOError(errno.ENOENT, f"there is no {folder}")
    raise SharpwaveIOError(f"{folder} is not the folder of a Minari dataset")


def _id_of(folder: Path) -> str:
    name = re.sub(r"[^-\w]", "_", folder.name)
    return name if _ID.fullmatch(name) else f"{name}-v0"


def _data(folder: Path) -> Path:
    return folder / "data" if (folder / "data" / "metadata.json").is_file() else folder


def _register_namespace(dataset_id: str) -> None:
    namespaces = require("minari.namespace", extra="minari")
    namespace = dataset_id.rpartition("/")[0]
    if namespace and namespace not in namespaces.list_local_namespaces():
        namespaces.create_namespace(namespace)


ATTRIBUTE_BYTES = 60_000
"""Maximum size of an HDF5 attribute, with room for its name."""


class MinariWriter:
    """Makes Minari's episodes of ours."""

    def __init__(
        self, stream: EpisodeStream, observation_space: Any, action_space: Any, data_format: str
    ) -> None:
        self.data_format = data_format
        self.stream = stream
        self.places = Places.of(stream.schema)
        self.observation_space = observation_space
        self.action_space = action_space
        self.attributes: list[dict[str, Any]] = []
        meta = stream.schema.meta_fields
        self.final = {
            joined(self.places.obs, rest): joined(FINAL_OBS, rest)
            for rest in under(self.places.obs, stream.schema.fields)
            if joined(FINAL_OBS, rest) in meta
        }
        resets = {joined("reset_info", name): name for name in self.places.infos.values()}
        self.resets = {name: resets[name] for name in meta if name in resets}
        large = [name for name, field in meta.items() if self._is_large(name, field)]
        warn_not_carried(large, "too large for metadata of a Minari episode")
        self.as_attribute = [
            name
            for name in meta
            if name not in large and name not in self.final.values() and name not in self.resets
        ]
        if len(self.final) < len(under(self.places.obs, stream.schema.fields)):
            warnings.warn(
                "Minari wants the observation after the last step: there is no final_obs, so the "
                "last observation is repeated",
                stacklevel=4,
            )

    def _is_large(self, name: str, field: EpisodeField) -> bool:
        size = np.dtype(field.dtype).itemsize * int(np.prod(field.shape))
        return size > ATTRIBUTE_BYTES and name not in self.final.values()

    def episodes(self) -> Iterator[Any]:
        """The episodes as Minari takes them."""
        make = require("minari.data_collector.episode_buffer", extra="minari").EpisodeBuffer
        for number, episode in enumerate(self.stream):
            yield make(**self._episode(episode, int(self.stream.lengths[number])))

    def _episode(self, episode: Episode, length: int) -> dict[str, Any]:
        places, steps, meta = self.places, episode.steps, dict(episode.meta)
        observations = {
            escaped(rest): self._with_final(joined(places.obs, rest), values, meta)
            for rest, values in under(places.obs, steps).items()
        }
        actions = {escaped(rest): rows for rest, rows in under(places.action, steps).items()}
        terminated = _or(steps, places.terminated, np.zeros(length, np.bool_))
        cut = np.zeros(length, np.bool_)
        cut[-1] = not terminated[-1]
        infos = {}
        for name, place in places.infos.items():
            first = meta.get(joined("reset_info", place), np.zeros_like(steps[name][0]))
            infos[place] = self._info(np.concatenate([first[np.newaxis], steps[name]]))
        seed = int(meta["seed"]) if _is_seed(meta.get("seed")) else None
        options = {name: np.asarray(of) for name, of in under("options", meta).items() if name}
        self.attributes.append(self._attributes(meta, seed is not None))
        return {
            "seed": seed,
            "options": tree(options) if options else None,
            "observations": in_space(self.observation_space, tree(observations)),
            "actions": in_space(self.action_space, tree(actions)),
            "rewards": _or(steps, places.reward, np.zeros(length)),
            "terminations": terminated,
            "truncations": _or(steps, places.truncated, cut),
            "infos": tree(infos) if infos else None,
        }

    def _with_final(self, name: str, values: Array, meta: Mapping[str, Array]) -> Array:
        last = meta[self.final[name]] if name in self.final else values[-1]
        return np.concatenate([values, last[np.newaxis]])

    def _info(self, rows: Array) -> Any:
        # Minari's tables take arrays of scalars as lists alone.
        return list(rows) if rows.ndim == 1 and self.data_format != "hdf5" else rows

    def _attributes(self, meta: Mapping[str, Array], seeded: bool) -> dict[str, Any]:
        return {
            attribute(name): np.asarray(meta[name])
            for name in self.as_attribute
            if not (name == "seed" and seeded) and not name.startswith("options.")
        }


def _or(steps: Mapping[str, Array], name: str | None, default: Array) -> Array:
    return default if name is None else steps[name]


def _is_seed(value: Array | None) -> bool:
    return value is not None and value.shape == () and value.dtype.kind in "iu" and int(value) >= 0
