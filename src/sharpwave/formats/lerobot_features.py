"""Names and types of our fields as LeRobot features, and the other way around."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.core.optional import require
from sharpwave.formats.arrow_values import nested_type, to_nested
from sharpwave.formats.dotted import joined
from sharpwave.formats.images import channels_last, encode_png, is_image
from sharpwave.formats.roles import by_role
from sharpwave.formats.spec import EpisodeSchema
from sharpwave.types import Array

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
