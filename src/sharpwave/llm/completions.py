"""Completions that a language model wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sharpwave.llm.batch import TokenBatch

__all__ = ["Completions"]


@dataclass(frozen=True, eq=False)
class Completions:
    """Completions of prompts, one after another without padding, those of one prompt together.

    Attributes:
        prompts: Tokens [P_i] of each prompt.
        prompt: [N] the prompt of each completion.
        tokens: [T] tokens of all completions.
        offsets: [N + 1] boundaries of the completions among them.
        log_probs: [T] log-probabilities under the distribution that the tokens were drawn from.
        plain_log_probs: [T] log-probabilities under softmax(logits / temperature).
        finished: [N] true if a completion ended by itself; false if it was truncated.
        version: Version of the weights that wrote them.
        mask: [T] true for tokens that the model wrote itself; all of them when None. Others, such
            as the answers of a tool, stand between them and are not learned from.

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
    mask: Tensor | None = None

    @classmethod
    def of(cls, batch: TokenBatch, prompts: Sequence[Tensor], n: int) -> Completions:
        """Those of a batch that a rollout of one's own gave: n of each prompt, one after another.

        Raises:
            TypeError: It is no batch.
            ValueError: It has other prompts, or another number of completions.
        """
        if not hasattr(batch, "completion_tokens"):
            raise TypeError(f"rollout_fn must give a TokenBatch, got {type(batch).__name__}")
        if len(batch) != n * len(prompts):
            raise ValueError(
                f"rollout_fn must give {n} completions for each of {len(prompts)} prompts, got "
                f"{len(batch)} in all"
            )
        device = batch.tokens.device
        prompts = [prompt.to(device) for prompt in prompts]
        starts = batch.offsets[:-1].tolist()
        for row, start in enumerate(starts):
            prompt = prompts[row // n]
            found = batch.tokens[start : start + len(prompt)]
            if len(prompt) != batch.prompt_lengths[row] or not torch.equal(found, prompt):
                raise ValueError(
                    f"rollout_fn must give the completions of each prompt one after another, got "
                    f"another prompt in row {row}"
                )
        tokens, drawn = batch.completion_tokens, batch.sampler_log_probs
        log_probs = torch.full(tokens.shape, torch.nan, device=device) if drawn is None else drawn
        return cls(
            prompts=prompts,
            prompt=torch.arange(len(batch), device=device) // n,
            tokens=tokens,
            offsets=torch.cat([batch.offsets[:1], batch.completion_lengths.cumsum(0)]),
            log_probs=log_probs,
            plain_log_probs=log_probs,
            finished=torch.ones(len(batch), dtype=torch.bool, device=device),
            version=batch.version,
            mask=batch.loss_mask,
        )

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

    def join(self, other: Completions) -> Completions:
        """These and others of more prompts, after them."""
        is_whole = self.mask is None and other.mask is None
        masks = (
            torch.ones_like(x.tokens, dtype=torch.bool) if x.mask is None else x.mask
            for x in (self, other)
        )
        return Completions(
            prompts=self.prompts + other.prompts,
            prompt=torch.cat([self.prompt, other.prompt + len(self.prompts)]),
            tokens=torch.cat([self.tokens, other.tokens]),
            offsets=torch.cat([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            log_probs=torch.cat([self.log_probs, other.log_probs]),
            plain_log_probs=torch.cat([self.plain_log_probs, other.plain_log_probs]),
            finished=torch.cat([self.finished, other.finished]),
            version=min(self.version, other.version),
            mask=None if is_whole else torch.cat(list(masks)),
        )

    def head(self, n_prompts: int) -> Completions:
        """Those of the first prompts."""
        rows = int((self.prompt < n_prompts).sum())
        last = int(self.offsets[rows])
        return replace(
            self,
            prompts=self.prompts[:n_prompts],
            prompt=self.prompt[:rows],
            tokens=self.tokens[:last],
            offsets=self.offsets[: rows + 1],
            log_probs=self.log_probs[:last],
            plain_log_probs=self.plain_log_probs[:last],
            finished=self.finished[:rows],
            mask=None if self.mask is None else self.mask[:last],
        )

    def to(self, device: torch.device | str) -> Completions:
        """The same on a device."""
        moved: dict[str, Any] = {
            name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)
        }
        return replace(self, prompts=[one.to(device) for one in self.prompts], **moved)
