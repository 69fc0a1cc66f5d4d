"""Copies of agents, pickled or deep, by what their checkpoints hold.

A copy is built anew, as the original was, and takes over its state: networks, optimizers,
generators, counters, the buffer, and where the environments offer it the episodes in flight.
"""

from __future__ import annotations

import copy
import dis
import io
import pickle
from functools import cached_property
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from sharpwave.runs.loggers import LoggerList
from sharpwave.storage.checkpoints import as_arrays

if TYPE_CHECKING:
    from sharpwave.agents.agent import Agent

__all__ = ["deep_copy", "pickled"]

LIBRARY = __name__.partition(".")[0]


def pickled(agent: Agent) -> tuple[Any, ...]:
    """Result of `__reduce__`, by which an agent is pickled.

    Raises:
        TypeError: A part of the agent cannot be pickled; it is named.
    """
    arguments, company = agent._arguments(), _company(agent)
    for name, part in {**arguments, "config": agent.config, **company}.items():
        _check_picklable(agent, name, part)
    company["state"] = _state(agent)
    return _made, (type(agent), agent.config, arguments), company


def deep_copy(agent: Agent, memo: dict[int, Any]) -> Any:
    """Result of `__deepcopy__`: an independent copy of the agent.

    Raises:
        TypeError: A part of the agent cannot be copied; it is named.
    """
    arguments = {k: _copied(k, part, memo) for k, part in agent._arguments().items()}
    made = _made(type(agent), agent.config, arguments)
    memo[id(agent)] = made
    made.__setstate__({**copy.deepcopy(_company(agent), memo), "state": _state(agent)})
    return made


def _copied(name: str, part: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(part, memo)
    except Exception as error:
        raise _cannot(name, "copied", error) from error


def restore_company(agent: Agent, company: dict[str, Any]) -> None:
    """Take over callbacks, loggers and attributes, as `__setstate__` does."""
    agent.run.callbacks = company["callbacks"]
    agent.run.loggers = LoggerList(company["logger"])
    vars(agent).update(company["attributes"])
    for name, (method, is_bound) in company["methods"].items():
        setattr(agent.learner, name, MethodType(method, agent.learner) if is_bound else method)
    agent._loaded_from = "the copied agent"
    agent._load_state(company["state"])


def _made(cls: Any, config: Any, arguments: dict[str, Any]) -> Any:
    return cls._remade(config, arguments)


def _state(agent: Agent) -> dict[str, Any]:
    with agent.loop.keeping_all():
        found: dict[str, Any] = as_arrays(agent._state())
    return found


def _company(agent: Agent) -> dict[str, Any]:
    """Callbacks, loggers, attributes and methods set by the user, which may refer to the agent."""
    ours = _assigned_names(type(agent))
    methods = {
        name: _unbound(agent.learner, value)
        for name, value in vars(agent.learner).items()
        if callable(getattr(type(agent.learner), name, None)) and not _is_wrapper(value)
    }
    return {
        "callbacks": agent.run.callbacks,
        "logger": list(agent.run.loggers),
        "methods": methods,
        "attributes": {name: x for name, x in vars(agent).items() if name not in ours},
    }


def _is_wrapper(value: Any) -> bool:
    """Return whether a method was put there by this library, or by torch.compile."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] in (LIBRARY, "torch")


def _unbound(learner: Any, method: Any) -> tuple[Any, bool]:
    """A function without the learner that it is bound to, and whether it was."""
    is_bound = isinstance(method, MethodType) and method.__self__ is learner
    return (method.__func__ if is_bound else method), is_bound


def _assigned_names(cls: type) -> set[str]:
    """Attributes that code of this library gives to objects of a class."""
    names: set[str] = set()
    for kind in cls.__mro__:
        if kind.__module__.partition(".")[0] != LIBRARY:
            continue
        for name, value in vars(kind).items():
            if isinstance(value, cached_property):
                names.add(name)
            code = getattr(value, "__func__", getattr(value, "fset", value))
            if isinstance(code, FunctionType):
                found = dis.get_instructions(code)
                names.update(x.argval for x in found if x.opname == "STORE_ATTR")
    return names


def _check_picklable(agent: Agent, name: str, part: Any) -> None:
    class Check(pickle.Pickler):
        def persistent_id(self, thing: Any) -> str | None:
            return "agent" if thing is agent else None

    try:
        Check(io.BytesIO()).dump(part)
    except Exception as error:
        raise _cannot(name, "pickled", error) from error


def _cannot(name: str, done: str, error: Exception) -> TypeError:
    hints = {
        "env_id": ": give it as an id, or as a function or class of a module",
        "env": ": give it as an id, or as a function or class of a module",
        "buffer": ": give the copy a buffer of its own by save and from_checkpoint(buffer=...)",
    }
    return TypeError(f"{name} of the agent cannot be {done}{hints.get(name, '')} ({error})")
