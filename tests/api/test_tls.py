"""The gateway without a proxy before it: HTTPS with a certificate of the operator's."""

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton
from pydantic import ValidationError
from raw_connections import HANG_S, HOST, address_of, assert_refused, everything
from support import PHOTO, assert_problem, running_gateway, settings_for

from api.settings import Settings
from plates.cli import main

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")


def make_certificate(folder: Path, name: str, *options: str) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    options = options or ("-nodes",)
    subprocess.run(
        [*command, "-days", "2", *names, *files, *options], check=True, capture_output=True
    )
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "gateway")


def test_photos_come_over_tls(fake: FakeTriton, certificate: tuple[Path, Path]) -> None:
    file, key = certificate
    trusting = ssl.create_default_context(cafile=file)
    settings = settings_for(fake, tls_certificate=file, tls_key=key, max_connections=2)
    headers = {"content-type": "image/jpeg"}
    with running_gateway(settings) as plain:
        url = f"https://127.0.0.1:{plain.base_url.port}"
        with httpx.Client(base_url=url, verify=trusting, timeout=HANG_S) as client:
            answer = client.post("/v1/plates", content=PHOTO, headers=headers)
            assert answer.status_code == 200
            large = client.post("/v1/plates", content=bytes(30_000_000), headers=headers)
            assert_problem(large, 413, "too-many-bytes")
            with (
                httpx.Client(base_url=url, verify=trusting, timeout=HANG_S) as second,
                httpx.Client(base_url=url, verify=trusting, timeout=HANG_S) as third,
            ):
                assert second.get("/healthz").status_code == 200
                assert_problem(third.get("/healthz"), 429, "overloaded")
        with pytest.raises(httpx.TransportError):
            plain.get("/healthz")
        with pytest.raises(httpx.ConnectError):  # an unknown certificate
            httpx.get(f"{url}/healthz", timeout=HANG_S)


def test_a_bad_head_is_refused_over_tls(fake: FakeTriton, certificate: tuple[Path, Path]) -> None:
    file, key = certificate
    trusting = ssl.create_default_context(cafile=file)
    with running_gateway(settings_for(fake, tls_certificate=file, tls_key=key)) as client:
        host, port = address_of(client)
        with (
            socket.create_connection((host, port), timeout=HANG_S) as connection,
            trusting.wrap_socket(connection, server_hostname=host) as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n")
            assert_refused(everything(tls), 400)


@pytest.mark.parametrize(
    ("wrong", "setting", "reason"),
    [
        ("no key", "tls_key", "set both PLATES_TLS_CERTIFICATE and PLATES_TLS_KEY, or neither"),
        ("no certificate", "tls_key", "or neither"),
        ("another key", "tls_key", "are not an unencrypted private key and its certificate"),
        ("a passphrase", "tls_key", "unencrypted"),
        ("a key as certificate", "tls_key", "its certificate in PEM"),
        ("a missing key", "tls_key", "No such file"),
        ("a missing certificate", "tls_certificate", "No such file"),
        ("a binary certificate", "tls_certificate", "not text"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(
    tmp_path: Path,
    certificate: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    wrong: str,
    setting: str,
    reason: str,
) -> None:
    good, key = certificate
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    _, locked = make_certificate(tmp_path, "locked", "-passout", "pass:x")
    given: dict[str, Path | None] = {"tls_certificate": good, "tls_key": key}
    given |= {
        "no key": {"tls_key": None},
        "no certificate": {"tls_certificate": None},
        "another key": {"tls_key": make_certificate(tmp_path, "other")[1]},
        "a passphrase": {"tls_key": locked},
        "a key as certificate": {"tls_certificate": key},
        "a missing key": {"tls_key": tmp_path / "none"},
        "a missing certificate": {"tls_certificate": tmp_path / "none"},
        "a binary certificate": {"tls_certificate": tmp_path / "binary"},
    }[wrong]
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    wrongs = caught.value.errors()
    (error,) = [error for error in wrongs if error["type"] != "default_factory_not_called"]
    assert error["loc"] == (setting,)
    assert reason in error["msg"]

    file = tmp_path / "settings.env"
    file.write_text("".join(f"PLATES_{k.upper()}={v}\n" for k, v in given.items() if v))
    status = main.main(["config", "check", str(file)])
    said = capsys.readouterr().err
    if wrong.startswith(("a missing", "a binary")):  # They may be where the service runs.
        assert (status, said) == (0, "")
    else:
        assert status == 1
        assert f"PLATES_{setting.upper()}: " in said and reason in said
