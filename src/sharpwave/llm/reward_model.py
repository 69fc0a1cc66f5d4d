"""Reward models: networks that score completions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.prompts import encode

__all__ = ["RewardModel"]


class RewardModel:
    """A torch module as a reward function: a sequence is read once, and given a number.

    Args:
        module: A model of Hugging Face for the classification of sequences with one label, or any
            module with `forward(ids [N, L], mask [N, L]) -> scores [N]`, which is true where a
            token is valid; padding stands on the right.
        tokenizer: That of the module, where it is another one than that of the policy: it then
            reads the text of prompt and completion.
        max_tokens: Tokens in one pass, with their padding.

    Raises:
        TypeError: It is no module.

    Example:
        >>> class Sevens(torch.nn.Module):
        ...     def forward(self, ids, mask):
        ...         return ((ids == 7) & mask).sum(1)
        >>> RewardModel(Sevens())([torch.tensor([7, 1, 7]), torch.tensor([1])], None)
        [2.0, 0.0]
    """

    def __init__(
        self, module: nn.Module, tokenizer: Any = None, *, max_tokens: int = 16_384
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be a torch module, got {type(module).__name__}")
        self.module, self.tokenizer, self.max_tokens = module, tokenizer, max_tokens
        self.__name__ = type(module).__name__

    def __call__(self, completions: Any, prompts: Any) -> list[float]:
        """A number for each completion.

        Args:
            completions: Tokens [P_i + T_i] of prompt and completion; or texts, with a tokenizer.
            prompts: Texts or chats, with a tokenizer.
        """
        if self.tokenizer is not None:
            pairs = zip(prompts, completions, strict=True)
            completions = [encode(_whole(prompt, one), self.tokenizer) for prompt, one in pairs]
        return self._scores(completions).tolist()

    @torch.no_grad()
    def _scores(self, sequences: list[Tensor]) -> Tensor:
        device = next((x.device for x in self.module.parameters()), torch.device("cpu"))
        sequences = [one.to(device) for one in sequences]
        batch = TokenBatch.of_sequences(sequences, torch.ones(len(sequences), device=device).long())
        scores = torch.zeros(len(batch))
        was_training = self.module.training
        self.module.eval()
        try:
            for rows in batch.cut(self.max_tokens if self._can_pad else 1):
                part = batch.select(rows)
                ids = part.padded()
                mask = torch.arange(ids.shape[1], device=device) < part.lengths[:, None]
                scores[rows.cpu()] = self._score(ids, mask).float().cpu()
        finally:
            self.module.train(was_training)
        return scores

    @property
    def _is_hugging_face(self) -> bool:
        return hasattr(self.module, "config")

    @property
    def _can_pad(self) -> bool:
        """Models of Hugging Face find the end of a sequence by the token that comes after it."""
        return not self._is_hugging_face or self._pad is not None

    @property
    def _pad(self) -> int | None:
        module: Any = self.module
        found: int | None = module.config.pad_token_id
        return found

    def _score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Scores [N] of sequences [N, L]."""
        if self._is_hugging_face:
            if self._pad is not None:
                ids = ids.masked_fill(~mask, self._pad)
            found = self.module(input_ids=ids, attention_mask=mask.long()).logits
        else:
            found = self.module(ids, mask)
        if found.shape not in ((len(ids),), (len(ids), 1)):
            raise TypeError(
                f"{self.__name__} must give a number for each of {len(ids)} sequences, got shape "
                f"{tuple(found.shape)}"
            )
        return found.reshape(-1)  # type: ignore[no-any-return]


def _whole(prompt: Any, completion: str) -> Any:
    """A prompt with its completion: text, or messages of a chat."""
    if isinstance(prompt, str):
        return prompt + completion
    return [*prompt, {"role": "assistant", "content": completion}]
