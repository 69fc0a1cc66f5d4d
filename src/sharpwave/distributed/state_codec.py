"""Serialization of actor states as messages: trees of arrays and plain values, never code."""

from __future__ import annotations

import json
from typing import Any

from sharpwave.distributed.codec import Packed, Plain, pack
from sharpwave.errors import WireError
from sharpwave.storage.checkpoints.trees import from_json, to_json

__all__ = ["state_of", "state_to_bytes"]


def state_to_bytes(kind: str, state: Any, **meta: Plain) -> bytes:
    """Serialize a state.

    Args:
        kind: Kind of the message.
        state: Arrays, numbers, texts and None in dicts, lists and tuples.
        **meta: Plain values beside it.

    Raises:
        TypeError: The state has something else in it.
        ValueError: It has too many names and numbers.
    """
    leaves: dict[str, Any] = {}
    document = json.dumps(to_json(state, "state", leaves))
    # Paths of leaves may be longer than names of columns are.
    columns = {f"{number}": leaf for number, leaf in enumerate(leaves.values())}
    names = json.dumps(dict(zip(leaves, columns, strict=True)))
    return pack(kind, columns, {**meta, "state": document, "names": names})


def state_of(packed: Packed) -> Any:
    """Deserialize the state in a message; its arrays are copies.

    Raises:
        WireError: It has none.
    """
    try:
        document, names = (json.loads(str(packed.meta[name])) for name in ("state", "names"))
        return from_json(document, lambda name: packed.columns[names[name]].copy())
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the message must have a state, got {error!r}") from None
