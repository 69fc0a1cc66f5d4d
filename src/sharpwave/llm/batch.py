"""Batches of a language model: sequences of tokens without padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.completions import Completions

__all__ = ["TokenBatch"]

_PER_SEQUENCE = ("prompt_lengths", "advantages", "group", "row")
_PER_TOKEN = (
    "loss_mask",
    "token_advantages",
    "old_log_probs",
    "ref_log_probs",
    "sampler_log_probs",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenBatch:
    """N sequences, prompt and completion, one after another.

    Columns of completions (T tokens in all) are as flat, in the same order.

    Attributes:
        tokens: [S] tokens of all sequences.
        offsets: [N + 1] boundaries of the sequences among them.
        prompt_lengths: [N] number of prompt tokens of each.
        advantages: [N] advantage of each completion.
        group: [N] the prompt that each belongs to.
        row: [N] the number of each among the completions that were written.
        loss_mask: [T] true for completion tokens in the loss; all when None.
        token_advantages: [T] the same of single tokens; those of their completion when None.
        old_log_probs: [T] log-probabilities under the policy before the update.
        ref_log_probs: [T] log-probabilities under the reference.
        sampler_log_probs: [T] as the sampler computed them, at the temperature of learning.
        version: Of the weights that wrote the completions.
    """

    tokens: Tensor
    offsets: Tensor
    prompt_lengths: Tensor
    advantages: Tensor | None = None
    group: Tensor | None = None
    row: Tensor | None = None
    loss_mask: Tensor | None = None
    token_advantages: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    sampler_log_probs: Tensor | None = None
    version: int = 0

    @classmethod
    def of(cls, completions: Completions, **columns: Any) -> TokenBatch:
        """The batch of completions that a model wrote."""
        lengths = torch.tensor(
            [len(x) for x in completions.prompts], device=completions.tokens.device
        )
        return cls.of_sequences(
            completions.sequences(),
            lengths[completions.prompt],
            group=completions.prompt,
            row=torch.arange(len(completions), device=lengths.device),
            loss_mask=completions.mask,
            sampler_log_probs=completions.plain_log_probs,
            version=completions.version,
            **columns,
        )

    @classmethod
    def of_sequences(
        cls, sequences: Sequence[Tensor], prompt_lengths: Tensor, **columns: Any
    ) -> TokenBatch:
        """The batch of sequences [L_i] whose first tokens were given."""
        tokens = torch.cat(list(sequences))
        lengths = torch.tensor([len(one) for one in sequences], device=tokens.device)
        return cls(
            tokens=tokens, offsets=_offsets(lengths), prompt_lengths=prompt_lengths, **columns
        )

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def lengths(self) -> Tensor:
        """[N] tokens of each sequence."""
        return self.offsets.diff()

    @property
    def completion_lengths(self) -> Tensor:
        """[N] tokens of each completion."""
        return self.lengths - self.prompt_lengths

    @property
    def learned_lengths(self) -> Tensor:
        """[N] tokens of each completion that are learned from."""
        if self.loss_mask is None:
            return self.completion_lengths
        return torch.bincount(self.sequence[self.loss_mask.bool()], minlength=len(self))

    @property
    def sequence(self) -> Tensor:
        """[T] the sequence of each completion token."""
        numbers = torch.arange(len(self), device=self.tokens.device)
        return numbers.repeat_interleave(self.completion_lengths)

    @property
    def position(self) -> Tensor:
        """[T] position of each completion token in its sequence."""
        lengths, sequence = self.completion_lengths, self.sequence
        first = _offsets(lengths)[:-1] - self.prompt_lengths
        return torch.arange(len(sequence), device=sequence.device) - first[sequence]

    @property
    def completion_tokens(self) -> Tensor:
        """[T] tokens of the completions."""
        return self.tokens[self.offsets[:-1][self.sequence] + self.position]

    @property
    def positions(self) -> Tensor:
        """[S] position of each token in its sequence."""
        starts = self.offsets[:-1].repeat_interleave(self.lengths, output_size=len(self.tokens))
        return torch.arange(len(self.tokens), device=starts.device) - starts

    def padded(self) -> Tensor:
        """[N, L] tokens, with 0 after shorter sequences."""
        ids = self.tokens.new_zeros((len(self), int(self.lengths.max())))
        ids[torch.arange(ids.shape[1], device=ids.device) < self.lengths[:, None]] = self.tokens
        return ids

    def replace(self, **columns: Any) -> TokenBatch:
        """The same with other columns."""
        return replace(self, **columns)

    def masked(self, mask: Tensor) -> TokenBatch:
        """The same, of which only those completion tokens [T] are learned from."""
        return self.replace(loss_mask=mask if self.loss_mask is None else self.loss_mask & mask)

    def select(self, rows: Tensor) -> TokenBatch:
        """Some of the sequences, in the order of `rows`."""
        of_tokens = _ranges(self.offsets[:-1][rows], self.lengths[rows])
        completions = _offsets(self.completion_lengths)
        of_completions = _ranges(completions[:-1][rows], self.completion_lengths[rows])
        chosen: dict[str, Any] = {
            "tokens": self.tokens[of_tokens],
            "offsets": _offsets(self.lengths[rows]),
        }
        for names, index in ((_PER_SEQUENCE, rows), (_PER_TOKEN, of_completions)):
            for name in names:
                column = getattr(self, name)
                chosen[name] = None if column is None else column[index]
        return self.replace(**chosen)

    def cut(self, max_tokens: int, together: int = 1, *, padded: bool = True) -> Iterator[Tensor]:
        """Rows of micro-batches: sequences of like length, of at most so many tokens together.

        Args:
            max_tokens: Of a micro-batch; one that holds a single group may have more.
            together: So many sequences, one after another, are a group that stays in one
                micro-batch, as those of a pair do.
            padded: True if padding counts, because the model computes it.
        """
        groups = self.lengths.view(-1, together)
        longest = groups.amax(1)
        order = longest.argsort(stable=True)
        rows = order[:, None] * together + torch.arange(together, device=order.device)
        sizes = (longest * together if padded else groups.sum(1))[order].tolist()
        first = total = 0
        for last, size in enumerate(sizes):
            total = size * (last + 1 - first) if padded else total + size
            if last > first and total > max_tokens:
                yield rows[first:last].reshape(-1)
                first, total = last, size
        if sizes:
            yield rows[first:].reshape(-1)

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same on a device."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {k: x.to(device) for k, x in columns.items() if isinstance(x, Tensor)}
        return self.replace(**moved)


def _offsets(lengths: Tensor) -> Tensor:
    """[N + 1] boundaries of sequences of these lengths."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """All numbers of ranges that begin at `starts`, one range after another."""
    first = (starts - _offsets(lengths)[:-1]).repeat_interleave(lengths)
    return first + torch.arange(len(first), device=first.device)
