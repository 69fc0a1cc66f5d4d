"""What a language model wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Completions"]


@dataclass(frozen=True, eq=False)
class Completions:
    """Completions of prompts, one after another without padding, those of one prompt together.

    Attributes:
        prompts: Tokens [P_i] of each prompt.
        prompt: [N] the prompt of each completion.
        tokens: [T] tokens of all completions.
        offsets: [N + 1] where each begins and ends among them.
        log_probs: [T] of the tokens under the distribution that they were drawn from.
        plain_log_probs: [T] under softmax(logits / temperature).
        finished: [N] which of them ended by themselves; the others were cut.
        version: Of the weights that wrote them.

    Example:
        >>> sampler = sw.llm.Sampler(sw.nn.Transformer(vocab_size=8))
        >>> written = sampler.generate([[1, 2], [3]], n=2, max_new_tokens=4)
        >>> len(written), written.lengths.tolist()
        (4, [4, 4, 4, 4])
    """

    prompts: list[Tensor]
    prompt: Tensor
    tokens: Tensor
    offsets: Tensor
    log_probs: Tensor
    plain_log_probs: Tensor
    finished: Tensor
    version: int = 0

    def __len__(self) -> int:
        return len(self.prompt)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tokens.split(self.lengths.tolist()))

    @property
    def lengths(self) -> Tensor:
        """[N] tokens of each completion."""
        return self.offsets.diff()

    def sequences(self) -> list[Tensor]:
        """Prompt and completion [P_i + T_i] of each."""
        prompts = (self.prompts[i] for i in self.prompt.tolist())
        return [torch.cat([prompt, one]) for prompt, one in zip(prompts, self, strict=True)]
