"""Trees of arrays, in dicts and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sharpwave.types import Nested

__all__ = ["leaves", "like", "map_leaves", "numbered"]


def map_leaves(function: Callable[..., Any], *trees: Nested) -> Nested:
    """The tree of `function(leaf of each tree)`, in the structure of the first.

    Everything but a dict or a tuple is a leaf.

    Args:
        function: Takes as many leaves as there are trees.
        *trees: At least one; the others have the keys and lengths of the first.

    Raises:
        ValueError: The structures differ.

    Example:
        >>> map_leaves(lambda a, b: a + b, {"x": 1, "y": (2, 3)}, {"x": 10, "y": (20, 30)})
        {'x': 11, 'y': (22, 33)}
    """
    first = trees[0]
    if isinstance(first, dict):
        for other in trees[1:]:
            if not isinstance(other, dict) or other.keys() != first.keys():
                raise ValueError(f"trees must have the keys {list(first)}, got {_kind(other)}")
        return {key: map_leaves(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple):
        for other in trees[1:]:
            if not isinstance(other, tuple) or len(other) != len(first):
                raise ValueError(f"trees must be tuples of {len(first)}, got {_kind(other)}")
        return tuple(map_leaves(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def leaves(tree: Nested, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves with their paths, such as "camera.0"; a lone leaf has the path "".

    Example:
        >>> list(leaves({"x": 1, "y": (2, 3)}))
        [('x', 1), ('y.0', 2), ('y.1', 3)]
    """
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, tuple):
        items = enumerate(tree)
    else:
        yield path, tree
        return
    for key, inner in items:
        yield from leaves(inner, f"{path}.{key}" if path else str(key))


def numbered(tree: Nested) -> Nested:
    """The tree with numbered parts, for what knows neither tuples nor names with dots.

    Example:
        >>> numbered({"x": 1, "y": (2, 3)})
        {'0': 1, '1': {'0': 2, '1': 3}}
    """
    if isinstance(tree, dict | tuple):
        parts = tree.values() if isinstance(tree, dict) else tree
        return {str(i): numbered(part) for i, part in enumerate(parts)}
    return tree


def like(structure: Nested, tree: Nested) -> Nested:
    """The leaves of a tree in the structure of another one with as many leaves, in order.

    Example:
        >>> like({"x": 0, "y": (0, 0)}, {"0": 1, "1": {"0": 2, "1": 3}})
        {'x': 1, 'y': (2, 3)}
    """
    in_order = iter([leaf for _, leaf in leaves(tree)])
    return map_leaves(lambda _: next(in_order), structure)


def _kind(tree: Nested) -> str:
    if isinstance(tree, dict):
        return f"the keys {list(tree)}"
    if isinstance(tree, tuple):
        return f"a tuple of {len(tree)}"
    return f"a {type(tree).__name__}"
