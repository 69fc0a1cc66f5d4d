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
