"""Exceptions of this library beyond the built-in ones."""


class SharpwaveIOError(OSError):
    """A folder or file cannot be read or written: missing, foreign, incomplete or corrupt."""


class FolderLockedError(SharpwaveIOError):
    """Another writer holds the folder.

    Attributes:
        owner: Its process, or None where the system does not tell.
    """

    owner: int | None = None


class EnvironmentFailed(RuntimeError):  # noqa: N818 - says what happened
    """An environment raised. All environments of its vector environment have been closed.

    Its `__cause__` is the environment's own exception.

    Args:
        env_index: Which one.
        doing: What it was doing, such as "step(1)".
        trace: The traceback of its exception.
    """

    def __init__(self, env_index: int, doing: str, trace: str) -> None:
        super().__init__(env_index, doing, trace)
        self.env_index = env_index
        self.doing = doing
        self.trace = trace

    def __str__(self) -> str:
        return f"environment {self.env_index} failed in {self.doing}:\n{self.trace.rstrip()}"
