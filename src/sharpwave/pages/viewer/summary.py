"""Summary of a folder in numbers: the answer of `sharpwave inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.pages.viewer.condition import Condition
from sharpwave.pages.viewer.ranges import spread
from sharpwave.pages.viewer.source import COMPLETE, STATES, STRETCH, About, Column
from sharpwave.pages.viewer.survey import Survey
from sharpwave.storage.files import to_json


@dataclass(frozen=True, kw_only=True)
class FieldSummary:
    """A field, its space on disk and its values.

    Attributes:
        column: The field.
        bytes: On disk; None when its values share their files with those of other fields.
        rows: Values that there are.
        values: What was read: rows_read, low, high, mean, nan, infinite.
        picture: Kind of image that it is drawn as: gray, rgb, rgba or tiles; None when it is none.
    """

    column: Column
    bytes: int | None
    rows: int
    values: dict[str, Any]
    picture: str | None

    def to_json(self) -> dict[str, Any]:
        """The values in a form that JSON can hold."""
        column = self.column
        return {
            "name": column.name,
            "role": column.role,
            "per_episode": column.per_episode,
            "dtype": column.dtype,
            "shape": list(column.shape),
            "codec": column.codec,
            "bytes": self.bytes,
            "rows": self.rows,
            **self.values,
            "picture": self.picture,
        }


@dataclass(frozen=True, kw_only=True)
class FolderSummary:
    """Summary of the content of a folder.

    Attributes:
        about: Kind, path and options of the folder.
        condition: Its files, its writer, and what is damaged.
        counts: Episodes by state, and steps.
        fields: One for each field.
        returns: Distribution of the returns of complete episodes, None without rewards.
        lengths: Distribution of their lengths.
    """

    about: About
    condition: Condition
    counts: dict[str, int]
    fields: tuple[FieldSummary, ...]
    returns: dict[str, Any] | None
    lengths: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """The values in a form that JSON can hold."""
        about = self.about
        found: dict[str, Any] = to_json(
            {
                "kind": about.kind,
                "name": about.path.resolve().name,
                "path": str(about.path.resolve()),
                "library": about.library,
                "format_version": about.version,
                "options": about.options,
                "notes": list(about.notes),
                **self.condition.to_json(),
                "counts": self.counts,
                "returns": self.returns,
                "lengths": self.lengths,
                "fields": [one.to_json() for one in self.fields],
            }
        )
        return found


def summarize(survey: Survey, condition: Condition) -> FolderSummary:
    """The numbers of what was surveyed.

    Args:
        survey: The folder's content as far as it was read.
        condition: Condition of the files.
    """
    episodes = survey.episodes
    states = np.bincount(episodes.flags.astype(np.int64), minlength=len(STATES)).tolist()
    steps = int(episodes.lengths.sum())
    whole = np.isin(episodes.flags, (COMPLETE, STRETCH))
    fields = []
    for column in survey.source.columns:
        layout = survey.layouts.get(column.name)
        fields.append(
            FieldSummary(
                column=column,
                bytes=condition.bytes_of(column),
                rows=len(episodes) if column.per_episode else steps,
                values=survey.tallies[column.name].to_json(),
                picture=None if layout is None else layout.kind,
            )
        )
    counts = dict(zip(STATES, states, strict=True))
    stretches = counts.pop("rows")
    return FolderSummary(
        about=survey.source.about,
        condition=condition,
        counts={"episodes": len(episodes) - stretches, **counts, "steps": steps},
        fields=tuple(fields),
        returns=spread(survey.returns[whole]) if survey.has_returns else None,
        lengths=None if stretches else spread(episodes.lengths[whole], whole=True),
    )
