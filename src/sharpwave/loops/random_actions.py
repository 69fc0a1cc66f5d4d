"""Actions before there is anything to act on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave.types import Array


class RandomActions:
    """Draws actions of a space uniformly, from a generator whose state can be saved.

    Args:
        space: Box with bounds, Discrete, MultiDiscrete or MultiBinary.
        seed: Of the draws.

    Example:
        >>> RandomActions(spaces.Discrete(2), 0).draw(3, np.array([[True, False]] * 3)).tolist()
        [0, 0, 0]
    """

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self.space = space
        self._generator = np.random.Generator(np.random.Philox(seed))
        if isinstance(space, spaces.Box):
            self._low = space.low.astype(np.float64)
            self._width = space.high - self._low

    def draw(self, n: int, masks: npt.NDArray[np.bool_] | None = None) -> Array:
        """Actions [n, ...] for environments, only those that the masks allow."""
        space, generator = self.space, self._generator
        if isinstance(space, spaces.Box):
            drawn = self._low + self._width * generator.random((n, *space.shape))
            # Rounding may have left the bounds.
            return np.minimum(np.maximum(drawn.astype(space.dtype), space.low), space.high)  # type: ignore[no-any-return]
        if isinstance(space, spaces.MultiBinary):
            bits = generator.random((n, *space.shape)) < 0.5
            if masks is not None:
                bits &= masks.reshape(bits.shape)
            return bits.astype(space.dtype)
        sizes = self._sizes(space)
        weights = generator.random((n, int(sizes.sum())))
        if masks is not None:
            weights[~masks] = -1.0
        ends = np.cumsum(sizes)
        parts = [
            weights[:, end - size : end].argmax(1) for size, end in zip(sizes, ends, strict=True)
        ]
        actions = np.stack(parts, 1).reshape(n, *space.shape)  # type: ignore[misc]
        return (actions + space.start).astype(space.dtype)  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def _sizes(space: Any) -> npt.NDArray[Any]:
        return np.atleast_1d(space.nvec if hasattr(space, "nvec") else space.n).reshape(-1)

    def state_dict(self) -> dict[str, Any]:
        """State of the random number generator."""
        state = self._generator.bit_generator.state
        return {
            "counter": state["state"]["counter"],
            "key": state["state"]["key"],
            "buffer": state["buffer"],
            "buffer_pos": int(state["buffer_pos"]),
            "has_uint32": int(state["has_uint32"]),
            "uinteger": int(state["uinteger"]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._generator.bit_generator.state = {
            "bit_generator": "Philox",
            "state": {"counter": state["counter"], "key": state["key"]},
            **{name: state[name] for name in ("buffer", "buffer_pos", "has_uint32", "uinteger")},
        }
