"""Advantages of agents that live, wait and die, one agent at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def advantages(
    steps: list[dict[str, Any]], last_value: float, gamma: float, lam: float
) -> npt.NDArray[np.float64]:
    """The advantages of one agent, NaN where it did not act.

    Args:
        steps: In order: `acts`, `waits`, `value`, `reward`, `terminated`, `truncated`, and
            `cut_value`, the value of what a cut led to.
        last_value: Of what the agent sees after the last step.
        gamma: Discount from turn to turn.
        lam: λ.
    """
    turns = [t for t, step in enumerate(steps) if step["acts"]]
    found = np.full(len(steps), np.nan)
    for place, t in reversed(list(enumerate(turns))):
        until = turns[place + 1] if place + 1 < len(turns) else len(steps)
        paid, following, ended = 0.0, None, False
        for step in steps[t:until]:
            if not (step["acts"] or step["waits"]):
                break
            paid += step["reward"]
            if step["terminated"] or step["truncated"]:
                following = 0.0 if step["terminated"] else step["cut_value"]
                ended = True
                break
        if following is None:
            following = steps[until]["value"] if until < len(steps) else last_value
        delta = paid + gamma * following - steps[t]["value"]
        later = 0.0 if ended or until == len(steps) else found[until]
        found[t] = delta + gamma * lam * later
    return found
