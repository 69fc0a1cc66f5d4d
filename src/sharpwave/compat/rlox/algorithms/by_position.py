"""Constructors that take their options by position, as rlox's do."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from sharpwave.agents import Agent

__all__ = ["ByPosition"]

REQUIRED = {"env_id", "dataset", "obs_dim", "act_dim"}


class ByPosition(Agent):
    """Takes its options by position too. None stands for what is not given."""

    order: ClassVar[str] = ""
    """Names of the arguments in their order, with spaces between."""
    defaults: ClassVar[dict[str, Any]] = {}
    """Of arguments that are no options of the configuration."""
    shown: ClassVar[dict[str, Any]] = {}
    """Of arguments that stand for options of other names, whose defaults are the same."""

    def __init_subclass__(cls) -> None:
        required = dict.fromkeys(REQUIRED, inspect.Parameter.empty)
        known = {**required, **cls.shown, **cls.defaults}
        cls.leading_arguments = {name: known.get(name) for name in cls.order.split()}
        super().__init_subclass__()
        parameters = dict(cls.__signature__.parameters)
        if "buffer" in parameters:
            parameters["buffer"] = parameters["buffer"].replace(default=None)
        cls.__signature__ = cls.__signature__.replace(parameters=list(parameters.values()))

    def __init__(self, *args: Any, **options: Any) -> None:
        names = list(self.leading_arguments)
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__} takes {len(names)} arguments by position, got {len(args)}"
            )
        by_position = dict(zip(names, args, strict=False))
        twice = sorted(by_position.keys() & options.keys())
        if twice:
            raise TypeError(f"{type(self).__name__} got {twice[0]!r} twice")
        given = {**by_position, **options}
        if given.get("collector") is not None:
            raise TypeError(
                "collector must be None: give the environments themselves as env_id, "
                "a vector environment or a maker with n_envs"
            )
        for name in names:
            if given.get(name, 0) is None:
                del given[name]
        super().__init__(**{**self.defaults, **given})
