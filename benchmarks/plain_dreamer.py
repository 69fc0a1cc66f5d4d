"""DreamerV3 as its definitions say, operation by operation in plain torch.

The model observes and imagines step by step, and rows are normalized, drawn and compared by torch.
Ours is measured beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sharpwave.nn.world_model import RSSM
from sharpwave.primitives.world import plain as plain
from sharpwave.primitives.world import tensors as world


@contextlib.contextmanager
def as_defined() -> Iterator[None]:
    """Inside, nothing of a gradient step is done by a twin."""
    module, is_as_built = world._module, RSSM.is_as_built
    world._module = lambda *_: plain
    RSSM.is_as_built = property(lambda _: False)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        world._module, RSSM.is_as_built = module, is_as_built  # type: ignore[method-assign]
