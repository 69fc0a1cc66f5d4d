"""Supervised fine-tuning: the likelihood of completions that are given."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents.language_offline import OfflineLanguageAgent
from sharpwave.config.language import LanguageConfig
from sharpwave.core.lazy import llm, losses, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OfflineLanguageLearner, n_tokens
from sharpwave.loops.examples import DemonstrationLoop
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback

if TYPE_CHECKING:
    from sharpwave.llm import Demonstrations, TokenBatch

__all__ = ["SFT", "SFTConfig", "SFTLearner"]


@dataclass(frozen=True, kw_only=True)
class SFTConfig(LanguageConfig):
    """Options of supervised fine-tuning."""

    n_examples: int = 16
    """Examples of an update."""
    loss: Literal["nll", "dft"] = "nll"
    """Loss of a token: its negative log-likelihood, or that times its probability (dynamic
    fine-tuning, Wu et al., 2025), by which unlikely tokens weigh no more than others."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_examples")


class SFTLearner(OfflineLanguageLearner):
    r"""The learning rule of supervised fine-tuning.

    Over the tokens $t$ of all completions of an update, those of prompts not among them:

    $$L = -\frac{1}{N} \sum_t \log \pi_\theta(t)$$
    """

    def update(self, batch: TokenBatch) -> Metrics:
        """A gradient step on examples, in which every token counts the same."""
        mask = batch.loss_mask
        total = max(n_tokens(batch), 1) if mask is None else mask.sum().clamp_min(1)
        metrics = self.descend(batch, lambda part: self.loss(part, total), size=n_tokens)
        self.updates += 1
        return metrics

    def loss(self, part: TokenBatch, total: torch.Tensor | int) -> tuple[torch.Tensor, Metrics]:
        """The loss of a part of `total` tokens, whose parts add up, and measures of it."""
        log_probs = llm.score(self.model, part).log_probs
        loss = losses.sft_loss(
            log_probs, kind=self.config.loss, mask=part.loss_mask, n_tokens=total
        )
        return loss, {"log_prob": log_probs.detach().sum() / max(len(log_probs), 1)}

    def judge(self, batch: TokenBatch) -> torch.Tensor:
        """The mean log-probability [N] of a token of each completion."""
        log_probs = self._score(self.model, batch)
        sequences = losses.Sequences.of(batch.completion_lengths)
        return sequences.mean(log_probs, torch.ones_like(log_probs))


class SFT(OfflineLanguageAgent):
    """SFT: supervised fine-tuning of a language model on demonstrations.

    Args:
        dataset: Prompts with completions; see `llm.Demonstrations`.

    Example:
        >>> task = sw.llm.TASKS["copy4"]
        >>> rows = [{"prompt": x, "completion": task.answer(x)} for x in task.prompts(64)]
        >>> model, tokenizer = sw.nn.Transformer(vocab_size=14), sw.llm.DigitTokenizer()
        >>> agent = sw.SFT(model, 3e-3, dataset=rows, tokenizer=tokenizer, seed=0)
        >>> metrics = agent.train(n_epochs=2)
        >>> metrics["loss"] < 2.6, metrics["timesteps"]
        (True, 8.0)
    """

    name = "sft"
    Config: ClassVar[type[SFTConfig]] = SFTConfig
    Learner: ClassVar[type[SFTLearner]] = SFTLearner
    Loop: ClassVar[type[DemonstrationLoop]] = DemonstrationLoop
    leading_arguments: ClassVar[dict[str, Any]] = {
        "model": inspect.Parameter.empty,
        "learning_rate": None,
        "callbacks": None,
        "logger": None,
    }

    def __init__(
        self,
        model: Any,
        learning_rate: Any = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate}
        super().__init__(model, None, callbacks, logger, given=given, **options)

    def examples(self, source: Any) -> Demonstrations:
        """Prompts with completions, out of whatever holds them."""
        found = llm.Demonstrations.of(source, self.tokenizer)
        return found.fitting(self.model, self.config.truncate_prompt).check(self.model)

    def compute_loss(
        self,
        prompt: torch.Tensor,
        completion: torch.Tensor,
        *,
        prompt_mask: torch.Tensor | None = None,
        completion_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Metrics]:
        """The loss of completions, with gradients, and measures of it.

        Args:
            prompt: [B, P] tokens.
            completion: [B, C] tokens, without the prompt.
            prompt_mask: [B, P] true where a token is valid, false where it is padding.
            completion_mask: [B, C] the same of `completion`.
        """
        masks = {"prompt_mask": prompt_mask, "completion_mask": completion_mask}
        batch = self._padded(prompt, completion, **masks).batch(self.model.device)
        return self.learner.loss(batch, max(n_tokens(batch), 1))  # type: ignore[no-any-return]

    def train_step(self, prompt: Any, completion: Any, **masks: Any) -> dict[str, float]:
        """One update on examples as `compute_loss` takes them, outside of a run."""
        return self._step_on(self._padded(prompt, completion, **masks))

    def _padded(self, *columns: torch.Tensor, **masks: torch.Tensor | None) -> Demonstrations:
        return llm.Demonstrations.of_padded(*columns, **masks).check(self.model)
