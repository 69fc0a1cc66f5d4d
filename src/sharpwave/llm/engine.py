"""Sampling engine of a server: one sampler for all requests, with weights that can be updated."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.draw import Options
from sharpwave.llm.model import CausalModel
from sharpwave.llm.sampler import Sampler, check_prompts
from sharpwave.llm.weights import assign_weights, read_weights

__all__ = ["Completion", "Engine", "EngineClosed", "Question"]


class EngineClosed(RuntimeError):  # noqa: N818 - says what happened
    """Nothing is sampled any more."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Prompts to complete, and how.

    Attributes:
        prompts: Tokens of each prompt.
        keys: Numbers of the prompts, which with the seed determine their samples.
        n: Completions of each prompt.
        max_new_tokens: Maximum number of tokens of a completion.
        seed: Seed of the draws.
        stop: Tokens that end a completion, beside those of the model.
        options: Sampling options.
    """

    prompts: Sequence[Sequence[int]]
    keys: Sequence[int]
    n: int = 1
    max_new_tokens: int = 16
    seed: int = 0
    stop: tuple[int, ...] = ()
    options: Options = field(default_factory=Options)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Key of questions that can be answered in one batch."""
        return self.n, self.max_new_tokens, self.seed, self.stop, self.options


class Completion(NamedTuple):
    """One completion."""

    tokens: list[int]
    log_probs: list[float]
    plain_log_probs: list[float]
    finished: bool


@dataclass(eq=False)
class _Job:
    """A question whose answer somebody waits for."""

    question: Question
    done: threading.Event = field(default_factory=threading.Event)
    written: list[Completion] = field(default_factory=list)
    version: int = 0
    error: BaseException | None = None


class Engine:
    """Samples from a model in a thread, for any number of threads that ask.

    Questions that wait at the same time and ask for the same kind of completions are answered
    together; the texts are those that each would get alone. Between two answers the weights may
    change: all at once, so that no completion is of two versions.

    Args:
        model: The model, as `CausalModel.of` takes it.
        max_rows: Maximum number of completions at a time (batch size).
        cache_tokens: Capacity of the key-value cache in tokens; unbounded when None.

    Attributes:
        model: The model.
        version: Of its weights.

    Example:
        >>> engine = Engine(sw.nn.Transformer(vocab_size=8))
        >>> written, version = engine.complete(Question(prompts=[[1, 2]], keys=[0]))
        >>> len(written[0].tokens), version
        (16, 0)
        >>> engine.close()
    """

    def __init__(self, model: Any, *, max_rows: int = 256, cache_tokens: int | None = None) -> None:
        self.model = CausalModel.of(model)
        self.version = 0
        self._limits = {"max_rows": max_rows, "cache_tokens": cache_tokens}
        self._waiting: deque[_Job] = deque()
        self._is_busy = self._is_paused = self._is_closed = False
        self._staged: dict[str, Tensor] | None = None
        # Guards all of the above, and the weights: who samples has set `_is_busy` under it.
        self._changed = threading.Condition()
        self._sampler: tuple[Any, Sampler] | None = None
        self._thread = threading.Thread(target=self._work, name="sharpwave sampler", daemon=True)
        self._thread.start()

    def complete(self, question: Question) -> tuple[list[Completion], int]:
        """All completions of a question in order, and the version of the weights that wrote them.

        Raises:
            EngineClosed: The engine was closed meanwhile.
            ValueError: A prompt cannot be completed, or a token is outside the vocabulary.
        """
        check_prompts(question.prompts, self.model, question.max_new_tokens)
        self._check_tokens("stop_token_ids", question.stop)
        self._check_tokens("logit_bias", question.options.logit_bias)
        job = _Job(question)
        with self._changed:
            if self._is_closed:
                raise EngineClosed("the server is going down")
            self._waiting.append(job)
            self._changed.notify_all()
        job.done.wait()
        if job.error is not None:
            raise job.error
        return job.written, job.version

    @property
    def is_paused(self) -> bool:
        """True if questions are left waiting."""
        return self._is_paused

    def pause(self) -> None:
        """Leave questions waiting, and return when those that were begun are answered."""
        with self._changed:
            self._is_paused = True
            self._idle()

    def resume(self) -> None:
        """Go on with the questions that wait."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def stage(self, folder: Path) -> None:
        """Read weights that `adopt` will make the model's.

        Raises:
            SharpwaveIOError: There are none, or they are damaged.
            ValueError: They are of another model.
        """
        staged = read_weights(folder, self.model.module)
        with self._changed:
            self._staged = staged

    def adopt(self, version: int | None = None) -> int:
        """Make the weights that were read last those of the model, and give their version.

        Several processes that learn together may each give the same weights: who comes last finds
        them adopted.

        Args:
            version: Of the weights; one more than before when None.

        Raises:
            ValueError: None were read since the last time, and the model's have another version.
        """
        with self._changed:
            self._idle()
            if self._staged is None and version == self.version:
                return self.version
            if self._staged is None:
                raise ValueError("no weights were given since the update began")
            assign_weights(self.model.module, self._staged)
            self._staged = None
            self.version = self.version + 1 if version is None else version
            return self.version

    def close(self) -> None:
        """Finish what was begun, turn away what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _check_tokens(self, name: str, tokens: Iterable[int]) -> None:
        """Raise for invalid tokens, which would crash a device."""
        most = self.model.vocab_size - 1
        for token in tokens:
            if not 0 <= token <= most:
                raise ValueError(f"{name} must have tokens from 0 to {most}, got {token}")

    def _idle(self) -> None:
        self._changed.wait_for(lambda: not self._is_busy)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_closed or (self._waiting and not self._is_paused)
                )
                if self._is_closed:
                    break
                jobs = self._take()
                self._is_busy = True
            try:
                self._answer(jobs)
            except BaseException as error:
                for job in jobs:
                    job.error = error
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()
                for job in jobs:
                    job.done.set()
        for job in self._waiting:
            job.error = EngineClosed("the server is going down")
            job.done.set()

    def _take(self) -> list[_Job]:
        """The job that has waited longest, and all that can be answered with it."""
        kind = self._waiting[0].question.kind
        jobs = [job for job in self._waiting if job.question.kind == kind]
        self._waiting = deque(job for job in self._waiting if job.question.kind != kind)
        return jobs

    def _answer(self, jobs: list[_Job]) -> None:
        question = jobs[0].question
        completions = self._sampler_for(question).generate(
            [prompt for job in jobs for prompt in job.question.prompts],
            question.n,
            question.max_new_tokens,
            keys=[key for job in jobs for key in job.question.keys],
        )
        if not completions.plain_log_probs.isfinite().all():
            raise RuntimeError(f"the model gave NaN or inf with weights of version {self.version}")
        written = iter(_lists(completions))
        for job in jobs:
            job.written = [next(written) for _ in range(len(job.question.prompts) * question.n)]
            job.version = self.version

    def _sampler_for(self, question: Question) -> Sampler:
        """A sampler with the options of a question; that of the last one, where it has them."""
        kind = (question.seed, question.stop, question.options)
        if self._sampler is None or self._sampler[0] != kind:
            made = Sampler(
                self.model,
                seed=question.seed,
                stop=question.stop,
                **self._limits,  # type: ignore[arg-type]
                **asdict(question.options),
            )
            self._sampler = (kind, made)
        return self._sampler[1]


def _lists(completions: Completions) -> list[Completion]:
    """Each completion as numbers of Python."""
    columns = (completions.tokens, completions.log_probs, completions.plain_log_probs)
    tokens, log_probs, plain = (column.tolist() for column in columns)
    offsets, finished = completions.offsets.tolist(), completions.finished.tolist()
    return [
        Completion(tokens[a:b], log_probs[a:b], plain[a:b], is_finished)
        for a, b, is_finished in zip(offsets[:-1], offsets[1:], finished, strict=True)
    ]
