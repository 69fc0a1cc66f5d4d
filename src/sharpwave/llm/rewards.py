"""Rewards of completions, by reward functions of the user, called in their form and checked."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sharpwave.errors import NonFiniteError, RewardFailed
from sharpwave.llm.calls import TOO_SLOW, Calls, CallsInProcesses, CallsInThreads, CallsInTurn
from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.reward_model import RewardModel
from sharpwave.losses.kinds import pick

__all__ = ["NonFiniteRewardError", "RewardFailed", "Rewards", "Scored"]


class NonFiniteRewardError(RewardFailed, NonFiniteError):
    """A reward function gave NaN or infinity."""


class Scored(NamedTuple):
    """Rewards of completions.

    Attributes:
        rewards: [N] weighted sum over the functions; NaN where none of them scored a completion.
        by_name: [N] rewards of each function, NaN where it gave none.
    """

    rewards: Tensor
    by_name: dict[str, Tensor]

    def measure(self, name: str, argument: str) -> Tensor:
        """[N] rewards of the function of this name, or "reward" for the sum of all.

        Raises:
            ValueError: There is none; the message names the argument that asked for it.
        """
        return pick({"reward": self.rewards, **self.by_name}, name, argument)


class Rewards:
    """One or several reward functions.

    With a tokenizer a function is called by name, as `f(prompts=..., completions=..., **columns)`
    with lists of text, those columns of the prompts that it takes, and `completion_ids` if it takes
    them. Without one it is called as `f(completions, prompts)` with the tokens of prompt and
    completion [P_i + T_i] of each, and the prompts [N, P] (a list where they differ in length). It
    returns a number for each completion, None for one that it does not score.

    Args:
        functions: A function, several, or several by name; `async` ones are awaited, and a torch
            module is a `RewardModel`.
        weights: Weights of the functions; 1 each when not given.
        tokenizer: Turns completions into text.
        timeout: Seconds for one call of a function, after which its completions are unscored.
        workers: Calls at a time, of several functions or of parts of the completions.
        pool: Where they run: in a "thread" each, or in a "process" each, which imports the function
            by its name and is ended where a call takes too long.
        rows_per_call: Completions that a function is given at once; all when None.
        normalize: Normalize (center and scale) the rewards of each function within the completions
            of a prompt before they are added, so that none drowns the others.

    Raises:
        TypeError: A function cannot be called, or cannot be sent to a process.
        ValueError: There are not as many weights as functions, or a number is impossible.

    Example:
        >>> def length(completions, prompts):
        ...     return [float(len(one)) for one in completions]
        >>> Rewards(length).names
        ('length',)
    """

    def __init__(
        self,
        functions: Callable[..., Any] | Iterable[Callable[..., Any]] | Mapping[str, Any],
        *,
        weights: Sequence[float] | None = None,
        tokenizer: Any = None,
        timeout: float | None = None,
        workers: int = 1,
        pool: Literal["thread", "process"] = "thread",
        rows_per_call: int | None = None,
        normalize: bool = False,
    ) -> None:
        self._functions = _named(functions)
        self.weights = [1.0] * len(self._functions) if weights is None else list(weights)
        if len(self.weights) != len(self._functions):
            raise ValueError(
                f"weights must have {len(self._functions)} numbers, one for each function, "
                f"got {len(self.weights)}"
            )
        for name, number in (("workers", workers), ("rows_per_call", rows_per_call)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if pool not in ("thread", "process"):
            raise ValueError(f"pool must be 'thread' or 'process', got {pool!r}")
        if pool == "process":
            for name, function in self._functions.items():
                _check_sendable(name, function)
        self.tokenizer = tokenizer
        self.timeout, self.workers, self.pool = timeout, workers, pool
        self.rows_per_call, self.normalize = rows_per_call, normalize
        self._calls: Calls | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the functions, in order."""
        return tuple(self._functions)

    def __call__(self, prompts: Prompts, completions: Completions) -> Scored:
        """Score completions of prompts.

        Raises:
            NonFiniteRewardError: A reward is NaN or infinite.
            RewardFailed: A function raised, or did not give a number for each completion.
        """
        try:
            by_name = self._by_name(prompts, completions)
        except RewardFailed as error:
            error.completions = completions
            raise
        scores = torch.stack(list(by_name.values()))
        unscored = scores.isnan().all(0)
        if self.normalize:
            scores = _normalized(scores, completions.prompt.cpu())
        weighted = scores * torch.tensor(self.weights, dtype=scores.dtype)[:, None]
        return Scored(weighted.nansum(0).masked_fill(unscored, math.nan), by_name)

    def close(self) -> None:
        """End the processes that functions were called in."""
        if self._calls is not None:
            self._calls.close()
        self._calls = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy calls in threads and processes of its own."""
        return {**vars(self), "_calls": None}

    def _by_name(self, prompts: Prompts, completions: Completions) -> dict[str, Tensor]:
        """Rewards of all completions by each function."""
        total = len(completions)
        parts = list(_parts(total, self.rows_per_call or total))
        questions = []
        for name, function in self._functions.items():
            if self.tokenizer is None or (type(function) is RewardModel and not function.tokenizer):
                args, kwargs = _with_tokens(completions), {}
            else:
                args, kwargs = (), self._with_text(function, prompts, completions)
            questions += [
                (name, part, partial(function, *(x[part] for x in args), **_cut(kwargs, part)))
                for part in parts
            ]
        if self._calls is None:
            self._calls = self._make_calls()
        found = self._calls.run([call for _, _, call in questions])
        rewards: dict[str, list[Tensor]] = {}
        for (name, part, _), one in zip(questions, found, strict=True):
            rewards.setdefault(name, []).append(_checked(name, one, part))
        return {name: torch.cat(several) for name, several in rewards.items()}

    def _make_calls(self) -> Calls:
        if self.pool == "process":
            return CallsInProcesses(self.workers, self.timeout)
        if self.timeout is None and self.workers == 1:
            return CallsInTurn()
        return CallsInThreads(self.workers, self.timeout)

    def _with_text(
        self, function: Any, prompts: Prompts, completions: Completions
    ) -> dict[str, Any]:
        rows = completions.prompt.tolist()
        ids = [one.tolist() for one in completions]
        texts = prompts.texts or [self.tokenizer.decode(one.tolist()) for one in prompts.tokens]
        known = {
            "prompts": [texts[row] for row in rows],
            "completions": [self.tokenizer.decode(one, skip_special_tokens=True) for one in ids],
            "completion_ids": ids,
            **{name: [column[row] for row in rows] for name, column in prompts.columns.items()},
        }
        takes = _keywords(function)
        return known if takes is None else {name: known[name] for name in known if name in takes}


def _parts(total: int, size: int) -> Iterable[slice]:
    return (slice(first, min(first + size, total)) for first in range(0, total, size))


def _cut(columns: dict[str, Any], part: slice) -> dict[str, Any]:
    return {name: column[part] for name, column in columns.items()}


def _normalized(scores: Tensor, prompt: Tensor) -> Tensor:
    """Rewards [F, N] less the mean of their function and prompt, over the deviation."""
    found = scores.clone()
    for group in prompt.unique():
        rows = prompt == group
        part = scores[:, rows]
        away = part - part.nanmean(1, keepdim=True)
        found[:, rows] = away / (away.square().nanmean(1, keepdim=True).sqrt() + 1e-4)
    return found


def _with_tokens(completions: Completions) -> tuple[Any, ...]:
    """Prompt and completion of each, and the prompts: one tensor where they have one length."""
    given = [completions.prompts[i] for i in completions.prompt.tolist()]
    is_even = len({len(prompt) for prompt in given}) == 1
    return completions.sequences(), torch.stack(given) if is_even else given


def _checked(name: str, found: Any, part: slice) -> Tensor:
    """Rewards of some completions as a function gave them, NaN where it gave none."""
    n_completions = part.stop - part.start
    if isinstance(found, Exception):
        where = f"completions {part.start} to {part.stop - 1}"
        raise RewardFailed(f"reward function {name!r} raised {found!r} for {where}") from found
    if found is None or found is TOO_SLOW:
        return torch.full((n_completions,), math.nan)
    values = found.tolist() if isinstance(found, Tensor) else list(found)
    if len(values) != n_completions:
        raise RewardFailed(
            f"reward function {name!r} must give a number for each of {n_completions} completions, "
            f"got {len(values)}"
        )
    for row, value in enumerate(values, part.start):
        try:
            is_finite = value is None or math.isfinite(value)
        except TypeError:
            raise RewardFailed(
                f"reward function {name!r} must give numbers or None, got {value!r:.60} in row "
                f"{row}"
            ) from None
        if not is_finite:
            raise NonFiniteRewardError(
                f"rewards must be finite, got {value} from {name!r} in row {row}: None leaves a "
                "completion unscored"
            )
    return torch.tensor([math.nan if x is None else float(x) for x in values])


def _named(functions: Any) -> dict[str, Callable[..., Any]]:
    if callable(functions):
        functions = [functions]
    if not isinstance(functions, Mapping):
        named: dict[str, Callable[..., Any]] = {}
        for one in functions:
            name = getattr(one, "__name__", type(one).__name__)
            number = 2
            while name in named:
                name, number = f"{name.rpartition('_')[0] or name}_{number}", number + 1
            named[name] = one
        functions = named
    if not functions:
        raise TypeError("reward_fn must be a function or several, got none")
    for name, one in functions.items():
        if not callable(one):
            raise TypeError(f"reward_fn must be callable, got {one!r} as {name!r}")
    return {
        name: RewardModel(one) if isinstance(one, nn.Module) else one
        for name, one in functions.items()
    }


def _check_sendable(name: str, function: Callable[..., Any]) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise TypeError(
            f"reward_fn {name!r} must be a function that a process can import by its name, for "
            f"pool='process': {error}"
        ) from error


def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """The names that a function takes; None for all."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)
