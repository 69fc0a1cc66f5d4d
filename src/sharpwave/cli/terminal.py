"""Output of the command: results on standard output, warnings and errors on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from sharpwave.errors import EnvironmentFailed
from sharpwave.printable import printable


class UserError(Exception):
    """Something that the person at the command line can put right."""


def say(line: str = "") -> None:
    """Write a line of the answer."""
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def complain(reason: object) -> None:
    """Write why there is no answer."""
    sys.stderr.write(f"sharpwave: {printable(reason)}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def input_errors() -> Iterator[None]:
    """Errors of what the person gave, inside this block, become `UserError`."""
    try:
        yield
    except (TypeError, ValueError, OSError, ImportError) as error:
        raise UserError(" ".join(str(error).split())) from error
    except EnvironmentFailed as error:
        said = str(error)
        if isinstance(error.__cause__, TypeError | ValueError | ImportError):
            said = f"the environment cannot be made: {error.__cause__}"
        raise UserError(said) from error
    except Exception as error:
        # Looked up by name, so that a command that needs no environment imports no Gymnasium.
        if type(error).__module__ != "gymnasium.error":
            raise
        raise UserError(str(error)) from error
