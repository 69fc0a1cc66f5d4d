"""Marks that make some cases of a parametrized test long, or slow.

`@pytest.mark.long` marks all cases. `@pytest.mark.long(only=[...])` marks those whose id has one of
these parts, `@pytest.mark.long(but=[...])` all others. A part is a parameter's id, or several that
stand beside each other: "torch", "PPO-torch". A class may have the mark for all its tests. The mark
`slow` takes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

NAMES = ("long", "slow")


def is_long(mark: pytest.Mark, case: str) -> bool:
    """True where the mark means the case of this id.

    Raises:
        pytest.UsageError: The mark has other arguments than `only` or `but`.
    """
    if not mark.args and not mark.kwargs:
        return True
    if mark.args or len(mark.kwargs) != 1 or not mark.kwargs.keys() <= {"only", "but"}:
        raise pytest.UsageError(
            f"{mark.name} takes only=[...] or but=[...], got {mark.args} and {mark.kwargs}"
        )
    ((key, parts),) = mark.kwargs.items()
    return any(f"-{part}-" in f"-{case}-" for part in parts) == (key == "only")


def unmark_quick_cases(items: Sequence[pytest.Item]) -> None:
    """Take the mark from the cases that it does not mean; that of a class is one of its tests."""
    classes = {
        node for item in items for node in item.listchain() if isinstance(node, pytest.Class)
    }
    for item in items:
        of_classes = [node.own_markers for node in item.listchain() if node in classes]
        item.own_markers[:0] = [
            mark for marks in of_classes for mark in marks if mark.name in NAMES
        ]
        case = item.nodeid.partition("[")[2].removesuffix("]")
        item.own_markers[:] = [
            mark for mark in item.own_markers if mark.name not in NAMES or is_long(mark, case)
        ]
    for node in classes:
        node.own_markers[:] = [mark for mark in node.own_markers if mark.name not in NAMES]
