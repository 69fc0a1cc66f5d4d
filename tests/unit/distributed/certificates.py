"""Certificates of an authority that tests make with the openssl program."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sharpwave.distributed.security import TLS

OPENSSL = shutil.which("openssl")
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(folder: Path, name: str = "authority") -> Path:
    """An authority in a folder of its own; the folder."""
    home = folder / name
    home.mkdir()
    _openssl(
        *("req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", home / "key.pem", "-out", home / "certificate.pem"),
    )
    return home


def make_tls(authority: Path, name: str = "one", *, expired: bool = False) -> TLS:
    """A certificate for this machine that the authority has signed, and the authority."""
    key, request, certificate = (authority / f"{name}.{end}" for end in ("key", "csr", "crt"))
    _openssl(
        *("req", *NEW_KEY, "-subj", f"/CN={name}"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", key, "-out", request),
    )
    # An authority signs for any time only through its database.
    (authority / "index.txt").write_text("")
    (authority / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={authority}/index.txt\nnew_certs_dir={authority}\n"
        "rand_serial=yes\ndefault_md=sha256\npolicy=any\ncopy_extensions=copy\n"
        "[any]\ncommonName=supplied\n"
    )
    times = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"] if expired else []
    _openssl(
        *("ca", "-batch", "-notext", "-config", authority / "ca.cnf", "-days", "2", *times),
        *("-cert", authority / "certificate.pem", "-keyfile", authority / "key.pem"),
        *("-in", request, "-out", certificate),
    )
    return TLS(certificate, key, authority / "certificate.pem")


def _openssl(*arguments: object) -> None:
    if OPENSSL is None:
        pytest.skip("there is no openssl program")
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True)
