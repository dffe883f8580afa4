"""HTTPS without a proxy before the gateway, and TLS to a Triton elsewhere."""

import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_support import HANG_S, HOST, assert_refused, connect, everything
from pydantic import ValidationError
from support import PHOTO, assert_problem, post_raw, running_gateway, settings_for

from api.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")


def make_certificate(folder: Path, name: str, *options: str) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    options = options or ("-nodes",)
    subprocess.run([*command, *names, *files, *options], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    make_certificate(folder, "other")
    make_certificate(folder, "locked", "-passout", "pass:x")
    return make_certificate(folder, "gateway")


@pytest.mark.usefixtures("no_tracebacks")
def test_photos_come_over_tls(
    fake: FakeTriton, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.edge.protocol._LINGER_S", 0.2)
    file, key = certificate
    trusting = ssl.create_default_context(cafile=file)
    settings = settings_for(fake, tls_certificate=file, tls_key=key, max_connections=2)
    with running_gateway(settings) as plain:
        options = {"base_url": f"https://127.0.0.1:{plain.base_url.port}", "timeout": HANG_S}
        with httpx.Client(**options, verify=trusting) as client:
            assert post_raw(client, PHOTO).status_code == 200
            assert_problem(post_raw(client, bytes(30_000_000)), 413, "too-many-bytes")
            with (
                httpx.Client(**options, verify=trusting) as second,
                httpx.Client(**options, verify=trusting) as third,
            ):
                assert second.get("/healthz").status_code == 200
                assert_problem(third.get("/healthz"), 429, "overloaded")
        with connect(plain) as raw, trusting.wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n")
            assert_refused(everything(tls), 400)
        with pytest.raises(httpx.TransportError):
            plain.get("/healthz")
        with httpx.Client(**options) as wary, pytest.raises(httpx.ConnectError):
            wary.get("/healthz")


@pytest.mark.parametrize(
    ("certificate_file", "key_file", "setting", "reason"),
    [
        ("gateway.pem", "", "tls_key", "set both PLATES_TLS_CERTIFICATE and PLATES_TLS_KEY, or"),
        ("", "gateway.key", "tls_key", "or neither"),
        ("gateway.pem", "other.key", "tls_key", "are not an unencrypted private key and its"),
        ("locked.pem", "locked.key", "tls_key", "unencrypted"),
        ("gateway.key", "gateway.key", "tls_key", "its certificate in PEM"),
        ("gateway.pem", "missing", "tls_key", "No such file"),
        ("missing", "gateway.key", "tls_certificate", "No such file"),
        ("binary", "gateway.key", "tls_certificate", "not text"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(
    certificate: tuple[Path, Path],
    certificate_file: str,
    key_file: str,
    setting: str,
    reason: str,
) -> None:
    folder = certificate[0].parent
    given = {"tls_certificate": certificate_file, "tls_key": key_file}
    given = {name: str(folder / file) for name, file in given.items() if file}
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    errors = caught.value.errors()
    (error,) = [error for error in errors if error["type"] != "default_factory_not_called"]
    assert error["loc"] == (setting,)
    assert reason in error["msg"]


def test_triton_over_tls(certificate: tuple[Path, Path]) -> None:
    trusted, key = certificate
    fake = FakeTriton((key.read_bytes(), trusted.read_bytes()))
    url = f"grpcs://127.0.0.1:{fake.port}"
    try:
        settings = Settings(triton_url=url, triton_ca_file=trusted, triton_token="t")  # noqa: S106
        with running_gateway(settings) as client:
            assert post_raw(client, PHOTO).status_code == 200
        assert fake.metadata["authorization"] == "Bearer t"
        with running_gateway(Settings(triton_url=url)) as client:  # not a certificate it trusts
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")
    finally:
        fake.stop()
