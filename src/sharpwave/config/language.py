"""Options of every algorithm that trains language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sharpwave.config.options import RunConfig
from sharpwave.config.schedules import ScheduleLike

__all__ = ["CompletionConfig", "LanguageConfig", "PreferenceKind", "SamplingConfig"]

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
    """Options of every algorithm that trains language models."""

    seed: int | None = None
    """Random seed of sampling and of the order of training examples; when None, every run draws
    one of its own and keeps it in its configuration."""
    total_timesteps: int = 200
    """Number of updates of `train()` when it is given none."""
    learning_rate: ScheduleLike = 1e-4
    """Learning rate of AdamW; may be a schedule over the run."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW, which is multiplied by the learning rate."""
    beta1: float = 0.9
    """Exponential decay rate of AdamW's first moment (momentum)."""
    beta2: float = 0.999
    """Exponential decay rate of AdamW's second moment."""
    max_grad_norm: float | None = 1.0
    """Maximum norm of the gradient; larger gradients are scaled down. None does not clip."""
    max_tokens: int = 16_384
    """Maximum number of tokens in one pass of the model: an update is split into micro-batches of
    this size with gradient accumulation, which does not change what is learned."""
    gradient_checkpointing: bool = False
    """Gradient (activation) checkpointing: keep only the inputs of layers and recompute the rest in
    the backward pass, which takes less memory and more time."""
    sharding: Literal["auto", "none"] = "auto"
    """Under `torchrun` with several processes, shard weights, gradients, optimizer moments and
    reference model among them, and split every update; "none" lets each process learn alone."""
    max_new_tokens: int = 8
    """Maximum number of tokens of a completion."""
    truncate_prompt: Literal["no", "start"] = "no"
    """Truncation of prompts that leave no room for a completion: "start" cuts off their first
    tokens; with "no" they are refused, and training examples dropped."""
    temperature: float = 1.0
    """Temperature of sampling: logits are divided by it."""
    top_p: float = 1.0
    """Top-p (nucleus) sampling: sample from the most likely tokens with this total probability."""
    top_k: int = 0
    """Top-k sampling: sample from this many of the most likely tokens; 0 takes all."""
    device: str | None = None
    """Device of the model; None leaves a model that is given where it is, and puts a large one that
    is made from a file on a GPU if torch has one."""
    threads: int = 0
    """Number of torch threads; 0 takes one for small models and as many as help for large ones."""

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
    """Options of algorithms that learn from completions which the model samples."""

    max_staleness: int = 0
    """Maximum number of updates by which the weights that sample completions may be old: sampling
    then runs in a thread beside the updates. 0 samples and learns in turn."""
    sampling_device: str | None = None
    """Device of asynchronous sampling (`max_staleness`); the model's when None."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("max_staleness", 0)
        if self.sampling_device is not None and not self.max_staleness:
            raise ValueError("sampling_device needs max_staleness of at least 1, got 0")


@dataclass(frozen=True, kw_only=True)
class CompletionConfig(SamplingConfig):
    """Options of algorithms that learn from rewards of groups of completions."""

    group_size: int = 4
    """Number of completions of each prompt, whose rewards are compared with each other."""
    n_prompts: int = 16
    """Number of prompts of an update."""
    overlong_buffer: int = 0
    """Number of tokens before `max_new_tokens` over which the penalty on overlong completions
    grows; 0 for no penalty."""
    overlong_penalty: float = 1.0
    """Penalty on the reward of a completion that reaches `max_new_tokens`."""
    filter_metric: str | None = None
    """Metric of dynamic sampling: learn only from groups whose completions differ in it. A reward
    function by name, or "reward" for the sum of all, as they were given; None takes all groups."""
    filter_low: float | None = None
    """Lower bound of dynamic sampling: groups are taken by their mean of the metric instead, those
    above this."""
    filter_high: float | None = None
    """Upper bound of dynamic sampling: groups are taken by their mean of the metric instead, those
    below this."""
    filter_tries: int = 1
    """Maximum number of rollouts of an update, until `n_prompts` groups are left (dynamic
    sampling)."""

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
