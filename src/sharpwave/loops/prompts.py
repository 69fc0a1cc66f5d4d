"""The loop of language models that learn from what they write."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.core.lazy import llm
from sharpwave.loops.ahead import Ahead
from sharpwave.loops.examples import ACCURACY
from sharpwave.loops.loop import Loop, Run
from sharpwave.loops.recent import RECENT, RecentMetric
from sharpwave.pages.headline import Headline
from sharpwave.pages.units import UPDATES

if TYPE_CHECKING:
    from sharpwave.learners import Metrics
    from sharpwave.llm import (
        Completions,
        CompletionStore,
        Preferences,
        Prompts,
        Rewards,
        Sampler,
        TokenBatch,
        Written,
    )

    RolloutFunction = Callable[[Prompts, Sampler, int], TokenBatch]
    """Function of prompts, the sampler and the number of completions of each prompt."""

__all__ = ["ComparisonLoop", "PromptLoop"]


class PromptLoop(Loop):
    """Draws prompts, lets the model complete them, scores that, and learns from it.

    Args:
        learner: The learner, which takes completions.
        config: Options, with `n_prompts`, `group_size` and `max_new_tokens`.
        prompts: Prompts to complete; None until `train` is given some.
        sampler: The sampler of completions.
        rewards: The reward functions.
        seed: Of the order of prompts.
        store: The store that keeps completions; None for none.
        rollout_fn: Writes completions in place of the sampler alone.

    Attributes:
        drawn: Prompts so far.
    """

    unit = UPDATES
    headline = Headline(
        "mean_reward",
        title="Reward",
        hint=f"mean of the last {RECENT} updates",
        each="completion",
    )
    log_every = 1
    measure: ClassVar[str] = "reward"
    """The metric of an update that tells how far learning has come."""

    def __init__(
        self,
        learner: Any,
        config: Any,
        *,
        prompts: Prompts | None,
        sampler: Sampler,
        rewards: Rewards | Preferences,
        seed: int,
        store: CompletionStore | None = None,
        rollout_fn: RolloutFunction | None = None,
    ) -> None:
        super().__init__(learner, config)
        self.prompts = prompts
        self.sampler = sampler
        self.rewards = rewards
        self.store = store
        self.rollout_fn = rollout_fn
        self.seed = seed
        self.drawn = 0
        self._recent = RecentMetric(self.measure)
        self._ahead: Ahead | None = None
        self._stalest = 0
        self.timings |= {"sample": 0.0, "reward": 0.0}

    @property
    def subject(self) -> str:
        """Number of prompts, in words."""
        return "prompts" if self.prompts is None else f"{len(self.prompts):,} prompts"

    @property
    def rows(self) -> int:
        """Completions of an update."""
        return int(self.config.n_prompts * self.config.group_size)

    def check(self) -> None:
        """Raise where there is nothing to complete."""
        if self.prompts is None:
            raise ValueError("prompts must be given to the constructor or to train")
        if self.config.max_staleness and not self.ranks.is_alone:
            raise ValueError(
                f"max_staleness must be 0 where {self.ranks.size} processes learn together, got "
                f"{self.config.max_staleness}"
            )
        if not getattr(self.sampler, "follows", True):
            raise ValueError(
                "sampler must be given the weights that learn, got one without weights"
            )

    def iterate(self, run: Run) -> Metrics:
        """One update."""
        self.check()
        self.follow(run.progress_remaining)
        written = self._next(run)
        batch, measured = self._batch(written)
        # Counted before it is told, so that what was written has the step of its update's metrics.
        self.timesteps += 1
        run.samples_written(
            lambda: llm.Samples(
                *written,
                batch=batch,
                tokenizer=self.learner.model.tokenizer,
            )
        )
        began = time.perf_counter()
        metrics = self.learner.update(batch)
        self.timings["update"] += time.perf_counter() - began
        self.sampler.version = self.learner.updates
        metrics = {**metrics, **measured, **self.learner.metrics()}
        self._recent.add(metrics)
        return metrics

    def rollout(self, prompts: Prompts) -> tuple[TokenBatch, Metrics]:
        """Completions of prompts, as the learner takes them, and measures of them."""
        self.sampler.version = self.learner.updates
        return self._batch(self._write(prompts))

    def _next(self, run: Run) -> Written:
        """Completions for this update: sampled now, or during earlier updates."""
        staleness = self.config.max_staleness
        if not staleness:
            self.sampler.version = self.learner.updates
            return self.collect()
        if self._ahead is None:
            self._ahead = Ahead(self, staleness, self.config.sampling_device)
        return self._ahead.next(run.target_timesteps - self.timesteps)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside, a run goes on; no thread of it is left afterwards."""
        try:
            yield
        finally:
            ahead, self._ahead = self._ahead, None
            if ahead is not None:
                ahead.close()

    def collect(self) -> Written:
        """Scored completions of the next prompts: of more where too few of them teach something."""
        wanted, tries = self.config.n_prompts, getattr(self.config, "filter_tries", 1)
        written = self._write(self._draw())
        for _ in range(tries - 1):
            groups = self.learner.teaches(written.scored)
            if groups is None or groups.sum() >= wanted:
                break
            written = written.join(self._write(self._draw()))
        groups = self.learner.teaches(written.scored)
        if groups is None or groups.sum() < wanted:
            return written
        return written.head(int((groups.cumsum(0) < wanted).sum()) + 1)

    def _draw(self) -> Prompts:
        """The next prompts."""
        assert self.prompts is not None
        rows = self.prompts.rows(self.drawn, self.config.n_prompts, self.seed)
        self.drawn += len(rows)
        return self.prompts.select(rows)

    def _write(self, prompts: Prompts) -> Written:
        """Completions of prompts, scored; of several processes each writes its share of them."""
        if self.ranks.is_alone:
            return self._write_own(prompts)
        own, first = self.ranks.share(len(prompts)), self.sampler.drawn
        written = None
        with self.learner.whole():
            if own:
                self.sampler.drawn = first + own.start
                written = self._write_own(prompts.select(own)).to("cpu")
        self.sampler.drawn = first + len(prompts)
        every = [one for one in self.ranks.gather(written) if one is not None]
        together: Written = reduce(llm.Written.join, every)
        return together.to(self.learner.model.device)

    def _write_own(self, prompts: Prompts) -> Written:
        began = time.perf_counter()
        completions = self.complete(prompts, self.sampler, self.config.group_size)
        sampled = time.perf_counter()
        scored = self.rewards(prompts, completions)
        self.timings["sample"] += sampled - began
        self.timings["reward"] += time.perf_counter() - sampled
        return llm.Written(prompts, completions, scored)

    def complete(self, prompts: Prompts, sampler: Sampler, n: int) -> Completions:
        """So many completions of each prompt: by a sampler alone, or by the user's function."""
        if self.rollout_fn is None:
            return sampler.generate(prompts.tokens, n, self.config.max_new_tokens)
        batch = self.rollout_fn(prompts, sampler, n)
        if self.config.max_staleness and getattr(batch, "sampler_log_probs", None) is None:
            raise ValueError("rollout_fn must give sampler_log_probs with max_staleness, got none")
        found = llm.Completions.of(batch, prompts.tokens, n)
        return replace(found, version=sampler.version)

    def _batch(self, written: Written) -> tuple[TokenBatch, Metrics]:
        """The batch that the learner takes, and its metrics."""
        _, completions, scored = written
        if self.store is not None and self.ranks.leads:
            self.store.add(written)
        batch, measured = self.learner.batch(completions, scored)
        by_name = scored.by_name if len(scored.by_name) > 1 else {}
        rewards = scored.rewards
        return batch, {
            "reward": rewards.nanmean(),
            "reward_std": (rewards - rewards.nanmean()).square().nanmean().sqrt(),
            "unscored_fraction": rewards.isnan().float().mean(),
            **{f"reward_{name}": one.nanmean() for name, one in by_name.items()},
            "completion_length": completions.lengths.float().mean(),
            "cut_fraction": 1 - completions.finished.float().mean(),
            **self._staleness(completions),
            **measured,
        }

    def _staleness(self, completions: Completions) -> Metrics:
        """Updates since the weights were there that wrote completions, where that may be some."""
        if not self.config.max_staleness:
            return {}
        found = self.learner.updates - completions.version
        self._stalest = max(self._stalest, found)
        return {"staleness": found, "staleness_max": self._stalest}

    def progress_metrics(self) -> dict[str, float]:
        """The mean of the last updates."""
        return self._recent.metrics()

    def state_dict(self) -> dict[str, Any]:
        """State of the prompts, the sampler and the store, and the recent values of the metric."""
        return {
            "drawn": self.drawn,
            "recent": self._recent.values(),
            "sampler": self.sampler.state_dict(),
            "store": None if self.store is None else self.store.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:  # noqa: ARG002
        """Continue from `state_dict`."""
        self.drawn = int(state["drawn"])
        self._recent.load(state["recent"])
        self.sampler.load_state_dict(state["sampler"])
        if self.store is not None and state.get("store") is not None:
            self.store.load_state_dict(state["store"])


class ComparisonLoop(PromptLoop):
    """The loop of models whose completions are compared with each other, without rewards."""

    measure = "accuracy"
    headline = ACCURACY

    def _batch(self, written: Written) -> tuple[TokenBatch, Metrics]:
        """The batch that the learner takes, and its metrics."""
        batch, measured = super()._batch(written)
        del measured["reward"], measured["reward_std"]  # those of one in two, always
        return batch, measured
