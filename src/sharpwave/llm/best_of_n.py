"""Best-of-n sampling: the completion with the highest reward."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.model import CausalModel
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import Rewards
from sharpwave.llm.sampler import Sampler

__all__ = ["BestOfN", "BestOfNResult"]


class BestOfNResult(NamedTuple):
    """Completions of B prompts, and the best of each.

    Attributes:
        best: Tokens [P_i + T_i] of each prompt and its best completion.
        completions: All of them, the n of each prompt one after another.
        scores: [B, n] their rewards, NaN where one was not scored.
    """

    best: list[Tensor]
    completions: Completions
    scores: Tensor


class BestOfN:
    """Writes n completions of each prompt and keeps the one with the highest reward.

    Nothing is learned: it shows what the rewards hold, and is a baseline of whatever does learn.

    Args:
        model: A module with `forward(ids) -> logits`, or a causal model of Hugging Face.
        reward_fn: Scores completions: a function, or several; see `Rewards`.
        n: Completions of each prompt; of 1 it is plain sampling.
        max_new_tokens: Maximum number of tokens of a completion.
        tokenizer: Turns text into tokens and back.
        sampler: Sampler of completions, in place of one with this seed.
        seed: Of all draws; the same calls give the same completions.

    Raises:
        TypeError: `model` is no language model, or a reward function cannot be called.
        ValueError: A number is impossible.

    Example:
        >>> def highest(completions, prompts):
        ...     return [float(one[-1]) for one in completions]
        >>> best = BestOfN(sw.nn.Transformer(vocab_size=8), highest, n=64, max_new_tokens=1)
        >>> best.generate([[1, 2]]).tolist()
        [[1, 2, 7]]
    """

    def __init__(
        self,
        model: Any,
        reward_fn: Any,
        n: int = 4,
        max_new_tokens: int = 8,
        *,
        tokenizer: Any = None,
        sampler: Sampler | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (("n", n), ("max_new_tokens", max_new_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.model = CausalModel.of(model, tokenizer)
        self.n, self.max_new_tokens = n, max_new_tokens
        self.tokenizer = tokenizer
        self.sampler = sampler or Sampler(self.model, seed=seed)
        is_made = isinstance(reward_fn, Rewards)
        self._rewards = reward_fn if is_made else Rewards(reward_fn, tokenizer=tokenizer)

    def sample(self, prompts: Any) -> BestOfNResult:
        """All completions of prompts, and the best of each.

        Of equal ones, and where none was scored, the first is taken.

        Args:
            prompts: Prompts, as `Prompts.of` takes them.

        Raises:
            RewardFailed: A reward function raised, or returned an invalid reward.
            ValueError: A prompt is empty, has a token outside the vocabulary, or leaves no room.
        """
        found = Prompts.of(prompts, self.tokenizer)
        written = self.sampler.generate(found.tokens, self.n, self.max_new_tokens)
        scores = self._rewards(found, written).rewards.view(-1, self.n)
        best = scores.nan_to_num(-math.inf).argmax(1).tolist()
        sequences = written.sequences()
        chosen = [sequences[row * self.n + place] for row, place in enumerate(best)]
        return BestOfNResult(chosen, written, scores)

    def generate(self, prompts: Any) -> Tensor:
        """Each prompt [B, P] with the best of its completions.

        Returns:
            [B, P + T] with T = `max_new_tokens`; after a completion that ended earlier stands the
            tokenizer's token for padding, or that of the end, or 0.

        Raises:
            ValueError: The prompts have different lengths: `sample` takes such.
        """
        found = Prompts.of(prompts, self.tokenizer)
        lengths = {len(prompt) for prompt in found.tokens}
        if len(lengths) > 1:
            raise ValueError(
                f"prompts must have one length, got {min(lengths)} to {max(lengths)} tokens: "
                "sample takes such"
            )
        best = self.sample(found).best
        ids = best[0].new_full((len(best), lengths.pop() + self.max_new_tokens), self._padding)
        for row, tokens in zip(ids, best, strict=True):
            row[: len(tokens)] = tokens
        return ids

    @property
    def _padding(self) -> int:
        given = getattr(self.tokenizer, "pad_token_id", None)
        return int(given) if given is not None else next(iter(self.model.eos), 0)
