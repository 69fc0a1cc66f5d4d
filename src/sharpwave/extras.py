"""Libraries that only some users need."""

from importlib import import_module
from typing import Any


def require(module: str, *, extra: str) -> Any:
    """Imports a library of an optional extra.

    Args:
        module: What to import, e.g. `"rich.progress"`.
        extra: The extra of this package that installs it.

    Raises:
        ImportError: If it cannot be imported; the message says what to install.

    Example:
        >>> require("json", extra="none").dumps([1])
        '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} cannot be imported ({error}): pip install sharpwave[{extra}]"
        ) from error
