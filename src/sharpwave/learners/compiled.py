"""Losses compiled by `torch.compile`, and as they are where the compiler fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call; as it is from the first failure of the compiler on.

    A run that was killed while it compiled may leave a broken cache. What that breaks is found in
    the first call, whose gradient is compiled with it; errors of the function itself are raised.
    """
    import torch
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._functorch import config

    quick, calls = torch.compile(function), 0
    at_once = "force_non_lazy_backward_lowering"  # which older versions of torch do not have
    with_gradient = config.patch(at_once, True) if hasattr(config, at_once) else nullcontext()

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal quick, calls
        if quick is function:
            return function(*args, **options)
        calls += 1
        try:
            if calls > 1:
                return quick(*args, **options)
            with with_gradient:
                return quick(*args, **options)
        except BackendCompilerFailed as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "")
            warnings.warn(
                f"{function.__name__} runs uncompiled, since the compiler failed: {first} "
                "(its cache may be broken, see TORCHINDUCTOR_CACHE_DIR)",
                RuntimeWarning,
                stacklevel=2,
            )
            quick = function
            return function(*args, **options)

    return call
