"""`plates health`: what it asks, and what it answers."""

import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from plates.cli.main import main


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.strip("/"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"not ready: no photo is read" if status != 200 else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(f"{command} {names}".split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(params=["http", "https"])
def url(request: pytest.FixtureRequest, certificate: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if request.param == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_name("key.pem"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"{request.param}://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("trust", ["--ca-file", "--insecure"])
def test_a_service_is_well_if_it_answers_200(
    url: str, trust: str, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [trust, str(certificate)] if trust == "--ca-file" else [trust]
    assert main(["health", f"{url}/200", *options]) == 0
    assert main(["health", f"{url}/503", *options]) == 1
    assert "503 not ready: no photo is read" in capsys.readouterr().err
    assert main(["health", f"{url}/429", *options]) == 1
    assert main(["health", f"{url}/429", "--or-busy", *options]) == 0


@pytest.mark.parametrize("url", ["https"], indirect=True)
def test_a_certificate_that_is_not_trusted_is_refused(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", f"{url}/200"]) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["http://127.0.0.1:1/readyz"], "127.0.0.1:1/readyz: "),
        (["ftp://127.0.0.1/"], "ftp://127.0.0.1/: Request URL has an unsupported protocol"),
        (["http://127.0.0.1:abc/"], "Invalid port"),
        (["http://127.0.0.1:1/", "--ca-file", "/no/such/file"], "--ca-file /no/such/file"),
        (["http://127.0.0.1:1/", "--status", "/no/such/file"], "there is no status"),
    ],
)
def test_what_can_not_be_asked_is_named(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["health", *words]) == 1
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http"], indirect=True)
@pytest.mark.parametrize(("state", "status"), [("ready", 0), ("healing", 1), ("failed", 1)])
def test_the_supervisor_must_be_well_too(url: str, state: str, status: int, tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    file.write_text(json.dumps({"state": state, "restarts": {}}))
    assert main(["health", f"{url}/200", "--status", str(file)]) == status
