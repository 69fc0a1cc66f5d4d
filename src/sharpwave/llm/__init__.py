"""Language models: sampling, scoring and what they learn from."""

from __future__ import annotations

from sharpwave.kernels.llm import group_advantages
from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.best_of_n import BestOfN, BestOfNResult
from sharpwave.llm.completions import Completions
from sharpwave.llm.examples import Demonstrations, Examples, Pairs
from sharpwave.llm.model import CausalModel
from sharpwave.llm.preferences import Preferences
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import RewardFailed, Rewards, Scored
from sharpwave.llm.sampler import Sampler
from sharpwave.llm.samples import Samples
from sharpwave.llm.scoring import Scores, score, score_all
from sharpwave.llm.tasks import TASKS, DigitTokenizer, Task

__all__ = [
    "TASKS",
    "BestOfN",
    "BestOfNResult",
    "CausalModel",
    "Completions",
    "Demonstrations",
    "DigitTokenizer",
    "Examples",
    "Pairs",
    "Preferences",
    "Prompts",
    "RewardFailed",
    "Rewards",
    "Sampler",
    "Samples",
    "Scored",
    "Scores",
    "Task",
    "TokenBatch",
    "group_advantages",
    "score",
    "score_all",
]
