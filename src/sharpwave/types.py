"""Types that several modules share."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.uint64]

Nested: TypeAlias = Any
"""An array, or a dict or tuple of nested arrays."""

BatchDict: TypeAlias = dict[str, Nested]
"""A batch: one array per field, nested where the observations are."""


def as_dtype(value: Any) -> Any:
    """`np.dtype` of a value; some texts, such as ",", are a SyntaxError to it.

    Raises:
        TypeError: It is no dtype.
    """
    try:
        return np.dtype(value)
    except SyntaxError:
        raise TypeError(f"dtype must be a NumPy dtype or its name, got {value!r}") from None
