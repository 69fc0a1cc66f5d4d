"""Learners: networks, optimizers and the rule by which they learn, apart from what feeds them.

Belongs here: what several learners share, the choice among them, and in `native` their compiled
twins.

`algorithms/` defines them with torch; `learners.native` holds compiled twins of some.
"""

from sharpwave.learners.learner import Acted, Learner, Metrics
from sharpwave.learners.seeds import Seeds

__all__ = ["Acted", "Learner", "Metrics", "Seeds"]
