from typing import Any

from sharpwave.types import Array

def collect_rollout(
    learner: PolicyLearner, env: VectorEnv, seed: int, first_call: int, low: float, high: float,
    columns: tuple[Array, ...], place: tuple[Array, ...], /,
) -> tuple[int, Array, Array]: ...
