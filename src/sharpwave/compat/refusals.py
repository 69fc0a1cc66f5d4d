"""Errors of what another library has and its names here have not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sharpwave.core.suggest import did_you_mean

__all__ = ["Refusals"]


class Refusals(NamedTuple):
    """Errors about the names of one library, which say where to read about them."""

    library: str
    page: str
    """The page that says what differs."""

    def refuse(self, name: str, value: Any, wanted: str) -> ValueError:
        """The error of an argument, or an entry of a configuration, that has no counterpart.

        Args:
            name: Its name.
            value: The value given.
            wanted: What is possible, in words.
        """
        return ValueError(f"{name} must be {wanted} here, got {value!r}: see {self.page}")

    def absent(self, owner: str, name: str, known: Iterable[str] = ()) -> AttributeError:
        """The error of an attribute of the library's that is not there."""
        return AttributeError(
            f"{owner} has no attribute {name!r} here{did_you_mean(name, known)}; "
            f"{self.page} says which of {self.library}'s names there are"
        )
