"""Learners of language models: a model, its reference and its optimizer."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.learners.base import BaseLearner, Metrics
from sharpwave.learners.model_optimizer import ModelOptimizer
from sharpwave.learners.threads import torch_threads

if TYPE_CHECKING:
    from sharpwave.llm import CausalModel, Completions, Scored, TokenBatch

__all__ = ["LanguageLearner", "OnlineLanguageLearner"]


class LanguageLearner(BaseLearner):
    """A language model that learns; it writes by a sampler, not by `act`.

    Args:
        config: Options.
        model: What learns, in place: the module is the user's own.
        reference: What it is held near to; made of the model as it is now when it is needed.

    Attributes:
        model: What learns.
        reference: The same before; None where nothing needs it.
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
        self.optimizers["model"] = ModelOptimizer(
            model.module,
            1.0,  # until the first `follow`
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        self.follow(1.0)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss looks at a reference."""
        return False

    @property
    def device_name(self) -> str:
        """Where the model lives."""
        return str(self.model.device)

    @abstractmethod
    def update(self, batch: TokenBatch) -> Metrics:
        """Learn from a batch, and count it in `updates`."""

    def few_threads(self, rows: int) -> Any:
        """Inside, torch has as many threads as help."""
        return torch_threads(self.config.threads, [self.model.module], rows)


class OnlineLanguageLearner(LanguageLearner):
    """A language model that learns from what it writes."""

    @abstractmethod
    def batch(self, completions: Completions, scored: Scored) -> tuple[TokenBatch, Metrics]:
        """What there is to learn from completions and their rewards, and measures of it."""
