"""The list of callbacks: what it calls, what it says, what it remembers."""

import subprocess
import sys
from functools import partial, wraps
from typing import Any

import pytest

from sharpwave.runs.callbacks import Callback, CallbackList, CheckpointCallback, EvalCallback
from sharpwave.runs.callbacks.base import HOOKS
from tests.unit.agents.small_runs import Alike, small_ppo


class Recorder(Callback):
    def __init__(self, log: list[str], name: str, answer: bool | None = None) -> None:
        self.log = log
        self.name = name
        self.answer = answer

    def on_step(self, **kwargs: Any) -> bool | None:
        self.log.append(self.name)
        return self.answer


class Last(Recorder):
    goes_last = True


class Counter(Callback):
    def __init__(self) -> None:
        self.calls = 0

    def on_train_batch(self, **kwargs: Any) -> None:
        self.calls += 1

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


class Failing(Callback):
    def on_step(self, **kwargs: Any) -> None:
        raise KeyError("missing")

    def on_training_end(self, **kwargs: Any) -> None:
        raise ValueError("late")


class Ending(Callback):
    ended = False

    def on_training_end(self, **kwargs: Any) -> None:
        self.ended = True


def test_a_list_knows_which_hooks_are_overridden() -> None:
    callbacks = CallbackList([Counter()])
    assert [hook for hook in HOOKS if callbacks.overrides(hook)] == ["on_train_batch"]


def test_a_function_put_on_an_object_counts_as_overridden() -> None:
    callback = Callback()
    seen = []
    setattr(callback, "on_step", lambda **kwargs: seen.append(kwargs["step"]))  # noqa: B010
    callbacks = CallbackList(callback)
    assert callbacks.overrides("on_step")
    callbacks.on_step(algo=None, step=8, reward=1.0)
    assert seen == [8]


def test_an_unknown_hook_is_refused() -> None:
    with pytest.raises(KeyError, match="on_lunch"):
        CallbackList().overrides("on_lunch")


@pytest.mark.parametrize("answer", [None, True])
def test_none_and_true_go_on(answer: bool | None) -> None:
    callbacks = CallbackList([Recorder([], "a", answer)])
    assert callbacks.on_step(algo=None, step=1, reward=0.0) is True
    assert callbacks.stop_reason is None


def test_false_stops_after_all_were_called() -> None:
    log: list[str] = []
    callbacks = CallbackList([Recorder(log, "a", False), Recorder(log, "b", True)])
    assert callbacks.on_step(algo=None, step=1, reward=0.0) is False
    assert log == ["a", "b"]
    assert callbacks.stop_reason == "Recorder.on_step returned False"


def test_a_callback_may_say_why_it_stops() -> None:
    callback = Recorder([], "a", False)
    callback.stop_reason = "enough"
    callbacks = CallbackList(callback)
    callbacks.on_step(algo=None, step=1, reward=0.0)
    assert callbacks.stop_reason == "enough"


def test_a_new_run_forgets_why_the_last_one_stopped() -> None:
    callbacks = CallbackList(Recorder([], "a", False))
    callbacks.on_step(algo=None, step=1, reward=0.0)
    callbacks.on_training_start(algo=None, step=1, total_timesteps=2)
    assert callbacks.stop_reason is None


def test_those_that_go_last_are_called_after_the_others() -> None:
    log: list[str] = []
    callbacks = [Last(log, "saves"), Recorder(log, "a"), Recorder(log, "b")]
    CallbackList(callbacks).on_step(algo=None, step=1, reward=0.0)
    assert log == ["a", "b", "saves"]
    assert CheckpointCallback.goes_last


def test_an_exception_goes_on_and_names_the_callback() -> None:
    callbacks = CallbackList([Counter(), Failing()])
    with pytest.raises(KeyError, match="missing") as caught:
        callbacks.on_step(algo=None, step=640, reward=0.0)
    assert vars(caught.value)["__notes__"] == ["raised by Failing.on_step at step 640"]


def test_all_callbacks_end_even_when_one_raises() -> None:
    ending = Ending()
    with pytest.raises(ValueError, match="late"):
        CallbackList([Failing(), ending]).on_training_end(algo=None, step=3, metrics={})
    assert ending.ended


def test_states_go_back_to_the_callbacks_they_came_from() -> None:
    saved = CallbackList([Counter(), Ending(), Counter()])
    first, _, second = saved
    assert isinstance(first, Counter)
    assert isinstance(second, Counter)
    first.calls, second.calls = 3, 5
    states = saved.state_dict()
    assert states == {"Counter.0": {"calls": 3}, "Counter.1": {"calls": 5}}

    counters = [Counter(), Counter(), Counter()]
    counters[2].calls = 7
    CallbackList([Ending(), *counters]).load_state_dict(states)
    assert [counter.calls for counter in counters] == [3, 5, 7]


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (3, "callbacks must be Callback objects, got 3"),
        ([Counter(), "eval"], r"callbacks\[1\] must be a Callback, got str"),
        ([Counter], r"callbacks\[0\] must be a Callback, got the class Counter; make one of it"),
    ],
)
def test_what_is_not_a_callback_is_refused(callbacks: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        CallbackList(callbacks)


@pytest.mark.long
def test_callbacks_and_loggers_import_nothing_heavy() -> None:
    program = (
        "import sys, sharpwave.runs.callbacks, sharpwave.runs.loggers\n"
        "heavy = {'torch', 'gymnasium', 'rich', 'tensorboard', 'wandb', 'mlflow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


class Narrow(Callback):
    """Hooks that take some of the keywords, or none, and no others."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_training_start(self) -> None:
        self.seen.append("start")

    def on_step(self, reward: float, *, step: int = -1) -> None:
        self.seen.append((reward, step))

    def on_rollout_end(self, mean_return: float, update: int) -> None:
        self.seen.append(update)

    def on_train_batch(self, loss: float, absent: str = "default") -> None:
        self.seen.append((loss, absent))

    def on_eval(self, *_: Any) -> None:
        self.seen.append("eval")

    def on_training_end(self, *, metrics: Any) -> None:
        self.seen.append(metrics)


def test_hooks_get_the_keywords_that_they_name() -> None:
    """A hook without `**kwargs` failed on the keywords that it did not name."""
    callback = Narrow()
    callbacks = CallbackList(callback)
    callbacks.on_training_start(algo=None, step=0, total_timesteps=8)
    callbacks.on_step(algo=None, step=4, reward=0.5)
    callbacks.on_rollout_end(algo=None, step=4, mean_return=1.0, update=2)
    callbacks.on_train_batch(algo=None, step=4, loss=0.25, entropy=1.0)
    callbacks.on_eval(algo=None, step=4, result=None)
    callbacks.on_training_end(algo=None, step=4, metrics={"loss": 0.25}, error=None)
    expected = ["start", (0.5, 4), 2, (0.25, "default"), "eval", {"loss": 0.25}]
    assert callback.seen == expected
    assert callbacks.wants("on_step", "reward")
    assert not callbacks.wants("on_step", "transitions")
    assert CallbackList(Recorder([], "a")).wants("on_step", "transitions")
    assert not CallbackList(Counter()).wants("on_step", "transitions")


def test_hooks_without_keywords_work_in_a_run() -> None:
    callback = Narrow()
    small_ppo(Alike).train(256, callbacks=[callback, EvalCallback(eval_freq=256)])
    assert callback.seen[0] == "start"
    assert callback.seen[1] == (0.5, 4)
    assert "eval" in callback.seen
    assert isinstance(callback.seen[-1], dict)


def test_a_keyword_that_there_is_none_of_is_named() -> None:
    class Misspelt(Callback):
        def on_step(self, rewrad: float) -> None:
            raise AssertionError("was called")

    callbacks = CallbackList(Misspelt())
    with pytest.raises(TypeError, match=r"Misspelt\.on_step .*'rewrad'.*did you mean 'reward'"):
        callbacks.on_step(algo=None, step=1, reward=0.0)


def test_wrapped_bound_and_partial_hooks_get_what_they_name() -> None:
    seen: list[Any] = []
    callback = Callback()
    setattr(callback, "on_step", partial(lambda tag, step: seen.append((tag, step)), "a"))  # noqa: B010
    CallbackList(callback).on_step(algo=None, step=3, reward=0.0)

    def counted(method: Any) -> Any:
        @wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return wrapper

    class Decorated(Callback):
        @counted
        def on_step(self, step: int) -> None:
            seen.append(step)

    CallbackList(Decorated()).on_step(algo=None, step=5, reward=0.0)
    assert seen == [("a", 3), 5]
