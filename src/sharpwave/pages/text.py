"""Formats of numbers in reports, and ticks of an axis."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard

_MINUS = "\N{MINUS SIGN}"


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number that a float can hold; files may have others."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def number(value: Any, digits: int = 4) -> str:
    """A number to read, thousands apart, with significant digits; a dash for what is none.

    Example:
        >>> number(12345.678), number(0.000025), number(-0.5), number(None)
        ('12,346', '2.5e−5', '−0.5', '–')
    """
    if not is_number(value):
        return "\N{EN DASH}"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -3 or exponent > 8:
        mantissa, power = f"{value:.{max(digits - 2, 0)}e}".split("e")
        text = f"{_trimmed(mantissa)}e{int(power)}"
    else:
        text = _trimmed(f"{value:,.{max(digits - 1 - exponent, 0)}f}")
    return text.replace("-", _MINUS)


def count(n: Any, noun: str | None = None) -> str:
    """A count in full, with the plural of its noun; a dash for what is none.

    Example:
        >>> count(1, "seed"), count(20, "episode"), count(2_500_000_000.0), count(None, "step")
        ('1 seed', '20 episodes', '2,500,000,000', '– steps')
    """
    known = is_number(n)
    text = f"{round(n):,}".replace("-", _MINUS) if known else "\N{EN DASH}"
    if noun is None:
        return text
    return f"{text} {noun}" if known and n == 1 else f"{text} {noun}s"


def score(value: Any) -> str:
    """A return: one decimal where it is not an integer, and no more digits than can be read.

    Example:
        >>> score(487.25), score(500.0), score(-1234.5), score(-2.5e12)
        ('487.2', '500', '−1,234.5', '−2.5e12')
    """
    if not is_number(value):
        return "\N{EN DASH}"
    if abs(value) < 10 or abs(value) >= 1e7:
        return number(value, 3 if abs(value) < 10 else 5)
    return _trimmed(f"{value:,.1f}").replace("-", _MINUS)


def share(value: Any) -> str:
    """A share of all in per cent; a dash for what is none.

    Example:
        >>> share(0.85), share(1.0), share(None)
        ('85 %', '100 %', '–')
    """
    return f"{number(100 * value, 3)} %" if is_number(value) else "\N{EN DASH}"


def compact(value: float, step: float = 0.0) -> str:
    """A tick label, short: thousands as k, millions as M, with the digits that `step` needs.

    Example:
        >>> compact(20000), compact(1_500_000), compact(0.25), compact(1.0, 0.5), compact(3.5e19)
        ('20k', '1.5M', '0.25', '1', '3.5e19')
    """
    size = max(abs(value), abs(step))
    if size >= 1e15:
        return number(value)
    for unit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit * 1.000001 or size == unit:
            return number(value / unit, 6) + (suffix if value else "")
    return number(value, 6)


def date(moment: str) -> str:
    """A time stamp of ISO 8601 to read; anything else as it is.

    Example:
        >>> date("2026-05-01T14:03:22+00:00"), date("yesterday")
        ('1 May 2026, 14:03', 'yesterday')
    """
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return f"{parsed.day} {parsed:%B %Y, %H:%M}"


def duration(seconds: Any) -> str:
    """A time span to read.

    Example:
        >>> duration(2e-4), duration(0.42), duration(41.3), duration(192), duration(7500)
        ('<1 ms', '0.42 s', '41 s', '3 min 12 s', '2 h 05 min')
        >>> duration(400_000)
        '4 d 15 h'
    """
    if not is_number(seconds):
        return "\N{EN DASH}"
    if 0 < seconds < 0.001:
        return "<1 ms"
    if seconds < 10:
        return f"{number(seconds, 2)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours:02d} h"


def size(n_bytes: Any) -> str:
    """An amount of memory to read; a dash for what is none.

    Example:
        >>> size(512), size(1536), size(3 << 30)
        ('512 B', '1.5 KiB', '3 GiB')
    """
    if not is_number(n_bytes):
        return "\N{EN DASH}"
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n_bytes >= unit:
            return f"{number(n_bytes / unit, 3)} {name}"
    return f"{n_bytes} B"


def ticks(low: float, high: float, target: int) -> tuple[list[float], float]:
    """Round numbers within [low, high], about `target` of them, and the distance between them.

    Example:
        >>> ticks(0.0, 100.0, 5)
        ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], 20.0)
    """
    width = high - low
    if not width > 0 or not math.isfinite(width):
        return [low], 0.0
    power = 10.0 ** math.floor(math.log10(width / target))
    steps = [multiple * power for multiple in (1.0, 2.0, 2.5, 5.0, 10.0)]
    step = min(steps, key=lambda one: abs(math.log(width / one / target)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)], step


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
