"""Learning that goes wrong stops before it spoils what was saved."""

from __future__ import annotations

import math

from sharpwave.errors import NonFiniteError


def check_convergence(metrics: dict[str, float], step: int) -> None:
    """Raise where an update has made NaN or inf of the networks.

    Args:
        metrics: Of the update.
        step: Environment steps before it.

    Raises:
        NonFiniteError: One of its losses or the norm of its gradient is not finite.
    """
    for name, value in metrics.items():
        if name.endswith(("loss", "grad_norm")) and not math.isfinite(value):
            raise NonFiniteError(
                f"{name} must be finite, got {value} in the update at step {step}: "
                "learning diverged"
            )
