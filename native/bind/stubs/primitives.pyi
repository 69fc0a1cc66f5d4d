# Typed signatures of the raw functions of native/bind/bind_returns.cpp.
from typing import Any

def compute_gae(
    rewards: Any, values: Any, dones: Any, last_value: float, gamma: float, lam: float, /
) -> tuple[Any, Any]: ...
