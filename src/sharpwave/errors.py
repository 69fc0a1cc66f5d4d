"""Exceptions of this library beyond the built-in ones."""

from __future__ import annotations

from functools import cache
from typing import Any

from sharpwave.printable import printable


class SharpwaveIOError(OSError):
    """A folder or file cannot be read or written: missing, foreign, incomplete or corrupt.

    With an `errno` it is also what Python calls that error, as `OSError` is.

    Example:
        >>> import errno
        >>> isinstance(SharpwaveIOError(errno.ENOENT, "there is no store"), FileNotFoundError)
        True
    """

    def __new__(cls, *args: Any) -> SharpwaveIOError:
        """The error, of the class that is also Python's for its number."""
        kinds: Any = (cls, type(OSError(*args[:2])) if len(args) > 1 else OSError)
        made: SharpwaveIOError = super().__new__(_also(*kinds), *args)
        return made

    def __str__(self) -> str:
        return printable(super().__str__())  # names in the file may be part of it

    def __reduce__(self) -> Any:
        reduced: tuple[Any, ...] = super().__reduce__()  # type: ignore[assignment]
        return (vars(type(self)).get("_plain", type(self)), *reduced[1:])


@cache
def _also(cls: Any, builtin: Any) -> Any:
    """The class, and Python's for the same error."""
    if issubclass(cls, builtin):
        return cls
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_plain": cls}
    return type(cls.__name__, (cls, builtin), {**names, "__doc__": cls.__doc__})


class FolderLockedError(SharpwaveIOError):
    """Another writer holds the folder.

    Attributes:
        owner: Its process, or None where the system does not tell.
    """

    owner: int | None = None


class NonFiniteError(ValueError):
    """An environment returned NaN or inf, or learning made such numbers."""


class WireError(ValueError):
    """A message of another process is none, is damaged or too large, or says what it may not."""

    def __str__(self) -> str:
        return printable(super().__str__())  # the other side may have written part of it


class RewardFailed(RuntimeError):  # noqa: N818 - says what happened
    """A reward function raised, or gave what is no reward.

    Attributes:
        completions: Completions that could not be scored; None where that is not known.
    """

    completions: Any = None


class RankLost(RuntimeError):  # noqa: N818 - says what happened
    """A process that learned together with this one has ended, or does not answer."""


class EnvironmentFailed(RuntimeError):  # noqa: N818 - says what happened
    """An environment raised. All environments of its vector environment have been closed.

    Its `__cause__` is the environment's own exception.

    Args:
        env_index: Index of the environment.
        doing: The call that failed, such as "step(1)".
        trace: The traceback of its exception.
    """

    def __init__(self, env_index: int, doing: str, trace: str) -> None:
        super().__init__(env_index, doing, trace)
        self.env_index = env_index
        self.doing = doing
        self.trace = trace

    def __str__(self) -> str:
        return f"environment {self.env_index} failed in {self.doing}:\n{self.trace.rstrip()}"


class ServerBusy(ConnectionError):  # noqa: N818 - says what happened
    """A server has as many connections as it takes."""


class ShardGone(ConnectionError):  # noqa: N818 - says what happened
    """A shard of a replay does not answer, or none of them does."""


class ActorFailed(RuntimeError):  # noqa: N818 - says what happened
    """An actor of a fleet ended, in a process of its own.

    Args:
        actor: Number of the actor.
        trace: The traceback of its exception, or how it ended.
    """

    def __init__(self, actor: int, trace: str) -> None:
        super().__init__(actor, trace)
        self.actor = actor
        self.trace = trace

    def __str__(self) -> str:
        return f"actor {self.actor} failed: {self.trace.rstrip()}"
