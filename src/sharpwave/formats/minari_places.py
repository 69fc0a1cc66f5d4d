"""Places and names of the fields of our episodes in Minari datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.roles import by_role
from sharpwave.formats.spec import EpisodeSchema


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
