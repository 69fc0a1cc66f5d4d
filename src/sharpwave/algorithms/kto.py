"""Kahneman-Tversky optimization (Ethayarajh et al., 2024, https://arxiv.org/abs/2402.01306)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.algorithms.dpo import DPO, NAMES
from sharpwave.config.language import LanguageConfig
from sharpwave.core.lazy import llm, losses, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OfflineLanguageLearner
from sharpwave.loops.examples import RatingLoop

if TYPE_CHECKING:
    from sharpwave.llm import Ratings, TokenBatch

__all__ = ["KTO", "KTOConfig", "KTOLearner"]


@dataclass(frozen=True, kw_only=True)
class KTOConfig(LanguageConfig):
    """Options of KTO."""

    beta: float = 0.1
    """Strength β of the KL regularization; implicit rewards are β times log-ratios."""
    n_examples: int = 16
    """Completions of an update."""
    desirable_weight: float = 1.0
    """Weight of desirable completions in the loss."""
    undesirable_weight: float = 1.0
    """Weight of undesirable completions in the loss."""
    loss: Literal["kto", "apo_zero_unpaired"] = "kto"
    """Baseline of rewards: kto has the KL divergence from the reference, apo_zero_unpaired has 0,
    which saves a pass of the model and one of the reference."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("beta", "n_examples")
        self.require_range("desirable_weight", 0)
        self.require_range("undesirable_weight", 0)


class KTOLearner(OfflineLanguageLearner):
    r"""The learning rule of KTO.

    A completion $y$ has the log-ratio $u = \log \pi_\theta(y) - \log \pi_{ref}(y)$. With the mean
    $z \ge 0$ of $u$ over completions of other prompts, which estimates the divergence, a good
    completion has the loss $w_+ \sigma(\beta (z - u))$, another $w_- \sigma(\beta (u - z))$.
    """

    @property
    def needs_reference(self) -> bool:
        """True if the loss needs a reference model."""
        return True

    def update(self, batch: TokenBatch) -> Metrics:
        """A gradient step on completions that are good, or not."""
        divergence = self.divergence(batch)
        metrics = self.descend(
            self.referenced(batch), lambda part: self.loss(part, divergence, len(batch))
        )
        self.updates += 1
        return metrics

    def divergence(self, batch: TokenBatch) -> torch.Tensor | float:
        """The mean log-ratio of completions after prompts that they do not belong to, or 0."""
        others = None
        if self.config.loss == "kto":
            others = _shifted(batch, self.model.max_positions)
        if others is None:
            return 0.0
        return self.ratios(others, self._score(self.model, others)).mean()

    def loss(
        self, part: TokenBatch, divergence: torch.Tensor | float, n_completions: int
    ) -> tuple[torch.Tensor, Metrics]:
        """The loss of a part of `n_completions`, whose parts add up, and measures of it."""
        config, ref, good = self.config, part.ref_log_probs, part.advantages
        assert ref is not None
        assert good is not None
        sequences = losses.Sequences.of(part.completion_lengths)
        loss, measured = losses.kto_loss(
            sequences.sum(llm.score(self.model, part).log_probs),
            sequences.sum(ref),
            good > 0,
            kl=divergence,
            beta=config.beta,
            desirable_weight=config.desirable_weight,
            undesirable_weight=config.undesirable_weight,
            n_completions=n_completions,
        )
        return loss, {NAMES.get(name, name): value for name, value in measured.items()}

    def ratios(self, batch: TokenBatch, log_probs: torch.Tensor) -> torch.Tensor:
        """Log-ratios [N] of whole completions, from the log-probabilities of their tokens [T]."""
        ref = self.referenced(batch).ref_log_probs
        assert ref is not None
        return losses.Sequences.of(batch.completion_lengths).sum(log_probs - ref)

    def judge(self, batch: TokenBatch) -> torch.Tensor:
        """1 for each completion [N] whose log-ratio has the sign of its label, 0 for others."""
        assert batch.advantages is not None
        ratios = self.ratios(batch, self._score(self.model, batch))
        return (ratios * batch.advantages > 0).float()


def _shifted(batch: TokenBatch, room: int | None) -> TokenBatch | None:
    """Prompts with the completion of the next one; None where none has room for it."""
    rows = list(
        zip(batch.tokens.split(batch.lengths.tolist()), batch.prompt_lengths.tolist(), strict=True)
    )
    pairs = [(x[:n], y[m:]) for (x, n), (y, m) in zip(rows, rows[1:] + rows[:1], strict=True)]
    fits = [(x, y) for x, y in pairs if room is None or len(x) + len(y) <= room]
    if len(rows) < 2 or not fits:
        return None
    lengths = batch.prompt_lengths.new_tensor([len(x) for x, _ in fits])
    return llm.TokenBatch.of_sequences([torch.cat(both) for both in fits], lengths)


class KTO(DPO):
    """KTO: Kahneman-Tversky optimization of a language model, on good and bad completions.

    Args:
        dataset: Completions with labels; see `llm.Ratings`.

    Example:
        >>> rows = [
        ...     {"prompt": [3, 1], "completion": [1], "label": True},
        ...     {"prompt": [3, 1], "completion": [3], "label": False},
        ... ]
        >>> agent = sw.KTO(sw.nn.Transformer(vocab_size=14), learning_rate=1e-3, dataset=rows)
        >>> first, last = agent.train(n_updates=1), agent.train(n_updates=3)
        >>> round(first["loss"], 4), last["loss"] < first["loss"]
        (0.5, True)
    """

    name = "kto"
    Config: ClassVar[type[Any]] = KTOConfig
    Learner: ClassVar[type[Any]] = KTOLearner
    Loop: ClassVar[type[Any]] = RatingLoop

    def examples(self, source: Any) -> Ratings:  # type: ignore[override]
        """Completions with labels, out of whatever holds them."""
        found = llm.Ratings.of(source, self.tokenizer)
        return found.fitting(self.model, self.config.truncate_prompt).check(self.model)

    def compute_loss(  # type: ignore[override]
        self, prompt: torch.Tensor, completion: torch.Tensor, label: torch.Tensor, **masks: Any
    ) -> tuple[torch.Tensor, Metrics]:
        """The loss of completions, with gradients, and measures of it.

        Args:
            prompt: [B, P] tokens.
            completion: [B, C] tokens, without the prompt.
            label: [B] true for good completions.
            **masks: `prompt_mask` and `completion_mask` like these, true where a token is valid.
        """
        batch = self._rated(prompt, completion, label, **masks).batch(self.model.device)
        learner = self.learner
        return learner.loss(  # type: ignore[no-any-return]
            learner.referenced(batch), learner.divergence(batch), len(batch)
        )

    def train_step(  # type: ignore[override]
        self, prompt: Any, completion: Any, label: Any, **masks: Any
    ) -> dict[str, float]:
        """One update on completions as `compute_loss` takes them, outside of a run."""
        return self._step_on(self._rated(prompt, completion, label, **masks))

    def _rated(self, prompt: Any, completion: Any, label: Any, **masks: Any) -> Ratings:
        found = llm.Ratings.of_padded(prompt, completion, **masks).check(self.model)
        return replace(found, good=[bool(one) for one in label])
