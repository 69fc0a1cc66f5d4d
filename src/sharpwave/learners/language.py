"""Learners of language models: a model, its reference and its optimizer."""

from __future__ import annotations

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.core.lazy import llm, nn, torch
from sharpwave.core.notice import notice
from sharpwave.core.ranks import Ranks
from sharpwave.learners.base import BaseLearner, Metrics
from sharpwave.learners.devices import torch_threads
from sharpwave.learners.model_optimizer import ModelOptimizer
from sharpwave.learners.sharding import ShardedModel, Shards, shards_of

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.llm import CausalModel, Completions, Scored, TokenBatch

__all__ = ["LanguageLearner", "OfflineLanguageLearner", "OnlineLanguageLearner", "n_tokens"]

MOST_IDLE = 10
"""Consecutive updates with nothing to learn from before a warning."""


class LanguageLearner(BaseLearner):
    """A language model that learns; it writes by a sampler, not by `act`.

    Args:
        config: Options.
        model: The model to train, in place: the module is the user's own.
        reference: The reference model; a copy of the model as it is now where one is needed.

    Attributes:
        model: The model in training.
        reference: The reference model; None where nothing needs it.
        ranks: The processes that learn together. Where there are several, the weights lie in
            shards, and a model has all of them inside of `whole` alone.
    """

    kind: ClassVar[str] = "torch"

    def __init__(
        self, config: Any, model: CausalModel, reference: CausalModel | None = None
    ) -> None:
        super().__init__(config)
        self.model = model
        if reference is None and self.needs_reference:
            reference = model.reference()
        self.reference = reference if self.needs_reference else None
        self.networks["model"] = model.module
        if self.reference is not None and self.reference.module is not model.module:
            self.networks["reference"] = self.reference.module
        self.ranks = Ranks.join(config.sharding)
        self._sharded: ShardedModel | None = None
        if not self.ranks.is_alone:
            self._shard()
        every = getattr(config, "ref_sync_every", 0)
        if every and "reference" not in self.networks:
            raise ValueError(
                "ref_sync_every must be 0 where the reference has no weights of its own, as with "
                f"an adapter or kl_coef=0, got {every}"
            )
        self.optimizers["model"] = ModelOptimizer(
            self.model.module,
            1.0,  # until the first `follow`
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        self.follow(1.0)

    @property
    def needs_reference(self) -> bool:
        """True if the loss needs a reference model."""
        return False

    @property
    def device_name(self) -> str:
        """Name of the device of the model."""
        return str(self.model.device)

    @abstractmethod
    def update(self, batch: TokenBatch) -> Metrics:
        """Learn from a batch, and count it in `updates`."""

    def descend(
        self,
        batch: TokenBatch,
        loss: Callable[[TokenBatch], tuple[Tensor, Metrics]],
        *,
        together: int = 1,
        size: Callable[[TokenBatch], int] = len,
    ) -> Metrics:
        """One gradient step on a batch, over all of its micro-batches.

        Args:
            batch: What to learn from; where it is empty, nothing moves.
            loss: The loss of a part, whose parts add up, and measures of it.
            together: So many sequences, one after another, stay in one part.
            size: Of a part: how much its measures count in those of the whole, which are means
                over the parts, or where their name ends with `_max` the largest.

        Returns:
            The loss, the norm of its gradient, and the measures.

        Raises:
            MemoryError: A pass of half of `max_tokens` does not fit into the memory of the device.
        """
        try:
            return self._gradient_step(batch, loss, together, size)
        except torch.OutOfMemoryError:
            if not self.ranks.is_alone:  # the others are elsewhere in the step
                raise
            full, half = self.config.max_tokens, max(self.config.max_tokens // 2, 1)
            self.config = self.config.merge(max_tokens=half)
        # Outside of the exception, which holds what the pass had computed so far.
        self.optimizers["model"].zero_grad()
        torch.cuda.empty_cache()
        notice(f"a pass of {full:,} tokens does not fit into memory: max_tokens is {half:,} now")
        try:
            return self._gradient_step(batch, loss, together, size)
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"max_tokens must be smaller than {half:,}, which does not fit either: "
                f"{self._memory()}"
            ) from error

    def _memory(self) -> str:
        """Description of the memory that weights and optimizer take, and of the device's memory."""
        weights = {id(x): x for net in self.networks.values() for x in net.parameters()}
        moments = self.optimizers["model"].arrays()
        taken = sum(x.nbytes for x in (*weights.values(), *moments.values())) / 2**30
        found = f"weights and moments take {taken:,.2f} GiB"
        if self.model.device.type != "cuda":
            return found
        return f"{found} of {torch.cuda.mem_get_info(self.model.device)[1] / 2**30:,.2f} GiB"

    def _gradient_step(
        self,
        batch: TokenBatch,
        loss: Callable[[TokenBatch], tuple[Tensor, Metrics]],
        together: int,
        size: Callable[[TokenBatch], int],
    ) -> Metrics:
        optimizer, total = self.optimizers["model"], max(size(batch), 1)
        found: Metrics = {"loss": 0.0}
        optimizer.zero_grad()
        with self._recomputing():
            for part, counts in self._parts(batch, together):
                value, measured = self._pass(loss, part)
                (value * counts).backward()
                found["loss"] += value.detach() * counts
                share = counts * size(part) / total
                for name, one in measured.items():
                    if name.endswith("_max"):
                        found[name] = one.maximum(found.get(name, one))
                    else:
                        found[name] = found.get(name, 0.0) + one * share
        if not self.ranks.is_alone:
            found = self._over_ranks(found)
        grad_norm = optimizer.step(self.config.max_grad_norm) if len(batch) else 0.0
        return {**found, "grad_norm": grad_norm}

    def _parts(self, batch: TokenBatch, together: int) -> Iterator[tuple[TokenBatch, float]]:
        """Micro-batches of this process's share of a batch, and the weights of their losses.

        All processes have as many: who has fewer repeats one that does not count.
        """
        padded = not self.model.packs
        if self.ranks.is_alone:
            for rows in batch.cut(self.config.max_tokens, together, padded=padded):
                yield batch.select(rows), 1.0
            return
        # Long and short sequences go round, so that all processes have about as many tokens.
        order = batch.lengths.view(-1, together).amax(1).argsort(stable=True)
        rows = order[:, None] * together + torch.arange(together, device=order.device)
        own = batch.select(rows[self.ranks.rank :: self.ranks.size].reshape(-1))
        parts = list(own.cut(self.config.max_tokens, together, padded=padded))
        missing = max(self.ranks.gather(len(parts))) - len(parts)
        for part in parts:
            yield own.select(part), 1.0
        for _ in range(missing):
            yield batch.select(rows[0]), 0.0

    def _pass(
        self, loss: Callable[[TokenBatch], tuple[Tensor, Metrics]], part: TokenBatch
    ) -> tuple[Tensor, Metrics]:
        """The loss of a part, and measures of it."""
        sharded = self._sharded
        return loss(part) if sharded is None else sharded.run(lambda: loss(part))

    def _recomputing(self) -> contextlib.AbstractContextManager[None]:
        if not self.config.gradient_checkpointing:
            return contextlib.nullcontext()
        return nn.recomputing(self.model.module, by_switch=self.model.packs)

    def _over_ranks(self, found: Metrics) -> Metrics:
        """Measures of all processes together."""
        every = self.ranks.gather({name: float(value) for name, value in found.items()})
        return {
            name: (max if name.endswith("_max") else sum)(one[name] for one in every)
            for name in found
        }

    def referenced(self, batch: TokenBatch) -> TokenBatch:
        """The batch with log-probabilities under the reference, where one is needed."""
        if self.reference is None or batch.ref_log_probs is not None:
            return batch
        return batch.replace(ref_log_probs=self.score_reference(batch))

    def score_reference(self, batch: TokenBatch) -> Tensor:
        """Log-probabilities [T] under the reference."""
        return self._score(self.reference, batch)

    def sync_reference(self, weight: float = 1.0) -> None:
        """Move the weights of the reference by a share of the way to those of the model."""
        reference, model = self.networks["reference"], self.networks["model"]
        with torch.no_grad():
            for theirs, ours in zip(reference.parameters(), model.parameters(), strict=True):
                theirs.lerp_(ours.to(theirs.dtype), weight)

    def _score(self, model: Any, batch: TokenBatch) -> Tensor:
        options = {"max_tokens": self.config.max_tokens, "temperature": self.temperature}
        with self.whole(model) as found:
            if self.ranks.is_alone:
                return llm.score_all(found, batch, **options)
            own = torch.arange(len(batch), device=batch.tokens.device)[
                slice(self.ranks.rank, None, self.ranks.size)
            ]
            log_probs = batch.tokens.new_zeros(len(batch.sequence), dtype=torch.float32)
            at = torch.isin(batch.sequence, own)
            log_probs[at] = llm.score_all(found, batch.select(own), **options)
        return self.ranks.sum(log_probs)

    # Several processes

    def _shard(self) -> None:
        """Cut weights into shards; modules that were given have theirs inside of `whole` alone."""
        self._whole = self.model
        if "reference" in self.networks:
            assert self.reference is not None
            self.networks["reference"] = shards_of(self.reference, self.ranks)
        self._sharded = ShardedModel(self.model, self.ranks)
        self.networks["model"] = self._sharded
        self.model = self._sharded.model
        self.ranks.helpers["whole"] = self._help_whole

    @contextlib.contextmanager
    def whole(self, model: CausalModel | None = None) -> Iterator[CausalModel]:
        """Inside, a model has all of its weights: that which learns, or the reference.

        All processes come here together, unless callbacks do in the first one.
        """
        found = self.model if model is None else model
        if self._sharded is None:
            yield found
            return
        found = self._whole if found is self.model else found
        name = "model" if found.module is self._whole.module else "reference"
        self.ranks.ask("whole", name)
        shards: Shards = self.networks[name]
        with shards.whole():
            yield found

    def _help_whole(self, name: str) -> None:
        with self.networks[name].whole():
            pass

    def gather(self) -> None:
        """Give the modules that were given their weights for good; nothing learns after that."""
        for network in self.networks.values():
            if isinstance(network, Shards):
                network.restore()

    @property
    def temperature(self) -> float:
        """Temperature of log-probabilities."""
        return 1.0

    def few_threads(self, rows: int) -> Any:
        """Context in which torch uses as many threads as pay off."""
        return torch_threads(self.config.threads, [self.model.module], rows)


class OnlineLanguageLearner(LanguageLearner):
    """A language model that learns from what it writes.

    Attributes:
        idle: Updates in a row that had nothing to learn from.
        skipped: All updates that had not.
    """

    idle = skipped = 0

    def skip(self) -> Metrics:
        """Count an update that has nothing to learn from, instead of a gradient step."""
        self.idle, self.skipped = self.idle + 1, self.skipped + 1
        if self.idle == MOST_IDLE:
            warnings.warn(
                f"{MOST_IDLE} updates in a row had nothing to learn from: the completions of each "
                "prompt are worth the same",
                stacklevel=3,
            )
        return {"loss": 0.0, "grad_norm": 0.0}

    def extra_state(self) -> dict[str, Any]:
        """Numbers of updates that had nothing to learn from."""
        return {"idle": self.idle, "skipped": self.skipped}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.idle, self.skipped = int(state.get("idle", 0)), int(state.get("skipped", 0))

    def teaches(self, scored: Scored) -> Tensor | None:  # noqa: ARG002
        """Mask [G] of the groups of completions to learn from; None for all."""
        return None

    @abstractmethod
    def batch(self, completions: Completions, scored: Scored) -> tuple[TokenBatch, Metrics]:
        """The batch of completions and their rewards to learn from, and its metrics."""


class OfflineLanguageLearner(LanguageLearner):
    """A language model that learns from examples."""

    @abstractmethod
    def judge(self, batch: TokenBatch) -> Tensor:
        """Score of the model on each example, without gradients; higher is better."""


def n_tokens(batch: TokenBatch) -> int:
    """Completion tokens of a batch."""
    return len(batch.sequence)
