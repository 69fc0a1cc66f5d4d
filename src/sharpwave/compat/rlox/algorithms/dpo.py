"""`sharpwave.DPO` as rlox has it."""

from __future__ import annotations

from typing import Any

from sharpwave.algorithms import dpo
from sharpwave.runs.recorded import fetched

__all__ = ["DPO"]


class DPO(dpo.DPO):
    """`sharpwave.DPO` whose metrics of a loss are numbers."""

    def compute_loss(self, *pairs: Any, **masks: Any) -> Any:
        """The loss of pairs, and measures of it; see `sharpwave.DPO.compute_loss`."""
        loss, metrics = super().compute_loss(*pairs, **masks)
        return loss, fetched(metrics)
