"""Online direct preference optimization (Guo et al., 2024, https://arxiv.org/abs/2402.04792)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents.language import OnlineLanguageAgent
from sharpwave.algorithms.dpo import DPOConfig, DPOLearner
from sharpwave.config.language import SamplingConfig
from sharpwave.core.lazy import llm, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OnlineLanguageLearner
from sharpwave.loops.prompts import ComparisonLoop, PromptLoop
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.loggers import LoggerCallback

if TYPE_CHECKING:
    from sharpwave.llm import Completions, Scored, TokenBatch

__all__ = ["OnlineDPO", "OnlineDPOConfig", "OnlineDPOLearner"]


@dataclass(frozen=True, kw_only=True)
class OnlineDPOConfig(DPOConfig, SamplingConfig):
    """Options of online DPO: those of DPO, whose pairs are two completions of a prompt each."""

    aliases: ClassVar[Mapping[str, str]] = {"n_prompts": "n_pairs"}

    @property
    def n_prompts(self) -> int:
        """Prompts of an update, one for each pair."""
        return self.n_pairs

    @property
    def group_size(self) -> int:
        """Completions of each prompt."""
        return 2


class OnlineDPOLearner(DPOLearner, OnlineLanguageLearner):
    """The learning rule of DPO, on pairs that the model wrote."""

    def batch(self, completions: Completions, scored: Scored) -> tuple[TokenBatch, Metrics]:
        """The pairs that differ in reward, the better completion of each first.

        Where neither is better, one is not scored, or both are the same, a pair says nothing.
        """
        first, second = scored.rewards.cpu().view(-1, 2).unbind(1)
        # Of NaN no comparison is true.
        says = ((first > second) | (first < second)) & ~_equal(completions)
        better = 2 * torch.arange(len(first)) + (second > first)
        rows = torch.stack([better, better ^ 1], 1)[says].reshape(-1)
        batch = llm.TokenBatch.of(completions)
        return batch.select(rows.to(batch.tokens.device)), {
            "dropped_fraction": 1 - says.float().mean(),
        }

    def update(self, batch: TokenBatch) -> Metrics:
        """A gradient step on pairs; none where all of them were dropped."""
        if len(batch):
            self.idle = 0
            metrics = super().update(batch)
        else:
            self.updates += 1
            metrics = self.skip()
        return {**metrics, "skipped_updates": self.skipped}


def _equal(completions: Completions) -> torch.Tensor:
    """Mask [N] of the pairs that have the same completion twice."""
    written = [one.tolist() for one in completions]
    return torch.tensor([a == b for a, b in zip(written[::2], written[1::2], strict=True)])


class OnlineDPO(OnlineLanguageAgent):
    """Online DPO: DPO on pairs of completions that the language model writes itself.

    Args:
        preference_fn: Judge of which of two completions is better: a function, or a judge of texts;
            see `llm.Preferences`.
        reward_fn: Scores completions, in place of `preference_fn`; see `llm.Rewards`.

    Raises:
        TypeError: There is neither `preference_fn` nor `reward_fn`, or both.

    Example:
        >>> def higher(pairs):
        ...     return [int(other.sum() > one.sum()) for one, other in pairs]
        >>> agent = sw.OnlineDPO(sw.nn.Transformer(vocab_size=14), preference_fn=higher, seed=0)
        >>> metrics = agent.train_step(torch.tensor([[3, 1], [4, 1]]))
        >>> round(metrics["loss"], 4), metrics["dropped_fraction"]
        (0.6931, 0.0)
    """

    name = "online_dpo"
    Config: ClassVar[type[OnlineDPOConfig]] = OnlineDPOConfig
    Learner: ClassVar[type[OnlineDPOLearner]] = OnlineDPOLearner
    leading_arguments: ClassVar[dict[str, Any]] = {
        "model": inspect.Parameter.empty,
        "ref_model": None,
        "preference_fn": None,
        "beta": None,
        "learning_rate": None,
        "max_new_tokens": None,
        "callbacks": None,
        "logger": None,
    }
    named_arguments: ClassVar[dict[str, Any]] = {
        "reward_fn": None,
        **OnlineLanguageAgent.named_arguments,
    }

    def __init__(
        self,
        model: Any,
        ref_model: Any = None,
        preference_fn: Any = None,
        beta: float | None = None,
        learning_rate: Any = None,
        max_new_tokens: int | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        *,
        reward_fn: Any = None,
        **options: Any,
    ) -> None:
        if (preference_fn is None) == (reward_fn is None):
            got = "neither" if reward_fn is None else "both"
            raise TypeError(f"either preference_fn or reward_fn must be given, got {got}")
        options |= {} if beta is None else {"beta": beta}
        judge = preference_fn
        if judge is not None and not isinstance(judge, llm.Preferences):
            judge = llm.Preferences(judge, options.get("tokenizer"))
        super().__init__(
            model,
            ref_model,
            reward_fn if judge is None else judge,
            learning_rate=learning_rate,
            max_new_tokens=max_new_tokens,
            callbacks=callbacks,
            logger=logger,
            **options,
        )

    def _arguments(self) -> dict[str, Any]:
        arguments = super()._arguments()
        if isinstance(self._rewards, llm.Preferences):
            arguments["preference_fn"] = arguments.pop("reward_fn")
        return arguments

    def loop_kind(self) -> type[PromptLoop]:
        """The class of the loop that feeds the learner."""
        return ComparisonLoop if isinstance(self._rewards, llm.Preferences) else PromptLoop

    def evaluate(
        self, prompts: Any = None, n: int = 1, *, greedy: bool = False
    ) -> EvaluationResult:
        """Complete prompts and score that; or compare it with what the reference writes.

        Args:
            prompts: Prompts to complete; `eval_prompts`, or those of training, when not given.
            n: Completions of each.
            greedy: Take the most likely tokens.

        Returns:
            Rewards of the completions; with `preference_fn` 1 for each that is preferred to one of
            the reference and 0 for others, so that the mean is the rate of wins.
        """
        judge = self._rewards
        if not isinstance(judge, llm.Preferences):
            return super().evaluate(prompts, n, greedy=greedy)
        if self.learner.reference is None:
            raise ValueError(f"loss must have a reference to compare with, got {self.config.loss}")
        found = self._prompts_or_own(prompts)
        ours = self._write(found, n, greedy=greedy)
        theirs = self._write(found, n, greedy=greedy, model=self.learner.reference)
        wins = judge.compare(found.select(ours.prompt.tolist()), list(theirs), list(ours))
        is_judged = ~wins.isnan()
        return EvaluationResult(
            tuple(wins[is_judged].tolist()),
            tuple(ours.lengths.cpu()[is_judged].tolist()),
            each=self.loop.headline.each,
        )
