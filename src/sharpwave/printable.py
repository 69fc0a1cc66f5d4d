"""Text from files, for a terminal that would obey it."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Among them halves of characters, which no terminal can be sent."""


def printable(text: object, *, lines: bool = True) -> str:
    r"""The text with its control characters spelled out, so that a terminal only shows it.

    Args:
        text: Whatever is printed; names in a file may hold escape sequences.
        lines: Leave ends of lines and tabs as they are.

    Example:
        >>> printable("\x1b[31mred")
        '\\x1b[31mred'
    """
    shown = _CONTROL.sub(_spelled, str(text))
    return shown if lines else re.sub(r"[\n\t]", _spelled, shown)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
