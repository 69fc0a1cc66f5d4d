"""The base class of all learners: networks, optimizers, schedules, a counter."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.config.schedules import Adaptive, ScheduleLike, value_at
from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.storage.checkpoints.tensors import as_arrays, to_tensor
from sharpwave.storage.files import count_of

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["BaseLearner", "Metrics"]

Metrics = dict[str, Any]
"""Measurements of an update by name: numbers, or tensors, which become numbers when they are
logged. `td_errors` [B], where it is there, are the errors of the rows, for their priorities."""

OWN_RATES = {
    "critics": "critic_learning_rate",
    "value": "critic_learning_rate",
    "temperature": "alpha_learning_rate",
}
"""Options that give an optimizer a learning rate of its own, by the network that it moves."""


class BaseLearner(ABC):
    """Networks, their optimizers, a counter, and the rule by which they learn.

    A subclass gives `update`. It knows no buffer or logger: what feeds it is a loop, of the library
    or of one's own.

    Args:
        config: Options.

    Attributes:
        networks: The networks that learn, by name.
        optimizers: By the name of the network that they move.
        updates: Calls of `update` so far.
    """

    kind: ClassVar[str]
    """Backend of its computation, in messages and checkpoints: "native" or "torch"."""
    ranks: Ranks = ALONE
    """The processes that learn together."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.networks: dict[str, Any] = {}
        self.optimizers: dict[str, Any] = {}
        self.updates = 0
        self._followed: dict[str, float] | None = None
        self._is_scheduled = False

    @abstractmethod
    def update(self, batch: Any) -> Metrics:
        """Learn from a batch, and count it in `updates`."""

    def follow(self, progress_remaining: float) -> None:
        """Apply schedules at the remaining progress of a run: 1 at its start, 0 at its end."""
        if self._followed is not None and not self._is_scheduled:
            return
        schedules = self.rates()
        self._is_scheduled = any(map(callable, schedules.values()))
        rates = {name: value_at(rate, progress_remaining) for name, rate in schedules.items()}
        if rates != self._followed:
            self._followed = rates
            for name, rate in rates.items():
                self.optimizers[name].set_lr(rate)

    def rates(self) -> dict[str, ScheduleLike]:
        """The learning rate of each optimizer: its own where the configuration has one.

        Those that adapt themselves are not among them.
        """
        config = self.config
        shared: Any = getattr(config, "rate", None) or config.learning_rate
        own = {x: getattr(config, OWN_RATES.get(x, ""), None) for x in self.optimizers}
        rates = {name: shared if rate is None else rate for name, rate in own.items()}
        return {name: rate for name, rate in rates.items() if not isinstance(rate, Adaptive)}

    def update_kind(self) -> Hashable:
        """The operations of the next update beside networks and batch: equal kinds run the same.

        Updates of one kind can be captured once and replayed; those of None cannot.
        """
        return None

    def metrics(self) -> Metrics:
        """Measurements beside those of updates, such as the rate of exploration."""
        return {"learning_rate": next(iter(self.optimizers.values())).lr}

    def few_threads(self, rows: int) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Context in which updates on so many rows use as many threads as pay off."""
        return contextlib.nullcontext()

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        """State that a subclass adds to the checkpoint: tensors, arrays, numbers."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from `extra_state`, whose tensors have become arrays."""

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: networks, optimizers, counters."""
        return {
            "networks": {name: dict(net.state_dict()) for name, net in self.networks.items()},
            "optimizers": {name: one.arrays() for name, one in self.optimizers.items()},
            "gradient_steps": self.updates,
            "extra": self.extra_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, that of a file or of a learner, whatever computes there.

        Raises:
            ValueError: The networks are others than those of the state.
        """
        for name, network in self.networks.items():
            weights = {k: self.restored(array) for k, array in state["networks"][name].items()}
            try:
                network.load_state_dict(weights)
            except (RuntimeError, ValueError) as error:
                raise ValueError(
                    f"the network must be that of the checkpoint: {_first_of(str(error))}"
                ) from error
        for name, optimizer in self.optimizers.items():
            arrays = state["optimizers"][name].items()
            optimizer.load_arrays({k: self.restored(array) for k, array in arrays})
        if "gradient_steps" in state:
            self.updates = count_of(state, "gradient_steps")
        self._followed = None
        if "extra" in state:
            self.load_extra_state(as_arrays(state["extra"]))

    def restored(self, array: Any) -> Any:
        """An array of a checkpoint in the form that the learner computes with."""
        return to_tensor(array)


def _first_of(message: str) -> str:
    """The first of the lines under the heading of a message, and the number of the others."""
    _, *lines = (line.strip(" \t.") for line in message.splitlines())
    if not lines:
        return message
    return lines[0] + (f" (and {len(lines) - 1} more)" if lines[1:] else "")
