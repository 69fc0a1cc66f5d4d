"""Callbacks as rlox calls them: `on_train_batch` once a gradient step, `mean_reward` a number.

rlox calls the mean return of the last episodes `mean_reward`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sharpwave.agents import Agent
from sharpwave.collect import Episodes
from sharpwave.learners.groups import GroupLearners
from sharpwave.pages.headline import RETURN
from sharpwave.runs.callbacks import Callback, CallbackList
from sharpwave.runs.run import Run

__all__ = ["RloxAgent", "RloxRun", "watched_steps"]

LIBRARY = __name__.partition(".")[0]


class RloxRun(Run):
    """A run that tells callbacks of a program what rlox tells them.

    Those of this library, which evaluate and save, are called where a run can be resumed: once an
    update.
    """

    _ours = CallbackList()

    def _run(self) -> dict[str, float]:
        theirs = [each for each in self._hooks if _has_hook_of_its_own(each)]
        self._ours = CallbackList(each for each in self._hooks if each not in theirs)
        if not theirs:
            return super()._run()
        with watched_steps(self._agent.learner, partial(self._tell_batch, CallbackList(theirs))):
            return super()._run()

    def progress_metrics(self) -> dict[str, float]:
        """Measures of progress; returns are 0 before the first episode has ended."""
        return _with_names_of_rlox(_without_nan(super().progress_metrics()))

    def rollout_metrics(self, episodes: Episodes) -> dict[str, float]:
        """Means of the last episodes, for those who listen to the ends of rollouts."""
        return _with_names_of_rlox(super().rollout_metrics(episodes))

    def tell(self, hook: str, **kwargs: Any) -> bool:
        """Call a hook of all callbacks; False if one of them stops the run."""
        if hook == "on_train_batch":
            return self._tell_batch(self._ours, kwargs)
        if hook == "on_rollout_end":
            kwargs = _with_names_of_rlox(_without_nan(kwargs))
        return super().tell(hook, **kwargs)

    def _tell_batch(self, callbacks: CallbackList, metrics: Mapping[str, Any]) -> bool:
        if not callbacks.overrides("on_train_batch"):
            return True
        go_on = callbacks.on_train_batch(algo=self._agent, step=self.timesteps, **metrics)
        if not go_on:
            self.request_stop(callbacks.stop_reason or "on_train_batch")
        return go_on


class RloxAgent(Agent):
    """An agent whose callbacks hear of every gradient step."""

    Run = RloxRun


@contextlib.contextmanager
def watched_steps(learner: Any, tell: Callable[[dict[str, float]], object]) -> Iterator[None]:
    """Inside, `tell` is called with the metrics of every gradient step of a learner.

    Of several groups of agents these are the steps of all groups that learn.
    """
    with contextlib.ExitStack() as stack:
        for one in learner.learning.values() if isinstance(learner, GroupLearners) else [learner]:
            stack.enter_context(_watched(one, tell))
        yield


@contextlib.contextmanager
def _watched(learner: Any, tell: Callable[[dict[str, float]], object]) -> Iterator[None]:
    name = learner.captured  # an update, or one of its minibatches
    step, own = getattr(learner, name), vars(learner).get(name)

    def watched(*args: Any) -> Any:
        measured = step(*args)
        tell(_numbers(learner, measured))
        return measured

    vars(learner)[name] = watched  # also of a native learner, which users may not assign to
    try:
        yield
    finally:
        if own is None:
            delattr(learner, name)
        else:
            vars(learner)[name] = own


def _numbers(learner: Any, measured: Any) -> dict[str, float]:
    """The metrics of an update, or of a minibatch of PPO, as numbers."""
    if not isinstance(measured, Mapping):
        return dict(zip(learner.measured, measured.tolist(), strict=True))
    return {name: float(value) for name, value in measured.items() if name != "td_errors"}


def _has_hook_of_its_own(callback: Callback) -> bool:
    hook = callback.on_train_batch
    return getattr(hook, "__module__", "").partition(".")[0] != LIBRARY


def _without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: 0.0 if isinstance(value, float) and math.isnan(value) else value
        for name, value in values.items()
    }


def _with_names_of_rlox(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics with `mean_reward`, rlox's name of `mean_return`, beside them."""
    named = dict(metrics)
    for name in metrics:
        if name.startswith(RETURN.metric):
            named[name.replace(RETURN.metric, "mean_reward", 1)] = metrics[name]
    return named
