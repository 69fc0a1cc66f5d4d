"""Our own note of the fields in files of other formats, so that reading them loses nothing."""

from __future__ import annotations

import json

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.spec import EpisodeSchema

FORMAT = "sharpwave episodes"
VERSION = 1


def describe(schema: EpisodeSchema) -> str:
    """The fields as JSON."""
    return json.dumps({"format": FORMAT, "version": VERSION, **schema.to_json()})


def described(origin: str, text: str) -> EpisodeSchema:
    """The fields that `describe` wrote.

    Raises:
        SharpwaveIOError: The note is damaged or of a later version.
    """
    try:
        note = json.loads(text)
        if note["version"] != VERSION:
            raise SharpwaveIOError(
                f"{origin} was written by a later version of this library: "
                f"its description has version {note['version']}, this one reads {VERSION}"
            )
        return EpisodeSchema.from_json(note)
    except (KeyError, TypeError, ValueError) as error:
        raise SharpwaveIOError(f"{origin} has a damaged description: {error!r}") from error
