"""A stand-in for CUDA graphs on the CPU: operations of torch, repeated on the same memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Recorded(TorchDispatchMode):
    """Records the operations of torch inside, to do them again on the same memory.

    As in a graph, no Python runs in a replay, inputs are read from where they lay, and results are
    written to where they were. Unlike a graph it computes already while it records, so that the
    first replay does nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, Any, Any, list[Any]]] = []
        self._has_run = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) in ("aten._local_scalar_dense.default", "aten.nonzero.default"):
            raise RuntimeError(f"{func} waits for the device, which a graph cannot")
        self._calls.append((func, args, kwargs or {}, tree_flatten(result)[0]))
        return result

    def replay(self) -> None:
        """Compute all of it again."""
        if self._has_run:
            self._has_run = False
            return
        with torch.inference_mode():
            for func, args, kwargs, before in self._calls:
                for old, new in zip(before, tree_flatten(func(*args, **kwargs))[0], strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
