"""Language models: sampling, scoring, datasets and rewards.

Belongs here: what samples, scores, prompts, rewards and serves language models; no update of
weights.
"""

from __future__ import annotations

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.best_of_n import BestOfN, BestOfNResult
from sharpwave.llm.client import SamplerFailed
from sharpwave.llm.completions import Completions
from sharpwave.llm.examples import Demonstrations, Examples, Pairs, Ratings
from sharpwave.llm.follower import Follower, follower_of
from sharpwave.llm.model import CausalModel
from sharpwave.llm.preferences import Preferences
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.reference_cache import with_cached_reference
from sharpwave.llm.remote import RemoteSampler
from sharpwave.llm.reward_model import RewardModel
from sharpwave.llm.rewards import NonFiniteRewardError, RewardFailed, Rewards, Scored
from sharpwave.llm.sample_rows import Samples
from sharpwave.llm.sampler import Sampler
from sharpwave.llm.saved import (
    build_model,
    class_name,
    describe_model,
    model_differences,
    placed,
    save_pretrained,
)
from sharpwave.llm.saved_tokenizer import (
    build_tokenizer,
    describe_tokenizer,
    tokenizer_differences,
    tokenizer_files,
)
from sharpwave.llm.scoring import Scores, score, score_all
from sharpwave.llm.server import ModelServer
from sharpwave.llm.store import CompletionStore, Written
from sharpwave.llm.tasks import TASKS, DigitTokenizer, Task
from sharpwave.primitives.llm.tensors import group_advantages

__all__ = [
    "TASKS",
    "BestOfN",
    "BestOfNResult",
    "CausalModel",
    "CompletionStore",
    "Completions",
    "Demonstrations",
    "DigitTokenizer",
    "Examples",
    "Follower",
    "ModelServer",
    "NonFiniteRewardError",
    "Pairs",
    "Preferences",
    "Prompts",
    "Ratings",
    "RemoteSampler",
    "RewardFailed",
    "RewardModel",
    "Rewards",
    "Sampler",
    "SamplerFailed",
    "Samples",
    "Scored",
    "Scores",
    "Task",
    "TokenBatch",
    "Written",
    "build_model",
    "build_tokenizer",
    "class_name",
    "describe_model",
    "describe_tokenizer",
    "follower_of",
    "group_advantages",
    "model_differences",
    "placed",
    "save_pretrained",
    "score",
    "score_all",
    "tokenizer_differences",
    "tokenizer_files",
    "with_cached_reference",
]
