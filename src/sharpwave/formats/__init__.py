"""Episodes in the formats of others, and back.

Belongs here: one file or two for each format, with `detect`, `read` and `write`, and what they
share. No buffer.

Every format is read as a stream of episodes and written from one, so that any can become any other
with one episode in memory at a time.
"""

from sharpwave.formats.registry import (
    FORMATS,
    Format,
    convert,
    format_of,
    format_to_write,
    merge,
    read_episodes,
    write_episodes,
)
from sharpwave.formats.stream import Episode, EpisodeStream, NotCarriedWarning

__all__ = [
    "FORMATS",
    "Episode",
    "EpisodeStream",
    "Format",
    "NotCarriedWarning",
    "convert",
    "format_of",
    "format_to_write",
    "merge",
    "read_episodes",
    "write_episodes",
]
