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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.description import describe
from sharpwave.formats.dotted import under
from sharpwave.formats.minari_places import Places, reading
from sharpwave.formats.spec import EpisodeSchema
from sharpwave.formats.stream import EpisodeStream
from sharpwave.formats.target import holds_only, new_target

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
    from sharpwave.formats.minari_writer import Writer

    spaces = _spaces(stream.schema, env, observation_space, action_space)
    writer = Writer(stream, *spaces, data_format)
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
    from sharpwave.formats.minari_spaces import space_of

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
