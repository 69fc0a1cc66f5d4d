"""HTML out of plain calls: every text is escaped unless it is HTML already."""

from __future__ import annotations

from html import escape
from typing import Any

_VOID = {"meta", "link", "br", "img"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def join(*parts: Any) -> Html:
    """Parts one after the other; None is nothing, and what is not `Html` is escaped.

    Example:
        >>> join("a < b", Html("<br>"))
        'a &lt; b<br>'
    """
    return Html("".join(part if isinstance(part, Html) else _escaped(part) for part in parts))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element.

    Attributes lose a trailing underscore and write others as hyphens (`class_`, `data_group`);
    None and False leave one out, True writes it bare.

    Example:
        >>> tag("p", "x & y", class_="note")
        '<p class="note">x &amp; y</p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Html(start if name in _VOID else f"{start}{join(*children)}</{name}>")


def _escaped(value: Any) -> str:
    return "" if value is None else escape(str(value))
