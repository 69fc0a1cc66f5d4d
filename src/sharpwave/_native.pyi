# Written by `make stubs`; typed declarations of raw names stand in native/bind/stubs/.
"The native core of sharpwave."

from typing import Any

def isa() -> str:
    """
    The instruction set of the kernels in use: base, v3 (AVX2) or v4 (AVX-512).
    """

def compute_gae(
    rewards: Any, values: Any, dones: Any, last_value: float, gamma: float, lam: float, /
) -> tuple[Any, Any]: ...
