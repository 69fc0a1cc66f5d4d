"""Completions of language models, stored on disk to inspect and to learn from again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from sharpwave.episodes import EpisodeBuffer
from sharpwave.episodes.table import EpisodeTable
from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import Scored
from sharpwave.storage.folder import is_store
from sharpwave.types import Array

__all__ = ["CompletionStore", "Written"]


class Written(NamedTuple):
    """Prompts, their completions, and the rewards of these.

    Attributes:
        prompts: The prompts.
        completions: Their completions.
        scored: Rewards of the completions.
    """

    prompts: Prompts
    completions: Completions
    scored: Scored

    def join(self, other: Written) -> Written:
        """Both, one after the other."""
        texts, more = self.prompts.texts, other.prompts.texts
        return Written(
            Prompts(
                self.prompts.tokens + other.prompts.tokens,
                None if texts is None or more is None else texts + more,
                {
                    x: column + other.prompts.columns[x]
                    for x, column in self.prompts.columns.items()
                },
            ),
            self.completions.join(other.completions),
            Scored(
                torch.cat([self.scored.rewards, other.scored.rewards]),
                {
                    name: torch.cat([one, other.scored.by_name[name]])
                    for name, one in self.scored.by_name.items()
                },
            ),
        )

    def to(self, device: torch.device | str) -> Written:
        """The same with the completions on a device."""
        return self._replace(completions=self.completions.to(device))

    def head(self, n_prompts: int) -> Written:
        """The first prompts, with all of their completions."""
        if n_prompts >= len(self.prompts):
            return self
        completions = self.completions.head(n_prompts)
        rows = len(completions)
        return Written(
            self.prompts.select(range(n_prompts)),
            completions,
            Scored(
                self.scored.rewards[:rows],
                {name: one[:rows] for name, one in self.scored.by_name.items()},
            ),
        )


FIELDS = {"token": "int32", "log_prob": "float32"}
META_FIELDS = {
    "number": "int64",
    "group": "int64",
    "version": "int64",
    "prompt_length": "int32",
    "reward": "float64",
    "finished": "bool",
}


class CompletionStore:
    """Completions in a folder, with their rewards: each outlives the process once it is added.

    A completion is an episode of an `EpisodeBuffer`: its tokens, those of the prompt first, with
    the log-probabilities that they were drawn by (NaN for tokens that were not drawn), and for the
    whole its number, the group of completions of the same prompt that it belongs to, the version
    of the weights that wrote it, its reward (NaN where it was not scored), and whether it ended by
    itself. `sharpwave inspect` shows such a folder; `DPO` and `SFT` take it as `dataset`.

    Args:
        folder: Folder of the store; one that holds completions is opened and continued.
        max_completions: Capacity of a new folder in completions; the oldest make room for more.
        max_length: Maximum number of tokens of prompt and completion, in a new folder.
        read_only: Never write.

    Raises:
        SharpwaveIOError: The folder holds something else.
        ValueError: It holds other episodes.

    Example:
        >>> import tempfile
        >>> store = CompletionStore(tempfile.mkdtemp())
        >>> agent = sw.GRPO(
        ...     sw.nn.Transformer(vocab_size=14),
        ...     reward_fn=lambda completions, prompts: [float(one[-1]) for one in completions],
        ...     store=store,
        ... )
        >>> metrics = agent.train([[1, 2], [3, 4]], n_updates=1)
        >>> len(store), sorted(store.best()[0])
        (64, ['completion', 'prompt'])
        >>> store.close()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_completions: int = 1_000_000,
        max_length: int = 1 << 20,
        read_only: bool = False,
    ) -> None:
        if read_only or is_store(folder):
            self.buffer = EpisodeBuffer.from_folder(folder, read_only)
            found = {*self.buffer.schema.fields, *self.buffer.schema.meta_fields}
            if found != {*FIELDS, *META_FIELDS}:
                raise ValueError(f"{folder} must hold completions, got episodes of {sorted(found)}")
        else:
            self.buffer = EpisodeBuffer(
                folder, max_completions, max_length, FIELDS, META_FIELDS, circular=True
            )
        self._number, self._group = self._next("number"), self._next("group")
        self._known = 0

    def __len__(self) -> int:
        return len(self.buffer)

    def add(self, written: Written) -> None:
        """Store completions with their rewards, those of each prompt as a group."""
        completions = written.completions
        prompts = [prompt.cpu().numpy() for prompt in completions.prompts]
        tokens, log_probs = completions.tokens.cpu().numpy(), completions.log_probs.cpu().numpy()
        if completions.mask is not None:
            log_probs = np.where(completions.mask.cpu().numpy(), log_probs, np.nan)
        offsets, finished = completions.offsets.tolist(), completions.finished.tolist()
        rewards = written.scored.rewards.tolist()
        first = self._group
        for row, prompt in enumerate(completions.prompt.tolist()):
            # What a run that went on from a checkpoint writes again is here already.
            if self._known:
                self._known -= 1
                continue
            mine = slice(offsets[row], offsets[row + 1])
            nothing = np.full(len(prompts[prompt]), np.nan, np.float32)
            self.buffer.store_episode(
                token=np.concatenate([prompts[prompt], tokens[mine]]).astype(np.int32),
                log_prob=np.concatenate([nothing, log_probs[mine].astype(np.float32)]),
                number=self._number + row,
                group=first + prompt,
                version=completions.version,
                prompt_length=len(nothing),
                reward=rewards[row],
                finished=finished[row],
            )
        self._number += len(completions)
        self._group += len(prompts)

    def pairs(self) -> list[dict[str, Array]]:
        """The best and the worst completion of each prompt, where rewards differ.

        Returns:
            Tokens by name: `prompt`, `chosen` and `rejected`, as `Pairs.of` takes them.
        """
        found = []
        table = self.buffer.episodes()
        for rows, rewards in _groups(table):
            if rewards.max() > rewards.min():
                prompt, chosen = self._tokens(table, rows[rewards.argmax()])
                _, rejected = self._tokens(table, rows[rewards.argmin()])
                found.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
        return found

    def best(self, at_least: float = -np.inf) -> list[dict[str, Array]]:
        """The best completion of each prompt, the first of equal ones.

        Args:
            at_least: Leave out those with a smaller reward.

        Returns:
            Tokens by name: `prompt` and `completion`, as `Demonstrations.of` takes them.
        """
        found = []
        table = self.buffer.episodes()
        for rows, rewards in _groups(table):
            if rewards.max() >= at_least:
                prompt, completion = self._tokens(table, rows[rewards.argmax()])
                found.append({"prompt": prompt, "completion": completion})
        return found

    def state_dict(self) -> dict[str, Any]:
        """Counters of what a run has stored."""
        return {"number": self._number, "group": self._group}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; what was stored after it comes again, and is kept once."""
        self._known = max(self._next("number") - int(state["number"]), 0)
        self._number, self._group = int(state["number"]), int(state["group"])

    def close(self) -> None:
        """Give the folder back to other writers."""
        self.buffer.close()

    def _next(self, name: str) -> int:
        values = self.buffer.episodes().meta[name]
        return int(values.max()) + 1 if len(values) else 0

    def _tokens(self, table: EpisodeTable, row: int) -> tuple[Array, Array]:
        """Prompt and completion at a position of the table."""
        places = table.starts[row] + np.arange(table.lengths[row])
        tokens = self.buffer.gather(places, ["token"])["token"].astype(np.int64)
        length = int(table.meta["prompt_length"][row])
        return tokens[:length], tokens[length:]


def _groups(table: EpisodeTable) -> Iterator[tuple[Array, Array]]:
    """Positions of the scored completions of each prompt in a table, and their rewards."""
    groups, rewards = table.meta["group"], table.meta["reward"]
    scored = np.flatnonzero(~np.isnan(rewards))
    scored = scored[np.argsort(groups[scored], kind="stable")]
    _, starts = np.unique(groups[scored], return_index=True)
    for rows in np.split(scored, starts[1:]) if len(scored) else ():
        yield rows, rewards[rows]
