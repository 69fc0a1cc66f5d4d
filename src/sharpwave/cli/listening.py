"""Options and the end of commands that other processes connect to."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

from sharpwave.cli.terminal import UserError
from sharpwave.distributed.security import TLS, TOKEN_VARIABLE, Access, read_token

__all__ = ["access_of", "add_access_options", "add_token_option", "ending", "use_token"]


def add_access_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of who may connect."""
    group = parser.add_argument_group("who may connect")
    add_token_option(group)
    group.add_argument(
        "--tls-certificate", metavar="PEM", help="certificate of this process (mutual TLS)"
    )
    group.add_argument("--tls-key", metavar="PEM", help="private key of the certificate")
    group.add_argument(
        "--tls-authority", metavar="PEM", help="CA certificate that verifies the peer"
    )


def add_token_option(parser: Any) -> None:
    """Add the option of the file of a token, to a parser or a group of one."""
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file of the shared token; otherwise {TOKEN_VARIABLE} in the environment",
    )


def use_token(parsed: argparse.Namespace) -> None:
    """Take the token of `--token-file`, where one is given, for this process and what it starts.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is empty.
    """
    file = getattr(parsed, "token_file", None)
    if file is not None:
        os.environ[TOKEN_VARIABLE] = read_token(file) or ""


def access_of(parsed: argparse.Namespace) -> Access:
    """The token and TLS files of connections, from the options.

    Raises:
        OSError: The token file cannot be read.
        UserError: One of the files of TLS is missing.
        ValueError: The token is no good.
    """
    files = (parsed.tls_certificate, parsed.tls_key, parsed.tls_authority)
    if any(files) and not all(files):
        raise UserError("--tls-certificate, --tls-key and --tls-authority must be given together")
    return Access.of(tls=TLS(*files) if all(files) else None, token_file=parsed.token_file)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Inside, SIGTERM ends the command as Ctrl-C does."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
