"""Search for good options of an algorithm: trials side by side, in a study that outlives a crash.

Belongs here: what proposes, runs, cuts and shows trials of options.
"""

from sharpwave.tuning.search import Tuned, tune
from sharpwave.tuning.spaces import Choices, Range, Space, read_space, space_of
from sharpwave.tuning.trials import Trial

__all__ = ["Choices", "Range", "Space", "Trial", "Tuned", "read_space", "space_of", "tune"]
