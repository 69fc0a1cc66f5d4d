"""Options of everything that trains language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sharpwave.config.options import RunConfig
from sharpwave.config.schedules import ScheduleLike

__all__ = ["LanguageConfig", "PreferenceKind", "RolloutConfig", "SamplingConfig"]

PreferenceKind = Literal[
    "sigmoid",
    "cdpo",
    "robust",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
    "simpo",
    "orpo",
]
"""The kinds of `losses.preference_loss`."""


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(RunConfig):
    """Options of everything that trains language models."""

    seed: int | None = None
    """Seed of samples and of the order of what is learned from; every run draws one of its own when
    None, and keeps it in its configuration."""
    total_timesteps: int = 200
    """Updates of a run that is not told otherwise."""
    learning_rate: ScheduleLike = 1e-4
    """Step size of AdamW."""
    weight_decay: float = 0.0
    """Share of a weight that AdamW takes off it, times the learning rate."""
    beta1: float = 0.9
    """Memory of the first moment of AdamW."""
    beta2: float = 0.999
    """Memory of the second moment of AdamW."""
    max_grad_norm: float | None = 1.0
    """Longer gradients are shortened to this norm; None leaves them."""
    max_tokens: int = 16_384
    """Tokens in one pass of the model: what learns in one update is cut into such parts, which does
    not change what is learned."""
    gradient_checkpointing: bool = False
    """Keep the inputs of layers alone and compute the rest again in the backward pass, which takes
    less memory and more time."""
    sharding: Literal["auto", "none"] = "auto"
    """Under `torchrun` with several processes, each holds a part of weights, gradients, moments and
    reference, and learns from its share of every update; "none" lets each process learn alone."""
    max_new_tokens: int = 8
    """Tokens of a completion at most."""
    truncate_prompt: Literal["no", "start"] = "no"
    """What happens to prompts that leave no room for a completion: "start" cuts off their first
    tokens; otherwise they are refused, and examples to learn from dropped."""
    temperature: float = 1.0
    """Of sampling."""
    top_p: float = 1.0
    """Sample from the most likely tokens that have this probability together."""
    top_k: int = 0
    """Sample from so many of the most likely tokens; 0 takes all."""
    device: str | None = None
    """Where the model is put; None leaves one that is given where it is, and takes a GPU that torch
    has for a large one that is made from a file."""
    threads: int = 0
    """Threads of torch; 0 takes one for small models and as many as help for large ones."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("learning_rate", "max_grad_norm", "max_tokens")
        self.require_positive("max_new_tokens", "temperature")
        self.require_range("top_k", 0)
        self.require_range("weight_decay", 0)
        self.require_range("beta1", 0, 1)
        self.require_range("beta2", 0, 1)
        self.require_range("threads", 0, 4096)


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(LanguageConfig):
    """Options of what learns from completions that the model writes."""

    max_staleness: int = 0
    """Completions are written by weights that are at most so many updates old: while those updates
    are made, in a thread. 0 samples and learns in turn."""
    sampling_device: str | None = None
    """Where they are written then; where the model is when None."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("max_staleness", 0)
        if self.sampling_device is not None and not self.max_staleness:
            raise ValueError("sampling_device needs max_staleness of at least 1, got 0")


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(SamplingConfig):
    """Options of what learns from groups of completions by their rewards."""

    group_size: int = 4
    """Completions of each prompt, which are compared with each other."""
    n_prompts: int = 16
    """Prompts of an update."""
    overlong_buffer: int = 0
    """Tokens before `max_new_tokens` over which a penalty on the reward grows; 0 for none."""
    overlong_penalty: float = 1.0
    """What a completion loses that reaches `max_new_tokens`."""
    filter_metric: str | None = None
    """Learn only from groups that differ in this: a reward function by name, or "reward" for the
    sum of all, as they were given; None takes all groups."""
    filter_low: float | None = None
    """Groups are taken by their mean of the metric instead: those above this."""
    filter_high: float | None = None
    """Groups are taken by their mean of the metric instead: those below this."""
    filter_tries: int = 1
    """Rollouts of an update at most, until `n_prompts` groups are left (dynamic sampling)."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_prompts", "filter_tries")
        self.require_range("group_size", 1)
        self.require_range("overlong_buffer", 0, self.max_new_tokens)
        if self.filter_metric is None:
            for name in ("filter_low", "filter_high"):
                if getattr(self, name) is not None:
                    raise ValueError(f"filter_metric must be given with {name}, got None")
