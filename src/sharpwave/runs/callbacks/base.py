"""Base class of callbacks, and the list that calls them."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, ClassVar, TypeAlias

from sharpwave.core.suggest import did_you_mean

State: TypeAlias = dict[str, Any]
"""State of a callback that survives a resume: values that JSON can hold."""

HOOKS = (
    "on_training_start",
    "on_step",
    "on_rollout_end",
    "on_samples",
    "on_train_batch",
    "on_eval",
    "on_training_end",
)


class Callback:
    """Base class of callbacks: a run calls their hooks at fixed moments.

    Override the ones you need.

    Every hook is called with keywords: `algo`, `step` (steps so far in `algo.unit`: environment
    steps over all environments, gradient steps of offline algorithms) and those named below. A hook
    takes those that it names, and all of them with `**kwargs`. `on_step`, `on_rollout_end`,
    `on_samples`, `on_train_batch` and `on_eval` stop the run by returning False; None and True let
    it go on.
    `on_step` gives up the rollout in progress; the others let the run come to its next update
    boundary.

    Attributes:
        goes_last: True to be called after the others, as a callback must be that saves their
            states.
        stop_reason: Said in the name of this callback when it stops a run.

    Example:
        >>> class StopAfter(Callback):
        ...     def __init__(self, updates):
        ...         self.updates = updates
        ...
        ...     def on_train_batch(self, algo):
        ...         return algo.updates < self.updates
    """

    goes_last: ClassVar[bool] = False
    stop_reason: str | None = None

    # Any arguments, so that a subclass may name those it wants under a strict type checker.

    def on_training_start(self, *args: Any, **kwargs: Any) -> None:
        """Called once before the first step, with `total_timesteps` where the run will end."""

    def on_step(self, *args: Any, **kwargs: Any) -> bool | None:
        """Called after every step of the environments, in order.

        With `reward`, the mean raw reward of the environments, and `transitions`, all that happened
        (`sharpwave.collect.VectorStep`): observations, actions, rewards, ends, true next
        observations and infos of every environment. Of several agents these are dicts by group, of
        arrays [N, G, ...], and `valid` says which of them acted; `infos` has those of each
        environment by agent as "infos", and as "ended" [N] whose episode ended. Native code that
        collects whole rollouts tells of their steps once it is done with them. In offline
        algorithms a step is one of the gradient, and what comes with it are its metrics.
        """

    def on_rollout_end(self, *args: Any, **kwargs: Any) -> bool | None:
        """Called when a rollout is full, with `mean_return` and `update`, the index of the next.

        `mean_return` is that of the last 100 finished episodes, nan before the first.
        """

    def on_samples(self, *args: Any, **kwargs: Any) -> bool | None:
        """Called once an update of a language model, before it learns from what it wrote.

        With `rows`, a sequence that has a dict for each completion: `prompt` and `completion`, as
        text where there is a tokenizer and as lists of tokens otherwise; `reward`, None where it
        was not scored; `rewards` by name, where there are several reward functions; `advantage`,
        None where the algorithm knows none; `length` in tokens; and `finished`, False where it was
        cut.
        """

    def on_train_batch(self, *args: Any, **kwargs: Any) -> bool | None:
        """Called once after every update, with `loss` and its other metrics.

        This is the update boundary: what is saved here resumes exactly.
        """

    def on_eval(self, *args: Any, **kwargs: Any) -> bool | None:
        """Called after every evaluation, with `result`."""

    def on_training_end(self, *args: Any, **kwargs: Any) -> None:
        """Called once when the run ends, whatever ended it.

        With the last `metrics`, `recorded`, those of `algo.record` since the last report, and
        `error`, what ended the run; None where nothing went wrong.
        """

    def due_step(self) -> int | None:
        """The step at which it would like an update boundary; None for whenever there is one.

        Runs that choose their boundaries themselves, as those that learn from replay do, have one
        there.
        """
        return None

    def state_dict(self) -> State:
        """State that survives a resume, in values that JSON can hold."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""


class Hook:
    """A hook of a callback, called with the keywords that it takes, which is decided once.

    Args:
        callback: The callback that has the hook.
        name: Such as `"on_step"`.
        method: The method to call.

    Attributes:
        name: Such as `"MyCallback.on_step"`.
        takes: The keywords that it names; None where it takes all.
    """

    def __init__(self, callback: Callback, name: str, method: Callable[..., Any]) -> None:
        self.callback = callback
        self.name = f"{type(callback).__name__}.{name}"
        self._method = method
        self.takes, self._needs = _keywords(method)

    def __call__(self, given: dict[str, Any]) -> Any:
        """Call it with what it takes of what is given."""
        missing = self._needs - given.keys()
        if missing:
            raise TypeError(self._refusal(sorted(missing)[0], given))
        kwargs = given
        if self.takes is not None:
            kwargs = {name: value for name, value in given.items() if name in self.takes}
        try:
            return self._method(**kwargs)
        except Exception as error:
            add_note(error, f"raised by {self.name} at step {given.get('step')}")
            raise

    def _refusal(self, missing: str, given: dict[str, Any]) -> str:
        return (
            f"{self.name} must do without {missing!r} here, or give it a default: "
            f"it gets {', '.join(given)}{did_you_mean(missing, given)}"
        )


def _keywords(method: Callable[..., Any]) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The keywords that a function takes, None for all, and those that it cannot do without."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # it does not say
        return None, frozenset()
    kinds = {parameter.kind for parameter in parameters}
    named = [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    needs = frozenset(one.name for one in named if one.default is one.empty)
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return None, needs
    return frozenset(one.name for one in named), needs


class CallbackList:
    """Calls every hook of every callback, those that `goes_last` last, and says whether to go on.

    A hook costs nothing when no callback overrides it; `overrides` says so beforehand, and `wants`
    whether a keyword would be taken. All callbacks are called even when one of them asks to stop.
    An exception of a callback goes on to the caller, with a note that names the callback.

    Args:
        callbacks: A callback, any number of them, or None.

    Attributes:
        stop_reason: Why the last hook that returned False did so; None before that.

    Raises:
        TypeError: If an entry is not a `Callback`; when a hook is called, if it asks for a keyword
            that there is none of.

    Example:
        >>> callbacks = CallbackList([sw.EarlyStoppingCallback(patience=5)])
        >>> callbacks.overrides("on_step")
        False
    """

    def __init__(self, callbacks: Callback | Iterable[Callback] | None = None) -> None:
        self._callbacks = _checked(callbacks)
        self._hooks = {hook: self._overriding(hook) for hook in HOOKS}
        self.stop_reason: str | None = None

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    def __len__(self) -> int:
        return len(self._callbacks)

    def overrides(self, hook: str) -> bool:
        """Return whether any callback overrides this hook, e.g. `"on_step"`."""
        return bool(self._hooks[hook])

    def wants(self, hook: str, keyword: str) -> bool:
        """Return whether any callback takes this keyword argument in this hook."""
        return any(one.takes is None or keyword in one.takes for one in self._hooks[hook])

    def on_training_start(self, **kwargs: Any) -> None:
        """Forwards to all; a run that starts has no reason to stop yet."""
        self.stop_reason = None
        self._forward("on_training_start", kwargs)

    def on_step(self, **kwargs: Any) -> bool:
        """Forwards to all; False when one of them asks to stop."""
        return self._forward("on_step", kwargs)

    def on_rollout_end(self, **kwargs: Any) -> bool:
        """Forwards to all; False when one of them asks to stop."""
        return self._forward("on_rollout_end", kwargs)

    def on_samples(self, **kwargs: Any) -> bool:
        """Forwards to all; False when one of them asks to stop."""
        return self._forward("on_samples", kwargs)

    def on_train_batch(self, **kwargs: Any) -> bool:
        """Forwards to all; False when one of them asks to stop."""
        return self._forward("on_train_batch", kwargs)

    def on_eval(self, **kwargs: Any) -> bool:
        """Forwards to all; False when one of them asks to stop."""
        return self._forward("on_eval", kwargs)

    def on_training_end(self, **kwargs: Any) -> None:
        """Forwards to all, even when one raises."""
        with ExitStack() as stack:
            for hook in reversed(self._hooks["on_training_end"]):
                stack.callback(hook, kwargs)

    def due_step(self) -> int | None:
        """The first step at which a callback would like an update boundary."""
        steps = (callback.due_step() for callback in self._callbacks)
        return min((step for step in steps if step is not None), default=None)

    def state_dict(self) -> dict[str, State]:
        """The state of every callback that has one, as `EvalCallback.0`, `EvalCallback.1`, ..."""
        return {name: state for name, cb in self._named() if (state := cb.state_dict())}

    def load_state_dict(self, states: dict[str, State]) -> None:
        """Gives every callback its state; those that had none when it was saved keep theirs."""
        for name, callback in self._named():
            if name in states:
                callback.load_state_dict(states[name])

    def _forward(self, name: str, kwargs: dict[str, Any]) -> bool:
        go_on = True
        for hook in self._hooks[name]:
            answer = hook(kwargs)
            if answer is not None and not answer:
                go_on = False
                self.stop_reason = hook.callback.stop_reason or f"{hook.name} returned False"
        return go_on

    def _overriding(self, name: str) -> list[Hook]:
        in_order = sorted(self._callbacks, key=lambda callback: callback.goes_last)
        bound = [(callback, getattr(callback, name)) for callback in in_order]
        plain = getattr(Callback, name)
        return [
            Hook(callback, name, method)
            for callback, method in bound
            if getattr(method, "__func__", None) != plain
        ]

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback in self._callbacks:
            name = type(callback).__name__
            yield f"{name}.{seen[name]}", callback
            seen[name] += 1


def _checked(callbacks: Callback | Iterable[Callback] | None) -> tuple[Callback, ...]:
    if callbacks is None:
        return ()
    if isinstance(callbacks, Callback):
        return (callbacks,)
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks must be Callback objects, got {callbacks!r}")
    entries = tuple(callbacks)
    for i, entry in enumerate(entries):
        if isinstance(entry, type):
            raise TypeError(
                f"callbacks[{i}] must be a Callback, got the class {entry.__name__}; make one of it"
            )
        if not isinstance(entry, Callback):
            raise TypeError(f"callbacks[{i}] must be a Callback, got {type(entry).__name__}")
    return entries


def require(algo: Any, attribute: str, callback: str) -> None:
    """Make sure that a run has what not every run has.

    Raises:
        ValueError: It does not.
    """
    if not hasattr(algo, attribute):
        raise ValueError(f"{callback} needs a run with {attribute!r}, which {algo.name} has not")


def add_note(error: BaseException, note: str) -> None:
    """Say more about an error, below its traceback."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10 has no notes: keep it where later versions look for them.
        error.__dict__.setdefault("__notes__", []).append(note)
