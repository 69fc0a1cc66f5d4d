"""Arguments that are true or false."""

from __future__ import annotations

from typing import Any

__all__ = ["flag"]


def flag(name: str, value: Any) -> bool:
    """Return whether an argument is true, whatever its type.

    Raises:
        TypeError: It does not say, as an array of several numbers does not.

    Example:
        >>> flag("stratified", 1)
        True
    """
    try:
        return bool(value)
    except Exception as error:
        raise TypeError(
            f"{name} must be True or False, got {type(value).__name__}: {error}"
        ) from None
