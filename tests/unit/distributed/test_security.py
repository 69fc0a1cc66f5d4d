"""Access control of connections, and refusals before anybody listens."""

from pathlib import Path

import pytest

from sharpwave.distributed.security import (
    TLS,
    TOKEN_VARIABLE,
    Access,
    check_listening,
    is_loopback,
    read_token,
)
from tests.unit.distributed.certificates import make_authority, make_tls

TOKEN = "a-token-of-the-tests"


def test_a_token_is_admitted_and_nothing_else() -> None:
    access = Access(TOKEN)
    assert access.admits(TOKEN)
    assert access.admits(TOKEN.encode())
    for other in (None, "", b"", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü" * 20):
        assert not access.admits(other)
    assert Access().admits(None)


def test_a_token_is_not_shown() -> None:
    assert TOKEN not in repr(Access(TOKEN))
    assert TOKEN not in str(Access(TOKEN))


@pytest.mark.parametrize("token", ["", "short", "ü" * 20, "x" * 20 + "\n", " " + "x" * 20])
def test_a_token_that_no_header_can_hold_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ValueError, match="token must") as caught:
        Access(token)
    assert not token or token not in str(caught.value)


def test_a_token_comes_from_a_file_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token() is None
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert read_token() == TOKEN
    assert Access.of().admits(TOKEN)
    file = tmp_path / "token"
    file.write_text("another-token-of-tests\n")
    assert read_token(file) == "another-token-of-tests"
    assert Access.of(token_file=file).admits("another-token-of-tests")
    assert Access.of("a-third-token-of-tests", token_file=file).admits("a-third-token-of-tests")
    file.write_text("\n")
    with pytest.raises(ValueError, match=r"must hold a token, got an empty .*token"):
        read_token(file)
    with pytest.raises(FileNotFoundError):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"])
def test_this_machine_may_listen_to_itself(host: str) -> None:
    assert is_loopback(host)
    check_listening(host, Access())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "learner", "127.0.0.1.nip.io"])
def test_other_machines_need_a_token_or_certificates(host: str, tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=r"so a token or mutual TLS is needed.*SHARPWAVE_TOK"):
        check_listening(host, Access())
    check_listening(host, Access(TOKEN))
    check_listening(host, Access(tls=TLS(tmp_path, tmp_path, tmp_path)))


@pytest.mark.parametrize("server", [True, False])
def test_certificates_are_judged_as_the_other_side_would(tmp_path: Path, server: bool) -> None:
    authority = make_authority(tmp_path)
    good = make_tls(authority)
    certificate, key, root = good.read(server=server)
    assert certificate == Path(good.certificate).read_bytes()
    assert key == Path(good.key).read_bytes()
    assert root == Path(good.authority).read_bytes()
    expired = make_tls(authority, "old", expired=True)
    with pytest.raises(ValueError, match=r"valid today and signed by .* got .*old.crt: .*expired"):
        expired.read(server=server)
    stranger = make_authority(tmp_path, "stranger") / "certificate.pem"
    with pytest.raises(ValueError, match=r"signed by .*stranger"):
        TLS(good.certificate, good.key, stranger).read(server=server)
    with pytest.raises(ValueError, match="tls must be a certificate, its key and an authority"):
        TLS(good.certificate, expired.key, good.authority).read(server=server)
    with pytest.raises(FileNotFoundError, match="none"):
        TLS(good.certificate, tmp_path / "none", good.authority).read(server=server)
    noise = tmp_path / "noise"
    noise.write_text("no certificate")
    with pytest.raises(ValueError, match="tls must be a certificate"):
        TLS(noise, good.key, good.authority).read(server=server)
