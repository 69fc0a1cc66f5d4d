"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when none is alike.

    Example:
        >>> nearest("lerning_rate", ["learning_rate", "gamma"])
        'learning_rate'
    """
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    found = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: `; did you mean 'x'?`, or nothing.

    Example:
        >>> did_you_mean("trian", ["train", "eval"])
        "; did you mean 'train'?"
    """
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"
