"""How good completions are: functions of a user's, called in their form and checked."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharpwave.errors import NonFiniteError
from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.losses.kinds import pick

__all__ = ["RewardFailed", "Rewards", "Scored"]


class RewardFailed(RuntimeError):  # noqa: N818 - says what happened
    """A reward function raised, or gave what is no reward."""


class Scored(NamedTuple):
    """Rewards of completions.

    Attributes:
        rewards: [N] weighted sum over the functions; NaN where none of them scored a completion.
        by_name: [N] what each function gave, NaN where it gave nothing.
    """

    rewards: Tensor
    by_name: dict[str, Tensor]

    def measure(self, name: str, argument: str) -> Tensor:
        """[N] what the function of this name gave, or "reward" for the sum of all.

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
        functions: A function, several, or several by name; `async` ones are awaited.
        weights: Of the functions; 1 each when not given.
        tokenizer: Turns completions into text.
        timeout: Seconds for one call of a function, after which its completions are unscored.

    Raises:
        TypeError: A function cannot be called.
        ValueError: There are not as many weights as functions.

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
    ) -> None:
        self._functions = _named(functions)
        self.weights = [1.0] * len(self._functions) if weights is None else list(weights)
        if len(self.weights) != len(self._functions):
            raise ValueError(
                f"weights must have {len(self._functions)} numbers, one for each function, "
                f"got {len(self.weights)}"
            )
        self.tokenizer = tokenizer
        self.timeout = timeout

    @property
    def names(self) -> tuple[str, ...]:
        """Of the functions, in order."""
        return tuple(self._functions)

    def __call__(self, prompts: Prompts, completions: Completions) -> Scored:
        """Score completions of prompts.

        Raises:
            NonFiniteError: A reward is NaN or infinite.
            RewardFailed: A function raised, or did not give a number for each completion.
        """
        by_name = {}
        for name, function in self._functions.items():
            if self.tokenizer is None:
                args, kwargs = _with_tokens(completions), {}
            else:
                args, kwargs = (), self._with_text(function, prompts, completions)
            found = self._run(name, partial(function, *args, **kwargs))
            by_name[name] = _checked(name, found, len(completions))
        scores = torch.stack(list(by_name.values()))
        weighted = scores * torch.tensor(self.weights, dtype=scores.dtype)[:, None]
        unscored = scores.isnan().all(0)
        return Scored(weighted.nansum(0).masked_fill(unscored, math.nan), by_name)

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

    def _run(self, name: str, call: Callable[[], Any]) -> Any:
        """What a function gives; None where it takes too long."""
        try:
            if self.timeout is None:
                return _awaited(call())
            pool = ThreadPoolExecutor(1, f"reward {name}")
            try:
                return pool.submit(lambda: _awaited(call())).result(self.timeout)
            except TooSlow:
                return None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        except Exception as error:
            raise RewardFailed(f"reward function {name!r} raised {error!r}") from error


def _with_tokens(completions: Completions) -> tuple[Any, ...]:
    """Prompt and completion of each, and the prompts: one tensor where they have one length."""
    given = [completions.prompts[i] for i in completions.prompt.tolist()]
    is_even = len({len(prompt) for prompt in given}) == 1
    return completions.sequences(), torch.stack(given) if is_even else given


def _checked(name: str, found: Any, n_completions: int) -> Tensor:
    """Rewards [N] as a function gave them, NaN where it gave none."""
    if found is None:
        return torch.full((n_completions,), math.nan)
    values = found.tolist() if isinstance(found, Tensor) else list(found)
    if len(values) != n_completions:
        raise RewardFailed(
            f"reward function {name!r} must give a number for each of {n_completions} completions, "
            f"got {len(values)}"
        )
    for row, value in enumerate(values):
        try:
            is_finite = value is None or math.isfinite(value)
        except TypeError:
            raise RewardFailed(
                f"reward function {name!r} must give numbers or None, got {value!r:.60} in row "
                f"{row}"
            ) from None
        if not is_finite:
            raise NonFiniteError(
                f"rewards must be finite, got {value} from {name!r} in row {row}: None leaves a "
                "completion unscored"
            )
    return torch.tensor([math.nan if x is None else float(x) for x in values])


def _awaited(found: Any) -> Any:
    """What a function returned, or what comes of it if it is `async`."""

    async def wait() -> Any:
        return await found

    return asyncio.run(wait()) if inspect.isawaitable(found) else found


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
    return dict(functions)


def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """The names that a function takes; None for all."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)
