"""Direct preference optimization (Rafailov et al., 2023, https://arxiv.org/abs/2305.18290)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from sharpwave.agents.language_offline import OfflineLanguageAgent
from sharpwave.config.language import LanguageConfig, PreferenceKind
from sharpwave.core.lazy import llm, losses, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OfflineLanguageLearner
from sharpwave.loops.examples import PairLoop
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback

if TYPE_CHECKING:
    from sharpwave.llm import Pairs, TokenBatch
    from sharpwave.losses import Pair

__all__ = ["DPO", "DPOConfig", "DPOLearner"]

WITHOUT_REFERENCE = {"sft", "simpo", "orpo"}
NAMES = {"reward_chosen": "chosen_reward", "reward_rejected": "rejected_reward"}
"""Names of metrics of the loss among the metrics of an update."""


@dataclass(frozen=True, kw_only=True)
class DPOConfig(LanguageConfig):
    """Options of DPO."""

    beta: float = 0.1
    """Strength β of the KL regularization; implicit rewards are β times log-ratios."""
    n_pairs: int = 16
    """Pairs of an update."""
    loss: PreferenceKind | dict[str, float] = "sigmoid"
    """Kind of preference loss, or several kinds with their weights in the sum;
    `losses.preference_loss` has the formulas."""
    label_smoothing: float = 0.0
    """Assumed probability of wrong labels (label smoothing), for kinds that use it (cdpo, robust,
    exo_pair, aot, simpo)."""
    divergence: Literal["reverse_kl", "forward_kl", "js", "alpha"] = "reverse_kl"
    """f-divergence from the reference that regularizes the policy."""
    alpha: float = 0.5
    """Parameter α of the divergence "alpha"."""
    margin: float = 0.5
    """Target reward margin of simpo."""
    tau: float = 0.05
    """Temperature of discopop."""
    ld_alpha: float = 1.0
    """Weight of the tokens of a completion beyond the length of the shorter one (LD-DPO)."""
    wpo: bool = False
    """Weigh pairs by how likely the policy would write them itself (WPO)."""

    @property
    def n_examples(self) -> int:
        """Number of examples (pairs) of an update."""
        return self.n_pairs

    @property
    def kinds(self) -> dict[str, float]:
        """The kinds of loss, with their weights."""
        return dict(self.loss) if isinstance(self.loss, dict) else {self.loss: 1.0}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("beta", "n_pairs", "tau")
        self.require_range("label_smoothing", 0, 1)
        self.require_range("ld_alpha", 0, 1)
        unknown = [kind for kind in self.kinds if kind not in get_args(PreferenceKind)]
        if unknown or not self.kinds:
            known = ", ".join(map(repr, get_args(PreferenceKind)))
            raise ValueError(f"loss must have kinds out of {known}, got {self.loss!r}")


class DPOLearner(OfflineLanguageLearner):
    r"""The learning rule of DPO.

    A completion $y$ of a prompt has the reward
    $r(y) = \beta\, (\log \pi_\theta(y) - \log \pi_{ref}(y))$, and a pair the loss

    $$L = -\log \sigma(r(y_{chosen}) - r(y_{rejected}))$$

    Batches have the chosen and the rejected completion of each pair one after another.
    """

    @property
    def needs_reference(self) -> bool:
        """True if the loss needs a reference model."""
        return not self.config.kinds.keys() <= WITHOUT_REFERENCE

    def update(self, batch: TokenBatch) -> Metrics:
        """A gradient step on pairs."""
        n_pairs = len(batch) // 2
        metrics = self.descend(
            self.referenced(batch), lambda part: self.loss(part, n_pairs), together=2
        )
        self.updates += 1
        return metrics

    def loss(self, part: TokenBatch, n_pairs: int) -> tuple[torch.Tensor, Metrics]:
        """The loss of a part of `n_pairs` pairs, whose parts add up, and measures of it."""
        config = self.config
        scores = llm.score(self.model, part, collisions=config.wpo)
        weights = None
        if scores.log_collisions is not None:
            sequences = losses.Sequences.of(part.completion_lengths)
            both = losses.wpo_weights(
                scores.log_probs, scores.log_collisions, sequences, part.loss_mask
            )
            weights = both.view(-1, 2).prod(1)
        ref = part.ref_log_probs
        loss, measured = losses.preference_loss(
            self.sums(part, scores.log_probs),
            None if ref is None else self.sums(part, ref),
            _pair(part.learned_lengths),
            kind=config.kinds,
            beta=config.beta,
            label_smoothing=config.label_smoothing,
            divergence=config.divergence,
            alpha=config.alpha,
            margin=config.margin,
            tau=config.tau,
            weights=weights,
            n_pairs=n_pairs,
        )
        return loss, {NAMES.get(name, name): value for name, value in measured.items()}

    def sums(self, part: TokenBatch, log_probs: torch.Tensor) -> Pair:
        """Log-probabilities [N] of whole completions, from those of their tokens [T]."""
        shorter = part.learned_lengths.view(-1, 2).amin(1).repeat_interleave(2)
        return _pair(
            losses.completion_log_probs(
                log_probs,
                losses.Sequences.of(part.completion_lengths),
                mask=part.loss_mask,
                shared_lengths=None if self.config.ld_alpha == 1 else shorter,
                ld_alpha=self.config.ld_alpha,
            )
        )

    def judge(self, batch: TokenBatch) -> torch.Tensor:
        """1 for each pair [N] whose chosen completion has the higher reward, 0 for others."""
        ref = self.referenced(batch).ref_log_probs
        log_probs = self._score(self.model, batch)
        if ref is not None:
            chosen, rejected = self.sums(batch, log_probs - ref)
        else:
            both = losses.Sequences.of(batch.completion_lengths)
            chosen, rejected = _pair(both.mean(log_probs, torch.ones_like(log_probs)))
        return (chosen > rejected).float()


def _pair(values: torch.Tensor) -> Pair:
    """Chosen and rejected [N] of what a batch has one after another [2N]."""
    chosen, rejected = values.view(-1, 2).unbind(1)
    return losses.Pair(chosen, rejected)


class DPO(OfflineLanguageAgent):
    """DPO: direct preference optimization of a language model, on pairs of completions.

    Args:
        dataset: Pairs of completions; see `llm.Pairs`.

    Example:
        >>> agent = sw.DPO(sw.nn.Transformer(vocab_size=14), learning_rate=1e-3, seed=0)
        >>> prompt, one, other = torch.tensor([[3, 1]]), torch.tensor([[1]]), torch.tensor([[3]])
        >>> metrics = [agent.train_step(prompt, one, other) for _ in range(3)]
        >>> round(metrics[0]["loss"], 4), metrics[2]["loss"] < metrics[0]["loss"]
        (0.6931, True)
    """

    name = "dpo"
    Config: ClassVar[type[DPOConfig]] = DPOConfig
    Learner: ClassVar[type[DPOLearner]] = DPOLearner
    Loop: ClassVar[type[PairLoop]] = PairLoop
    leading_arguments: ClassVar[dict[str, Any]] = {
        "model": inspect.Parameter.empty,
        "ref_model": None,
        "beta": None,
        "learning_rate": None,
        "callbacks": None,
        "logger": None,
    }

    def __init__(
        self,
        model: Any,
        ref_model: Any = None,
        beta: float | None = None,
        learning_rate: Any = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        **options: Any,
    ) -> None:
        given = {"beta": beta, "learning_rate": learning_rate}
        super().__init__(model, ref_model, callbacks, logger, given=given, **options)

    def examples(self, source: Any) -> Pairs:
        """Pairs, out of whatever holds them."""
        found = llm.Pairs.of(source, self.tokenizer)
        return found.fitting(self.model, self.config.truncate_prompt).check(self.model)

    def compute_loss(
        self,
        prompt: torch.Tensor,
        chosen: torch.Tensor,
        rejected: torch.Tensor,
        *,
        prompt_mask: torch.Tensor | None = None,
        chosen_mask: torch.Tensor | None = None,
        rejected_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Metrics]:
        """The loss of pairs, with gradients, and measures of it.

        Args:
            prompt: [B, P] tokens.
            chosen: [B, C] tokens of the completions that were preferred, without the prompt.
            rejected: [B, R] tokens of the others.
            prompt_mask: [B, P] true where a token is valid, false where it is padding.
            chosen_mask: [B, C] the same of `chosen`.
            rejected_mask: [B, R] the same of `rejected`.
        """
        masks = {
            "prompt_mask": prompt_mask,
            "chosen_mask": chosen_mask,
            "rejected_mask": rejected_mask,
        }
        batch = self._pairs(prompt, chosen, rejected, **masks).batch(self.model.device)
        batch = self.learner.referenced(batch)
        return self.learner.loss(batch, len(batch) // 2)  # type: ignore[no-any-return]

    def train_step(self, prompt: Any, chosen: Any, rejected: Any, **masks: Any) -> dict[str, float]:
        """One update on pairs as `compute_loss` takes them, outside of a run."""
        return self._step_on(self._pairs(prompt, chosen, rejected, **masks))

    def _pairs(self, *columns: torch.Tensor, **masks: torch.Tensor | None) -> Pairs:
        return llm.Pairs.of_padded(*columns, **masks).check(self.model)
