"""Types that several tests share."""

from typing import Any, TypeAlias

import numpy as np

Arguments: TypeAlias = dict[str, Any]
"""Arrays and numbers by the name of the argument they are given as."""

FloatType: TypeAlias = type[np.float32] | type[np.float64]
