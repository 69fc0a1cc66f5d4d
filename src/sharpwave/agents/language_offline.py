"""Agents that are language models and learn from examples."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents.language import LanguageAgent, updates_of
from sharpwave.config.options import RunConfig
from sharpwave.core.lazy import llm
from sharpwave.loops.examples import ExampleLoop
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.loggers import LoggerCallback

if TYPE_CHECKING:
    from sharpwave.learners import Metrics
    from sharpwave.llm import Examples

__all__ = ["OfflineLanguageAgent"]


class OfflineLanguageAgent(LanguageAgent):
    """A language model that learns from examples.

    Args:
        model: A module with `forward(ids) -> logits`, or a causal model of Hugging Face; it learns
            in place.
        ref_model: Reference model of the KL penalty; the model as it is now when not given.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.
        tokenizer: Turns text into tokens and back.
        dataset: The dataset to learn from.
        eval_dataset: Dataset of `evaluate`; `dataset` when not given.
        cache_reference: A file that keeps the log-probabilities of the dataset under the reference,
            so that they are computed once, for this run and for others; None computes them anew in
            every update. What belongs to another model, tokenizer or dataset is refused.
        learner: A class derived from the algorithm's learner, in place of it.
        config: All options at once; single options given by name win over it.
        given: Fields of `Config` that the constructor names; those that are None were not given.
        **overrides: Any field of `Config`.

    Raises:
        TypeError: An option does not exist, `model` is no language model, or text comes without a
            tokenizer.
        ValueError: An option has an impossible value, or the dataset has nothing to learn from.
    """

    named_arguments: ClassVar[dict[str, Any]] = {
        "tokenizer": None,
        "dataset": None,
        "eval_dataset": None,
        "cache_reference": None,
        "learner": None,
    }
    Loop: ClassVar[type[ExampleLoop]]
    loop: ExampleLoop

    def __init__(
        self,
        model: Any,
        ref_model: Any,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        *,
        tokenizer: Any = None,
        dataset: Any = None,
        eval_dataset: Any = None,
        cache_reference: str | os.PathLike[str] | None = None,
        learner: Any = None,
        config: RunConfig | dict[str, Any] | None = None,
        given: dict[str, Any],
        **overrides: Any,
    ) -> None:
        super().__init__(
            model,
            ref_model,
            callbacks,
            logger,
            tokenizer=tokenizer,
            learner=learner,
            config=config,
            given=given,
            **overrides,
        )
        self._examples = None if dataset is None else self.examples(dataset)
        self.eval_examples = None if eval_dataset is None else self.examples(eval_dataset)
        self._cache = None if cache_reference is None else Path(cache_reference)
        self.build()
        if self._cache is not None and self.learner.reference is None:
            raise ValueError(
                f"cache_reference must be None where nothing is held near to a reference, got "
                f"{str(cache_reference)!r}"
            )

    def build(self) -> None:
        """Make the learner, and the loop that feeds it."""
        self.learner = self.make_learner()
        self.loop = self.Loop(self.learner, self.config, examples=self._examples, seed=self.seed)

    @abstractmethod
    def examples(self, source: Any) -> Examples:
        """The examples to learn from, read from a dataset, a file or rows."""

    def train(
        self,
        dataset: Any = None,
        n_epochs: int | None = None,
        *,
        n_updates: int | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> dict[str, float]:
        """Learn for a number of updates.

        Args:
            dataset: The dataset to learn from, in place of the constructor's.
            n_epochs: Number of passes over the dataset; 1 when `dataset` alone is given.
            n_updates: Updates to add, in place of epochs; `config.total_timesteps` when neither is
                given.
            callbacks: Called during this run, after the agent's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report.
            resume: Go on with the run that `run_dir` holds, if it holds one.

        Returns:
            Metrics of the last update.

        Raises:
            ValueError: There is no dataset, a number is not a positive integer, or
                `cache_reference` belongs to another model, tokenizer or dataset.
        """
        if dataset is not None:
            self._examples = self.examples(dataset)
            n_epochs = 1 if n_epochs is None and n_updates is None else n_epochs
        self.loop.examples = self._with_reference()
        self.loop.check()
        if n_epochs is not None and n_updates is None:
            assert self.loop.examples is not None
            n_updates = updates_of(n_epochs, len(self.loop.examples), self.config.n_examples)
        return self.run.train(n_updates, callbacks, run_dir, resume)

    def _with_reference(self) -> Examples | None:
        """The dataset, with what the reference says of it where that is kept."""
        if self._cache is None or self._examples is None:
            return self._examples
        learner = self.learner
        return llm.with_cached_reference(
            self._examples, self._cache, learner.reference, learner.score_reference
        )

    def evaluate(self, dataset: Any = None) -> EvaluationResult:
        """Evaluate the model on examples.

        Args:
            dataset: The examples; `eval_dataset`, or those of training, when not given.

        Returns:
            A number for each example (`returns`), more of which is better, and the tokens of its
            completions (`lengths`).
        """
        given = self.eval_examples or self._examples if dataset is None else dataset
        if given is None:
            raise ValueError("dataset must be given: the agent has none of its own")
        batch = self.examples(given).batch(self.model.device)
        judged = self.learner.judge(batch)
        lengths = batch.completion_lengths.view(len(judged), -1).sum(1)
        returns, each = tuple(judged.tolist()), self.loop.headline.each
        return EvaluationResult(returns, tuple(lengths.tolist()), each=each)

    def evaluate_in_run(
        self,
        n_episodes: int,
        *,
        env: Any = None,
        deterministic: bool = True,  # noqa: ARG002
    ) -> EvaluationResult:
        """The evaluation of `EvalCallback`: the first examples take the place of episodes."""
        given = env if env is not None else self.eval_examples or self._examples
        found = self.examples(given)
        return self.evaluate(found.select(range(min(n_episodes, len(found)))))

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            "dataset": self._examples,
            "eval_dataset": self.eval_examples,
            "cache_reference": self._cache,
        }

    def _step_on(self, examples: Examples) -> dict[str, float]:
        """One update on examples, outside of a run."""
        from sharpwave.runs.recorded import fetched

        metrics: Metrics = self.learner.update(examples.batch(self.model.device))
        self.loop.timesteps += 1
        return fetched(metrics)
