"""Views: the form of a drawn step in a batch (transition, n-step, sequence), for any selector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from sharpwave.core.flags import flag
from sharpwave.types import Array, BatchDict

if TYPE_CHECKING:
    from sharpwave.buffers.replay import ReplayBuffer
    from sharpwave.buffers.selectors import Selector

NativeView: TypeAlias = tuple[
    int, int, float, int, int, int, int, bool, bool, bool, "tuple[str, ...] | None"
]
_TRANSITION, _N_STEP, _SEQUENCE = range(3)
_PADS = {False: 0, True: 1, "whole": 2}
_MAX_STEPS = 2**31 - 1
_MAX_WINDOW = 2**20  # a longer one is a mistake, and its batch would exhaust the memory


class View(Protocol):
    """A view that the native core reads (`_spec`), or that draws in Python (None)."""

    @property
    def _spec(self) -> NativeView | None: ...


def _check_int(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, got {value}")
    return int(value)


def _set_spec(view: Transition | NStep | Sequence, *spec: Any) -> None:
    """Set what the native core reads; the view's fields become a tuple."""
    fields: Any = view.fields
    if fields is not None:
        if not isinstance(fields, tuple | list) or not all(isinstance(f, str) for f in fields):
            raise TypeError(f"fields must be a tuple of names or None, got {fields!r}")
        object.__setattr__(view, "fields", tuple(fields))
    object.__setattr__(view, "_spec", (*spec, view.fields))


def _check_gamma(gamma: object) -> float:
    if isinstance(gamma, bool) or not isinstance(gamma, int | float | np.integer | np.floating):
        raise TypeError(f"gamma must be a number, got {type(gamma).__name__}")
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be from 0 to 1, got {gamma}")
    return float(gamma)


@dataclass(frozen=True)
class Transition:
    """One step: what `sample` returns without a view.

    Attributes:
        fields: The batch's entries to read, all when None.
    """

    fields: tuple[str, ...] | None = None
    _spec: NativeView = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set_spec(self, _TRANSITION, 1, 1.0, 1, 0, 1, 0, False, False, False)


@dataclass(frozen=True)
class NStep:
    """An n-step transition, summed when it is drawn.

    With m <= n the steps really taken until the episode ends or the data does:

        rewards = Σ_{i<m} γ^i r_{t+i},   discounts = γ^m (1 - terminated_{t+m-1}),   next_obs =
        s_{t+m}

    so that the target of any value function is `rewards + discounts * V(next_obs)`. Rewards are
    float32 or float64.

    Attributes:
        n: The most steps to take.
        gamma: The discount γ.
        fields: The batch's entries to read, all when None.
    """

    n: int
    gamma: float = 0.99
    fields: tuple[str, ...] | None = None
    _spec: NativeView = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = _check_int("n", self.n, 1, _MAX_STEPS)
        gamma = _check_gamma(self.gamma)
        _set_spec(self, _N_STEP, n, gamma, 1, 0, 1, 0, False, False, True)


@dataclass(frozen=True)
class Sequence:
    """A window of consecutive steps: `burn_in` before the drawn step, `length` from it on.

    Arrays are [batch, burn_in + length, ...]. `mask` tells which steps are there (the others are
    zero) and `is_first` where an episode begins, which is where a recurrent state starts anew.

    With `arrivals` a row is not a step but an observation and what led there, as world models want
    it, and the last observation of every episode is a row too. The window begins with the drawn
    step and has `context + length` rows:

        obs, prev_actions, rewards   the observation, and the action and reward of the step that led
                                     there; both zero where `is_first`
        is_first, is_last            the first and the last observation of an episode
        is_terminal                  `is_last`, and the episode terminated; without it it was cut,
                                     by a time limit or a reset
        mask                         which rows are there
        the extra columns            of the step that begins at the observation; zero at `is_last`,
                                     where none does
        indices                      [batch, rows] of these steps, where asked for; 2**64 - 1 (-1 as
                                     an int64) where there is none

    The newest observation of an environment is a row once it is known whether a step begins there.

    Attributes:
        length: Steps from the drawn one on.
        burn_in: Steps before it, to warm a recurrent state.
        stride: Only every stride-th step of an episode is drawn, counted from the oldest one that
            is still there.
        pad: False draws only windows that fit into their episode. True draws every step and masks
            what is missing. "whole" draws windows that fit, and whole episodes that are shorter.
        cross: Let windows run on into the next episode of the same environment.
        gamma: Adds `discounts` = γ (1 - terminated), 0 where masked. Not with `arrivals`.
        fields: The batch's entries to read, all when None.
        arrivals: A row is an observation and what led there.
        context: Rows more, before the others, for what the window starts from. Only with
            `arrivals`, which have no `burn_in`.

    Example:
        >>> from sharpwave import ReplayBuffer
        >>> flags = {"terminated": "bool", "truncated": "bool"}
        >>> fields = {"obs": "float32", "action": "int64", "reward": "float32", **flags}
        >>> buffer = ReplayBuffer(100, fields=fields, n_envs=1)
        >>> for t in range(3):
        ...     buffer.push(t, t + 10, t + 20, t == 2, False, t + 1)
        >>> batch = buffer.gather([0], view=Sequence(4, arrivals=True))
        >>> batch["obs"][0].tolist(), batch["rewards"][0].tolist()
        ([0.0, 1.0, 2.0, 3.0], [0.0, 20.0, 21.0, 22.0])
        >>> batch["prev_actions"][0].tolist(), batch["is_last"][0].tolist()
        ([0, 10, 11, 12], [False, False, False, True])
    """

    length: int
    burn_in: int = 0
    stride: int = 1
    pad: bool | Literal["whole"] = False
    cross: bool = False
    gamma: float | None = None
    fields: tuple[str, ...] | None = None
    arrivals: bool = field(default=False, kw_only=True)
    context: int = field(default=0, kw_only=True)
    _spec: NativeView = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        length = _check_int("length", self.length, 1, _MAX_WINDOW)
        burn_in = _check_int("burn_in", self.burn_in, 0, _MAX_WINDOW)
        stride = _check_int("stride", self.stride, 1, _MAX_STEPS)
        if self.pad not in _PADS:
            raise ValueError(f'pad must be False, True or "whole", got {self.pad!r}')
        gamma = 1.0 if self.gamma is None else _check_gamma(self.gamma)
        arrivals, cross = flag("arrivals", self.arrivals), flag("cross", self.cross)
        length += self._check_context(arrivals)
        window = (length, burn_in, stride, _PADS[self.pad], cross, arrivals)
        _set_spec(self, _SEQUENCE, 1, gamma, *window, self.gamma is not None)

    def _check_context(self, arrivals: bool) -> int:
        context = _check_int("context", self.context, 0, _MAX_WINDOW)
        if arrivals and self.burn_in:
            raise ValueError(f"burn_in must be 0 with arrivals: use context, got {self.burn_in}")
        if arrivals and self.gamma is not None:
            raise ValueError(f"gamma must be None with arrivals, got {self.gamma}")
        if context and not arrivals:
            raise ValueError(f"context must be 0 without arrivals: use burn_in, got {context}")
        return context

    @property
    def rows(self) -> int:
        """Rows of a window."""
        return self.burn_in + self.context + self.length


class RewardFunction(Protocol):
    """The rewards [B] of achieved goals [B, ...] where others [B, ...] were desired."""

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Any, /) -> Array:  # noqa: D102
        ...


_STRATEGIES = ("future", "final", "episode")


@dataclass(frozen=True)
class Hindsight:
    """Hindsight experience replay (HER): some steps get a goal that was achieved instead.

    After Andrychowicz et al., 2017.

    A share n_goals / (n_goals + 1) of the drawn steps gets as its desired goal the one achieved
    after a step of the same episode, and the reward of that. The rest of the batch is as it was.

    Attributes:
        reward_fn: Vectorized, as `env.unwrapped.compute_reward` of goal environments.
        n_goals: Number of relabeled steps per original one.
        strategy: The goal comes from a step at or after the drawn one ("future"), the last of the
            episode ("final"), or any of it ("episode").
        achieved: The key of the achieved goal in the observation.
        desired: The key of the desired goal.
        info: Passed to `reward_fn`. A function of the batch and of the rows that are relabeled
            [B] makes it for every batch.
    """

    reward_fn: RewardFunction
    n_goals: int = 4
    strategy: Literal["future", "final", "episode"] = "future"
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    info: Any = field(default_factory=dict)
    _spec: None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n_goals = _check_int("n_goals", self.n_goals, 0, _MAX_STEPS)
        object.__setattr__(self, "n_goals", n_goals)
        if self.strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {_STRATEGIES}, got {self.strategy!r}")

    def sample(
        self,
        buffer: ReplayBuffer,
        batch_size: int,
        seed: int | None,
        selector: Selector | None,
        *,
        indices: bool,
    ) -> BatchDict:
        """Draw a batch and relabel it in place."""
        if buffer.n_envs is None:
            raise ValueError("Hindsight needs the steps of each environment in order: pass n_envs")
        batch, goals, chosen = self._draw(buffer, batch_size, seed, selector)
        for key in ("obs", "next_obs"):
            batch[key][self.desired][chosen] = goals[chosen]
        reached = batch["next_obs"][self.achieved][chosen]
        info = self.info(batch, chosen) if callable(self.info) else self.info
        rewards = np.asarray(self.reward_fn(reached, goals[chosen], info))
        if rewards.shape != (int(chosen.sum()),):
            raise ValueError(
                f"reward_fn must return shape ({int(chosen.sum())},), got {rewards.shape}"
            )
        batch["rewards"][chosen] = rewards
        if not indices and "weights" not in batch:
            del batch["indices"]
        return batch

    def _draw(
        self, buffer: ReplayBuffer, batch_size: int, seed: int | None, selector: Selector | None
    ) -> tuple[BatchDict, Array, Array]:
        """A batch, the goals achieved later, and which rows take them."""
        ratio = self.n_goals / (self.n_goals + 1)
        strategy = _STRATEGIES.index(self.strategy)
        for attempt in range(16):
            batch = buffer.sample(batch_size, seed, selector=selector, indices=True)
            self._check_goals(batch)
            try:
                ids, chosen = buffer._engine.choose_goals(batch["indices"], strategy, ratio, seed)
                later = buffer.gather(ids, view=Transition(("next_obs",)))
            except IndexError:  # a writer beside us overwrote a step in between
                if attempt == 15:
                    raise
                continue
            return batch, later["next_obs"][self.achieved], chosen.view(np.bool_)
        raise AssertionError

    def _check_goals(self, batch: BatchDict) -> None:
        obs = batch.get("obs")
        if "rewards" not in batch:
            raise ValueError("Hindsight needs a field reward to relabel")
        if not isinstance(obs, dict) or self.achieved not in obs or self.desired not in obs:
            raise ValueError(
                f"Hindsight needs dict observations with {self.achieved!r} and {self.desired!r}"
            )
