"""`sharpwave.BestOfN` as rlox has it."""

from __future__ import annotations

from typing import Any

from sharpwave import llm
from sharpwave.compat.rlox.algorithms.generated import sampler_of

__all__ = ["BestOfN"]


class BestOfN(llm.BestOfN):
    """`sharpwave.BestOfN` that completes by the model's own `generate`."""

    def __init__(self, model: Any, *args: Any, sampler: Any = None, **options: Any) -> None:
        super().__init__(model, *args, sampler=sampler or sampler_of(model), **options)
