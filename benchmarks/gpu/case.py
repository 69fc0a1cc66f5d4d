"""One thing that is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from timing import Call
from torch import Tensor


@dataclass
class Case:
    """One operation, with what it is compared to and how it is judged."""

    name: str
    ours: Call
    check: Callable[[], float]
    """Relative error against float64."""
    tolerance: float
    bytes: int = 0
    """The bytes that must be moved through memory at least."""
    flops: int = 0
    torch: Call | None = None
    compiled: Call | None = None
    graph_calls: int = 20
    """Calls in one graph; 0 where a call cannot be captured alone."""
    targets: dict[str, float] = field(default_factory=dict)
    """Bounds: eager_ms and graph_ms from above, fraction of the roofline from below."""
    memory_of: int = 0
    """Bytes that the extra memory is compared with; 0 to leave it out."""


def error(found: Tensor, wanted: Tensor) -> float:
    """‖found - wanted‖ / ‖wanted‖ in float64, NaN if anything is."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-300))


def uniform(*shape: int) -> Tensor:
    return torch.rand(shape, device="cuda")
