"""Authentication of connections: a shared token, mutual TLS with certificates, or both."""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["TLS", "TOKEN_VARIABLE", "Access", "check_listening", "is_loopback", "read_token"]

TOKEN_VARIABLE = "SHARPWAVE_TOKEN"
"""The variable of the environment that a token is taken from where no file has it."""
_LEAST_TOKEN = 16


class TLS(NamedTuple):
    """Mutual TLS: each side shows a certificate, and asks for one of the same authority."""

    certificate: str | Path
    """PEM file of the own certificate."""
    key: str | Path
    """PEM file of its private key."""
    authority: str | Path
    """PEM file of the certificates that the other side's must be signed by."""

    def read(self, *, server: bool) -> tuple[bytes, bytes, bytes]:
        """Certificate, key and authority, once the other side would accept them.

        Args:
            server: True if the own side is the server.

        Raises:
            OSError: A file cannot be read.
            ValueError: They do not belong together, or the certificate has expired.
        """
        import ssl

        for path in self:
            Path(path).read_bytes()
        try:
            self._shake_hands(server)
        except ssl.SSLCertVerificationError as error:
            raise ValueError(
                f"tls.certificate must be valid today and signed by {self.authority}, got "
                f"{self.certificate}: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            raise ValueError(
                f"tls must be a certificate, its key and an authority, got {self.certificate}, "
                f"{self.key} and {self.authority}: {error.reason or error}"
            ) from None
        certificate, key, authority = (Path(path).read_bytes() for path in self)
        return certificate, key, authority

    def _shake_hands(self, server: bool) -> None:
        """A handshake with oneself, in which the other side judges the certificate.

        A rejected certificate looks like a lost connection from far away.
        """
        import ssl

        sides = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]
        for side in sides:
            side.check_hostname = False
            side.verify_mode = ssl.CERT_NONE
            side.load_cert_chain(self.certificate, self.key)
        judge = sides[server]
        judge.load_verify_locations(self.authority)
        judge.verify_mode = ssl.CERT_REQUIRED
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            sides[0].wrap_bio(up, down, server_side=True),
            sides[1].wrap_bio(down, up, server_side=False),
        ]
        while ends:
            for end in list(reversed(ends)):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                ends.remove(end)


@dataclass(frozen=True)
class Access:
    """Credentials that admit a connection, the same on both sides.

    Args:
        token: At least 16 letters, digits and signs that both sides know. Whoever reads the
            traffic learns it, unless there is TLS too.
        tls: Mutual TLS.

    Raises:
        ValueError: The token is too short, or cannot be part of a header.

    Example:
        >>> access = Access("correct-horse-battery")
        >>> access.admits("correct-horse-battery"), access.admits("another"), access.admits(None)
        (True, False, False)
    """

    token: str | None = field(default=None, repr=False)
    tls: TLS | None = None

    def __post_init__(self) -> None:
        token = self.token
        if token is None:
            return
        if len(token) < _LEAST_TOKEN or not (token.isascii() and token.isprintable()):
            # What came is a secret, or half of one.
            raise ValueError(
                f"token must be at least {_LEAST_TOKEN} printable ASCII characters, got "
                f"{len(token)} characters"
            )
        if token != token.strip():
            raise ValueError("token must not begin or end with a space")

    @property
    def is_open(self) -> bool:
        """True if anybody may connect."""
        return self.token is None and self.tls is None

    def admits(self, token: str | bytes | None) -> bool:
        """True if this is the token; the comparison takes constant time."""
        if self.token is None:
            return True
        given = token.encode() if isinstance(token, str) else token or b""
        return hmac.compare_digest(given, self.token.encode())

    @classmethod
    def of(
        cls,
        token: str | None = None,
        tls: TLS | None = None,
        *,
        token_file: str | Path | None = None,
    ) -> Access:
        """Access by a given token, or by the one that `read_token` finds."""
        return cls(read_token(token_file) if token is None else token, tls)


def read_token(file: str | Path | None = None) -> str | None:
    """The token of a file, or of the variable `SHARPWAVE_TOKEN`; None where there is neither.

    No command takes a token as an argument, which every user of the machine could see.

    Args:
        file: A file that holds the token and nothing else.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is empty.
    """
    if file is not None:
        token = Path(file).read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"the token file must hold a token, got an empty {file}")
        return token
    return os.environ.get(TOKEN_VARIABLE) or None


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a host.

    Example:
        >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "")]
        [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_listening(host: str, access: Access) -> None:
    """Refuse to listen to other machines without a token or mutual TLS.

    Raises:
        PermissionError: Anybody could connect.
    """
    if access.is_open and not is_loopback(host):
        raise PermissionError(
            f"host {host!r} is not a loopback address, so a token or mutual TLS is needed: put a "
            f"token into a file or into {TOKEN_VARIABLE}, or pass certificates"
        )
