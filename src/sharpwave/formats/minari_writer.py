"""Our episodes as Minari takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.formats.dotted import joined, nest, under
from sharpwave.formats.minari_places import Places, attribute, escaped
from sharpwave.formats.minari_spaces import in_space
from sharpwave.formats.spec import EpisodeField
from sharpwave.formats.stream import (
    FINAL_OBS,
    Episode,
    EpisodeStream,
    warn_not_carried,
)
from sharpwave.types import Array

ATTRIBUTE_BYTES = 60_000
"""Maximum size of an HDF5 attribute, with room for its name."""


class Writer:
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
            "options": nest(options) if options else None,
            "observations": in_space(self.observation_space, nest(observations)),
            "actions": in_space(self.action_space, nest(actions)),
            "rewards": _or(steps, places.reward, np.zeros(length)),
            "terminations": terminated,
            "truncations": _or(steps, places.truncated, cut),
            "infos": nest(infos) if infos else None,
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
