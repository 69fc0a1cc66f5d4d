"""Types that several modules share."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.uint64]

Nested: TypeAlias = Any
"""A tree: an array or a tensor, or a dict or tuple of trees."""

Settings: TypeAlias = dict[str, Any]
"""Options of a configuration by name."""

BatchDict: TypeAlias = dict[str, Nested]
"""A batch: one array per field, nested where the observations are."""

PathLike: TypeAlias = str | os.PathLike[str]
"""The path of a file or a folder."""

Maker: TypeAlias = Callable[[], Any]
"""A function that makes an environment of any kind."""


def as_dtype(value: Any) -> Any:
    """`np.dtype` of a value; some texts, such as ",", are a SyntaxError to it.

    Raises:
        TypeError: It is no dtype.
    """
    try:
        return np.dtype(value)
    except SyntaxError:
        raise TypeError(f"dtype must be a NumPy dtype or its name, got {value!r}") from None
